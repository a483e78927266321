"""Drafter attention: grouped queries over the context cache and the block itself."""

from __future__ import annotations

import torch
from torch import Tensor

from ddtreec_runtime.state import StepState


def block_attention(
    state: StepState, o: Tensor, q: Tensor, k: Tensor, v: Tensor, *, layer: int, scale: float, window: int, causal: bool
) -> None:
    """o [r, heads, hd] = softmax(scale q.k) v; q [r, heads, hd], k and v [r, kv_heads, hd] are the block's own.

    Keys are the context of committed tokens, then the block. The block sees itself both ways, or only backwards when
    `causal`. `window` > 0: a query at position p sees positions above p - window (itself counts as one of the window).
    The block's keys and values are scratch: they lie behind the context and are never counted to it.
    """
    rows, heads, dim = q.shape
    first = max(0, int(state.committed) - window + 1) if window else 0
    keys, values = state.context.with_block(layer, first, state.committed, k, v)
    kv_heads, seen = keys.shape[0], keys.shape[1]
    grouped = q.view(rows, kv_heads, heads // kv_heads, dim).permute(1, 0, 2, 3).reshape(kv_heads, -1, dim)
    scores = torch.bmm(grouped, keys.transpose(1, 2)).mul_(scale)
    hidden = _hidden(state, rows, first, seen, window, causal)
    if hidden is not None:
        scores.view(kv_heads, rows, -1, seen).masked_fill_(hidden, float("-inf"))
    p = scores.softmax(-1, dtype=torch.float32).to(q.dtype) if q.dtype == torch.bfloat16 else scores.softmax(-1)
    mixed = torch.bmm(p, values).view(kv_heads, rows, heads // kv_heads, dim)
    o.view(rows, kv_heads, heads // kv_heads, dim).copy_(mixed.permute(1, 0, 2, 3))


def _hidden(state: StepState, rows: int, first: int, seen: int, window: int, causal: bool) -> Tensor | None:
    """[rows, 1, seen], True where a key must not be seen; None where all are."""
    if not causal and not (window and first + seen > window):
        return None
    query = torch.arange(state.committed, state.committed + rows).view(rows, 1)
    key = torch.arange(first, first + seen).view(1, seen)
    hidden = (key > query) if causal else torch.zeros(rows, seen, dtype=torch.bool)
    if window:
        hidden |= key <= query - window
    return hidden.unsqueeze(1)
