"""What one rank holds, by weight role: how each kind of weight is cut, and its bytes. Read off a plan."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from ddtreec.artifacts.plan import Mesh, Weight
from ddtreec.plan.slices import cut_words

_LAYER = re.compile(r"\.(\d+)\.")


class Holding(msgspec.Struct, frozen=True):
    """Weights that are alike but for their layer. `bytes` of one rank, all together, as the checkpoint packs them."""

    role: str
    store: str
    tensor: str
    count: int
    packing: str
    cut: str
    bytes: int


def holdings(weights: Iterable[Weight], mesh: Mesh) -> tuple[Holding, ...]:
    """The shard map: a row for each checkpoint tensor name (layers as `{layer}`) and way to cut it. Bytes of a weight
    of several tensors are shared out by what is taken of each."""
    found: dict[tuple[str, str, str, str, str], list[int]] = {}
    for weight in weights:
        packing = f"int4 g{weight.group}" if weight.packing == "int4" else "dense"
        rows = [_taken(part.dims, part.take) for part in weight.parts]
        for part, share in zip(weight.parts, rows, strict=True):
            name = _LAYER.sub(".{layer}.", part.tensor, count=1)
            key = weight.role, weight.store, name, packing, cut_words(weight, part, mesh)
            found.setdefault(key, []).append(weight.bytes * share // sum(rows))
    return tuple(
        Holding(role, store, tensor, len(sizes), packing, cut, sum(sizes))
        for (role, store, tensor, packing, cut), sizes in found.items()
    )


def _taken(dims: tuple[int, ...], take: tuple[tuple[int, int], ...]) -> int:
    size = 1
    for start, stop in take or tuple((0, n) for n in dims):
        size *= stop - start
    return size
