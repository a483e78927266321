"""MLA attention in absorbed form over the latent cache and the step's own rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ddtreec_runtime.backends.cpu.softmax import step_softmax
from ddtreec_runtime.state import StepState


def latent_attention(state: StepState, o_c: Tensor, q_c: Tensor, q_rot: Tensor, *, layer: int, scale: float) -> None:
    """o_c = sum_s softmax_s(scale (q_c.c_s + q_rot.k_s)) c_s; o_c, q_c [r, heads, kv_lora], q_rot [r, heads, rope].

    s runs over the committed rows, all visible, and the rows of this step, visible by the tree mask. All heads share
    one key [c, k] per token, so heads and rows are one axis of a plain matrix product. Softmax in float32 or wider.
    """
    bind_latent_attention(state, o_c, q_c, q_rot, layer=layer, scale=scale)()


def bind_latent_attention(
    state: StepState, o_c: Tensor, q_c: Tensor, q_rot: Tensor, *, layer: int, scale: float
) -> Callable[[], object]:
    """See `latent_attention`."""
    rows, heads, lora = q_c.shape
    latent = state.latent
    out = o_c.view(rows * heads, lora) if o_c.is_contiguous() else None

    def run() -> None:
        keys = latent.read(layer, state.placement)
        query = torch.cat((q_c, q_rot), dim=-1).view(rows * heads, -1)
        scores = query.new_empty(rows * heads, keys.shape[0]).addmm_(query, keys.t(), beta=0, alpha=scale)
        p = step_softmax(state, scores.view(rows, heads, -1)).view(rows * heads, -1)
        if out is not None:
            torch.mm(p, keys[:, :lora], out=out)
        else:
            o_c.copy_(torch.mm(p, keys[:, :lora]).view(rows, heads, lora))

    return run
