"""MLA absorption: queries into latent space."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor


def q_absorb(q_c: Tensor, q_nope: Tensor, weight: Tensor) -> None:
    """q_c [r, heads, kv_lora] = q_nope [r, heads, nope] @ weight [heads, nope, kv_lora], per head."""
    bind_q_absorb(q_c, q_nope, weight)()


def bind_q_absorb(q_c: Tensor, q_nope: Tensor, weight: Tensor) -> Callable[[], object]:
    """See `q_absorb`."""
    return partial(torch.bmm, q_nope.transpose(0, 1), weight, out=q_c.transpose(0, 1))
