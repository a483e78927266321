"""Keep only the rows the head is asked for."""

from __future__ import annotations

import torch
from torch import Tensor

from ddtreec_runtime.state import StepState


def take_rows(state: StepState, y: Tensor, x: Tensor) -> None:
    """y [out_rows, ..] = the rows of x [r, ..] that `state.out_index` names, in its order."""
    torch.index_select(x, 0, state.out_index, out=y)
