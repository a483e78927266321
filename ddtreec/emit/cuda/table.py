"""The kernels of an engine: from the plan and the limits of the device to the kernel table and its sources.

Which calls there are and in which order was decided by the passes; how each is run, by the emitter of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from ddtreec.artifacts.kernels import (
    HEADER_FOLDER,
    KERNELS_FORMAT,
    SYMBOLS,
    Kernel,
    KernelTable,
    Reference,
    source_path,
)
from ddtreec.artifacts.plan import Call, Plan, Program, Value
from ddtreec.core.errors import FitError, VerifyError
from ddtreec.core.units import parse_bytes
from ddtreec.emit.cuda.base import Device, KernelDraft, Site, Tensor, stride
from ddtreec.emit.cuda.registry import LAUNCHES, ROUND
from ddtreec.emit.cuda.source import header_sources, kernel_source
from ddtreec.emit.cuda.state import state_arrays
from ddtreec.passes.lower import lower
from ddtreec.passes.state import State
from ddtreec.plan.assemble import assemble
from ddtreec.spec.load import LoadedEngine
from ddtreec.spec.schema import MOST_ROWS


def kernel_table(state: State, kinds: Container[str] | None = None) -> tuple[KernelTable, dict[str, str]]:
    """The kernel table of a state that went through all passes, and the sources by path in the bundle.

    `kinds`: the launch kinds to emit, every one without it; calls of another kind get '' as collectives do. Raises
    FitError where a block needs more shared memory than the device has, VerifyError for a kind without emitter and for
    two texts under one name.
    """
    plan, device = assemble(state), device_of(state.loaded)
    work, most = _Kernels(device), largest(plan)
    programs = {program.name: _program(work, state, plan, program, kinds) for program in plan.programs}
    rounds = [emitter(plan, device, most) for emitter in ROUND] if kinds is None else []
    between = [work.add("round", draft, Reference) for each in rounds for draft in each.kernels]
    short = short_names(work.drafts)
    drafts = {short[name]: replace(draft, name=short[name]) for name, draft in work.drafts.items()}
    check_shared(drafts.values(), state.loaded, device)
    made = {short[name]: msgspec.structs.replace(kernel, name=short[name]) for name, kernel in work.kernels.items()}
    kernels = tuple(made[name] for name in sorted(made))
    table = KernelTable(
        format=KERNELS_FORMAT,
        arch=device.arch,
        kernels=kernels,
        programs={program: tuple(name and short[name] for name in names) for program, names in programs.items()},
        round=tuple(short[name] for name in between),
        state=state_arrays(plan, kernels, most, (array for each in rounds for array in each.arrays)),
        largest=most,
    )
    sources = {source_path(name): kernel_source(drafts[name]) for name in sorted(drafts)}
    headers = header_sources(sources.values())
    return table, sources | {f"{HEADER_FOLDER}/{name}": text for name, text in headers.items()}


def _program(
    work: _Kernels, state: State, plan: Plan, program: Program, kinds: Container[str] | None
) -> tuple[str, ...]:
    """The whole name of the kernel of every call, '' for a collective and for a kind that is not asked for."""
    sites, reference = site_maker(plan, program, work.device), _References(state, program)
    names: list[str] = []
    for call in program.calls:
        if call.collective or (kinds is not None and call.kernel not in kinds):
            names.append("")
        else:
            names.append(work.add(call.node, emit(sites(call)), lambda call=call: reference(call)))
    return tuple(names)


def device_of(loaded: LoadedEngine) -> Device:
    """The limits that tiles must respect."""
    device = loaded.topology.device
    assert device.arch and device.sms and device.shared_memory, "checked when the spec was loaded"
    return Device(device.arch, device.sms, parse_bytes(device.shared_memory))


def most_of(plan: Plan, program: Program) -> dict[str, int]:
    """The largest value of each symbol in any step of this program."""
    group = plan.drafter.block if plan.drafter and program.name == "draft_block" else program.max_rows
    slots = min(plan.limits.sequences, program.max_rows)
    return dict(zip(SYMBOLS, (program.max_rows, program.max_out_rows, slots, group), strict=True))


def largest(plan: Plan) -> dict[str, int]:
    """The largest value of each symbol in any step."""
    each = [most_of(plan, program) for program in plan.programs]
    return {symbol: max(most[symbol] for most in each) for symbol in SYMBOLS}


def site_maker(plan: Plan, program: Program, device: Device) -> Callable[[Call], Site]:
    """A function from a call of `program` to its site."""
    values = {value.id: value for value in program.values}
    weights = {weight.id: weight for weight in plan.weights}
    most = most_of(plan, program)
    if most["rows"] > MOST_ROWS or most["out_rows"] > MOST_ROWS:
        raise VerifyError("emit", program.name, f"steps of up to {most['rows']} rows, at most {MOST_ROWS} have kernels")

    def value(index: int, name: str) -> Tensor:
        found = values[name]
        tail = tuple(int(n) for n in found.shape[1:])
        # Heads of a part of the last axis lie as far from each other as those of the whole.
        parent = values[found.parent] if found.home == "alias" else found
        pitch = int(parent.shape[-1]) if len(tail) > 1 and len(parent.shape) == len(found.shape) else 0
        return Tensor(f"t:{index}", tail, stride(found, values), found.dtype, pitch, found.start)

    def site(call: Call) -> Site:
        border = [value(index, name) for index, name in enumerate((*call.outs, *call.ins))]
        records = tuple(weights[name] for name in call.weights)
        held = tuple(
            Tensor(f"t:{len(border) + index}", record.shape, record.shape[-1], record.precision)
            for index, record in enumerate(records)
        )
        count = len(call.outs)
        return Site(plan, device, call, tuple(border[:count]), tuple(border[count:]), held, records, most)

    return site


def emit(site: Site) -> KernelDraft:
    """The kernel of a call. Raises VerifyError for a kind without emitter."""
    emitter = LAUNCHES.get(site.call.kernel)
    if emitter is None:
        raise VerifyError("emit", site.call.node, f"no CUDA kernel for the launch '{site.call.kernel}'")
    return emitter(site)


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Of each kernel's whole name ('linear__n256_k768_x768_y256') the first parameter and those that tell it from the
    others of its kind in this engine ('linear__n256_y256')."""
    members: dict[str, dict[str, list[str]]] = {}
    for name in names:
        kind, _, params = name.partition("__")
        members.setdefault(kind, {})[name] = params.split("_")
    short: dict[str, str] = {}
    for kind, family in members.items():
        for name, params in family.items():
            telling = [
                param
                for i, param in enumerate(params)
                if i == 0 or any(o[:i] == params[:i] and o[i : i + 1] != [param] for o in family.values())
            ]
            short[name] = f"{kind}__{'_'.join(telling)}" if any(telling) else kind
    return short


