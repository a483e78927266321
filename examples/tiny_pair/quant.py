"""Symmetric INT4 with one bfloat16 scale per 32 inputs, packed as compressed-tensors packs it."""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 32


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight [..., out, in] -> q int32 in -8..7 of the same shape, and bfloat16 scales [..., out, in / 32].

    The scale is absmax / 7.5, so the largest positive value saturates at 7.
    """
    groups = weight.float().unflatten(-1, (-1, GROUP))
    scale = (groups.abs().amax(-1) / 7.5).clamp(min=1e-8).to(torch.bfloat16)
    q = (groups / scale.float().unsqueeze(-1)).round().clamp(-8, 7)
    return q.flatten(-2).to(torch.int32), scale


def dequantise(q: Tensor, scale: Tensor) -> Tensor:
    """The bfloat16 weight that readers of the format compute: the product rounded to bfloat16."""
    wide = q.float().unflatten(-1, (-1, GROUP)) * scale.float().unsqueeze(-1)
    return wide.flatten(-2).to(torch.bfloat16)


def fake_quantise(weight: Tensor) -> Tensor:
    """`weight` as it will read back after packing."""
    return dequantise(*quantise(weight))


def pack(q: Tensor) -> Tensor:
    """q [out, in] in -8..7 -> int32 [out, in / 8]: offset binary, element 0 in the lowest nibble."""
    nibbles = (q + 8).to(torch.int64).unflatten(-1, (-1, 8))
    word = (nibbles << torch.arange(0, 32, 4)).sum(-1)
    return torch.where(word >= 2**31, word - 2**32, word).to(torch.int32)


def unpack(packed: Tensor) -> Tensor:
    """Inverse of `pack`."""
    shifts = torch.arange(0, 32, 4)
    return (((packed.to(torch.int64).unsqueeze(-1) >> shifts) & 15) - 8).flatten(-2).to(torch.int32)
