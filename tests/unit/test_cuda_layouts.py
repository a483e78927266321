"""Layouts of expert weights: every element where the kernel looks for it, whatever the slicing by experts."""

from __future__ import annotations

import pytest
import torch

from ddtreec_runtime.backends.cuda.layouts import (
    LAYOUTS,
    Layout,
    bf16_gate_up_tiles,
    bf16_tiles,
    int4_gate_up_tiles,
    int4_tiles,
    tiled_bytes,
)
from ddtreec_runtime.weights import unpack


def words(*shape: int, seed: int = 0) -> torch.Tensor:
    made = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**31), 2**31, shape, generator=made, dtype=torch.int64).to(torch.int32)


def scales(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def read_int4(tiles: torch.Tensor, expert: int, row: int, k: int) -> tuple[int, float]:
    """(q, scale) of one weight, found the way a lane finds it."""
    tile = tiles[expert, row // 16, k // 128]
    half, g = divmod(row % 16, 8)
    i, rest = divmod(k % 128, 32)
    t, place = divmod(rest, 8)
    word = tile[:1024].view(torch.int32)[half * 128 + (4 * g + t) * 4 + i].item()
    nibble = int(word) >> (place // 2 * 4 + place % 2 * 16) & 15
    return nibble - 8, tile[1024:].view(torch.bfloat16)[g * 8 + half * 4 + i].item()


@pytest.mark.parametrize(("n", "k"), [(16, 128), (32, 256), (24, 96), (5, 32)])
def test_int4_weights_lie_where_lanes_read_them(n: int, k: int) -> None:
    packed, scale = words(2, n, k // 8), scales(2, n, k // 32)
    tiles, q = int4_tiles(packed, scale), unpack(packed)
    assert tiles.nbytes == tiled_bytes((2, n, k), packed=True)
    for expert in range(2):
        for row in range(n):
            for column in range(k):
                expected = (q[expert, row, column].item(), scale[expert, row, column // 32].item())
                assert read_int4(tiles, expert, row, column) == expected


def test_what_fills_up_int4_tiles_is_zero() -> None:
    tiles = int4_tiles(words(1, 20, 12), scales(1, 20, 3))
    assert tiles.shape == (1, 2, 1, 1152)
    assert all(read_int4(tiles, 0, row, k) == (0, 0.0) for row in range(32) for k in range(96, 128))
    assert all(read_int4(tiles, 0, row, k) == (0, 0.0) for row in range(20, 32) for k in range(128))


@pytest.mark.parametrize(("n", "k"), [(16, 64), (32, 192), (24, 96), (9, 40)])
def test_bf16_weights_lie_where_lanes_read_them(n: int, k: int) -> None:
    weight = torch.arange(n * k, dtype=torch.float32).view(n, k).bfloat16()
    weight.view(torch.int16).copy_(torch.arange(n * k).view(n, k))  # every element another pattern
    tiles = bf16_tiles(weight)
    assert tiles.nbytes == tiled_bytes((n, k), packed=False)
    for row in range(-(-n // 16) * 16):
        for column in range(-(-k // 64) * 64):
            half, g = divmod(row % 16, 8)
            i, rest = divmod(column % 64, 32)
            found = tiles[row // 16, column // 64].view(torch.int16)[i * 512 + half * 256 + g * 32 + rest].item()
            inside = row < n and column < k
            assert found == (row * k + column if inside else 0)


def test_gates_and_the_ups_that_go_with_them_share_a_tile() -> None:
    packed, scale = words(3, 48, 16), scales(3, 48, 4)
    tiles, q = int4_gate_up_tiles(packed, scale), unpack(packed)
    for act in range(24):
        tile, g = divmod(act, 8)
        for half, row in ((0, act), (8, 24 + act)):
            for k in (0, 1, 37, 127):
                expected = (q[2, row, k].item(), scale[2, row, k // 32].item())
                assert read_int4(tiles, 2, 16 * tile + half + g, k) == expected
    weight = torch.randn(32, 64).bfloat16()
    order = [*range(8), *range(16, 24), *range(8, 16), *range(24, 32)]
    assert torch.equal(bf16_gate_up_tiles(weight), bf16_tiles(weight[order]))


@pytest.mark.parametrize("layout", [LAYOUTS["tiles"], LAYOUTS["gate_up_tiles"]], ids=["tiles", "gate_up_tiles"])
def test_experts_can_be_repacked_piece_by_piece(layout: Layout) -> None:
    packed, scale, dense = words(5, 32, 16), scales(5, 32, 4), torch.randn(5, 32, 64).bfloat16()
    for whole, make in (
        (layout.packed(packed, scale), lambda piece: layout.packed(packed[piece], scale[piece])),
        (layout.dense(dense), lambda piece: layout.dense(dense[piece])),
    ):
        slices = torch.cat([make(slice(start, start + 2)) for start in (0, 2, 4)])
        assert torch.equal(slices.view(torch.uint8), whole.view(torch.uint8))
        assert torch.equal(make(3).view(torch.uint8), whole[3].view(torch.uint8))


def test_the_transposed_layout_takes_dense_weights_alone() -> None:
    dense = torch.randn(5, 32, 64).bfloat16()
    assert torch.equal(LAYOUTS["transposed"].dense(dense), dense.mT)
    with pytest.raises(ValueError, match="INT4"):
        LAYOUTS["transposed"].packed(words(5, 32, 16), scales(5, 32, 4))


def test_what_has_no_tiles_is_refused() -> None:
    with pytest.raises(ValueError, match="words are int32"):
        int4_tiles(words(1, 16, 16).long(), scales(1, 16, 4))
    with pytest.raises(ValueError, match="do not fit"):
        int4_tiles(words(1, 16, 16), scales(1, 16, 2))
    with pytest.raises(ValueError, match="multiple of 8"):
        bf16_tiles(torch.zeros(16, 12, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match="in eights"):
        bf16_gate_up_tiles(torch.zeros(24, 64, dtype=torch.bfloat16))
