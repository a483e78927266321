"""Routed experts held by one rank: weighted sum of SwiGLU feed-forwards."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu


def experts(y: Tensor, x: Tensor, ids: Tensor, w: Tensor, gate_up: Tensor, down: Tensor, *, first: int = 0) -> None:
    """y [r, H] = sum_j w[:, j] E_ids[:, j](x), E(x) = down[e] (silu(gate x) * (up x)), over experts this rank holds.

    gate_up [E_l, 2 I_l, H] holds gate rows then up rows, down [E_l, H, I_l]; local expert e has id first + e. Others
    add zero (their rank does it). Choices are sorted by expert, each chosen expert runs once on its rows, and the sum
    runs in float32 or wider in order of expert id.
    """
    if x.shape[0] == 1 and w.dtype == x.dtype:
        _one_row(y, x, ids, w, gate_up, down, first)
        return
    held, inter = gate_up.shape[0], down.shape[-1]
    chosen, order = (ids.flatten() - first).sort(stable=True)
    listed = chosen.tolist()
    low = sum(expert < 0 for expert in listed) if listed and listed[0] < 0 else 0
    high = len(listed) - (sum(expert >= held for expert in listed) if listed and listed[-1] >= held else 0)
    if (low, high) != (0, len(listed)):
        order, listed = order[low:high], listed[low:high]
    runs = _runs(listed)
    token = order.div(ids.shape[1], rounding_mode="floor")
    given = x.index_select(0, token)
    h = x.new_empty(len(listed), 2 * inter)
    for expert, start, stop in runs:
        torch.mm(given[start:stop], gate_up[expert].t(), out=h[start:stop])
    act = silu(h[:, :inter]).mul_(h[:, inter:])
    share = w.flatten().index_select(0, order).unsqueeze(1)
    same = w.dtype == x.dtype
    if same:
        act.mul_(share)
    each = x.new_empty(len(listed), y.shape[1])
    for expert, start, stop in runs:
        torch.mm(act[start:stop], down[expert].t(), out=each[start:stop])
    if not same:
        each = each.to(w.dtype).mul_(share)
    if same:
        y.zero_().index_add_(0, token, each)
    else:
        y.copy_(w.new_zeros(y.shape).index_add_(0, token, each))


def _one_row(y: Tensor, x: Tensor, ids: Tensor, w: Tensor, gate_up: Tensor, down: Tensor, first: int) -> None:
    """The same for one token, without sorting and gathering."""
    held, inter = gate_up.shape[0], down.shape[-1]
    chosen = [(e - first, n) for n, e in enumerate(ids[0].tolist()) if 0 <= e - first < held]
    h = x.new_empty(ids.shape[1], 2 * inter)
    for expert, n in chosen:
        torch.mm(x, gate_up[expert].t(), out=h[n : n + 1])
    act = silu(h[:, :inter]).mul_(h[:, inter:]).mul_(w.view(-1, 1))
    y.zero_()
    for expert, n in sorted(chosen):
        y.addmm_(act[n : n + 1], down[expert].t())


def _runs(listed: list[int]) -> list[tuple[int, int, int]]:
    """(expert, start, stop) of every run of equal entries."""
    runs: list[tuple[int, int, int]] = []
    start = 0
    for stop in range(1, len(listed) + 1):
        if stop == len(listed) or listed[stop] != listed[start]:
            runs.append((listed[start], start, stop))
            start = stop
    return runs
