"""Random weights of one rank, made on the device: speed does not depend on what weights say, only on their bytes.

What it does depend on is which experts a step reads, so every layer's rows must differ as those of a text do. Norms are
ones, matrices keep the size of what they are given and have no mean, and embeddings are so large that they stay most of
the residual: blocks add about 1 each in a hundred places, and part of that is the same for all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Weight
from ddtreec_runtime.backends.cuda.layouts import LAYOUTS
from ddtreec_runtime.backends.cuda.weights import PLAIN, device_dtype
from ddtreec_runtime.weights.int4 import PER_WORD

DISTINCT = 4
"""Experts of a weight that are drawn; the others are copies of them in memory of their own."""

EMBEDDED = 64.0
"""Standard deviation of embeddings."""
NIBBLE = 4.6
"""Standard deviation of the numbers -8 to 7."""


def synthetic_weights(
    weights: Sequence[Weight],
    layouts: Mapping[str, str],
    device: torch.device | str,
    embeddings: Collection[str] = (),
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Tensor]:
    """A tensor for each weight, in the layout that its kernels read. `embeddings`: ids of the weights whose rows begin
    the residual. `progress`: as of a load, in bytes of the plan."""
    draw = torch.Generator(device).manual_seed(seed)
    total, done = sum(weight.bytes for weight in weights), 0
    made: dict[str, Tensor] = {}
    for weight in weights:
        size = EMBEDDED if weight.id in embeddings else weight.shape[-1] ** -0.5
        made[weight.id] = _made(weight, layouts.get(weight.id, PLAIN), device, draw, size)
        done += weight.bytes
        if progress is not None:
            progress(done, total, weight.id)
    return made


def _made(weight: Weight, layout: str, device: torch.device | str, draw: torch.Generator, size: float) -> Tensor:
    if weight.packing == "int4" and layout != PLAIN:
        return _packed(weight, layout, device, draw)
    kind = device_dtype(weight)
    if len(weight.shape) == 1:
        ones = weight.role == "norm" or "norm" in weight.id
        return torch.ones(weight.shape, dtype=kind, device=device) * (1.0 if ones else 0.0)
    dense = torch.empty(weight.shape, dtype=kind, device=device)
    dense.normal_(0.0, size, generator=draw)
    return dense if layout == PLAIN else LAYOUTS[layout].dense(dense)


def _packed(weight: Weight, layout: str, device: torch.device | str, draw: torch.Generator) -> Tensor:
    """A few experts, each repeated in memory of its own."""
    experts = weight.shape[0]
    words, scale = drawn_int4((min(DISTINCT, experts), *weight.shape[1:]), weight.group, device, draw)
    tiles = LAYOUTS[layout].packed(words, scale)
    out = torch.empty(experts, *tiles.shape[1:], dtype=tiles.dtype, device=device)
    for expert in range(experts):
        out[expert] = tiles[expert % len(tiles)]
    return out


def drawn_int4(
    shape: Sequence[int], group: int, device: torch.device | str, draw: torch.Generator
) -> tuple[Tensor, Tensor]:
    """int32 words [.., cols / 8] and bfloat16 scales [.., cols / group] of matrices as large as dense ones.

    Nibbles take every value, so their mean is -1/2. Scales have either sign: with one, the mean of a matrix sends what
    rows have in common back into the residual, larger with every layer, until all rows are one.
    """
    *outer, cols = shape
    words = torch.randint(-(2**31), 2**31, (*outer, cols // PER_WORD), dtype=torch.int64, generator=draw, device=device)
    signs = torch.randint(0, 2, (*outer, cols // group), generator=draw, device=device) * 2 - 1
    return words.to(torch.int32), (signs * (cols**-0.5 / NIBBLE)).to(torch.bfloat16)
