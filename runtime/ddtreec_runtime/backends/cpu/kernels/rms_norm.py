"""Root mean square norm over the last axis."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor


def rms_norm(y: Tensor, x: Tensor, weight: Tensor, *, eps: float) -> None:
    """y = x / sqrt(mean(x^2) + eps) * weight; statistics and product in float32 or wider, rounded once."""
    bind_rms_norm(y, x, weight, eps=eps)()


def bind_rms_norm(y: Tensor, x: Tensor, weight: Tensor, *, eps: float) -> Callable[[], object]:
    """See `rms_norm`."""
    size = x.shape[-1]
    if x.dtype == torch.bfloat16:
        return partial(_rounded, y, x, weight, eps)
    if x.numel() == size:
        return _one_row(y.view(size), x.view(size), weight, eps)
    share, least = 1 / size, torch.full((), eps, dtype=x.dtype)

    def run() -> None:
        # The norm of a row is one operation; square, mean and sum are three.
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        torch.mul(x, torch.addcmul(least, norm, norm, value=share).rsqrt_(), out=y)
        y.mul_(weight)

    return run


def _one_row(y: Tensor, x: Tensor, weight: Tensor, eps: float) -> Callable[[], object]:
    """The factor of a lone row is a number, from one dot product."""
    size, zero = len(x), torch.zeros_like(x)

    def run() -> None:
        factor = (torch.dot(x, x).item() / size + eps) ** -0.5
        torch.addcmul(zero, x, weight, value=factor, out=y)

    return run


def _rounded(y: Tensor, x: Tensor, weight: Tensor, eps: float) -> None:
    """bfloat16, computed in float32."""
    wide = x.float()
    y.copy_(wide * wide.square().mean(-1, keepdim=True).add_(eps).rsqrt_() * weight.float())
