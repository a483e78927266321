"""Turns specs into programs: every block of the stack becomes nodes at its layer, values are named by their producer.

Runs first. Afterwards each program is a typed graph of basic ops with whole weights, taps stand where the drafter
reads the target, and rope tables are numbers. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ddtreec.artifacts.plan import Weight
from ddtreec.core.errors import Problem, SpecError
from ddtreec.graph.layer_graph import LayerGraph, Node
from ddtreec.ops.base import TensorType
from ddtreec.ops.block_attention import BlockAttention
from ddtreec.ops.context_append import ContextAppend
from ddtreec.ops.embedding import Embedding
from ddtreec.ops.latent_append import LatentAppend
from ddtreec.ops.linear import Linear
from ddtreec.ops.tap import Tap
from ddtreec.passes.expand_stack import Specs, Walk, Where
from ddtreec.passes.programs import Programs
from ddtreec.spec.schema import DrafterSpec, ModelSpec, QuantSpec

TOKENS = {"tokens": TensorType(("rows",), "int32")}


class Engine(Protocol):
    """What expand needs of a loaded engine (`ddtreec.spec.load.LoadedEngine`)."""

    @property
    def model(self) -> ModelSpec: ...
    @property
    def quant(self) -> QuantSpec: ...
    @property
    def drafter(self) -> DrafterSpec | None: ...
    @property
    def problem(self) -> Where: ...


def expand(engine: Engine) -> Programs:
    """The programs of an engine: 'target', and with a drafter 'draft_context' and 'draft_block'.

    Raises SpecError with everything that is wrong with the graphs: ops and their fields, values and their types, and
    how target and drafter fit together.
    """
    problems: dict[Problem, None] = {}
    specs = Specs("model", engine.model, engine.quant, engine.problem, problems)
    graphs = _target(specs, engine.model, engine.drafter)
    ropes = specs.rope_tables()
    if engine.drafter is not None:
        drafter = engine.drafter
        drafts = Specs("drafter", drafter, engine.quant, engine.problem, problems, _shared(graphs))
        graphs |= _drafts(drafts, drafter, len(drafter.taps) * drafter.target.hidden)
        ropes |= drafts.rope_tables()
    if problems:
        raise SpecError(list(problems))
    return Programs(graphs, ropes)


def _target(specs: Specs, model: ModelSpec, drafter: DrafterSpec | None) -> dict[str, LayerGraph]:
    taps = drafter.taps if drafter else ()
    walk = Walk(specs, "stack", "L", "", TOKENS)
    features: list[str] = []
    for layer in walk.layers(model.stack):
        value = walk.current[0] if walk.current else None
        if layer in taps and value is not None:
            index = taps.index(layer)
            tap = Tap(index, len(taps), walk.types[value].tail[0])
            walk.nodes.append(Node(f"L{layer:02d}.tap", tap, (value,), (f"features.{index}",)))
            features.append(f"features.{index}")
    logits = walk.finish("logits")
    _check_taps(specs, taps, sum(item.repeat or 0 for item in model.stack))
    _check_caches(specs, walk.nodes, LatentAppend, "stack")
    if logits is None or specs.problems:
        return {}
    nodes = _with_wide(walk.nodes, logits)
    graph = LayerGraph("target", TOKENS, nodes, (logits, *features), tuple(walk.layer_outputs))
    return {"target": graph}


def _with_wide(nodes: Sequence[Node], logits: str) -> tuple[Node, ...]:
    """The nodes, the linear that gives the logits with a result of float32."""

    def wide(node: Node) -> Node:
        if isinstance(node.op, Linear) and logits in node.outputs:
            return replace(node, op=replace(node.op, result="float32"))
        return node

    return tuple(map(wide, nodes))


def _check_taps(specs: Specs, taps: Sequence[int], layers: int) -> None:
    for index, layer in enumerate(taps):
        if layer >= layers:
            text = f"tap {layer} is no layer of the target, which has {layers}"
            specs.add("S035", text, ("taps", index), help=f"use 0 to {layers - 1}", kind="drafter")
        elif layer in taps[:index]:
            specs.add("S035", f"layer {layer} is tapped twice", ("taps", index), kind="drafter")


def _shared(graphs: Mapping[str, LayerGraph]) -> dict[str, Weight] | None:
    """What a drafter may take from the target: the embedding, and the linear that gives the logits. None without a
    target."""
    if "target" not in graphs:
        return None
    graph = graphs["target"]
    found = {n.op.kind: n.op.weight for n in graph if isinstance(n.op, Embedding)}
    head = graph.producer["logits"].op
    return found | ({"linear": head.weights()[0]} if head.kind == "linear" else {})


def _drafts(specs: Specs, drafter: DrafterSpec, width: int) -> dict[str, LayerGraph]:
    inputs = {"features": TensorType(("rows", width))}
    block = Walk(specs, "draft", "D", "draft.", TOKENS)
    context = Walk(specs, "context", "D", "draft.", inputs)
    list(block.layers(drafter.draft))
    list(context.layers(drafter.context))
    logits = block.finish("logits")
    _check_caches(specs, context.nodes, ContextAppend, "context")
    _check_context(specs, context.nodes, block.nodes)
    if logits is None or specs.problems:
        return {}
    appended = tuple(v for n in context.nodes if isinstance(n.op, ContextAppend) for v in n.outputs)
    nodes = _with_wide(block.nodes, logits)
    return {
        "draft_context": LayerGraph("draft_context", inputs, tuple(context.nodes), appended),
        "draft_block": LayerGraph("draft_block", TOKENS, nodes, (logits,), tuple(block.layer_outputs)),
    }


def _check_caches(specs: Specs, nodes: Sequence[Node], kind: type[LatentAppend | ContextAppend], stack: str) -> None:
    """Every layer appends to its cache exactly once: calls name a cache by the layer's number."""
    if specs.problems:
        return
    appends = [n.op.layer for n in nodes if isinstance(n.op, kind)]
    for layer in range(max(appends, default=-1) + 1):
        if appends.count(layer) != 1:
            text = f"layer {layer} has {appends.count(layer)} ops {kind.kind}, but every layer needs one"
            specs.add("S030", text, (stack,))
            return


def _check_context(specs: Specs, context: Sequence[Node], block: Sequence[Node]) -> None:
    """Both drafter stacks mean the same layers: what one writes the other reads."""
    if specs.problems:
        return
    written = {n.op.layer: n.op for n in context if isinstance(n.op, ContextAppend)}
    read = {n.op.layer: n.op for n in block if isinstance(n.op, BlockAttention)}
    if set(written) != set(read):
        text = f"the context stack fills {len(written)} layers, the draft stack reads {len(read)}"
        specs.add("S030", text, ("context",))
        return
    for layer, op in read.items():
        there = written[layer]
        theirs, ours = (there.heads, there.head_dim, there.window), (op.kv_heads, op.head_dim, op.window)
        if theirs != ours:
            text = f"layer {layer}: the context holds heads, head_dim, window {theirs}, attention reads {ours}"
            specs.add("S039", text, ("context",))
