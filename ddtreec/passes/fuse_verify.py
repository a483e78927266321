"""The verifier of fuse: takes every launch and every merged linear apart again and compares with what was there."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ddtreec.artifacts.plan import Weight, WeightPart
from ddtreec.core.errors import VerifyError
from ddtreec.graph.layer_graph import LayerGraph, Node
from ddtreec.ops.all_gather import AllGather
from ddtreec.ops.fused import Fused
from ddtreec.ops.linear import Linear
from ddtreec.ops.split import Split


def verify(before: LayerGraph, after: LayerGraph) -> None:
    """The parts are exactly the nodes before, merged linears hold exactly the weights before in order, a launch reads
    and gives exactly what crosses its border, and the parts in order are a valid program. Raises VerifyError."""
    parts = list(_flat(after))
    try:
        flat = after.replaced(parts)
    except ValueError as error:
        node, _, reason = str(error).partition(": ")
        raise VerifyError("fuse", node, reason) from None
    for node in after:
        if isinstance(node.op, Fused):
            _verify_border(flat, node, node.op)
    old = {node.id: node for node in before}
    met: set[str] = set()
    for node in parts:
        if node.id in old:
            _verify_same(old[node.id], node)
            met.add(node.id)
        elif isinstance(node.op, AllGather):
            met |= _verify_gathers(before, node, node.op)
        elif isinstance(node.op, Linear):
            met |= _verify_merged(before, flat, node, node.op)
        elif not (isinstance(node.op, Split) and node.id.removesuffix(".split") == node.inputs[0]):
            raise VerifyError("fuse", node.id, "comes from nowhere")
    if len(met) != len(old):
        raise VerifyError("fuse", min(set(old) - met), "was dropped")


def _flat(graph: LayerGraph) -> Iterator[Node]:
    for node in graph:
        if isinstance(node.op, Fused):
            yield from (Node(p.id, p.op, p.inputs, p.outputs) for p in node.op.parts)
        else:
            yield node


def _verify_same(old: Node, new: Node) -> None:
    if (old.op, old.inputs, old.outputs) != (new.op, new.inputs, new.outputs):
        raise VerifyError("fuse", new.id, "is not the node it was")


def _verify_border(flat: LayerGraph, node: Node, op: Fused) -> None:
    made = {v for part in op.parts for v in part.outputs}
    read = {v for part in op.parts for v in part.inputs} - made
    inside = {part.id for part in op.parts}
    kept = {*flat.outputs, *flat.layer_outputs}
    given = {v for v in made if v in kept or any(r.id not in inside for r in flat.readers(v))}
    if set(op.inputs) != read or set(op.outputs) != given:
        raise VerifyError("fuse", node.id, "does not read and give exactly what crosses its border")
    if (op.inputs, op.outputs) != (node.inputs, node.outputs):
        raise VerifyError("fuse", node.id, "names its values in another order than its node")
    if any(part.op.kind in ("all_reduce", "all_gather") for part in op.parts):
        raise VerifyError("fuse", node.id, "holds a collective")


def _verify_merged(before: LayerGraph, flat: LayerGraph, node: Node, op: Linear) -> set[str]:
    """A linear that was not there: it must be the rows of linears that were, split again at once."""
    readers = flat.readers(node.outputs[0])
    if len(readers) != 1 or not isinstance(readers[0].op, Split):
        raise VerifyError("fuse", node.id, "is merged, but its output is not split")
    split = readers[0].op
    olds = [before.producer.get(v) for v in readers[0].outputs]
    parts: list[WeightPart] = []
    held: list[Weight] = []
    for old, size in zip(olds, split.sizes, strict=True):
        if old is None or not isinstance(old.op, Linear) or old.inputs != node.inputs:
            raise VerifyError("fuse", node.id, "merges what was no linear of the same value")
        if math.prod(old.op.outputs) != size:
            raise VerifyError("fuse", node.id, f"gives {size} columns to '{old.outputs[0]}'")
        parts += old.op.weight.parts
        held.append(old.op.weight)
    if tuple(parts) != op.weight.parts:
        raise VerifyError("fuse", node.id, "does not hold the rows of its linears in order")
    size = op.weight.shape, op.weight.bytes
    if size != ((sum(w.shape[0] for w in held), *held[0].shape[1:]), sum(w.bytes for w in held)):
        raise VerifyError("fuse", node.id, f"has the shape and bytes {size}, not those of its linears together")
    if {_stored(w) for w in held} != {_stored(op.weight)}:
        raise VerifyError("fuse", node.id, "does not store its rows as its linears do")
    return {old.id for old in olds if old is not None}


def _stored(weight: Weight) -> tuple[object, ...]:
    """How a weight is read and kept, its parts and size aside."""
    kept = (weight.role, weight.store, weight.packing, weight.group, weight.product, weight.precision)
    return *kept, weight.experts, weight.expert_shard


def _verify_gathers(before: LayerGraph, node: Node, op: AllGather) -> set[str]:
    """A gather that was not there: it must be gathers that were, side by side."""
    met: set[str] = set()
    for given, value in zip(node.inputs, node.outputs, strict=True):
        old = before.producer.get(value)
        if old is None or old.op != op or old.inputs != (given,):
            raise VerifyError("fuse", node.id, f"gives '{value}' of '{given}', which no gather did")
        met.add(old.id)
    return met
