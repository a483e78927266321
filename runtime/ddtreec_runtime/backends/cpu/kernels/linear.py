"""Matrix product with a weight stored [to, from]."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor


def linear(y: Tensor, x: Tensor, weight: Tensor) -> None:
    """y [r, *to] = x [r, *from] @ weight.T with weight [to, from]; axes after the first are flattened."""
    bind_linear(y, x, weight)()


def bind_linear(y: Tensor, x: Tensor, weight: Tensor) -> Callable[[], object]:
    """See `linear`."""
    rows, turned = x.shape[0], weight.t()
    if all(t.dim() == 2 or t.is_contiguous() for t in (x, y)):
        return partial(torch.mm, x.view(rows, turned.shape[0]), turned, out=y.view(rows, turned.shape[1]))

    def run() -> None:
        y.copy_(torch.mm(x.flatten(1), turned).view(y.shape))

    return run
