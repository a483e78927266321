"""Routed experts held by one rank: weighted sum of SwiGLU feed-forwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.functional import silu

UNBOUND = 64
"""Up to this many experts their matrices are kept as views; beyond, a view is made when an expert is called."""

Matrices = Sequence[Tensor] | Tensor
"""[from, to] of each expert this rank holds."""


def experts(y: Tensor, x: Tensor, ids: Tensor, w: Tensor, gate_up: Tensor, down: Tensor, *, first: int = 0) -> None:
    """y [r, H] = sum_j w[:, j] E_ids[:, j](x), E(x) = down[e] (silu(gate x) * (up x)), over experts this rank holds.

    gate_up [E_l, 2 I_l, H] holds gate rows then up rows, down [E_l, H, I_l]; local expert e has id first + e. Others
    add zero (their rank does it). Choices are sorted by expert, each chosen expert runs once on its rows, and the sum
    runs in float32 or wider in order of expert id.
    """
    bind_experts(y, x, ids, w, gate_up, down, first=first)()


def bind_experts(
    y: Tensor, x: Tensor, ids: Tensor, w: Tensor, gate_up: Tensor, down: Tensor, *, first: int = 0
) -> Callable[[], object]:
    """See `experts`."""
    held, ups, downs = gate_up.shape[0], gate_up.transpose(1, 2), down.transpose(1, 2)
    choose = _one_row if x.shape[0] == 1 and w.dtype == x.dtype else _sorted_rows
    if held <= UNBOUND:
        return choose(y, x, ids, w, ups.unbind(), downs.unbind(), first, held)
    return choose(y, x, ids, w, ups, downs, first, held)


def _one_row(
    y: Tensor, x: Tensor, ids: Tensor, w: Tensor, ups: Matrices, downs: Matrices, first: int, held: int
) -> Callable[[], object]:
    """One token, without sorting and gathering rows."""
    h, share = x.new_zeros(ids.shape[1], ups[0].shape[1]), w.view(-1, 1)
    gate, up = h.chunk(2, dim=1)
    rows = h.split(1)

    def run() -> None:
        chosen = sorted([(e - first, n) for n, e in enumerate(ids[0].tolist()) if 0 <= e - first < held])
        for expert, n in chosen:
            torch.mm(x, ups[expert], out=rows[n])
        act = silu(gate).mul_(up).mul_(share).split(1)
        y.zero_()
        for expert, n in chosen:
            y.addmm_(act[n], downs[expert])

    return run


def _sorted_rows(
    y: Tensor, x: Tensor, ids: Tensor, w: Tensor, ups: Matrices, downs: Matrices, first: int, held: int
) -> Callable[[], object]:
    """Any number of tokens; shares are applied before `down` where that loses no precision."""
    choices, inter = ids.shape[1], downs[0].shape[0]
    every, share, same = ids.view(-1), w.view(-1, 1), w.dtype == x.dtype

    def run() -> None:
        chosen, order = every.sort(stable=True)
        runs = [(e - first, len(list(equal))) for e, equal in groupby(chosen.tolist())]
        before = sum(count for e, count in runs if e < 0)
        runs = [(e, count) for e, count in runs if 0 <= e < held]
        sizes = [count for _, count in runs]
        order = order[before : before + sum(sizes)]
        token, shares = order // choices, share.index_select(0, order)
        given = x.index_select(0, token)
        h, each = x.new_empty(len(order), 2 * inter), torch.empty_like(given)
        for (expert, _), part, out in zip(runs, given.split(sizes), h.split(sizes), strict=True):
            torch.mm(part, ups[expert], out=out)
        act = silu(h[:, :inter]).mul_(h[:, inter:])
        if same:
            act.mul_(shares)
        for (expert, _), part, out in zip(runs, act.split(sizes), each.split(sizes), strict=True):
            torch.mm(part, downs[expert], out=out)
        if same:
            y.zero_().index_add_(0, token, each)
        else:
            y.copy_(w.new_zeros(y.shape).index_add_(0, token, each.to(w.dtype).mul_(shares)))

    return run
