"""Root mean square norm over the last axis."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(y: Tensor, x: Tensor, weight: Tensor, *, eps: float) -> None:
    """y = x / sqrt(mean(x^2) + eps) * weight; statistics and product in float32 or wider, rounded once."""
    size = x.shape[-1]
    if x.dtype == torch.bfloat16:
        wide = x.float()
        y.copy_(wide * wide.square().mean(-1, keepdim=True).add_(eps).rsqrt_() * weight.float())
    elif x.numel() == size:  # one row: its sum of squares is one dot product
        row = x.flatten()
        inverse = (torch.dot(row, row).item() / size + eps) ** -0.5
        torch.mul(x, weight, out=y)
        y.mul_(inverse)
    else:
        torch.mul(x, x.square().mean(-1, keepdim=True).add_(eps).rsqrt_(), out=y)
        y.mul_(weight)
