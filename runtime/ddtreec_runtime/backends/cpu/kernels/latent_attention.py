"""MLA attention in absorbed form over the latent cache and the step's own rows."""

from __future__ import annotations

import torch
from torch import Tensor

from ddtreec_runtime.backends.cpu.softmax import step_softmax
from ddtreec_runtime.state import StepState


def latent_attention(state: StepState, o_c: Tensor, q_c: Tensor, q_rot: Tensor, *, layer: int, scale: float) -> None:
    """o_c = sum_s softmax_s(scale (q_c.c_s + q_rot.k_s)) c_s; o_c, q_c [r, heads, kv_lora], q_rot [r, heads, rope].

    s runs over the committed rows, all visible, and the rows of this step, visible by the tree mask. All heads share
    one key [c, k] per token, so heads and rows are one axis of a plain matrix product. Softmax in float32 or wider.
    """
    rows, heads, lora = q_c.shape
    keys = state.latent.read(layer, state.placement)
    c, k = keys[:, :lora], keys[:, lora:]
    scores = torch.mm(q_c.reshape(rows * heads, lora), c.t())
    scores.addmm_(q_rot.reshape(rows * heads, -1), k.t(), beta=scale, alpha=scale)
    p = step_softmax(state, scores.view(rows, heads, -1)).view(rows * heads, -1)
    if o_c.is_contiguous():
        torch.mm(p, c, out=o_c.view(rows * heads, lora))
    else:
        o_c.copy_(torch.mm(p, c).view(rows, heads, lora))
