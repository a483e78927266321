"""Folds W_uk into the queries and W_uv behind attention, so that MLA attends to the cached latents as they are.

Runs second, on whole weights. Afterwards there is no mla_attention; kv_b is read as two takes that tile it. Both forms
read kv_b once, but the absorbed one never expands the cache.
"""

from __future__ import annotations

import msgspec

from ddtreec.artifacts.plan import Weight, WeightPart
from ddtreec.core.errors import VerifyError
from ddtreec.graph.layer_graph import LayerGraph, Node
from ddtreec.ops.latent_attention import LatentAttention
from ddtreec.ops.mla_attention import MlaAttention
from ddtreec.ops.q_absorb import QAbsorb
from ddtreec.ops.v_up import VUp


def absorb(graph: LayerGraph) -> LayerGraph:
    """The program with every mla_attention split in three."""
    if not any(isinstance(node.op, MlaAttention) for node in graph):
        return graph
    return graph.replaced(new for node in graph for new in _absorbed(node))


def _absorbed(node: Node) -> tuple[Node, ...]:
    op = node.op
    if not isinstance(op, MlaAttention):
        return (node,)
    q_nope, q_rot, cache = node.inputs
    (o,) = node.outputs
    w_uk = _rows(op, f"{node.id}.w_uk", 0, op.nope)
    w_uv = _rows(op, f"{node.id}.w_uv", op.nope, op.nope + op.v)
    q_c, o_c = f"{o}.q_c", f"{o}.o_c"
    absorbed = QAbsorb(op.heads, op.nope, op.kv_lora, w_uk, op.question)
    attend = LatentAttention(op.heads, op.kv_lora, op.rope, op.scale, op.layer)
    up = VUp(op.heads, op.v, op.kv_lora, w_uv, op.question)
    return (
        Node(f"{node.id}.q_absorb", absorbed, (q_nope,), (q_c,), node.loc),
        Node(f"{node.id}.attend", attend, (q_c, q_rot, cache), (o_c,), node.loc),
        Node(f"{node.id}.v_up", up, (o_c,), (o,), node.loc),
    )


def _rows(op: MlaAttention, name: str, start: int, stop: int) -> Weight:
    """Rows [start, stop) of every head of kv_b."""
    (part,) = op.weight.parts
    heads, rows, kv_lora = part.dims
    take = ((0, heads), (start, stop), (0, kv_lora))
    return msgspec.structs.replace(
        op.weight,
        id=name,
        parts=(WeightPart(part.tensor, part.dims, take),),
        shape=(heads, stop - start, kv_lora),
        bytes=op.weight.bytes // rows * (stop - start),
    )


def verify(before: LayerGraph, after: LayerGraph) -> None:
    """No mla_attention is left, each became its three nodes with W_uk and W_uv tiling kv_b, all else is untouched.
    Raises VerifyError."""
    nodes = {node.id: node for node in after}
    expected: set[str] = set()
    for node in before:
        if not isinstance(node.op, MlaAttention):
            expected.add(node.id)
            if nodes.get(node.id) != node:
                raise VerifyError("absorb", node.id, "was changed, but it is no mla_attention")
            continue
        names = [f"{node.id}.{part}" for part in ("q_absorb", "attend", "v_up")]
        expected.update(names)
        missing = [name for name in names if name not in nodes]
        if missing:
            raise VerifyError("absorb", node.id, f"has no '{missing[0]}'")
        _verify_one(node, node.op, [nodes[name] for name in names])
    extra = [node.id for node in after if node.id not in expected]
    if extra:
        raise VerifyError("absorb", extra[0], "comes from nowhere")


def _verify_one(node: Node, op: MlaAttention, parts: list[Node]) -> None:
    uk, attend, uv = (part.op for part in parts)
    if not (isinstance(uk, QAbsorb) and isinstance(attend, LatentAttention) and isinstance(uv, VUp)):
        raise VerifyError("absorb", node.id, "became other ops than q_absorb, latent_attention and v_up")
    if (attend.scale, attend.layer) != (op.scale, op.layer):
        raise VerifyError("absorb", node.id, "attends with another scale or in another cache")
    wired = (
        parts[0].inputs == node.inputs[:1]
        and parts[1].inputs == (*parts[0].outputs, *node.inputs[1:])
        and parts[2].inputs == parts[1].outputs
        and parts[2].outputs == node.outputs
    )
    if not wired:
        raise VerifyError("absorb", node.id, "its parts are wired in another way")
    whole = op.weight.parts[0]
    heads, rows, cols = whole.dims
    taken: list[tuple[int, int]] = []
    for weight in (uk.weight, uv.weight):
        (part,) = weight.parts
        if (part.tensor, part.dims, part.shard) != (whole.tensor, whole.dims, None):
            raise VerifyError("absorb", node.id, f"'{weight.id}' is not read from '{whole.tensor}'")
        if (part.take[0], part.take[2]) != ((0, heads), (0, cols)):
            raise VerifyError("absorb", node.id, f"'{weight.id}' does not take whole heads and columns")
        taken.append(part.take[1])
    if taken != [(0, op.nope), (op.nope, rows)]:
        raise VerifyError("absorb", node.id, f"rows {taken} do not tile the {rows} rows of a head of kv_b")
