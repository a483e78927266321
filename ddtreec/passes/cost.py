"""Says what a step moves, computes and takes: bytes, FLOPs, floor and predicted time a node, row count and context.

Runs last and changes nothing. Facts come from the topology spec, formulas from the ops.

- floor of a node: max(weight and cache bytes / best read rate, FLOPs / peak). What no kernel can beat.
- predicted time of a node: launch gaps + max(all bytes / read rate at that size, FLOPs / peak).
- where the topology has measured kernels: launches, each begun while the one before it ends, and for every part, by its
  kind of op, what kernels take besides + bytes / (share x best read rate) + FLOPs / FLOP rate. Reads of successive
  launches then follow each other without a pause, so no rate belongs to the size of one; and it is a sum, since with
  few rows a kernel reads, multiplies and hands over in turn far more than at the same time.
- a collective takes what the topology's latency table says for its payload.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import cast

from ddtreec.artifacts.plan import Weight
from ddtreec.core.errors import VerifyError
from ddtreec.core.units import parse_bytes, parse_rate
from ddtreec.graph.layer_graph import LayerGraph
from ddtreec.ops.base import At, Cost, Op, TensorType
from ddtreec.ops.fused import Fused
from ddtreec.passes.fuse import LAUNCHES_OF
from ddtreec.passes.memory import held_bytes
from ddtreec.spec.schema import TopologySpec

COLLECTIVES = ("all_reduce", "all_gather")
PRODUCTS = ("linear", "q_absorb", "v_up")
"""Kinds whose kernels are matrix products; the topology tells of them as `linear`."""


@dataclass(frozen=True)
class Reached:
    """What the kernels of an op take: `fixed` seconds, the share `read` of the best read rate, `flops` a second."""

    fixed: float
    read: float
    flops: float


@dataclass(frozen=True)
class Rates:
    """The topology in numbers: `read` (bytes, bytes/s), `flops` a second, `launch` seconds between two launches, and
    (bytes, seconds) points of each collective. One rank's device and its links. `backend` says how weights are held.
    `kernels`: what was measured of ours, by kind of op; then `launch` is from one early launch to the next."""

    read: tuple[tuple[float, float], ...]
    flops: float
    launch: float
    links: dict[str, tuple[tuple[float, float], ...]] = field(
        default_factory=dict[str, tuple[tuple[float, float], ...]]
    )

    backend: str = "cuda"
    kernels: Mapping[str, Reached] = field(default_factory=dict[str, Reached])

    @classmethod
    def of(cls, topology: TopologySpec) -> Rates:
        """Read from a validated topology spec."""
        device, link = topology.device, topology.link
        links: dict[str, tuple[tuple[float, float], ...]] = {}
        if link is not None:
            for kind, points in (("all_reduce", link.all_reduce_us), ("all_gather", link.all_gather_us)):
                links[kind] = tuple(sorted((float(parse_bytes(size)), us * 1e-6) for size, us in points))
        read = tuple(sorted((float(parse_bytes(size)), parse_rate(rate)) for size, rate in device.read_rate))
        given = device.kernels
        told = {} if given is None else {name: getattr(given, name) for name in type(given).model_fields}
        kernels = {name: Reached(one.us * 1e-6, one.read, one.flops) for name, one in told.items() if one is not None}
        kernels |= {kind: kernels["linear"] for kind in PRODUCTS if "linear" in kernels}
        launch = device.launch_us if device.early_us is None else device.early_us
        return cls(read, device.flops, launch * 1e-6, links, topology.backend, kernels)

    @property
    def peak(self) -> float:
        """The best read rate in bytes/s, whatever the size."""
        return max(rate for _, rate in self.read)

    def rate(self, size: float) -> float:
        """Read rate in bytes/s of one transfer of `size` bytes: straight lines over log(bytes), flat outside."""
        if size <= self.read[0][0]:
            return self.read[0][1]
        if size >= self.read[-1][0]:
            return self.read[-1][1]
        index = bisect_right(self.read, (size, math.inf))
        (low, slow), (high, fast) = self.read[index - 1], self.read[index]
        return slow + (fast - slow) * math.log(size / low) / math.log(high / low)

    def cost(self, op: Op, ins: tuple[TensorType, ...], at: At) -> Cost:
        """What one node moves and computes, with weights as the backend holds them."""
        cost = op.cost(ins, at)
        if self.backend != "cpu":
            return cost
        return replace(cost, weight_bytes=math.fsum(self._held(*part, at) for part in parts(op, ins)))

    def _held(self, op: Op, ins: tuple[TensorType, ...], at: At) -> float:
        """Bytes of weights that one part reads, where the backend does not hold them as the checkpoint does."""
        read, packed = op.cost(ins, at).weight_bytes, sum(w.bytes for w in op.weights())
        held = sum(held_bytes(w, self.backend, at.itemsize) for w in op.weights())
        return read * held / packed if packed else read

    def floor(self, cost: Cost) -> float:
        """Seconds that no kernel can beat."""
        return max((cost.weight_bytes + cost.cache_bytes) / self.peak, cost.flops / self.flops)

    def launches(self, op: Op) -> int:
        """Launches of a node: none for a rename; on a GPU the stages of its kernel; on a CPU one each, and those of
        all parts of a fused one."""
        if self.backend == "cpu":
            return (
                sum(self.launches(part.op) for part in op.parts) if isinstance(op, Fused) else int(op.kind != "split")
            )
        return LAUNCHES_OF.get(op.launch if isinstance(op, Fused) else op.kind, 1)

    def predicted(self, op: Op, ins: tuple[TensorType, ...], at: At) -> float:
        """Seconds of a node, with the gap before each of its launches; 0 for one that only renames."""
        launches = self.launches(op)
        if not launches:
            return 0.0
        cost = self.cost(op, ins, at)
        gaps = launches * self.launch
        if not self.kernels:
            return gaps + max(cost.bytes / self.rate(cost.bytes), cost.flops / self.flops)
        return gaps + cost.activation_bytes / self.peak + math.fsum(self._reached(*part, at) for part in parts(op, ins))

    def _reached(self, op: Op, ins: tuple[TensorType, ...], at: At) -> float:
        """Seconds of one part besides launches and activations, as kernels of its kind were measured."""
        cost, like = self.cost(op, ins, at), self.kernels.get(op.kind, Reached(0.0, 1.0, self.flops))
        return like.fixed + (cost.weight_bytes + cost.cache_bytes) / (like.read * self.peak) + cost.flops / like.flops

    def collective(self, kind: str, size: float) -> float:
        """Seconds of a collective of `size` bytes payload: straight lines between points, last slope kept, first value
        before the first point; 0 where the topology has no links."""
        points = self.links.get(kind, ())
        if not points:
            return 0.0
        if size <= points[0][0] or len(points) == 1:
            return points[0][1]
        index = min(bisect_right(points, (size, math.inf)), len(points) - 1)
        (low, quick), (high, slow) = points[index - 1], points[index]
        return quick + (slow - quick) * (size - low) / (high - low)


def parts(op: Op, ins: tuple[TensorType, ...]) -> Iterator[tuple[Op, tuple[TensorType, ...]]]:
    """The parts of a node with what they read: of a fused one all, else itself."""
    if not isinstance(op, Fused):
        yield op, ins
        return
    types = op.types(ins)
    for part in op.parts:
        yield part.op, tuple(types[v] for v in part.inputs)


@dataclass(frozen=True)
class Pricer:
    """What the shard pass asks while it compares layouts, at one operating point."""

    rates: Rates
    at: At

    def price(self, op: Op, ins: tuple[TensorType, ...]) -> float:
        """Predicted seconds of one launch of `op` on one rank."""
        return self.rates.predicted(op, ins, self.at)

    def collective(self, kind: str, size: float) -> float:
        """Predicted seconds of a collective of `size` bytes."""
        return self.rates.collective(kind, size)


def make_pricer(topology: TopologySpec, at: At) -> Pricer:
    """Prices on this topology at this point."""
    return Pricer(Rates.of(topology), at)


# ---- tables -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeCost:
    """One node. Seconds, on one rank."""

    node: str
    kind: str
    cost: Cost
    floor: float
    predicted: float
    launches: int


@dataclass(frozen=True, slots=True)
class StepCost:
    """One program at one point, summed over its nodes. `collective`: the part of `predicted` spent in links."""

    program: str
    at: At
    cost: Cost
    floor: float
    predicted: float
    collective: float
    launches: int


@dataclass(frozen=True)
class Costs:
    """What the cost pass found. `detail`: launches of each program at each of `rows`, in order."""

    target: tuple[StepCost, ...]
    drafts: tuple[StepCost, ...]
    rows: tuple[int, ...]
    detail: Mapping[str, tuple[tuple[NodeCost, ...], ...]]

    @property
    def draft_seconds(self) -> float:
        """One round's drafter passes: context and block."""
        return sum(step.predicted for step in self.drafts)


