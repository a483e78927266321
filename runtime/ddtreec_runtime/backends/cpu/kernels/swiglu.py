"""Gated activation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu


def swiglu(y: Tensor, gate: Tensor, up: Tensor) -> None:
    """y = silu(gate) * up; in bfloat16 silu and product are rounded once each."""
    torch.mul(silu(gate), up, out=y)
