"""Token embedding, whole or cut over the vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor


def embedding(x: Tensor, tokens: Tensor, weight: Tensor, *, first: int = 0) -> None:
    """x [r, H] = weight[tokens - first]; weight [V_local, H]; a token this rank does not hold gives zeros."""
    if first == 0 and int(tokens.max()) < weight.shape[0]:
        torch.index_select(weight, 0, tokens, out=x)
        return
    local = tokens - first
    outside = (local < 0) | (local >= weight.shape[0])
    torch.index_select(weight, 0, local.masked_fill_(outside, 0), out=x)
    x.masked_fill_(outside.unsqueeze(-1), 0)
