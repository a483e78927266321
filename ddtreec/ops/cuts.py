"""Cutting weights over ranks: the only place where a `Shard` is made."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddtreec.artifacts.plan import Shard, Weight

Coord = Literal["rank", "ep", "tp"]


def cut(weight: Weight, axis: int, count: int, coord: Coord = "rank", lead: int = 0) -> Weight:
    """`weight` with every part cut into `count` equal runs along the part's `axis`. `lead` is how many axes its shape
    has in front of those of the parts (1 for experts). The axis must divide (see `divides`)."""
    if count == 1:
        return weight
    parts = tuple(msgspec.structs.replace(p, shard=Shard(axis, count, coord)) for p in weight.parts)
    shape = list(weight.shape)
    shape[axis + lead] //= count
    return msgspec.structs.replace(weight, parts=parts, shape=tuple(shape), bytes=weight.bytes // count)


def cut_experts(weight: Weight, count: int) -> Weight:
    """`weight` with its experts dealt out to `count` ep coordinates, in runs."""
    if count == 1:
        return weight
    shape = (weight.shape[0] // count, *weight.shape[1:])
    return msgspec.structs.replace(weight, expert_shard=Shard(0, count, "ep"), shape=shape, bytes=weight.bytes // count)


def divides(size: int, count: int, group: int = 0) -> bool:
    """Whether `size` falls into `count` equal runs, none of which cuts an INT4 group of `group` (0: no groups)."""
    return size % count == 0 and (not group or (size // count) % group == 0)
