"""One node of an engine, explained: what it is, where it was written, why it runs as it does, and what it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from ddtreec.artifacts.plan import Mesh, Weight
from ddtreec.graph.layer_graph import LayerGraph, Node
from ddtreec.ops.base import Op, TensorType, placed
from ddtreec.ops.fused import Fused
from ddtreec.passes.cost import COLLECTIVES, Rates, payload
from ddtreec.passes.fuse import PATTERNS
from ddtreec.passes.shard import mesh_of
from ddtreec.passes.shard_search import collective_of
from ddtreec.passes.stages import point
from ddtreec.passes.state import State
from ddtreec.plan.build_view import fields_of, weight_view
from ddtreec.plan.slices import experts_of, range_words, ranges
from ddtreec.plan.view import ValueView, WeightView

EXPLAIN_SCHEMA = "ddtreec.explain/1"
ROWS = (1, 8)
MAX_RANKS = 8
"""Slices of so many ranks are listed."""


class Numbers(msgspec.Struct, frozen=True):
    """What one launch takes on one rank: bytes, FLOPs, microseconds."""

    rows: int
    weight_bytes: float
    cache_bytes: float
    activation_bytes: float
    flops: float
    floor_us: float
    predicted_us: float


class Alternative(msgspec.Struct, frozen=True):
    """One way to run the op on the ranks. Microseconds of the op and of the collective that makes its output whole, at
    each of ROWS; `bytes`: weights of one rank; `taken`: the layout has it."""

    answer: str
    placements: str
    bytes: int
    op_us: tuple[float, ...]
    collective: str
    collective_us: tuple[float, ...]
    taken: bool


class Slices(msgspec.Struct, frozen=True):
    """What the first ranks read of checkpoint tensors that are cut alike, in words."""

    tensors: tuple[str, ...]
    ranks: tuple[str, ...]


class Launch(msgspec.Struct, frozen=True):
    """The launch that does the node's work. `pattern`: what fuse looked for; `alone_us`: its parts one by one."""

    node: str
    kind: str
    parts: tuple[str, ...]
    pattern: str
    numbers: tuple[Numbers, ...]
    alone_us: tuple[float, ...]


class NodeStory(msgspec.Struct, frozen=True):
    """All of it. `after`: the last pass that has the node by this name; `became`: the nodes that a later pass made of
    it; `also`: other programs that have it."""

    schema: str
    node: str
    program: str
    kind: str
    what: str
    loc: str
    after: str
    became: tuple[str, ...]
    fields: dict[str, str]
    inputs: tuple[ValueView, ...]
    outputs: tuple[ValueView, ...]
    weights: tuple[WeightView, ...]
    slices: tuple[Slices, ...]
    question: str
    layout: str
    alternatives: tuple[Alternative, ...]
    numbers: tuple[Numbers, ...]
    launch: Launch | None
    also: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """A node in a program behind a pass."""

    after: str
    state: State
    graph: LayerGraph
    node: Node


def names(states: Mapping[str, State]) -> list[str]:
    """Every name a node has behind any pass, parts of launches and expanded ops among them."""
    known: dict[str, None] = {}
    for state in states.values():
        for graph in state.programs.graphs.values() if state.programs else ():
            known.update((node.id, None) for node in graph)
    return list(known)


def find(states: Mapping[str, State], name: str) -> list[Found]:
    """The node called `name`, in each program that has it, behind the last pass that does."""
    found: dict[str, Found] = {}
    for after, state in states.items():
        for graph in state.programs.graphs.values() if state.programs else ():
            for node in graph:
                if node.id == name:
                    found[graph.name] = Found(after, state, graph, node)
    return list(found.values())


def story(states: Mapping[str, State], found: list[Found]) -> NodeStory:
    """The first of `found`, explained. `states`: behind each pass by name, 'fuse' among them."""
    here = found[0]
    node, graph, state = here.node, here.graph, here.state
    mesh, placements = state.mesh, state.placements.get(graph.name, {})
    question = getattr(node.op, "question", "")

    def values(list_of: tuple[str, ...]) -> tuple[ValueView, ...]:
        return tuple(ValueView(v, str(graph.types[v]), placements.get(v, "R")) for v in list_of)

    return NodeStory(
        schema=EXPLAIN_SCHEMA,
        node=node.id,
        program=graph.name,
        kind=node.op.launch if isinstance(node.op, Fused) else node.op.kind,
        what=what_words(node.op),
        loc=str(node.loc) if node.loc else "",
        after=here.after,
        became=became(states["absorb"], graph.name, node) if here.after == "expand" else (),
        fields=fields_of(node.op),
        inputs=values(node.inputs),
        outputs=values(node.outputs),
        weights=tuple(weight_view(w, mesh) for w in node.op.weights()),
        slices=tuple(slices_of(node.op.weights(), mesh)) if mesh.ranks > 1 else (),
        question=question,
        layout=states["fuse"].layout.get(question, "") if question else "",
        alternatives=tuple(alternatives(states, graph.name, node)),
        numbers=numbers(state, graph, node),
        launch=launch_of(states["fuse"], graph.name, node) if here.after != "expand" else None,
        also=tuple(f.graph.name for f in found[1:]),
    )


def what_words(op: Op) -> str:
    """What an op does: the first paragraph of its docstring, or the parts of a launch."""
    if isinstance(op, Fused):
        return f"One launch of {len(op.parts)} parts: {', '.join(part.op.kind for part in op.parts)}."
    return " ".join((type(op).__doc__ or "").strip().split("\n\n")[0].split())


def became(state: State, program: str, node: Node) -> tuple[str, ...]:
    """The nodes that absorb made of one: they carry its name before their own."""
    return tuple(n.id for n in _graph(state, program) if n.id.startswith(node.id + "."))


