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
    heads, rounded = x.dim() == 3, x.dtype == torch.bfloat16
    if state.ropes[table].layout == "half":
        return _half(state, y, x, table)
    pair = torch.complex128 if x.dtype == torch.float64 else torch.complex64
    if not rounded and _even(x) and _even(y):
        given, out = x.view(pair), y.view(pair)

        def turn() -> None:
            torch.mul(given, state.turn(table, heads), out=out)

        return turn

    def turn_copy() -> None:
        # A lone row at an odd offset counts as contiguous, so only a clone is sure to lie at an even one.
        own = x.float() if rounded else x.clone(memory_format=torch.contiguous_format)
        y.copy_((own.contiguous().view(pair) * state.turn(table, heads)).view(own.dtype))

    return turn_copy


def _half(state: StepState, y: Tensor, x: Tensor, table: str) -> Callable[[], object]:
    """Pairs half a row apart."""
    heads, rounded = x.dim() == 3, x.dtype == torch.bfloat16
    a, b = x.chunk(2, dim=-1)
    first, second = y.chunk(2, dim=-1)

    def turn() -> None:
        factor = state.turn(table, heads)
        cos, sin = factor.real, factor.imag
        if rounded:
            low, high = a.float(), b.float()
            first.copy_(low * cos - high * sin)
            second.copy_(high * cos + low * sin)
        else:
            torch.mul(a, cos, out=first).addcmul_(b, sin, value=-1)
            torch.mul(b, cos, out=second).addcmul_(a, sin)

    return turn


def _even(x: Tensor) -> bool:
    """Whether neighbours on the last axis can be seen as complex numbers in place."""
    return x.stride(-1) == 1 and not (x.storage_offset() & 1 or any(s & 1 for s in x.stride()[:-1]))
