"""Rotary embedding at the absolute positions of the step's rows."""

from __future__ import annotations

import torch
from torch import Tensor

from ddtreec_runtime.state import StepState


def rope(state: StepState, y: Tensor, x: Tensor, *, table: str) -> None:
    """y = x with pair i of row p turned by p * inv_freq[i]: (a, b) -> (a cos - b sin, b cos + a sin), times amplitude.

    x, y: [r, dim] or [r, heads, dim]. Interleaved tables pair (x0, x1), half tables pair (x0, x_{dim/2}).
    """
    turn = state.turn(table)
    if x.dim() == 3:
        turn = turn.unsqueeze(1)
    wide = x.float() if x.dtype == torch.bfloat16 else x
    if state.ropes[table].layout == "half":
        cos, sin = turn.real, turn.imag
        a, b = wide.chunk(2, dim=-1)
        half = a.shape[-1]
        y[..., :half] = (a * cos).sub_(b * sin)
        y[..., half:] = (b * cos).add_(a * sin)
    elif wide is x and _even(x) and _even(y):
        torch.mul(x.view(turn.dtype), turn, out=y.view(turn.dtype))
    else:
        own = wide.clone(memory_format=torch.contiguous_format)  # a lone row at an odd offset is contiguous already
        y.copy_((own.view(turn.dtype) * turn).view(wide.dtype))


def _even(x: Tensor) -> bool:
    """Whether neighbours on the last axis can be seen as complex numbers in place."""
    return x.stride(-1) == 1 and not (x.storage_offset() & 1 or any(s & 1 for s in x.stride()[:-1]))