def price(state: State, op: Op, ins: tuple[TensorType, ...], rows: int) -> Numbers:
    """One launch of `op` on one rank."""
    rates, at = Rates.of(state.loaded.topology), point(state, rows, rows)
    if op.kind in COLLECTIVES:
        taken = rates.collective(op.kind, payload(op.kind, ins, op.infer(ins), at))
        return Numbers(rows, 0.0, 0.0, 0.0, 0.0, 0.0, taken * 1e6)
    c, predicted = op.cost(ins, at), rates.predicted(op, ins, at)
    floor = rates.floor(c) * 1e6
    return Numbers(rows, c.weight_bytes, c.cache_bytes, c.activation_bytes, c.flops, floor, predicted * 1e6)


def numbers(state: State, graph: LayerGraph, node: Node) -> tuple[Numbers, ...]:
    """What a node takes at each of ROWS."""
    ins = tuple(graph.types[v] for v in node.inputs)
    return tuple(price(state, node.op, ins, rows) for rows in ROWS)


def slices_of(weights: tuple[Weight, ...], mesh: Mesh) -> Iterator[Slices]:
    """What each of the first ranks reads of every tensor that is cut."""
    found: dict[tuple[str, ...], list[str]] = {}
    for weight in weights:
        for part in weight.parts:
            words: list[str] = []
            for rank in range(min(mesh.ranks, MAX_RANKS)):
                experts = experts_of(weight, mesh, rank)
                prefix = f"experts {experts[0]}..{experts[1] - 1} " if experts else ""
                words.append(f"{prefix}[{range_words(ranges(part, mesh, rank), part.dims)}]")
            if len(set(words)) > 1:
                found.setdefault(tuple(words), []).append(part.tensor)
    return (Slices(tuple(tensors), ranks) for ranks, tensors in found.items())


def alternatives(states: Mapping[str, State], program: str, node: Node) -> Iterator[Alternative]:
    """Every way to run an op on the ranks, priced; nothing on one rank, or for a node that is not in the graph before
    shard (launches, collectives)."""
    before, after = states["absorb"], states["shard"]
    ranks = after.mesh.ranks
    whole = next((n for n in _graph(before, program) if n.id == node.id), None)
    if ranks == 1 or whole is None:
        return
    graph = _graph(before, program)
    ins = tuple(graph.types[v] for v in whole.inputs)
    held = next((n for n in _graph(after, program) if n.id == node.id), None)
    seen: set[tuple[str, tuple[str, ...], tuple[str, ...]]] = set()
    for mesh in (Mesh(ranks, ep, ranks // ep) for ep in range(1, ranks + 1) if ranks % ep == 0):
        for strategy in whole.op.strategies(ins, mesh):
            key = strategy.answer, strategy.ins, strategy.outs
            if key in seen or (
                strategy.answer.startswith("ep") and mesh_of({"experts": strategy.answer}, ranks) != mesh
            ):
                continue
            seen.add(key)
            local = tuple(placed(t, p, ranks) for t, p in zip(ins, strategy.ins, strict=True))
            needs = [collective_of(p) for p in strategy.outs if p != "R"][:1]
            yield Alternative(
                answer=strategy.answer or "no question",
                placements=f"{', '.join(strategy.ins)} -> {', '.join(strategy.outs)}",
                bytes=sum(w.bytes for w in strategy.op.weights()),
                op_us=tuple(price(after, strategy.op, local, rows).predicted_us for rows in ROWS),
                collective=needs[0] if needs else "",
                collective_us=tuple(_collective(after, needs[0], whole.op.infer(ins), r) for r in ROWS)
                if needs
                else (),
                taken=held is not None and held.op == strategy.op,
            )


def _collective(state: State, kind: str, outs: tuple[TensorType, ...], rows: int) -> float:
    at = point(state, rows, rows)
    return Rates.of(state.loaded.topology).collective(kind, float(sum(at.nbytes(t) for t in outs))) * 1e6


def _graph(state: State, program: str) -> LayerGraph:
    assert state.programs is not None
    return state.programs.graphs[program]


def launch_of(state: State, program: str, node: Node) -> Launch | None:
    """The fused launch that the node is, or is a part of (also within a merged linear); None where it is launched as
    it is."""
    graph = _graph(state, program)
    if isinstance(node.op, Fused):
        return _launch(state, graph, node, node.op)
    weights = {part.tensor for w in node.op.weights() for part in w.parts}
    for candidate in graph:
        op = candidate.op
        if candidate.id == node.id or not node.outputs:
            continue
        if isinstance(op, Fused):
            held = {part.id for part in op.parts}
            read = {t.tensor for w in op.weights() for t in w.parts}
            if node.id in held or (weights and weights <= read):
                return _launch(state, graph, candidate, op)
        elif weights and op.kind == node.op.kind and weights <= {t.tensor for w in op.weights() for t in w.parts}:
            return _launch(state, graph, candidate, None)
    return None


def _launch(state: State, graph: LayerGraph, node: Node, op: Fused | None) -> Launch:
    if op is None:
        merged = tuple(part.tensor for w in node.op.weights() for part in w.parts)
        why = "linears that read one value are merged into one product"
        return Launch(node.id, node.op.kind, merged, why, numbers(state, graph, node), ())
    types = op.types(tuple(graph.types[v] for v in node.inputs))
    alone = tuple(
        sum(price(state, p.op, tuple(types[v] for v in p.inputs), rows).predicted_us for p in op.parts) for rows in ROWS
    )
    parts = tuple(part.id for part in op.parts)
    return Launch(node.id, op.launch, parts, dict(PATTERNS).get(op.launch, ""), numbers(state, graph, node), alone)