def payload(kind: str, ins: Sequence[TensorType], outs: Sequence[TensorType], at: At) -> float:
    """Bytes by which a collective is looked up: what a rank gives to an all-reduce, what it gets from an all-gather."""
    return float(sum(at.nbytes(t) for t in (outs if kind == "all_gather" else ins)))


class Costed:
    """A program ready to be priced at many points: launches of one signature are priced once a point."""

    def __init__(self, graph: LayerGraph, rates: Rates):
        self.graph, self.rates = graph, rates
        self._ins = [tuple(graph.types[v] for v in node.inputs) for node in graph]
        self._keys = [(signature(node.op), ins) for node, ins in zip(graph, self._ins, strict=True)]

    def nodes(self, at: At) -> list[NodeCost]:
        """Every node at one point, in order; nodes that only rename values (split) take no time."""
        known: dict[object, NodeCost] = {}
        result: list[NodeCost] = []
        for node, ins, key in zip(self.graph, self._ins, self._keys, strict=True):
            like = known.get(key)
            if like is None:
                like = known[key] = self._price(node.id, node.op, ins, at)
            result.append(NodeCost(node.id, like.kind, like.cost, like.floor, like.predicted, like.launches))
        return result

    def step(self, at: At) -> StepCost:
        """The whole program at one point."""
        nodes = self.nodes(at)
        total = Cost(
            math.fsum(n.cost.weight_bytes for n in nodes),
            math.fsum(n.cost.cache_bytes for n in nodes),
            math.fsum(n.cost.activation_bytes for n in nodes),
            math.fsum(n.cost.flops for n in nodes),
        )
        return StepCost(
            program=self.graph.name,
            at=at,
            cost=total,
            floor=math.fsum(n.floor for n in nodes),
            predicted=math.fsum(n.predicted for n in nodes),
            collective=math.fsum(n.predicted for n in nodes if n.kind in COLLECTIVES),
            launches=sum(n.launches for n in nodes),
        )

    def _price(self, name: str, op: Op, ins: tuple[TensorType, ...], at: At) -> NodeCost:
        if op.kind in COLLECTIVES:
            size = payload(op.kind, ins, op.infer(ins), at)
            return NodeCost(name, op.kind, Cost(), 0.0, self.rates.collective(op.kind, size), 1)
        cost, predicted = self.rates.cost(op, ins, at), self.rates.predicted(op, ins, at)
        return NodeCost(name, op.kind, cost, self.rates.floor(cost), predicted, self.rates.launches(op))


