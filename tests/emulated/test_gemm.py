"""Matrix stages on the emulator: against float64, and the same bits whatever the number of rows."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from ddtreec.emit.cuda.base import ROW_TILES, Device, KernelDraft, Tensor
from ddtreec.emit.cuda.gemm import Tiling, linear_scratch, linear_stage
from ddtreec.emit.cuda.source import kernel_source
from tests.emulated.emulator import BACKWARD, FORWARD, Memory, library, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
DEVICE = Device("sm_90", 132, 232448)


@cache
def product(
    outputs: int, inputs: int, heads: int, x_head: int, wide: bool, tiling: Tiling | None = None
) -> KernelDraft:
    """A kernel of one linear stage: x and y contiguous but for a gap behind every head of x."""
    x = Tensor("t:1", (heads, inputs), heads * x_head, pitch=x_head)
    y = Tensor("t:0", (heads, outputs), heads * outputs, "float32" if wide else "compute")
    stage = linear_stage("product", x, "t:2", y, outputs=outputs, inputs=inputs, heads=heads, device=DEVICE, most=128,
                         tilings={32: tiling} if tiling else None)  # fmt: skip
    return KernelDraft(f"product_{outputs}_{inputs}", "a product", (stage,), linear_scratch(stage))


def launch(draft: KernelDraft, tensors: list[torch.Tensor], rows: int, tile: int, flags: int) -> None:
    """Runs the variant `tile` of the only stage for `rows` rows."""
    (stage,) = draft.kernel().stages
    (variant,) = [v for v in stage.variants if v.rows == tile]
    memory = Memory()
    scratch = {s.name: memory.tensor((s.bytes.value({}),), torch.uint8) for s in draft.scratch}
    tickets = memory.tensor((1024,), torch.int32).zero_()
    given = {"int:rows": rows, "state:tickets": tickets.data_ptr()}
    given |= {f"t:{i}": t.data_ptr() for i, t in enumerate(tensors)}
    given |= {f"scratch:{name}": t.data_ptr() for name, t in scratch.items()}
    grid = [d.value({"rows": rows}) for d in variant.grid]
    library(kernel_source(draft)).launch(
        variant.function, grid, variant.threads, variant.shared, [given[arg] for arg in stage.args], flags
    )
    assert not tickets.any()


def operands(draft: KernelDraft, rows: int, seed: int = 0) -> list[torch.Tensor]:
    """y full of NaN, x and w random; what lies in the gaps of x and behind it is NaN."""
    memory, generator = Memory(), torch.Generator().manual_seed(seed)
    c = draft.stages[0].constants
    heads, inputs = c["kYStride"] // c["kOutputs"], c["kInputs"]
    x_head = c["kXStride"] // heads
    wide = any(p.type == "float*" and p.name == "y" for p in draft.stages[0].params)
    y = memory.tensor((rows, heads, c["kOutputs"]), torch.float32 if wide else torch.bfloat16)
    x = memory.tensor((rows, heads, x_head), torch.bfloat16)
    x[..., :inputs] = torch.randn((rows, heads, inputs), generator=generator)
    w = memory.tensor((heads, c["kOutputs"], inputs), torch.bfloat16)
    w.copy_(torch.randn(w.shape, generator=generator) / inputs**0.5)
    return [y, x, w]


def expected(draft: KernelDraft, tensors: list[torch.Tensor]) -> torch.Tensor:
    inputs = draft.stages[0].constants["kInputs"]
    return torch.einsum("rhk,hnk->rhn", tensors[1][..., :inputs].double(), tensors[2].double())


CASES = [
    (8, 16, 1, 16, True),
    (100, 48, 1, 48, False),
    (40, 32, 3, 48, False),
    (16, 96, 2, 96, False),
    (33, 736, 1, 736, False),
    (384, 1024, 1, 1024, True),
    (64, 512, 2, 512, False),
    (128, 2304, 1, 2304, False),
    (72, 128, 4, 192, False),
    (24, 21, 2, 27, False),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
@pytest.mark.parametrize("rows", [1, 8, 9, 27, 64, 128])
def test_products(case: tuple[int, int, int, int, bool], rows: int) -> None:
    draft = product(*case)
    tensors = operands(draft, rows)
    tile = min(t for t in ROW_TILES if t >= rows)
    results = []
    for flags in (FORWARD, BACKWARD):
        tensors[0].view(torch.uint8).fill_(255)
        launch(draft, tensors, rows, tile, flags)
        results.append(tensors[0].clone())
    assert torch.equal(results[0], results[1])
    want = expected(draft, tensors)
    rtol = 2**-8 if results[0].dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(results[0].double(), want, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("case", [c for c in CASES if c[1] >= 512], ids=lambda case: "-".join(map(str, case)))
def test_a_row_has_the_same_bits_in_every_variant(case: tuple[int, int, int, int, bool]) -> None:
    draft = product(*case)
    whole = operands(draft, 128)
    launch(draft, whole, 128, 128, FORWARD)
    for tile in (64, 32, 16, 8):
        some = [t if t is whole[2] else t[:tile].clone() for t in whole]
        some[0].view(torch.uint8).fill_(255)
        launch(draft, some, tile, tile, FORWARD)
        assert torch.equal(some[0], whole[0][:tile])


TILINGS = [
    Tiling(tiles=2, unit=4, units_ahead=2, each_pass=2),
    Tiling(row_warps=2, split=2, ahead=2, unit=2, units_ahead=4, each_pass=4),
    Tiling(tiles=2, row_warps=3, split=4, serial=True, ahead=2, unit=1, units_ahead=8, each_pass=1),
    Tiling(row_warps=8, split=4, serial=True, ahead=4, unit=4, units_ahead=1, each_pass=2),
    Tiling(ahead=1, unit=2, units_ahead=2, each_pass=4),
    Tiling(row_warps=2, split=2, unit=2, units_ahead=2, each_pass=2, groups=2),
]


@pytest.mark.parametrize("tiling", TILINGS, ids=str)
def test_every_tiling_gives_the_same_bits(tiling: Tiling) -> None:
    case = (200, 1024, 1, 1024, False)
    draft = product(*case)
    tensors = operands(draft, 27)
    launch(draft, tensors, 27, 32, FORWARD)
    want = tensors[0].clone()
    for flags in (FORWARD, BACKWARD):
        tensors[0].view(torch.uint8).fill_(255)
        launch(product(*case, tiling), tensors, 27, 32, flags)
        assert torch.equal(tensors[0], want)


def test_a_row_of_nan_stays_alone() -> None:
    draft = product(*CASES[5])
    tensors = operands(draft, 16)
    launch(draft, tensors, 16, 16, FORWARD)
    clean = tensors[0].clone()
    tensors[1][5] = torch.nan
    launch(draft, tensors, 16, 16, FORWARD)
    others = [i for i in range(16) if i != 5]
    assert torch.equal(tensors[0][others], clean[others])
    assert tensors[0][5].isnan().all()
