"""Random weights of one rank, made on the device: speed does not depend on what weights say, only on their bytes.

What it does depend on is which experts a step reads, so norms are ones and matrices keep the size of what they are
given: routers then see rows that differ, and choose experts almost evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Weight
from ddtreec_runtime.backends.cuda.layouts import LAYOUTS
from ddtreec_runtime.backends.cuda.weights import PLAIN, device_dtype
from ddtreec_runtime.weights.int4 import PER_WORD

DISTINCT = 4
"""Experts of a weight that are drawn; the others are copies of them in memory of their own."""


def synthetic_weights(
    weights: Sequence[Weight],
    layouts: Mapping[str, str],
    device: torch.device | str,
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Tensor]:
    """A tensor for each weight, in the layout that its kernels read. `progress`: as of a load, in bytes of the plan."""
    draw = torch.Generator(device).manual_seed(seed)
    total, done = sum(weight.bytes for weight in weights), 0
    made: dict[str, Tensor] = {}
    for weight in weights:
        made[weight.id] = _made(weight, layouts.get(weight.id, PLAIN), device, draw)
        done += weight.bytes
        if progress is not None:
            progress(done, total, weight.id)
    return made


def _made(weight: Weight, layout: str, device: torch.device | str, draw: torch.Generator) -> Tensor:
    if weight.packing == "int4" and layout != PLAIN:
        return _packed(weight, layout, device, draw)
    kind = device_dtype(weight)
    if len(weight.shape) == 1:
        ones = weight.role == "norm" or "norm" in weight.id
        return torch.ones(weight.shape, dtype=kind, device=device) * (1.0 if ones else 0.0)
    dense = torch.empty(weight.shape, dtype=kind, device=device)
    dense.normal_(0.0, weight.shape[-1] ** -0.5, generator=draw)
    return dense if layout == PLAIN else LAYOUTS[layout].dense(dense)


def _packed(weight: Weight, layout: str, device: torch.device | str, draw: torch.Generator) -> Tensor:
    """Nibbles of every value, and scales that make matrices of the size of dense ones (a nibble is 4.6 on average)."""
    experts, rows, cols = weight.shape
    drawn = min(DISTINCT, experts)
    words = torch.randint(
        -(2**31), 2**31, (drawn, rows, cols // PER_WORD), dtype=torch.int64, generator=draw, device=device
    )
    scale = torch.full((drawn, rows, cols // weight.group), cols**-0.5 / 4.6, dtype=torch.bfloat16, device=device)
    tiles = LAYOUTS[layout].packed(words.to(torch.int32), scale)
    out = torch.empty(experts, *tiles.shape[1:], dtype=tiles.dtype, device=device)
    for expert in range(experts):
        out[expert] = tiles[expert % drawn]
    return out
