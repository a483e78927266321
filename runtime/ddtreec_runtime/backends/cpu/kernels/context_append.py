"""Append keys and values of committed tokens to the drafter's context."""

from __future__ import annotations

from torch import Tensor

from ddtreec_runtime.state import StepState


def context_append(state: StepState, k: Tensor, v: Tensor, *, layer: int) -> None:
    """Context rows of drafter layer `layer` for this step's positions: k (turned) and v [r, kv_heads, head_dim]."""
    state.context.write(layer, state.committed, k, v)
