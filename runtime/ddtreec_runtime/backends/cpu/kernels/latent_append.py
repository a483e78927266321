"""Write the step's latents right behind the committed rows of the cache."""

from __future__ import annotations

from torch import Tensor

from ddtreec_runtime.state import StepState


def latent_append(state: StepState, c: Tensor, k: Tensor, *, layer: int) -> None:
    """This step's cache rows of a layer = [c, k]: normed latents c [r, kv_lora], turned shared keys k [r, rope]."""
    state.latent.write(layer, state.placement, c, k)
