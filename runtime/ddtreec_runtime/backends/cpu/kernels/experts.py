"""Routed experts held by one rank: weighted sum of SwiGLU feed-forwards."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu


def experts(y: Tensor, x: Tensor, ids: Tensor, w: Tensor, gate_up: Tensor, down: Tensor, *, first: int = 0) -> None:
    """y [r, H] = sum_j w[:, j] E_ids[:, j](x), E(x) = down[e] (silu(gate x) * (up x)), over experts this rank holds.

    gate_up [E_l, 2 I_l, H] holds gate rows then up rows, down [E_l, H, I_l]; local expert e has id first + e. Others
    add zero (their rank does it). The sum runs in float32 or wider and in order of expert id.
    """
    held = gate_up.shape[0]
    if x.shape[0] == 1:
        _one_row(y, x, ids, w, gate_up, down, first)
    elif held * 2 <= ids.numel() and held <= 64:
        _all_experts(y, x, ids, w, gate_up, down, first)
    else:
        _by_expert(y, x, ids, w, gate_up, down, first)


def _one_row(y: Tensor, x: Tensor, ids: Tensor, w: Tensor, gate_up: Tensor, down: Tensor, first: int) -> None:
    """One token: matrix-vector products with just its experts, no gathering."""
    held, inter = gate_up.shape[0], down.shape[-1]
    total = torch.zeros_like(y[0], dtype=w.dtype)
    row = x[0]
    for expert, weight in sorted(zip(ids[0].tolist(), w[0].unbind(), strict=True), key=lambda pair: pair[0]):
        local = expert - first
        if 0 <= local < held:
            h = torch.mv(gate_up[local], row)
            act = silu(h[:inter]).mul_(h[inter:])
            total.addcmul_(torch.mv(down[local], act).to(w.dtype), weight)
    y[0].copy_(total)


def _all_experts(y: Tensor, x: Tensor, ids: Tensor, w: Tensor, gate_up: Tensor, down: Tensor, first: int) -> None:
    """Few experts, many choices: every held expert on every row, unchosen ones weighted zero."""
    held, both, hidden = gate_up.shape
    rows, inter = x.shape[0], both // 2
    share = w.new_zeros(rows, held + 1)
    local = ids - first
    share.scatter_(1, local.masked_fill((local < 0) | (local >= held), held), w)
    h = torch.mm(x, gate_up.view(held * both, hidden).t()).view(rows, held, 2, inter)
    act = silu(h[:, :, 0]).mul_(h[:, :, 1])
    each = torch.bmm(act.transpose(0, 1), down.transpose(1, 2))
    weighted = each.to(w.dtype) * share[:, :held].t().unsqueeze(-1)
    y.copy_(weighted.sum(0))


def _by_expert(y: Tensor, x: Tensor, ids: Tensor, w: Tensor, gate_up: Tensor, down: Tensor, first: int) -> None:
    """Many experts: rows are sorted by expert, each chosen expert runs once on its rows."""
    held, inter = gate_up.shape[0], down.shape[-1]
    flat, order = ids.flatten().sort(stable=True)
    token = order.div(ids.shape[1], rounding_mode="floor")
    share = w.flatten()[order].unsqueeze(1)
    names, counts = flat.unique_consecutive(return_counts=True)
    total = w.new_zeros(y.shape)
    start = 0
    for expert, count in zip(names.tolist(), counts.tolist(), strict=True):
        stop, local = start + count, expert - first
        if 0 <= local < held:
            rows = token[start:stop]
            h = torch.mm(x.index_select(0, rows), gate_up[local].t())
            act = silu(h[:, :inter]).mul_(h[:, inter:])
            total.index_add_(0, rows, torch.mm(act, down[local].t()).to(w.dtype).mul_(share[start:stop]))
        start = stop
    y.copy_(total)
