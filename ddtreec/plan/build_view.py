"""Makes the view of a graph: groups nodes by layer, folds layers that are alike, prices every node."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec

from ddtreec.artifacts.plan import Mesh, Weight
from ddtreec.graph.layer_graph import LayerGraph, Node
from ddtreec.ops.base import Op, TensorType
from ddtreec.ops.fused import Fused
from ddtreec.ops.tap import Tap
from ddtreec.passes.cost import Costed, Rates, signature
from ddtreec.passes.stages import point
from ddtreec.passes.state import State
from ddtreec.plan.components import component_of
from ddtreec.plan.slices import cut_words
from ddtreec.plan.view import (
    GRAPH_SCHEMA,
    LAYER,
    ROWS,
    Edge,
    GraphView,
    NodeView,
    PartView,
    ProgramView,
    Run,
    TensorView,
    ValueView,
    WeightView,
    group_of,
    title_of,
)

_HELD = ("question", "weight", "bias", "gate_up", "down", "parts", "launch")
"""Fields of ops that are shown elsewhere."""


def graph_view(state: State, after: str, programs: Sequence[str] = ()) -> GraphView:
    """The graphs of a state that went through `after`; only `programs`, if some are named (they must exist)."""
    assert state.programs is not None
    loaded = state.loaded
    names = [name for name in state.programs.graphs if not programs or name in programs]
    return GraphView(
        schema=GRAPH_SCHEMA,
        engine=loaded.engine.name,
        model=loaded.model.name,
        topology=loaded.topology.name,
        ranks=state.mesh.ranks,
        dtype=loaded.engine.dtype,
        after=after,
        context=point(state, 1, 1).context,
        rows=ROWS,
        programs=tuple(_Viewer(state, name).program() for name in names),
    )


# ---- one program --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    """All nodes of one layer, or of one block outside the layers. Taps stand apart: they are in some layers only."""

    name: str
    nodes: tuple[Node, ...]
    taps: tuple[Node, ...]


def _groups(graph: LayerGraph) -> list[_Group]:
    found: dict[str, list[Node]] = {}
    for node in graph:
        found.setdefault(group_of(node.id), []).append(node)
    return [
        _Group(
            name,
            tuple(n for n in nodes if not isinstance(n.op, Tap)),
            tuple(n for n in nodes if isinstance(n.op, Tap)),
        )
        for name, nodes in found.items()
    ]


class _Viewer:
    def __init__(self, state: State, name: str):
        assert state.programs is not None
        self.graph = state.programs.graphs[name]
        self.mesh = state.mesh
        self.placements = state.placements.get(name, {})
        costed = Costed(self.graph, Rates.of(state.loaded.topology))
        columns = [costed.nodes(point(state, rows, rows)) for rows in ROWS]
        self.costs = {nodes[0].node: nodes for nodes in zip(*columns, strict=True)}

    def program(self) -> ProgramView:
        graph = self.graph
        runs: list[list[_Group]] = []
        before: object = None
        for group in _groups(graph):
            shape = self._shape(group)
            if runs and shape == before and LAYER.fullmatch(group.name):
                runs[-1].append(group)
            else:
                runs.append([group])
            before = shape
        inputs = tuple(ValueView(name, str(kind), "R") for name, kind in graph.inputs.items())
        return ProgramView(graph.name, inputs, graph.outputs, tuple(map(self._run, runs)), self._links(runs))

    def _shape(self, group: _Group) -> object:
        """Equal for layers in which nothing differs but names and numbers of layers."""
        local: dict[str, int] = {}
        rows: list[object] = []
        for node in group.nodes:
            wires = tuple(local.get(v, str(self.graph.types[v])) for v in node.inputs)
            for value in node.outputs:
                local[value] = len(local)
            params = tuple((k, v) for k, v in node.op.params().items() if not k.endswith(("layer", "index")))
            types = tuple(self.graph.types[v] for v in node.outputs)
            rows.append((node.id.removeprefix(group.name), signature(node.op), params, wires, types))
        return tuple(rows)

    def _run(self, groups: Sequence[_Group]) -> Run:
        first = groups[0]
        taps = [(tap, group.name) for group in groups for tap in group.taps]
        nodes = [self._node(node) for node in first.nodes]
        if taps:
            layers = tuple(layer for _, layer in taps)
            nodes.append(msgspec.structs.replace(self._node(taps[0][0]), layers=layers if len(groups) > 1 else ()))
        shown = [*first.nodes, *(tap for tap, _ in taps[:1])]
        names = tuple(group.name for group in groups)
        edges = tuple(self._edges(shown, first.name))
        return Run(names, title_of(names), tuple(nodes), edges, _foreign(groups) if len(groups) > 1 else {})

    def _node(self, node: Node) -> NodeView:
        costs = self.costs[node.id]
        types, op = self.graph.types, node.op
        return NodeView(
            id=node.id,
            kind=op.launch if isinstance(op, Fused) else op.kind,
            component=component_of(node, self.graph),
            fields=fields_of(op),
            inputs=tuple(self._value(v, types[v]) for v in node.inputs),
            outputs=tuple(self._value(v, types[v]) for v in node.outputs),
            weights=tuple(weight_view(w, self.mesh) for w in op.weights()),
            parts=tuple(PartView(p.id, p.op.kind) for p in op.parts) if isinstance(op, Fused) else (),
            loc=str(node.loc) if node.loc else "",
            weight_bytes=tuple(n.cost.weight_bytes for n in costs),
            cache_bytes=tuple(n.cost.cache_bytes for n in costs),
            activation_bytes=tuple(n.cost.activation_bytes for n in costs),
            flops=tuple(n.cost.flops for n in costs),
            floor_us=tuple(n.floor * 1e6 for n in costs),
            predicted_us=tuple(n.predicted * 1e6 for n in costs),
        )

    def _value(self, name: str, kind: TensorType) -> ValueView:
        return ValueView(name, str(kind), self.placements.get(name, "R"))

    def _edges(self, nodes: Sequence[Node], group: str) -> Iterator[Edge]:
        """Every value that is made or read here, with a lane: what crosses the whole run keeps the first."""
        start: dict[str, int] = {}
        readers: dict[str, list[int]] = {}
        for number, node in enumerate(nodes):
            for value in node.inputs:
                if isinstance(node.op, Tap) and value not in start:
                    continue  # fused into the next layer: the tap waits for its first launch
                start.setdefault(value, -1)
                readers.setdefault(value, []).append(number)
            for value in node.outputs:
                start[value] = number
        kept = {*self.graph.outputs, *self.graph.layer_outputs}
        spans: list[tuple[int, int, str]] = []
        for value, begin in start.items():
            outside = value in kept or any(group_of(r.id) != group for r in self.graph.readers(value))
            leaves = outside and begin >= 0
            last = len(nodes) if leaves else max(readers.get(value, [begin]))
            spans.append((begin, last, value))
        free: list[int] = []
        for begin, last, value in sorted(spans, key=lambda s: (s[0], s[0] - s[1], s[2])):
            lane = next((i for i, until in enumerate(free) if until <= begin), len(free))
            free[lane : lane + 1] = [last]
            yield Edge(value, begin, last, tuple(dict.fromkeys(readers.get(value, []))), lane)

    def _links(self, runs: Sequence[Sequence[_Group]]) -> tuple[tuple[int, int, int], ...]:
        number = {group.name: i for i, run in enumerate(runs) for group in run}
        found: dict[tuple[int, int], set[str]] = {}
        for node in self.graph:
            for value in node.inputs:
                if value in self.graph.producer:
                    pair = number[group_of(self.graph.producer[value].id)], number[group_of(node.id)]
                    if pair[0] != pair[1]:
                        found.setdefault(pair, set()).add(value)
        return tuple((a, b, len(values)) for (a, b), values in sorted(found.items()))


def _foreign(groups: Sequence[_Group]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one, two in zip(groups[0].nodes, groups[1].nodes, strict=True):
        for mine, theirs in zip(_names(one), _names(two), strict=True):
            if group_of(mine) != groups[0].name and mine != theirs:
                found[mine] = theirs
    return found


def _names(node: Node) -> tuple[str, ...]:
    """All names in a node that may tell of a layer: values, parts, weights."""
    parts = tuple(p.id for p in node.op.parts) if isinstance(node.op, Fused) else ()
    return (node.id, *node.inputs, *node.outputs, *parts, *(w.id for w in node.op.weights()))


def fields_of(op: Op) -> dict[str, str]:
    """The op's own numbers, as a person reads them; weights and parts left out."""
    if isinstance(op, Fused):
        return {}
    shown = (f.name for f in dataclasses.fields(op) if f.name not in _HELD)
    return {name: _words(getattr(op, name)) for name in shown}


def _words(value: object) -> str:
    if isinstance(value, tuple):
        return " x ".join(_words(item) for item in cast("tuple[object, ...]", value)) or "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def weight_view(weight: Weight, mesh: Mesh) -> WeightView:
    """A weight with what one rank holds of each checkpoint tensor."""
    packing = f"int4, group {weight.group}" if weight.packing == "int4" else "dense"
    tensors = tuple(TensorView(p.tensor, p.dims, cut_words(weight, p, mesh)) for p in weight.parts)
    return WeightView(weight.id, weight.role, weight.shape, packing, weight.bytes, tensors)
