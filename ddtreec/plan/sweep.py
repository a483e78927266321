"""Predicted time over row counts and contexts, split by component: what the charts of `plan --html` show."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from ddtreec.ops.base import At
from ddtreec.passes.cost import Costed, Rates
from ddtreec.passes.memory import ITEMSIZE
from ddtreec.passes.stages import point
from ddtreec.passes.state import State
from ddtreec.plan.components import COMPONENTS, component_of
from ddtreec.plan.view import ROWS

CONTEXTS = tuple(2**n for n in range(10, 19))
"""1k to 256k tokens."""


class Point(msgspec.Struct, frozen=True):
    """The target's step at one point; milliseconds of one rank. `parts`: predicted, by component."""

    rows: int
    context: int
    floor_ms: float
    predicted_ms: float
    parts: dict[str, float]


class Sweep(msgspec.Struct, frozen=True):
    """`by_rows` at the context of the report; `by_context` at the row counts `context_rows`."""

    by_rows: tuple[Point, ...]
    by_context: tuple[Point, ...]
    context_rows: tuple[int, ...]
    positions: int
    limit: int


class _Target:
    def __init__(self, state: State):
        assert state.programs is not None
        graph = state.programs.graphs["target"]
        self.costed = Costed(graph, Rates.of(state.loaded.topology))
        self.components = {node.id: component_of(node, graph) for node in graph}

    def at(self, at: At) -> Point:
        parts: dict[str, list[float]] = {name: [] for name in COMPONENTS}
        nodes = self.costed.nodes(at)
        for node in nodes:
            parts[self.components[node.node]].append(node.predicted * 1e3)
        sums = {name: math.fsum(times) for name, times in parts.items() if times}
        floor = math.fsum(node.floor for node in nodes) * 1e3
        return Point(at.rows, at.context, floor, math.fsum(node.predicted for node in nodes) * 1e3, sums)


def sweep(state: State) -> Sweep:
    """Of a state that went through all passes."""
    assert state.placed is not None
    loaded, target = state.loaded, _Target(state)
    itemsize = ITEMSIZE[loaded.engine.dtype]
    tree = state.placed.room.tree_rows
    rows = tuple(sorted({1, min(8, tree), tree}))
    positions = loaded.model.positions
    return Sweep(
        by_rows=tuple(target.at(point(state, r, r)) for r in ROWS),
        by_context=tuple(target.at(At(r, r, c, itemsize)) for r in rows for c in contexts(positions)),
        context_rows=rows,
        positions=positions,
        limit=loaded.engine.limits.context,
    )


def contexts(positions: int) -> tuple[int, ...]:
    """1k to 256k as far as the model goes; of a toy model the five powers of two up to its end."""
    known = tuple(c for c in CONTEXTS if c <= positions)
    return known if len(known) > 1 else tuple(positions >> n for n in (4, 3, 2, 1, 0))


def of_rows(points: Iterable[Point], rows: int) -> tuple[Point, ...]:
    """The points at one row count."""
    return tuple(p for p in points if p.rows == rows)
