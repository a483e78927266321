"""Write the step's latents right behind the committed rows of the cache."""

from __future__ import annotations

from torch import Tensor

from ddtreec_runtime.state import StepState


def latent_append(state: StepState, c: Tensor, k: Tensor, *, layer: int) -> None:
    """Cache rows of layer `layer` for this step = [c, k]: normed latent c [r, kv_lora], turned shared key k [r, rope]."""
    state.latent.write(layer, state.placement, c, k)
