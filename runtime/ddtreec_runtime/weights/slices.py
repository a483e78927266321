"""Works out which run of which checkpoint tensor one rank holds: the plan's Weight and Mesh made concrete.

No torch here, and no data: a `WeightSlice` is a plain value. Two ranks (or two weights) that need the same bytes have
equal slices, which is how the loader shares them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ddtreec.artifacts.plan import Mesh, Shard, Weight, WeightPart
from ddtreec.core.errors import VerifyError

EXPERT = "{expert}"


@dataclass(frozen=True, slots=True)
class PartSlice:
    """One tensor (or pattern) seen as `dims`, and the (start, stop) range kept of every axis."""

    tensor: str
    dims: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Shape of what is kept."""
        return tuple(stop - start for start, stop in self.ranges)


@dataclass(frozen=True, slots=True)
class WeightSlice:
    """What one rank holds of one weight. `experts`: (first, stop) expert numbers, (0, 0) for a plain weight."""

    store: str
    parts: tuple[PartSlice, ...]
    shape: tuple[int, ...]
    packing: Literal["dense", "int4"]
    group: int
    product: Literal["exact", "bf16"]
    precision: Literal["compute", "float32"]
    experts: tuple[int, int]

    @property
    def names(self) -> list[tuple[str, int]]:
        """Every (tensor name, index of its part), expert after expert."""
        first, stop = self.experts
        return [
            (part.tensor.replace(EXPERT, str(expert)), index)
            for expert in range(first, max(stop, first + 1))
            for index, part in enumerate(self.parts)
        ]


def resolve(weight: Weight, mesh: Mesh, rank: int) -> WeightSlice:
    """Slice of `weight` that `rank` holds. Raises VerifyError when the plan contradicts itself (a bug of ours)."""
    parts = tuple(_part(weight, part, mesh, rank) for part in weight.parts)
    experts = (0, 0)
    if weight.experts:
        experts = (0, weight.experts)
        if weight.expert_shard is not None:
            experts = _run(weight, experts, weight.expert_shard, mesh, rank)
    count = max(1, experts[1] - experts[0]) * sum(math.prod(part.sizes) for part in parts)
    if count != math.prod(weight.shape):
        raise _bug(
            weight, f"its parts make {count} elements on rank {rank}, its shape {weight.shape} wants another count"
        )
    return WeightSlice(
        weight.store, parts, weight.shape, weight.packing, weight.group, weight.product, weight.precision, experts
    )


def _part(weight: Weight, part: WeightPart, mesh: Mesh, rank: int) -> PartSlice:
    if (EXPERT in part.tensor) != bool(weight.experts):
        raise _bug(weight, f"'{part.tensor}' and experts = {weight.experts} do not go together")
    ranges = list(part.take) or [(0, dim) for dim in part.dims]
    if len(ranges) != len(part.dims):
        raise _bug(weight, f"take has {len(ranges)} ranges for dims {part.dims}")
    for (start, stop), dim in zip(ranges, part.dims, strict=True):
        if not 0 <= start < stop <= dim:
            raise _bug(weight, f"range ({start}, {stop}) does not lie in an axis of {dim}")
    if part.shard is not None:
        axis = part.shard.axis
        if not 0 <= axis < len(ranges):
            raise _bug(weight, f"shard axis {axis} of dims {part.dims}")
        ranges[axis] = _run(weight, ranges[axis], part.shard, mesh, rank)
    return PartSlice(part.tensor, part.dims, tuple(ranges))


def _run(weight: Weight, span: tuple[int, int], shard: Shard, mesh: Mesh, rank: int) -> tuple[int, int]:
    """Run number `mesh.coord(shard.coord, rank)` of `shard.count` equal runs of `span`."""
    start, stop = span
    number = mesh.coord(shard.coord, rank)
    if (stop - start) % shard.count or not 0 <= number < shard.count:
        raise _bug(weight, f"run {number} of {shard.count} equal runs of {stop - start}")
    run = (stop - start) // shard.count
    return (start + number * run, start + (number + 1) * run)


def row_axes(dims: Sequence[int], shape: Sequence[int]) -> int | None:
    """How many leading `dims` make up the rows of a tensor of `shape`; None if `dims` is not a view of it.

    Rows are all axes but the last (torch Linear [out, in]); a vector [n] has rows only.
    """
    if len(shape) <= 1:
        return len(dims) if math.prod(dims) == math.prod(shape) else None
    rows, cols = math.prod(shape[:-1]), shape[-1]
    for axes in range(len(dims) + 1):
        if math.prod(dims[:axes]) == rows and math.prod(dims[axes:]) == cols:
            return axes
    return None


def _bug(weight: Weight, reason: str) -> VerifyError:
    return VerifyError("plan", weight.id, reason)
