"""INT4 weights as compressed-tensors packs them (format `pack-quantized`, symmetric, strategy `group`).

Eight consecutive input elements per int32 along the last axis, element 0 in the lowest nibble; nibble = q + 8 (offset
binary, not two's complement), q in [-8, 7]; every `group` consecutive inputs share one scale; w = q * scale.
Source: the packer of compressed-tensors 0.20.1, checked bit for bit by the golden checkpoint `c-vl-nested-int4`.
"""

from __future__ import annotations

from typing import Literal

import torch

PER_WORD = 8
"""Elements in one int32."""


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """Packed int32 [..., n] to q as int8 [..., 8 n] in [-8, 7]. Raises TypeError for another dtype."""
    if packed.dtype != torch.int32:
        raise TypeError(f"packed INT4 words are int32, not {packed.dtype}")
    octets = packed.contiguous().view(torch.uint8)  # little-endian: byte 0 holds elements 0 (low nibble) and 1
    out = torch.empty(*octets.shape, 2, dtype=torch.int8)
    torch.bitwise_and(octets, 15, out=out.view(torch.uint8)[..., 0])
    torch.bitwise_right_shift(octets, 4, out=out.view(torch.uint8)[..., 1])
    return out.sub_(8).flatten(-2)


def dequantize(
    packed: torch.Tensor,
    scale: torch.Tensor,
    dtype: torch.dtype,
    product: Literal["exact", "bf16"] = "exact",
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Weights [..., 8 n] in `dtype` from packed int32 [..., n] and scale [..., 8 n / group].

    product 'exact': q and scale are cast to `dtype` and multiplied there (exact for float32 and float64 with bf16
    scales). product 'bf16': the product is rounded to bfloat16 first, then cast (Hugging Face and Marlin do this).
    `out`: contiguous destination with that many elements, written and returned instead of a new tensor.
    Raises ValueError when the scales do not divide the inputs.
    """
    q = unpack(packed)
    groups = scale.shape[-1]
    if groups == 0 or q.shape[-1] % groups or q.shape[:-1] != scale.shape[:-1]:
        raise ValueError(f"scales {tuple(scale.shape)} do not fit weights {tuple(q.shape)}")
    if out is None:
        out = torch.empty(q.shape, dtype=dtype)
    grouped = q.unflatten(-1, (groups, -1))
    target = out.view(grouped.shape)
    if product == "bf16":
        target.copy_((grouped * scale.float().unsqueeze(-1)).bfloat16())
    else:
        torch.mul(grouped, scale.to(dtype).unsqueeze(-1), out=target)
    return out
