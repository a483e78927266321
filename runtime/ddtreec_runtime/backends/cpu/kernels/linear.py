"""Matrix product with a weight stored [to, from]."""

from __future__ import annotations

import torch
from torch import Tensor


def linear(y: Tensor, x: Tensor, weight: Tensor) -> None:
    """y [r, *to] = x [r, *from] @ weight.T with weight [to, from]; axes after the first are flattened."""
    if x.dim() > 2:
        x = x.flatten(1)
    if y.is_contiguous():
        torch.mm(x, weight.t(), out=y if y.dim() == 2 else y.view(y.shape[0], weight.shape[0]))
    else:
        y.copy_(torch.mm(x, weight.t()).view(y.shape))