def signature(value: object) -> object:
    """All of an op that its cost can depend on: its kind and every number, weights by size, parts of parts; names and
    the layer it is in left out."""
    if isinstance(value, Weight):
        return value.shape, value.packing, value.bytes
    if isinstance(value, tuple):
        return tuple(map(signature, cast("tuple[object, ...]", value)))
    if is_dataclass(value):
        kept = (getattr(value, f.name) for f in fields(value) if f.name not in ("layer", "index"))
        return type(value), *map(signature, kept)
    return None if isinstance(value, str) else value


def verify_costs(steps: Iterable[StepCost], budget: int) -> tuple[float, ...]:
    """Seconds of a verify of n nodes besides the root, n = 0..budget: the step of the smallest bucket of n + 1 rows.

    `steps`: the target at each bucket.
    """
    by_rows = sorted((step.at.rows, step.predicted) for step in steps)
    return tuple(next(s for rows, s in by_rows if rows >= nodes + 1) for nodes in range(budget + 1))


def tokens_per_second(tau: float, verify: float, draft: float) -> float:
    """Tokens committed a second when a round of `verify` and `draft` seconds commits `tau`."""
    return tau / (verify + draft)


def verify(steps: Iterable[StepCost]) -> None:
    """Raises VerifyError where a prediction is not a positive number or lies below its floor."""
    for step in steps:
        name = f"{step.program} at {step.at.rows} rows"
        if not (math.isfinite(step.predicted) and step.predicted > 0):
            raise VerifyError("cost", name, f"predicted {step.predicted} s")
        if step.predicted < step.floor * (1 - 1e-9):
            raise VerifyError("cost", name, f"predicted {step.predicted} s, below its floor {step.floor} s")
