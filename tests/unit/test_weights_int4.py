"""INT4 pack-quantized: nibble order, offset binary, both roundings of the product, against stored goldens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from ddtreec_runtime.weights import dequantize, read_checkpoint, unpack

C = Path(__file__).parents[1] / "data" / "k26" / "c-vl-nested-int4"
EXPERT = "language_model.model.layers.1.mlp.experts.0."


def stored(name: str) -> torch.Tensor:
    with safe_open(C / read_checkpoint(C).tensors[name].file, "pt") as file:
        return file.get_tensor(name)


def word(value: int) -> int:
    """A 32-bit pattern as the int32 that holds it."""
    return value - (1 << 32) if value >= 1 << 31 else value


def test_published_packing_example() -> None:
    packed = torch.tensor([[word(0x76543210), word(0xFEDCBA98)]], dtype=torch.int32)
    assert unpack(packed).tolist() == [list(range(-8, 8))]


def test_every_nibble_in_every_place() -> None:
    for place in range(8):
        for nibble in range(16):
            q = unpack(torch.tensor([word(nibble << 4 * place)], dtype=torch.int32))
            assert q.tolist() == [nibble - 8 if i == place else -8 for i in range(8)]
            assert q.dtype == torch.int8


@pytest.mark.parametrize("module", ["gate_proj", "down_proj"])
def test_golden_unpacked(module: str) -> None:
    packed, scale = stored(EXPERT + module + ".weight_packed"), stored(EXPERT + module + ".weight_scale")
    with safe_open(C / "goldens_unpacked.safetensors", "pt") as file:
        q = file.get_tensor(EXPERT + module + ".int4")
        exact = file.get_tensor(EXPERT + module + ".dequant")
    assert torch.equal(unpack(packed), q)
    assert torch.equal(dequantize(packed, scale, torch.float32), exact)
    assert torch.equal(dequantize(packed, scale, torch.float64), exact.double())
    rounded = exact.bfloat16()
    assert not torch.equal(rounded.float(), exact)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        assert torch.equal(dequantize(packed, scale, dtype, "bf16"), rounded.to(dtype))
    assert torch.equal(dequantize(packed, scale, torch.bfloat16, "exact"), rounded)


def test_out_and_leading_axes() -> None:
    generator = torch.Generator().manual_seed(0)
    packed = torch.randint(-(2**31), 2**31, (3, 5, 8), generator=generator, dtype=torch.int64).int()
    scale = torch.rand(3, 5, 2, generator=generator).bfloat16()
    out = torch.full((3, 5, 64), torch.nan)
    assert dequantize(packed, scale, torch.float32, out=out) is out
    shifts = torch.arange(0, 32, 4)
    q = ((packed.long().unsqueeze(-1) >> shifts) & 15).flatten(-2) - 8
    assert torch.equal(out, q.float() * scale.float().repeat_interleave(32, -1))
    strided = packed[:, 1:4, 2:6]
    assert torch.equal(unpack(strided), q[:, 1:4, 16:48].to(torch.int8))


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="int32"):
        unpack(torch.zeros(2, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="scales"):
        dequantize(torch.zeros(2, 2, dtype=torch.int32), torch.ones(2, 3), torch.float32)
    with pytest.raises(ValueError, match="scales"):
        dequantize(torch.zeros(2, 2, dtype=torch.int32), torch.ones(3, 1), torch.float32)
