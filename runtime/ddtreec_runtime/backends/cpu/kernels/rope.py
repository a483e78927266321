"""Rotary embedding at the absolute positions of the step's rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ddtreec_runtime.state import StepState


def rope(state: StepState, y: Tensor, x: Tensor, *, table: str) -> None:
    """y = x with pair i of row p turned by p * inv_freq[i]: (a, b) -> (a cos - b sin, b cos + a sin), times amplitude.

    x, y: [r, dim] or [r, heads, dim]. Interleaved tables pair (x0, x1), half tables pair (x0, x_{dim/2}).
    """
    bind_rope(state, y, x, table=table)()


def bind_rope(state: StepState, y: Tensor, x: Tensor, *, table: str) -> Callable[[], object]:
    """See `rope`."""
    heads = x.dim() == 3
    wide = x.dtype != torch.bfloat16
    if state.ropes[table].layout == "half":
        a, b = x.chunk(2, dim=-1)
        first, second = y.chunk(2, dim=-1)

        def half() -> None:
            turn = state.turn(table, heads)
            cos, sin = turn.real, turn.imag
            if wide:
                torch.mul(a, cos, out=first).addcmul_(b, sin, value=-1)
                torch.mul(b, cos, out=second).addcmul_(a, sin)
            else:
                low, high = a.float(), b.float()
                first.copy_(low * cos - high * sin)
                second.copy_(high * cos + low * sin)

        return half
    if wide and _even(x) and _even(y):
        given, turned = _pairs(x), _pairs(y)

        def pairs() -> None:
            torch.mul(given, state.turn(table, heads), out=turned)

        return pairs

    def copied() -> None:
        # float() may give x itself, and a lone row at an odd offset is contiguous already: a copy in any case.
        own = x.float() if not wide else x.clone(memory_format=torch.contiguous_format)
        y.copy_(torch.view_as_real(_pairs(own) * state.turn(table, heads)).flatten(-2))

    return copied


def _pairs(x: Tensor) -> Tensor:
    """Neighbours on the last axis as complex numbers."""
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


def _even(x: Tensor) -> bool:
    """Whether `x` can be seen as complex numbers in place."""
    return x.stride(-1) == 1 and x.storage_offset() % 2 == 0 and all(s % 2 == 0 for s in x.stride()[:-1])
