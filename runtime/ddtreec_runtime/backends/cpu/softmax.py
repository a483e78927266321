"""Masked softmax over the committed rows and the rows of a step."""

from __future__ import annotations

import torch
from torch import Tensor

from ddtreec_runtime.state import StepState


def step_softmax(state: StepState, scores: Tensor) -> Tensor:
    """softmax over the last axis of scores [rows, heads, committed + rows], which it overwrites.

    Committed columns are visible to every row, the step's own by `state.hidden`. At least float32 inside.
    """
    if state.hidden is not None:
        scores[:, :, -state.rows :].masked_fill_(state.hidden, float("-inf"))
    if scores.dtype == torch.bfloat16:
        return scores.softmax(-1, dtype=torch.float32).to(scores.dtype)
    return scores.softmax(-1)
