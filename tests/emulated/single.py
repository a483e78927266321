"""Plans of one call, for shapes that no shipped engine has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from ddtreec.artifacts.kernels import KERNELS_FORMAT, KernelTable, Reference
from ddtreec.artifacts.plan import (
    PLAN_FORMAT,
    Cache,
    Call,
    Drafter,
    Limits,
    Mesh,
    Model,
    Plan,
    Program,
    Rope,
    Tree,
    Value,
    Weight,
)
from ddtreec.emit.cuda.base import Device
from ddtreec.emit.cuda.source import kernel_source
from ddtreec.emit.cuda.state import state_arrays
from ddtreec.emit.cuda.table import emit, largest, site_maker

Built = tuple[Plan, KernelTable, dict[str, str]]


@dataclass(frozen=True)
class Setting:
    """What the plan around a call says."""

    ropes: Mapping[str, Rope] = field(default_factory=dict[str, Rope])
    caches: tuple[Cache, ...] = ()
    ranks: int = 1
    sequences: int = 3
    context: int = 96
    chunk: int = 33
    page: int = 4
    program: str = "target"
    out_rows: int = 20


def rope(dim: int, layout: str, amplitude: float = 1.0) -> Rope:
    """A table of angles that are all different."""
    inv = tuple(10000.0 ** (-2 * i / dim) for i in range(dim // 2))
    return msgspec.convert({"dim": dim, "layout": layout, "inv_freq": inv, "amplitude": amplitude}, Rope)


def value(name: str, *tail: int, rows: str = "rows", dtype: str = "compute", parent: str = "", start: int = 0) -> Value:
    """A value of a step; with `parent` an alias of it."""
    return Value(name, (rows, *tail), dtype, "alias" if parent else "arena", 0, parent, start)


def weight(name: str, *shape: int, precision: str = "compute") -> Weight:
    """A dense weight."""
    return msgspec.convert(
        {"id": name, "role": "attention", "store": "target", "parts": (), "shape": shape, "precision": precision},
        Weight,
    )


def single(
    call: Call,
    values: Sequence[Value],
    weights: Sequence[Weight] = (),
    setting: Setting | None = None,
    parts: Sequence[Call] = (),
    inner: Sequence[Value] = (),
) -> Built:
    """The plan, kernel table and sources of one call. `parts` and `inner`: the basic calls and the values inside of a
    fused launch; the call itself without them."""
    at = setting or Setting()
    program = Program(at.program, at.chunk, at.out_rows, 0, tuple(values), (call,))
    plan = Plan(
        format=PLAN_FORMAT,
        engine="single",
        backend="cuda",
        topology="single",
        dtype="bfloat16",
        mesh=Mesh(at.ranks, at.ranks, 1),
        model=Model("single", 64, 8, 1, at.context, ()),
        limits=Limits(at.context, at.sequences, at.chunk, at.page),
        buckets=(),
        ropes=dict(at.ropes),
        caches=at.caches,
        weights=tuple(weights),
        programs=(program,),
        tree=Tree("single", "ddtree", 8, 3),
        drafter=Drafter("single", 4, 1, (0,), 8, len(at.caches)),
    )
    draft = emit(site_maker(plan, program, Device("sm_90", 132, 227 * 1024))(call))
    tensors = (*call.outs, *call.ins, *call.weights)
    reference = Reference(tensors, (*values, *inner), tuple(parts) or (call,))
    kernel = msgspec.structs.replace(draft.kernel(), reference=reference)
    table = KernelTable(
        format=KERNELS_FORMAT,
        arch="sm_90",
        kernels=(kernel,),
        programs={at.program: (kernel.name,)},
        state=state_arrays(plan, (kernel,), largest(plan)),
        largest=largest(plan),
    )
    return plan, table, {f"src/kernels/{kernel.name}.cu": kernel_source(draft)}
