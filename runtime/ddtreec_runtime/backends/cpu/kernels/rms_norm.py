"""Root mean square norm over the last axis."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(y: Tensor, x: Tensor, weight: Tensor, *, eps: float) -> None:
    """y = x / sqrt(mean(x^2) + eps) * weight; statistics and product in float32 or wider, rounded once."""
    wide = x if x.dtype != torch.bfloat16 else x.float()
    inverse = wide.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
    if wide is x:
        torch.mul(x, inverse, out=y)
        y.mul_(weight)
    else:
        y.copy_(wide * inverse * weight.float())
