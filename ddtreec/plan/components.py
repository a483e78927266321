"""What the time of a step is spent on: each launch belongs to one component of the model."""

from __future__ import annotations

from ddtreec.graph.layer_graph import LayerGraph, Node
from ddtreec.ops.base import At, Op, TensorType
from ddtreec.passes.cost import parts

COMPONENTS = ("attention", "experts", "mlp", "router", "vocab", "links", "other", "drafter")
"""In the order of a chart, heaviest of the family first. `links`: collectives; `other`: norms, sums, taps."""

_BY_KIND = {
    "latent_attention": "attention",
    "mla_attention": "attention",
    "block_attention": "attention",
    "latent_append": "attention",
    "context_append": "attention",
    "rope": "attention",
    "q_absorb": "attention",
    "v_up": "attention",
    "experts": "experts",
    "router": "router",
    "embedding": "vocab",
    "swiglu": "mlp",
    "all_reduce": "links",
    "all_gather": "links",
}
_BY_ROLE = {"attention": "attention", "a_proj": "attention", "mlp": "mlp", "vocab": "vocab", "drafter": "drafter"}
_AT = At(1, 1, 1024, 2)


def component_of(node: Node, graph: LayerGraph) -> str:
    """The component of a launch: of its heaviest part at one row, by the bytes of weights and cache."""
    ins = tuple(graph.types[v] for v in node.inputs)
    weighed = [(_weight(op, read), -i, _one(op)) for i, (op, read) in enumerate(parts(node.op, ins))]
    named = [item for item in weighed if item[2] != "other"]
    found = max(named or weighed)[2]
    return "drafter" if graph.name != "target" and found != "links" else found


def _weight(op: Op, ins: tuple[TensorType, ...]) -> float:
    if op.kind in ("all_reduce", "all_gather", "split"):
        return 0.0
    cost = op.cost(ins, _AT)
    return cost.weight_bytes + cost.cache_bytes


def _one(op: Op) -> str:
    if op.kind in _BY_KIND:
        return _BY_KIND[op.kind]
    roles = [w.role for w in op.weights()]
    return _BY_ROLE.get(roles[0], "other") if op.kind == "linear" and roles else "other"
