"""step.py: one straight-line generator function a program, as a person would write it by hand.

Text only: which calls there are and in which order was decided by the passes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from ddtreec.artifacts.kernels import Kernel, KernelTable
from ddtreec.artifacts.plan import Call, Plan, Program
from ddtreec.core.errors import VerifyError
from ddtreec.core.ids import attribute
from ddtreec.emit.environment import render

TEMPLATE = "step/step.py.j2"
WIDTH = 116
"""Columns of a line of the program, the indent of its function not counted."""

FIRST, COORD = "first_per", "coord"
"""Parameters of ops that differ from rank to rank."""

PARAM = "param:"
"""Args of a stage that are parameters of the call."""

WITHOUT_STATE = frozenset(
    {"embedding", "rms_norm", "linear", "q_absorb", "v_up", "add", "swiglu", "router", "experts", "tap"}
)
"""CPU kernels that need nothing but their tensors. All others read or write step state (positions, caches, tree) and
take `state` first, as all CUDA kernels do."""


@dataclass(frozen=True, slots=True)
class ProgramText:
    """What the template needs of one program."""

    name: str
    summary: str
    lines: tuple[str, ...]


def literal(value: object) -> str:
    """A parameter as Python text. Only the types of `Call.params`; floats keep every digit."""
    if isinstance(value, str):
        return json.dumps(value)
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    raise TypeError(f"a parameter cannot be a {type(value).__name__}")


def keywords(call: Call) -> dict[str, str]:
    """The value of each parameter by the name that the kernel takes it by, in order.

    `first_per` with `coord` is what differs between ranks: the first row or expert held is first_per times the rank's
    index along that mesh axis, which only the state knows; 0 where every rank holds all.
    """
    texts: dict[str, str] = {}
    for name, value in call.params.items():
        if name.endswith(FIRST):
            coord = literal(call.params[name.removesuffix(FIRST) + COORD])
            first = f"state.first({coord}, {literal(value)})" if value else "0"
            texts[attribute(name.removesuffix("_per"))] = first
        elif not (name.endswith(COORD) and name.removesuffix(COORD) + FIRST in call.params):
            texts[attribute(name)] = literal(value)
    return texts


def call_line(call: Call, tokens: frozenset[str], kernel: Kernel | None = None) -> str:
    """One call as one line of Python. Values without data (`tokens`) order calls and are not passed.

    `kernel`: the CUDA kernel that serves it; its constants are in its source, so only the parameters that a stage asks
    for are passed. Raises VerifyError where it asks for one that the call does not have.
    """
    outs = [f"b.{attribute(v)}" for v in call.outs if v not in tokens]
    ins = [f"b.{attribute(v)}" for v in call.ins if v not in tokens]
    if call.collective:
        params = ", ".join(f"{literal(name)}: {literal(value)}" for name, value in call.params.items())
        return f'yield ("{call.kernel}", {_tuple(outs)}, {_tuple(ins)}, {{{params}}})'
    weights = [f"w.{attribute(v)}" for v in call.weights]
    known = keywords(call)
    if kernel is None:
        state = [] if call.kernel in WITHOUT_STATE else ["state"]
        name, asked = call.kernel, list(known)
    else:
        state, name, asked = ["state"], kernel.name, parameters(kernel)
        missing = [param for param in asked if param not in known]
        if missing:
            raise VerifyError("emit", call.node, f"'{name}' asks for '{missing[0]}', the call has {list(known)}")
    params = [f"{param}={known[param]}" for param in asked]
    return f"k.{name}({', '.join(state + outs + ins + weights + params)})"


def parameters(kernel: Kernel) -> list[str]:
    """The parameters of the call that stages of a kernel ask for, in order."""
    args = (arg for stage in kernel.stages for arg in stage.args)
    return list(dict.fromkeys(arg.removeprefix(PARAM) for arg in args if arg.startswith(PARAM)))


def wrapped(line: str) -> Iterator[str]:
    """The call, broken behind commas where it is too long; what follows stands four columns further in."""
    indent = ""
    while len(indent) + len(line) > WIDTH:
        at = line.rfind(", ", 0, WIDTH - len(indent)) + 1
        if not at:
            break
        yield indent + line[:at]
        line, indent = line[at + 1 :], "    "
    yield indent + line


def _tuple(items: list[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def program_lines(program: Program, table: KernelTable | None = None) -> Iterator[str]:
    """All lines of a program's body: a comment a node, then its calls; a bare yield where no collective makes one."""
    tokens = frozenset(v.id for v in program.values if v.home == "token")
    kernels = {kernel.name: kernel for kernel in table.kernels} if table else {}
    names = table.programs[program.name] if table else ("",) * len(program.calls)
    served = zip(program.calls, names, strict=True)
    for node, calls in groupby(served, key=lambda item: item[0].node):
        yield f"# {node}"
        for call, name in calls:
            yield from wrapped(call_line(call, tokens, kernels[name] if name else None))
    if not any(call.collective for call in program.calls):
        yield "return"
        yield "yield  # no collectives: still a generator, like the programs of many ranks"


def check_names(plan: Plan) -> None:
    """Two ids of one program must never share a spelling. Raises VerifyError naming both."""
    for what, groups in (
        ("weight", [tuple(w.id for w in plan.weights)]),
        ("value", [tuple(v.id for v in p.values) for p in plan.programs]),
    ):
        for ids in groups:
            seen: dict[str, str] = {}
            for identifier in ids:
                other = seen.setdefault(attribute(identifier), identifier)
                if other != identifier:
                    raise VerifyError("emit", identifier, f"{what} is spelt like '{other}' in Python")


def step_program(plan: Plan, table: KernelTable | None = None) -> str:
    """The text of step.py. With a `table` it calls the CUDA kernels, without one those of the CPU backend. Raises
    VerifyError where two ids share a spelling."""
    check_names(plan)
    mesh = plan.mesh
    ranks = "1 rank" if mesh.ranks == 1 else f"{mesh.ranks} ranks (experts: ep {mesh.ep} x tp {mesh.tp})"
    programs = [
        ProgramText(
            name=program.name,
            summary=f"{len(program.calls)} calls, up to {program.max_rows} rows",
            lines=tuple(program_lines(program, table)),
        )
        for program in plan.programs
    ]
    return render(
        TEMPLATE,
        {
            "header": f"step program: engine {plan.engine}, {plan.dtype}; template {TEMPLATE}",
            "summary": f"{plan.model.name} on {plan.topology}: {ranks}",
            "programs": programs,
        },
    )
