"""Choice of experts: DeepSeek-V3 routing (sigmoid or softmax scores, correction bias, groups)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def router(
    ids: Tensor,
    w: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    top_k: int,
    groups: int = 1,
    top_groups: int = 1,
    score: str = "sigmoid",
    normalize: bool = True,
    scale: float = 1.0,
) -> None:
    """ids [r, top_k] int64, w [r, top_k]: experts by decreasing biased score and their weights.

    scores = sigmoid or softmax of x [r, H] @ weight [E, H]^T, in float32 or wider. `bias` [E] is added for the choice
    only. With groups > 1 a group scores the sum of its two largest biased scores and only experts of the `top_groups`
    best groups may be chosen. Weights are unbiased scores, divided by (sum + 1e-20) when `normalize`, times `scale`.
    Equal scores: the smaller expert id (and group) first.
    """
    rule = {"groups": groups, "top_groups": top_groups, "score": score, "normalize": normalize, "scale": scale}
    bind_router(ids, w, x, weight, bias, top_k=top_k, **rule)()


def bind_router(
    ids: Tensor,
    w: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    top_k: int,
    groups: int = 1,
    top_groups: int = 1,
    score: str = "sigmoid",
    normalize: bool = True,
    scale: float = 1.0,
) -> Callable[[], object]:
    """See `router`."""
    turned = weight.t()
    # One small product gives (sum + 1e-20) / scale of every row.
    least, ones = weight.new_full((1, 1), 1e-20 / scale), weight.new_full((top_k, 1), 1 / scale)

    def run() -> None:
        logits = torch.mm(x if x.dtype == weight.dtype else x.to(weight.dtype), turned)
        scores = logits.sigmoid_() if score == "sigmoid" else logits.softmax(-1)
        choice = scores if bias is None else scores + bias
        if groups > 1:
            choice = _keep_groups(choice, groups, top_groups)
        ids.copy_(choice.sort(dim=-1, descending=True, stable=True).indices[:, :top_k])
        torch.gather(scores, 1, ids, out=w)
        if normalize:
            w.div_(torch.addmm(least, w, ones))
        else:
            w.mul_(scale)

    return run


def _keep_groups(choice: Tensor, groups: int, top_groups: int) -> Tensor:
    """Biased scores [r, E] with all experts outside the best groups set to -inf."""
    rows = choice.shape[0]
    members = choice.view(rows, groups, -1)
    best = members.topk(min(2, members.shape[-1]), dim=-1).values.sum(-1)
    kept = best.sort(dim=-1, descending=True, stable=True).indices[:, :top_groups]
    dropped = torch.ones_like(best, dtype=torch.bool).scatter_(1, kept, False)
    return members.masked_fill(dropped.unsqueeze(-1), float("-inf")).view(rows, -1)
