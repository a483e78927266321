"""Matrix product with a weight stored [to, from]."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

WIDENED_ROWS = 4096
"""Rows of a weight that are widened at once."""


def linear(y: Tensor, x: Tensor, weight: Tensor) -> None:
    """y [r, *to] = x [r, *from] @ weight.T with weight [to, from]; axes after the first are flattened. A y wider than x
    (float32 logits of a bfloat16 engine) is not rounded to the dtype of x on its way."""
    bind_linear(y, x, weight)()


def bind_linear(y: Tensor, x: Tensor, weight: Tensor) -> Callable[[], object]:
    """See `linear`."""
    if y.dtype != x.dtype:
        return partial(_widened, y, x, weight)
    rows, turned = x.shape[0], weight.t()
    if all(t.dim() == 2 or t.is_contiguous() for t in (x, y)):
        return partial(torch.mm, x.view(rows, turned.shape[0]), turned, out=y.view(rows, turned.shape[1]))

    def run() -> None:
        y.copy_(torch.mm(x.flatten(1), turned).view(y.shape))

    return run


def _widened(y: Tensor, x: Tensor, weight: Tensor) -> None:
    """In the dtype of y, a few rows of the weight at a time: it may be too large for a second copy."""
    wide, into = x.flatten(1).to(y.dtype), y.view(y.shape[0], weight.shape[0])
    for start in range(0, weight.shape[0], WIDENED_ROWS):
        part = weight[start : start + WIDENED_ROWS]
        into[:, start : start + len(part)] = torch.mm(wide, part.to(y.dtype).t())
