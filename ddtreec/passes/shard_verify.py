"""The verifier of shard. Looks at the programs before and after and knows nothing of the search."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from ddtreec.artifacts.plan import Mesh, Shard, Weight
from ddtreec.core.errors import VerifyError
from ddtreec.graph.layer_graph import LayerGraph, Node
from ddtreec.ops.all_gather import AllGather
from ddtreec.ops.all_reduce import AllReduce
from ddtreec.ops.base import Op, TensorType
from ddtreec.passes.programs import Programs, all_weights


def verify(before: Programs, after: Programs, mesh: Mesh) -> None:
    """Every weight is held exactly once over the ranks or wholly by each; every value has a placement that its readers
    take (a partial sum reaches an all_reduce or another sum, nothing else); shapes of a rank times the ranks are those
    before; values that outlive a program are whole. Raises VerifyError."""
    if mesh.ep * mesh.tp != mesh.ranks:
        raise VerifyError("shard", "mesh", f"ep {mesh.ep} x tp {mesh.tp} is not {mesh.ranks} ranks")
    for name, graph in after.graphs.items():
        _verify_graph(before.graphs[name], graph, mesh)
    all_weights(after)


def _verify_graph(before: LayerGraph, after: LayerGraph, mesh: Mesh) -> None:
    whole = {node.id: node for node in before}
    where: dict[str, str] = dict.fromkeys(after.inputs, "R")
    origin: dict[str, TensorType] = dict(before.inputs)
    met: set[str] = set()
    for node in after:
        placements = tuple(where[v] for v in node.inputs)
        if isinstance(node.op, (AllReduce, AllGather)):
            _verify_collective(node, node.op, placements[0], mesh)
            where[node.outputs[0]] = "R"
            origin[node.outputs[0]] = origin[node.inputs[0]]
        else:
            old = whole.get(node.id)
            if old is None:
                raise VerifyError("shard", node.id, "comes from nowhere")
            met.add(node.id)
            if tuple(v.removesuffix(".part") for v in (*node.inputs, *node.outputs)) != (*old.inputs, *old.outputs):
                raise VerifyError("shard", node.id, f"reads or writes other values than {old.inputs} and {old.outputs}")
            given = _placements(node, old, placements, tuple(origin[v] for v in node.inputs), mesh)
            where.update(zip(node.outputs, given, strict=True))
            origin.update(zip(node.outputs, (before.types[v] for v in old.outputs), strict=True))
            _verify_weights(node, old.op, mesh)
        for value in node.outputs:
            _verify_shape(node, value, origin[value], after.types[value], where[value], mesh)
    _verify_ends(before, after, where, set(whole) - met)


def _verify_ends(before: LayerGraph, after: LayerGraph, where: Mapping[str, str], lost: set[str]) -> None:
    if lost:
        raise VerifyError("shard", min(lost), "was dropped")
    if after.layer_outputs != before.layer_outputs:
        raise VerifyError("shard", after.name, "the residual after a layer is another value")
    for value in (*after.outputs, *after.layer_outputs):
        if where[value] != "R":
            raise VerifyError("shard", value, f"outlives the program but is placed '{where[value]}'")


def _verify_collective(node: Node, op: AllReduce | AllGather, placement: str, mesh: Mesh) -> None:
    wanted = "P" if isinstance(op, AllReduce) else f"S{op.axis}"
    if placement != wanted:
        raise VerifyError("shard", node.id, f"takes a value placed '{wanted}', but gets '{placement}'")
    if isinstance(op, AllGather) and op.ranks != mesh.ranks:
        raise VerifyError("shard", node.id, f"joins {op.ranks} slices of {mesh.ranks} ranks")


def _placements(
    node: Node, old: Node, placements: tuple[str, ...], ins: tuple[TensorType, ...], mesh: Mesh
) -> tuple[str, ...]:
    """Placements of the outputs, by the strategy of the whole op that gives this op and takes these placements."""
    same = [s for s in old.op.strategies(ins, mesh) if s.op == node.op]
    if not same:
        raise VerifyError("shard", node.id, "is none of the ways to run the op it was")
    for strategy in same:
        if strategy.ins == placements:
            return strategy.outs
    raise VerifyError("shard", node.id, f"takes values placed {same[0].ins}, but gets {placements}")


def _verify_shape(node: Node, value: str, whole: TensorType, local: TensorType, placement: str, mesh: Mesh) -> None:
    shape = list(local.shape)
    if placement.startswith("S"):
        axis = int(placement[1:])
        shape[axis] = int(shape[axis]) * mesh.ranks
    if (tuple(shape), local.dtype) != (whole.shape, whole.dtype):
        raise VerifyError("shard", node.id, f"'{value}' is {local} placed '{placement}', but was {whole}")


# ---- weights ------------------------------------------------------------------------------------------------------


def _verify_weights(node: Node, old: Op, mesh: Mesh) -> None:
    for weight, whole in zip(node.op.weights(), old.weights(), strict=True):
        if (weight.id, weight.role, weight.store, weight.packing, weight.group, weight.experts) != (
            whole.id,
            whole.role,
            whole.store,
            whole.packing,
            whole.group,
            whole.experts,
        ):
            raise VerifyError("shard", node.id, f"weight '{weight.id}' became another than '{whole.id}'")
        verify_tiling(node.id, weight, whole, mesh)


def verify_tiling(node: str, weight: Weight, whole: Weight, mesh: Mesh) -> None:
    """Over all ranks the slices are the tensor once, or each rank holds it all; shape and bytes are a slice's."""

    def fail(reason: str) -> None:
        raise VerifyError("shard", node, f"weight '{weight.id}': {reason}")

    rows = 0
    for part, origin in zip(weight.parts, whole.parts, strict=True):
        if (part.tensor, part.dims, part.take) != (origin.tensor, origin.dims, origin.take):
            fail(f"'{part.tensor}' is viewed in another way than '{origin.tensor}'")
        extents = [stop - start for start, stop in part.take] if part.take else list(part.dims)
        cut = part.shard
        if cut is not None:
            if extents[cut.axis] % cut.count:
                fail(f"{cut.count} runs do not divide axis {cut.axis} of {extents}")
            extents[cut.axis] //= cut.count
            run = extents[cut.axis]
            if weight.group and cut.axis == len(extents) - 1 and run % weight.group:
                fail(f"a run of {run} cuts INT4 groups of {weight.group}")
        slices = Counter((_run(weight.expert_shard, mesh, r), _run(cut, mesh, r)) for r in range(mesh.ranks))
        total = (weight.expert_shard.count if weight.expert_shard else 1) * (cut.count if cut else 1)
        if len(slices) != total or total not in (1, mesh.ranks):
            fail(f"'{part.tensor}' falls in {total} slices, of which {mesh.ranks} ranks hold {len(slices)}")
        rows += math.prod(extents)
    experts = weight.experts
    if weight.expert_shard is not None:
        if experts % weight.expert_shard.count:
            fail(f"{experts} experts do not divide by {weight.expert_shard.count}")
        experts //= weight.expert_shard.count
    held = rows * (experts or 1)
    if held != math.prod(weight.shape):
        fail(f"its slices hold {held} elements, its shape {weight.shape} {math.prod(weight.shape)}")
    if weight.bytes * math.prod(whole.shape) != whole.bytes * math.prod(weight.shape):
        fail(f"{weight.bytes} bytes for {weight.shape}, of {whole.bytes} for {whole.shape}")


def _run(shard: Shard | None, mesh: Mesh, rank: int) -> int:
    return 0 if shard is None else mesh.coord(shard.coord, rank)
