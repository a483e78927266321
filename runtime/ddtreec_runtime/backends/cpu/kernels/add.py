"""Sum of two values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor


def add(y: Tensor, a: Tensor, b: Tensor) -> None:
    """y = a + b."""
    bind_add(y, a, b)()


def bind_add(y: Tensor, a: Tensor, b: Tensor) -> Callable[[], object]:
    """See `add`."""
    return partial(torch.add, a, b, out=y)
