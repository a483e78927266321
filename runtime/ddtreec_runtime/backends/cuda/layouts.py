"""How expert weights lie in memory: tiles of 16 rows in the order a warp loads them (templates/cuh/experts.cuh).

Torch operations on any device, the same for one expert and for many: results of slices of the experts, one behind the
other, are the result of all. Tiles of a row of tiles follow each other along the inputs, then come the next 16 rows,
then the next expert. Lane 4 g + t of a warp holds inputs 8 t .. 8 t + 7 of every 32, of rows g and g + 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

ROWS, HALF = 16, 8
"""Rows of a tile, and of the half that a lane group reads at once."""

GROUP = 32
"""Inputs of one INT4 scale, and of one load of a warp."""

INT4_INPUTS, INT4_BYTES = 128, 1152
"""Inputs and bytes of an INT4 tile: 1024 of nibbles, 128 of scales."""

BF16_INPUTS, BF16_BYTES = 64, 2048
"""Inputs and bytes of a bfloat16 tile."""

EMPTY = -2004318072
"""0x88888888 as int32: eight nibbles that stand for zero."""


def int4_tiles(packed: Tensor, scale: Tensor) -> Tensor:
    """uint8 [(experts,) ceil(n / 16), ceil(k / 128), 1152] from `packed` int32 [(experts,) n, k / 8] and `scale`
    bfloat16 [(experts,) n, k / 32] as compressed-tensors stores them.

    A tile is [row g | row g + 8][lane][16 bytes], then [g][row g | row g + 8][4 scales]. Word i of a lane has its eight
    inputs of group i: bits 4 j .. 4 j + 3 are input 2 j, bits 16 + 4 j .. are input 2 j + 1. Rows and inputs that fill
    up the last tiles are zero. Raises ValueError for other types or shapes.
    """
    if packed.dtype != torch.int32 or scale.dtype != torch.bfloat16:
        raise ValueError(f"words are int32 and scales bfloat16, not {packed.dtype} and {scale.dtype}")
    *lead, n, words = packed.shape
    if words % 4 or tuple(scale.shape) != (*lead, n, words // 4):
        raise ValueError(f"scales {tuple(scale.shape)} do not fit words {tuple(packed.shape)} in groups of {GROUP}")
    rows, chunks = -(-n // ROWS), -(-words // 16)
    full = pad(packed, (0, 16 * chunks - words, 0, ROWS * rows - n), value=EMPTY)
    # [experts, rows, half, g, chunks, group i, t] to [experts, rows, chunks, half, g, t, i]
    parts = _nibbles(full).view(-1, rows, 2, HALF, chunks, 4, 4).permute(0, 1, 4, 2, 3, 6, 5)
    wide = pad(scale, (0, 4 * chunks - words // 4, 0, ROWS * rows - n))
    # [experts, rows, half, g, chunks, i] to [experts, rows, chunks, g, half, i]
    factors = wide.view(-1, rows, 2, HALF, chunks, 4).permute(0, 1, 4, 3, 2, 5)
    tiles = [part.contiguous().view(torch.uint8).flatten(3) for part in (parts.flatten(3, 5), factors.flatten(3, 4))]
    return torch.cat(tiles, -1).view(*lead, rows, chunks, INT4_BYTES)


def bf16_tiles(weight: Tensor) -> Tensor:
    """bfloat16 [(experts,) ceil(n / 16), ceil(k / 64), 1024] from `weight` bfloat16 [(experts,) n, k].

    A tile is [32 inputs][row g | row g + 8][lane][8 inputs]; what fills up the last tiles is zero. Raises ValueError
    for another type or k that does not divide by 8.
    """
    if weight.dtype != torch.bfloat16 or weight.dim() not in (2, 3) or weight.shape[-1] % 8:
        raise ValueError(f"bfloat16 rows of a multiple of 8 inputs, not {weight.dtype} {tuple(weight.shape)}")
    lead, (n, k) = weight.shape[:-2], weight.shape[-2:]
    rows, chunks = -(-n // ROWS), -(-k // BF16_INPUTS)
    full = pad(weight, (0, BF16_INPUTS * chunks - k, 0, ROWS * rows - n))
    # [experts, rows, half, g, chunks, 32 inputs, 4 t of 8] to [experts, rows, chunks, 32 inputs, half, g, 4 t of 8]
    parts = full.view(-1, rows, 2, HALF, chunks, 2, GROUP).permute(0, 1, 4, 5, 2, 3, 6)
    return parts.reshape(*lead, rows, chunks, BF16_BYTES // 2)


def int4_gate_up_tiles(packed: Tensor, scale: Tensor) -> Tensor:
    """`int4_tiles` of [experts, 2 n, ..] that holds gates, then ups: each tile gets 8 gates and the 8 ups that go with
    them. Raises ValueError where n does not divide by 8."""
    return int4_tiles(_paired(packed), _paired(scale))


def bf16_gate_up_tiles(weight: Tensor) -> Tensor:
    """`bf16_tiles` of [(experts,) 2 n, k] that holds gates, then ups, paired as in `int4_gate_up_tiles`."""
    return bf16_tiles(_paired(weight))


def transposed(weight: Tensor) -> Tensor:
    """[.., k, n] of [.., n, k], contiguous."""
    return weight.transpose(-1, -2).contiguous()


def _never_packed(words: Tensor, scales: Tensor) -> Tensor:
    raise ValueError("an INT4 weight cannot be transposed")


@dataclass(frozen=True, slots=True)
class Layout:
    """One layout, for both packings: `packed` takes words and scales, `dense` a bfloat16 weight."""

    packed: Callable[[Tensor, Tensor], Tensor]
    dense: Callable[[Tensor], Tensor]


LAYOUTS: Mapping[str, Layout] = {
    "tiles": Layout(int4_tiles, bf16_tiles),
    "gate_up_tiles": Layout(int4_gate_up_tiles, bf16_gate_up_tiles),
    "transposed": Layout(_never_packed, transposed),
}
"""By the name that the kernel table uses."""


def tiled_bytes(shape: Sequence[int], packed: bool) -> int:
    """Bytes of a weight of `shape` [(experts,) n, k] in tiles, INT4 or bfloat16."""
    *lead, n, k = shape
    inputs, size = (INT4_INPUTS, INT4_BYTES) if packed else (BF16_INPUTS, BF16_BYTES)
    return math.prod(lead) * -(-n // ROWS) * -(-k // inputs) * size


def _paired(rows: Tensor) -> Tensor:
    """[.., gates then ups, k] to [.., 8 gates, 8 ups, 8 gates, .., k]."""
    n = rows.shape[-2] // 2
    if rows.shape[-2] % 2 or n % HALF:
        raise ValueError(f"{rows.shape[-2]} rows are not gates and ups in eights")
    return rows.unflatten(-2, (2, n // HALF, HALF)).transpose(-4, -3).reshape(rows.shape)


def _nibbles(words: Tensor) -> Tensor:
    """Inputs 0 .. 7 from bits 0, 4, .. 28 to bits 0, 16, 4, 20, 8, 24, 12, 28."""
    out = torch.zeros_like(words)
    for source in range(8):
        target = source // 2 + source % 2 * 4
        nibble = (words >> 4 * source) & 15  # the sign is shifted in above the nibble and masked away
        out |= nibble << 4 * target
    return out
