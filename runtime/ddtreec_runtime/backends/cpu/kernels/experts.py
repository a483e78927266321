"""Routed experts held by one rank: weighted sum of SwiGLU feed-forwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.functional import silu

UNBOUND = 64
"""Up to this many experts their matrices are kept as views; beyond, a view is made when an expert is called."""


def experts(y: Tensor, x: Tensor, ids: Tensor, w: Tensor, gate_up: Tensor, down: Tensor, *, first: int = 0) -> None:
    """y [r, H] = sum_j w[:, j] E_ids[:, j](x), E(x) = down[e] (silu(gate x) * (up x)), over experts this rank holds.

    gate_up [E_l, 2 I_l, H] holds gate rows then up rows, down [E_l, H, I_l]; local expert e has id first + e. Others
    add zero (their rank does it). The sum runs in float32 or wider.
    """
    bind_experts(y, x, ids, w, gate_up, down, first=first)()


def bind_experts(
    y: Tensor, x: Tensor, ids: Tensor, w: Tensor, gate_up: Tensor, down: Tensor, *, first: int = 0
) -> Callable[[], object]:
    """See `experts`."""
    ups, downs = gate_up.transpose(1, 2), down.transpose(1, 2)
    held, choose = ups.shape[0], _one_row if x.shape[0] == 1 else _sorted_rows
    if held <= UNBOUND:
        return choose(y, x, ids, w, ups.unbind(), downs.unbind(), first, held)
    return choose(y, x, ids, w, ups, downs, first, held)


Matrices = Sequence[Tensor] | Tensor
"""[from, to] of each expert this rank holds."""


def _one_row(
    y: Tensor, x: Tensor, ids: Tensor, w: Tensor, ups: Matrices, downs: Matrices, first: int, held: int
) -> Callable[[], object]:
    """One token: just its experts, no gathering."""
    choices, (both, hidden) = ids.shape[1], (ups[0].shape[1], x.shape[1])
    h, each = x.new_zeros(choices, both), x.new_empty(choices, hidden)
    gate, up = h.chunk(2, dim=1)
    h_rows, each_rows = h.split(1), each.split(1)

    def run() -> None:
        chosen = [(j, expert - first) for j, expert in enumerate(ids[0].tolist())]
        mine = [(j, e) for j, e in chosen if 0 <= e < held]
        if len(mine) < choices:
            each.zero_()
        for j, e in mine:
            torch.mm(x, ups[e], out=h_rows[j])
        act = silu(gate).mul_(up).split(1)
        for j, e in mine:
            torch.mm(act[j], downs[e], out=each_rows[j])
        _weigh(y, w, each.unsqueeze(0))

    return run


def _sorted_rows(
    y: Tensor, x: Tensor, ids: Tensor, w: Tensor, ups: Matrices, downs: Matrices, first: int, held: int
) -> Callable[[], object]:
    """Choices are sorted by expert; each chosen expert runs once, on its run of rows."""
    rows, choices = ids.shape
    token = torch.arange(rows * choices) // choices
    place = torch.arange(rows * choices)
    both, every = ups[0].shape[1], ids.view(-1)

    def run() -> None:
        flat, order = every.sort(stable=True)
        runs = [(e - first, len(list(same))) for e, same in groupby(flat.tolist())]
        sizes = [size for _, size in runs]
        given = x.index_select(0, token.index_select(0, order))
        h, each = x.new_empty(len(given), both), torch.empty_like(given)
        gate, up = h.chunk(2, dim=1)
        for (e, _), part, out in zip(runs, given.split(sizes), h.split(sizes), strict=True):
            if 0 <= e < held:
                torch.mm(part, ups[e], out=out)
        act = silu(gate).mul_(up)
        for (e, _), part, out in zip(runs, act.split(sizes), each.split(sizes), strict=True):
            if 0 <= e < held:
                torch.mm(part, downs[e], out=out)
            else:
                out.zero_()
        back = torch.empty_like(order).scatter_(0, order, place)
        _weigh(y, w, each.index_select(0, back).view(rows, choices, -1))

    return run


def _weigh(y: Tensor, w: Tensor, each: Tensor) -> None:
    """y [r, H] = sum_j w[:, j] each[:, j], in the dtype of w; each [r, k, H]."""
    if each.dtype == w.dtype:
        torch.bmm(w.unsqueeze(1), each, out=y.unsqueeze(1))
    else:
        y.copy_(torch.bmm(w.unsqueeze(1), each.to(w.dtype)).squeeze(1))
