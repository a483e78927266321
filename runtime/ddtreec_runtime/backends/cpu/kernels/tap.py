"""Copy a residual into the drafter's features."""

from __future__ import annotations

from torch import Tensor


def tap(features: Tensor, x: Tensor, *, index: int) -> None:
    """features [r, taps * H]: columns [index * H, (index + 1) * H) = x [r, H]."""
    hidden = x.shape[-1]
    features[:, index * hidden : (index + 1) * hidden] = x
