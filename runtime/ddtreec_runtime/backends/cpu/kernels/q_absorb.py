"""MLA absorption: queries into latent space."""

from __future__ import annotations

import torch
from torch import Tensor


def q_absorb(q_c: Tensor, q_nope: Tensor, weight: Tensor) -> None:
    """q_c [r, heads, kv_lora] = q_nope [r, heads, nope] @ weight [heads, nope, kv_lora], per head."""
    torch.bmm(q_nope.transpose(0, 1), weight, out=q_c.transpose(0, 1))
