"""Matrix product with a weight stored [to, from]."""

from __future__ import annotations

import torch
from torch import Tensor


def linear(y: Tensor, x: Tensor, weight: Tensor) -> None:
    """y [r, *to] = x [r, *from] @ weight.T with weight [to, from]; axes after the first are flattened."""
    rows = x.shape[0]
    x = x.reshape(rows, -1)
    if y.is_contiguous():
        torch.mm(x, weight.t(), out=y.view(rows, -1))
    else:
        y.copy_(torch.mm(x, weight.t()).view(y.shape))
