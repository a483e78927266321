"""How clear a choice of experts is: what rounding may change is no fault, so a check draws rows on which it cannot.

A router in float64 chooses by its exact input, a kernel by one that was rounded to bfloat16 on its way. Scores that lie
nearer than this moves them may change places, at the edge of the choice and, since ids come in order, inside it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Call

ROUNDED = 2
"""Times that what a router chooses by was rounded to bfloat16 since the inputs of its kernel: as a sum, as a norm."""

ROUNDING = 2**-9 / 3**0.5
"""Root mean square of the relative error of one such rounding, at most: even over half a unit of the last of 8 bits."""

SIGMAS = 6.0
"""How far scores must lie apart, in standard deviations of what rounding does to their difference."""


def clearance(router: Call, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """How clear the closest decision of each row is, [rows], in standard deviations of what rounding x does to it:
    between chosen experts in order, to the next one behind them, and between groups.

    A logit, the sum of x_k w_k, is off by sqrt(ROUNDED) ROUNDING sqrt(sum of (x_k w_k)^2), as errors are independent; a
    sigmoid s by s (1 - s) of that; and near scores s of a softmax part by s of it, their sum moving both alike.
    """
    logits = x @ weights[0].t()
    noise = ROUNDED**0.5 * ROUNDING * (x.square() @ weights[0].square().t()).sqrt()
    sigmoid = router.params["score"] == "sigmoid"
    scores = logits.sigmoid() if sigmoid else logits.softmax(-1)
    variance = (noise * scores * (1 - scores if sigmoid else 1)).square()
    choice = scores + weights[1] if len(weights) > 1 else scores
    top_k, groups, kept = (int(router.params[name] or 0) for name in ("top_k", "groups", "top_groups"))
    clear = x.new_full((x.shape[0],), float("inf"))
    if groups > 1:
        members = choice.view(x.shape[0], groups, -1)
        two = members.topk(min(2, members.shape[-1]), dim=-1)
        best = two.values.sum(-1).sort(-1, descending=True)
        if kept < groups:
            spread = variance.view_as(members).gather(-1, two.indices).sum(-1).gather(1, best.indices)
            clear = _steps(best.values, spread)[:, kept - 1]
        outside = torch.ones_like(best.values, dtype=torch.bool).scatter_(1, best.indices[:, :kept], False)
        choice = members.masked_fill(outside.unsqueeze(-1), float("-inf")).flatten(1)
    order = choice.topk(min(top_k + 1, choice.shape[1]), dim=-1)
    return torch.minimum(clear, _steps(order.values, variance.gather(1, order.indices)).amin(-1))


def _steps(falling: Tensor, variance: Tensor) -> Tensor:
    """Differences of neighbours in a row of falling numbers, in standard deviations of the differences."""
    return (falling[:, :-1] - falling[:, 1:]) / (variance[:, :-1] + variance[:, 1:]).sqrt()
