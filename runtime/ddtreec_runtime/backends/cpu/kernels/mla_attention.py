"""MLA attention in its naive form: keys and values of every head are unfolded from the latents."""

from __future__ import annotations

import torch
from torch import Tensor

from ddtreec_runtime.backends.cpu.softmax import step_softmax
from ddtreec_runtime.state import StepState


def mla_attention(
    state: StepState, o: Tensor, q_nope: Tensor, q_rot: Tensor, kv_b: Tensor, *, layer: int, scale: float
) -> None:
    """o [r, heads, v] from q_nope [r, heads, nope], q_rot [r, heads, rope] and kv_b [heads, nope + v, kv_lora].

    k_s = (kv_b[:, :nope] c_s, k_s rotated), v_s = kv_b[:, nope:] c_s for every cached latent c_s; softmax(scale q.k) v.
    The reference that the absorbed form must agree with.
    """
    nope, lora = q_nope.shape[-1], kv_b.shape[-1]
    keys = state.latent.read(layer, state.placement)
    c, k_rot = keys[:, :lora], keys[:, lora:]
    unfolded = torch.einsum("hnl,sl->shn", kv_b, c)
    k_nope, v = unfolded[..., :nope], unfolded[..., nope:]
    scores = torch.einsum("rhn,shn->rhs", q_nope, k_nope) + torch.einsum("rhd,sd->rhs", q_rot, k_rot)
    p = step_softmax(state, scores.mul_(scale))
    o.copy_(torch.einsum("rhs,shv->rhv", p, v))
