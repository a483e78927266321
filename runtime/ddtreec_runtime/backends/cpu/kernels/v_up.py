"""MLA absorption: attention output from latent space to values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor


def v_up(o: Tensor, o_c: Tensor, weight: Tensor) -> None:
    """o [r, heads, v] = o_c [r, heads, kv_lora] @ weight [heads, v, kv_lora]^T, per head."""
    bind_v_up(o, o_c, weight)()


def bind_v_up(o: Tensor, o_c: Tensor, weight: Tensor) -> Callable[[], object]:
    """See `v_up`."""
    return partial(torch.bmm, o_c.transpose(0, 1), weight.transpose(1, 2), out=o.transpose(0, 1))
