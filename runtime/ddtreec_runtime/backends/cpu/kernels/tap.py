"""Copy a residual into the drafter's features."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor


def tap(features: Tensor, x: Tensor, *, index: int) -> None:
    """features [r, taps * H]: columns [index * H, (index + 1) * H) = x [r, H]."""
    bind_tap(features, x, index=index)()


def bind_tap(features: Tensor, x: Tensor, *, index: int) -> Callable[[], object]:
    """See `tap`."""
    hidden = x.shape[-1]
    return partial(features[:, index * hidden : (index + 1) * hidden].copy_, x)
