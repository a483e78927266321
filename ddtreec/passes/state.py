"""What the passes hand on: the engine, and everything found out about it so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ddtreec.artifacts.plan import Cache, Call, MemoryRow, Mesh, Program, Tree, Value, Weight
from ddtreec.passes.cost import Costs
from ddtreec.passes.fit import Room
from ddtreec.passes.memory import Sizes
from ddtreec.passes.programs import Programs
from ddtreec.passes.schedule import OFF, Launch
from ddtreec.spec.load import LoadedEngine

ONE_RANK = Mesh(1, 1, 1)


@dataclass(frozen=True)
class Schedule:
    """Of the schedule pass. `lowered`: values and calls by program, in launch order."""

    tree: Tree = OFF
    buckets: tuple[int, ...] = ()
    launches: Mapping[str, tuple[Launch, ...]] = field(default_factory=dict[str, tuple[Launch, ...]])
    lowered: Mapping[str, tuple[tuple[Value, ...], tuple[Call, ...]]] = field(
        default_factory=dict[str, tuple[tuple[Value, ...], tuple[Call, ...]]]
    )


@dataclass(frozen=True)
class Placed:
    """Of the memory pass. `free` and `largest_context` say what is left of the device."""

    programs: tuple[Program, ...]
    sizes: Mapping[str, Sizes]
    weights: tuple[Weight, ...]
    caches: tuple[Cache, ...]
    room: Room
    table: tuple[MemoryRow, ...]
    device: int
    free: int
    largest_context: int


@dataclass(frozen=True)
class State:
    """Fields fill up in the order of the passes; None means that the pass has not run yet."""

    loaded: LoadedEngine
    programs: Programs | None = None
    mesh: Mesh = ONE_RANK
    layout: Mapping[str, str] = field(default_factory=dict[str, str])
    placements: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    schedule: Schedule | None = None
    placed: Placed | None = None
    costs: Costs | None = None
