"""What one rank holds of a checkpoint tensor, in words and as ranges."""

from __future__ import annotations

from collections.abc import Sequence

from ddtreec.artifacts.plan import Mesh, Shard, Weight, WeightPart

OVER = {"rank": "all ranks", "ep": "ep", "tp": "tp"}


def ranges(part: WeightPart, mesh: Mesh, rank: int) -> tuple[tuple[int, int], ...]:
    """(start, stop) along each axis of `part.dims` that `rank` reads: the take, then the cut."""
    found = list(part.take or tuple((0, n) for n in part.dims))
    if part.shard is not None:
        start, stop = found[part.shard.axis]
        size = (stop - start) // part.shard.count
        begin = start + size * mesh.coord(part.shard.coord, rank)
        found[part.shard.axis] = begin, begin + size
    return tuple(found)


def experts_of(weight: Weight, mesh: Mesh, rank: int) -> tuple[int, int] | None:
    """(first, behind the last) expert that `rank` holds; None for a weight without experts. `weight.experts` counts
    those of one rank."""
    if not weight.experts:
        return None
    shard = weight.expert_shard
    first = weight.experts * mesh.coord(shard.coord, rank) if shard else 0
    return first, first + weight.experts


def range_words(bounds: Sequence[tuple[int, int]], dims: Sequence[int]) -> str:
    """'0..127, :' for the first 128 rows and all columns."""
    return ", ".join(":" if (a, b) == (0, n) else f"{a}..{b - 1}" for (a, b), n in zip(bounds, dims, strict=True))


def cut_words(weight: Weight, part: WeightPart, mesh: Mesh) -> str:
    """How a tensor is taken apart over ranks: 'axis 0 in 8 over all ranks', 'experts in 2 over ep', 'whole'."""
    words: list[str] = []
    if weight.expert_shard is not None and weight.expert_shard.count > 1:
        words.append(f"experts in {_shard(weight.expert_shard)}")
    if part.shard is not None and part.shard.count > 1:
        words.append(f"axis {part.shard.axis} in {_shard(part.shard)}")
    if part.take and any(t != (0, n) for t, n in zip(part.take, part.dims, strict=True)):
        words.append(f"takes [{range_words(part.take, part.dims)}]")
    if not words:
        return "whole" if mesh.ranks == 1 else "whole, on every rank"
    return ", ".join(words)


def _shard(shard: Shard) -> str:
    return f"{shard.count} over {OVER[shard.coord]}"