@dataclass
class _Kernels:
    """Kernels by whole name: one for all calls that need the same text."""

    device: Device
    drafts: dict[str, KernelDraft] = field(default_factory=dict[str, KernelDraft])
    kernels: dict[str, Kernel] = field(default_factory=dict[str, Kernel])

    def add(self, node: str, draft: KernelDraft, reference: Callable[[], Reference]) -> str:
        """The name of the kernel."""
        known = self.drafts.setdefault(draft.name, draft)
        if known is draft:
            self._verify(node, draft)
            self.kernels[draft.name] = msgspec.structs.replace(draft.kernel(), reference=reference())
        elif known != draft and (known.kernel(), kernel_source(known)) != (draft.kernel(), kernel_source(draft)):
            raise VerifyError("emit", node, f"two kernels are called '{draft.name}'")
        return draft.name

    def _verify(self, node: str, draft: KernelDraft) -> None:
        functions = [stage.function(entry) for stage in draft.stages for entry in stage.entries]
        if len(set(functions)) < len(functions) or not all(map(str.isidentifier, (draft.name, *functions))):
            raise VerifyError("emit", node, f"entry points of '{draft.name}': {' '.join(functions)}")
        for stage in draft.stages:
            rows = [entry.rows for entry in stage.entries]
            if not rows or rows != sorted(set(rows)):
                raise VerifyError("emit", node, f"variants of stage '{stage.name}' for {rows} rows")


def check_shared(drafts: Iterable[KernelDraft], loaded: LoadedEngine, device: Device) -> None:
    """Raises FitError where blocks need more shared memory than the device gives them, for the one that needs most."""
    needs = ((e.shared, s.function(e), d.name) for d in drafts for s in d.stages for e in s.entries)
    need, function, kernel = max(needs, default=(0, "", ""))
    if need > device.shared:
        known = loaded.topology.device
        message = f"a block of {function} in kernel {kernel} needs {need} bytes of shared memory, "
        message += f"{known.name} gives it {device.shared}"
        help = f"choose a topology with at least {-(-need // 1024)}KiB of shared memory a block"
        raise FitError(loaded.problem("F002", message, "topology", ("device", "shared_memory"), help=help))


class _References:
    """What calls of a program mean: their parts as the CPU backend would run them."""

    def __init__(self, state: State, program: Program):
        assert state.programs is not None
        values, calls = lower(state.programs.graphs[program.name], "cpu")
        self.values: Mapping[str, Value] = {value.id: value for value in values}
        self.calls: dict[str, list[Call]] = {}
        for call in calls:
            self.calls.setdefault(call.node, []).append(call)

    def __call__(self, call: Call) -> Reference:
        parts = tuple(self.calls[call.node])
        tensors = (*call.outs, *call.ins, *call.weights)
        touched = dict.fromkeys(v for part in parts for v in (*part.ins, *part.outs))
        touched |= dict.fromkeys((*call.outs, *call.ins))
        return Reference(tensors, tuple(self._with_parents(touched)), parts)

    def _with_parents(self, names: Mapping[str, None]) -> Iterator[Value]:
        """The values and, before a view, the value it is a view of."""
        seen: set[str] = set()
        for name in names:
            value = self.values[name]
            for found in (self.values[value.parent], value) if value.home == "alias" else (value,):
                if found.id not in seen:
                    seen.add(found.id)
                    yield found
