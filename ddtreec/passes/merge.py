"""Merges linears that read one value into one product: the first half of fuse.

One bigger read is faster than two small ones, and one launch is saved. The outputs become views of the product; if the
ranks gather several of them, they do it in one meeting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from ddtreec.graph.layer_graph import LayerGraph, Node
from ddtreec.ops.all_gather import AllGather
from ddtreec.ops.linear import Linear
from ddtreec.ops.split import Split
from ddtreec.passes.programs import block_of


def merge(graph: LayerGraph) -> LayerGraph:
    """The program with sibling linears merged, and then their gathers; values keep their names."""
    return _merge_gathers(_merge_linears(graph))


def _merge_linears(graph: LayerGraph) -> LayerGraph:
    families: dict[tuple[object, ...], list[Node]] = {}
    for node in graph:
        if isinstance(node.op, Linear) and _is_free(graph, node):
            families.setdefault(_family(node, node.op), []).append(node)
    merged = {siblings[0].id: siblings for siblings in families.values() if len(siblings) > 1}
    gone = {node.id for siblings in merged.values() for node in siblings}
    if not gone:
        return graph
    nodes: list[Node] = []
    for node in graph:
        if node.id in merged:
            nodes += merged_nodes(merged[node.id])
        elif node.id not in gone:
            nodes.append(node)
    return graph.replaced(nodes)


def _merge_gathers(graph: LayerGraph) -> LayerGraph:
    families: dict[tuple[str, AllGather], list[Node]] = {}
    for node in graph:
        if isinstance(node.op, AllGather):
            maker = graph.producer[node.inputs[0]]
            if isinstance(maker.op, Split):
                families.setdefault((maker.id, node.op), []).append(node)
    merged = {siblings[0].id: siblings for siblings in families.values() if len(siblings) > 1}
    gone = {node.id for siblings in merged.values() for node in siblings}
    nodes: list[Node] = []
    for node in graph:
        if node.id in merged:
            siblings = merged[node.id]
            name = graph.producer[node.inputs[0]].inputs[0] + ".all_gather"
            ins = tuple(v for sibling in siblings for v in sibling.inputs)
            outs = tuple(v for sibling in siblings for v in sibling.outputs)
            nodes.append(Node(name, node.op, ins, outs, node.loc))
        elif node.id not in gone:
            nodes.append(node)
    return graph.replaced(nodes) if gone else graph


def _is_free(graph: LayerGraph, node: Node) -> bool:
    """Whether the output may become a view: it does not outlive the program, and if it is a view of several axes then
    nobody takes a view of it in turn."""
    (value,) = node.outputs
    if value in graph.outputs or value in graph.layer_outputs:
        return False
    deep = len(graph.types[value].shape) > 2
    return not (deep and any(isinstance(r.op, Split) for r in graph.readers(value)))


def _family(node: Node, op: Linear) -> tuple[object, ...]:
    """Equal for linears that can be one: same block and input, columns cut alike, weights stored alike."""
    weight = op.weight
    stored = (weight.role, weight.store, weight.packing, weight.group, weight.product, weight.precision)
    cuts = tuple((p.shard.axis, p.shard.count) if p.shard else None for p in weight.parts)
    rows_cut = node.id if any(cut is not None and cut[0] != 0 for cut in cuts) else ""
    return (block_of(node.id), node.inputs, op.inputs, op.question, stored, cuts, rows_cut)


def merged_nodes(siblings: Sequence[Node]) -> tuple[Node, Node]:
    """One linear of all rows in order, and the split that gives each sibling's output its name back."""
    ops = [node.op for node in siblings if isinstance(node.op, Linear)]
    words = [node.id.removeprefix(block_of(node.id) + ".") for node in siblings]
    name = f"{block_of(siblings[0].id)}.{'_'.join(words)}"
    weights = [op.weight for op in ops]
    sizes = tuple(math.prod(op.outputs) for op in ops)
    weight = msgspec.structs.replace(
        weights[0],
        id=name,
        parts=tuple(part for w in weights for part in w.parts),
        shape=(sum(sizes), weights[0].shape[1]),
        bytes=sum(w.bytes for w in weights),
    )
    linear = replace(ops[0], outputs=(sum(sizes),), weight=weight)
    shapes = tuple(op.outputs for op in ops)
    split = Split(sizes, shapes if any(len(shape) > 1 for shape in shapes) else ())
    outputs = tuple(node.outputs[0] for node in siblings)
    return (
        Node(name, linear, siblings[0].inputs, (name,), siblings[0].loc),
        Node(f"{name}.split", split, (name,), outputs, siblings[0].loc),
    )
