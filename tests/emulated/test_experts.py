"""Routed experts on the emulator: INT4 and bfloat16 weights, with and without a shared expert, against float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import msgspec
import pytest
import torch
from torch.nn.functional import silu

from ddtreec.artifacts.plan import Call, Plan, Weight, WeightPart
from ddtreec.core.errors import SpecError
from ddtreec.emit.cuda.base import Device, Site, Tensor
from ddtreec.emit.cuda.experts import experts
from ddtreec.emit.cuda.source import kernel_source
from ddtreec_runtime.backends.cuda.layouts import LAYOUTS
from ddtreec_runtime.weights import dequantize
from tests.emulated.emulator import BACKWARD, FORWARD, Memory, library, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
DEVICE = Device("sm_90", 4, 99 * 1024)


@dataclass(frozen=True)
class Case:
    """Sizes of one rank; `packing` 'int4' or 'dense', `product` as in the plan, `shared` 0 without a shared expert."""

    experts: int = 8
    top_k: int = 2
    hidden: int = 128
    inter: int = 32
    shared: int = 0
    packing: str = "int4"
    product: str = "bf16"
    ids: str = "int64"
    most: int = 33

    def site(self) -> Site:
        """As the compiler would make it."""
        shapes = [(self.experts, 2 * self.inter, self.hidden), (self.experts, self.hidden, self.inter)]
        if self.shared:
            shapes += [(2 * self.shared, self.hidden), (self.hidden, self.shared)]
        args = [Tensor(f"t:{4 + n}", shape, shape[-1]) for n, shape in enumerate(shapes)]
        h = Tensor("t:0", (self.hidden,), self.hidden)
        ids = Tensor("t:2", (self.top_k,), self.top_k, self.ids)
        call = Call("L03.moe.experts", "experts_shared" if self.shared else "experts", params={"first_per": 0})
        most = {"rows": self.most, "out_rows": self.most, "slots": 1, "group": self.most}
        outs, ins = (h,), (replace(h, arg="t:1"), ids, Tensor("t:3", (self.top_k,), self.top_k, "float32"))
        return Site(cast(Plan, None), DEVICE, call, outs, ins, tuple(args), tuple(self.records(shapes)), most)

    def records(self, shapes: Sequence[tuple[int, ...]]) -> list[Weight]:
        """Of the weights in order; shared ones are dense."""
        part = WeightPart("w", (1,))
        packed = Weight("w", "experts", "target", (part,), (1,), packing="int4", group=32, product=self.product)  # type: ignore[arg-type]
        dense = Weight("w", "mlp", "target", (part,), (1,))
        return [packed if self.packing == "int4" and n < 2 else dense for n in range(len(shapes))]


@dataclass
class Given:
    """Random weights of a case: as floats for the reference, as tiles for the kernel."""

    floats: list[torch.Tensor]
    tiles: list[torch.Tensor]


def weights(case: Case, memory: Memory, seed: int = 0) -> Given:
    made = torch.Generator().manual_seed(seed)
    draft = experts(case.site())
    given = Given([], [])
    for n, weight in enumerate(case.site().weights):
        layout = LAYOUTS[draft.layouts[4 + n]]
        if case.packing == "int4" and n < 2:
            *rows, k = weight.tail
            packed = torch.randint(-(2**31), 2**31, (*rows, k // 8), generator=made, dtype=torch.int64).int()
            scale = (torch.rand(*rows, k // 32, generator=made) * 0.02 + 0.002).bfloat16()
            given.floats.append(dequantize(packed, scale, torch.float64, case.product))  # type: ignore[arg-type]
            tiled = layout.packed(packed, scale)
        else:
            dense = (torch.randn(weight.tail, generator=made) * 0.1).bfloat16()
            given.floats.append(dense.double())
            tiled = layout.dense(dense)
        given.tiles.append(memory.tensor(tiled.shape, tiled.dtype).copy_(tiled))
    return given


def expected(case: Case, given: Given, x: torch.Tensor, ids: torch.Tensor, w: torch.Tensor, first: int) -> torch.Tensor:
    """In float64, with the activations between the stages rounded to bfloat16 as the kernel stores them."""

    def mlp(gate_up: torch.Tensor, down: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        gate, up = (gate_up @ row).chunk(2)
        return down @ (silu(gate) * up).bfloat16().double()

    y = torch.zeros(len(x), case.hidden, dtype=torch.float64)
    for row in range(len(x)):
        for k in range(case.top_k):
            e = int(ids[row, k]) - first
            if 0 <= e < case.experts:
                y[row] += w[row, k].double() * mlp(given.floats[0][e], given.floats[1][e], x[row].double())
        if case.shared:
            y[row] += mlp(given.floats[2], given.floats[3], x[row].double())
    return y


def run(
    case: Case, given: Given, x: torch.Tensor, ids: torch.Tensor, w: torch.Tensor, first: int, flags: int
) -> torch.Tensor:
    """y as the kernel makes it."""
    memory, draft, rows = Memory(), experts(case.site()), len(x)
    kernel, compiled = draft.kernel(), library(kernel_source(draft))
    tensors = [memory.tensor((rows, case.hidden), torch.bfloat16)]
    tensors += [memory.tensor(t.shape, t.dtype).copy_(t) for t in (x, ids, w)] + given.tiles
    symbols = {"rows": rows}
    scratch = {s.name: memory.tensor((s.bytes.value(symbols),), torch.uint8) for s in kernel.scratch}

    def value(arg: str) -> int:
        kind, _, name = arg.partition(":")
        if kind == "t":
            return tensors[int(name)].data_ptr()
        if kind == "scratch":
            return scratch[name].data_ptr()
        return first if kind == "param" else symbols[name]

    for stage in kernel.stages:
        variant = next(v for v in stage.variants if v.rows >= rows)
        grid = [d.value(symbols) for d in variant.grid]
        args = [value(arg) for arg in stage.args]
        compiled.launch(variant.function, grid, variant.threads, variant.shared, args, flags)
    return tensors[0]


def routing(case: Case, rows: int, first: int = 0, seed: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x, ids of different experts a row, w."""
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, case.hidden, generator=made).bfloat16()
    ids = torch.stack([torch.randperm(case.experts, generator=made)[: case.top_k] for _ in range(rows)]) + first
    return x, ids.to(getattr(torch, case.ids)), torch.rand(rows, case.top_k, generator=made)


def check(case: Case, rows: int, first: int = 0) -> torch.Tensor:
    memory = Memory()
    given = weights(case, memory)
    x, ids, w = routing(case, rows, first)
    y = run(case, given, x, ids, w, first, FORWARD)
    assert torch.equal(y, run(case, given, x, ids, w, first, BACKWARD))
    close(y, expected(case, given, x, ids, w, first))
    return y


def close(y: torch.Tensor, reference: torch.Tensor) -> None:
    """Half a step of bfloat16 for the result, and as much again for acts that fell to the other side."""
    error = (y.double() - reference).norm() / reference.norm()
    assert error < 2**-8, f"relative error {error:.2e}"


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 9, 16, 17, 33])
def test_int4_experts_at_every_number_of_rows(rows: int) -> None:
    check(Case(shared=32), rows)


@pytest.mark.parametrize(
    "case",
    [
        Case(product="exact"),
        Case(product="exact", shared=96),
        Case(packing="dense"),
        Case(packing="dense", shared=32),
        Case(experts=16, top_k=4, hidden=256, inter=96, shared=96),
        Case(experts=16, top_k=8, hidden=256, inter=128, ids="int32"),
        Case(experts=16, top_k=8, hidden=160, inter=160, shared=72),
        Case(experts=16, top_k=6, hidden=144, inter=40, shared=1032, packing="dense"),
        Case(experts=1, top_k=1, hidden=96, inter=32),
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", [1, 11])
def test_shapes_and_packings(case: Case, rows: int) -> None:
    check(case, rows)


def test_ids_of_other_ranks_are_passed_over() -> None:
    case = Case(experts=4, top_k=4, shared=32)
    given = weights(case, Memory())
    x, _, w = routing(case, 6)
    ids = torch.stack([torch.randperm(16, generator=torch.Generator().manual_seed(n))[:4] for n in range(6)])
    y = run(case, given, x, ids, w, 8, FORWARD)
    close(y, expected(case, given, x, ids, w, 8))


@pytest.mark.parametrize("shared", [0, 32])
def test_a_rank_without_any_chosen_expert(shared: int) -> None:
    case = Case(shared=shared)
    given = weights(case, Memory())
    x, ids, w = routing(case, 3)
    y = run(case, given, x, ids, w, 100, FORWARD)
    if shared:
        close(y, expected(case, given, x, ids, w, 100))
    else:
        assert torch.equal(y, torch.zeros_like(y))


@pytest.mark.parametrize("rows", [7, 33])
def test_all_rows_on_the_same_experts(rows: int) -> None:
    case = Case()
    given = weights(case, Memory())
    x, ids, w = routing(case, rows)
    ids[:] = torch.tensor([5, 2])
    y = run(case, given, x, ids, w, 0, FORWARD)
    assert torch.equal(y, run(case, given, x, ids, w, 0, BACKWARD))
    close(y, expected(case, given, x, ids, w, 0))


@pytest.mark.parametrize("flags", [FORWARD, BACKWARD])
def test_every_block_makes_the_same_list_of_jobs(flags: int) -> None:
    """Also of an expert with more pairs than a job, whichever thread comes first."""
    made = torch.Generator().manual_seed(0)
    ids = torch.randint(-1, 7, (150,), generator=made)
    ids[::3] = 4
    memory, pairs = Memory(), int(((ids >= 1) & (ids < 6)).sum())
    given = memory.tensor(ids.shape, torch.int64).copy_(ids)
    out, jobs = memory.tensor((pairs,), torch.int32), memory.tensor((3, 32), torch.int32)
    text = """#include "experts.cuh"
extern "C" __global__ void list(const ddt::i64* ids, int* out, int* jobs, int pairs) {
  __shared__ ddt::Jobs<150, 5, 8> work;
  const int count = work.build<64>(ids, 1, 150);
  for (int i = threadIdx.x; i < pairs; i += 64) out[i] = work.pair[i];
  for (int i = threadIdx.x; i < count; i += 64) {
    jobs[i] = work.expert[i], jobs[32 + i] = work.begin[i], jobs[64 + i] = work.width[i];
  }
}
"""
    library(text).launch("list", (1, 1, 1), 64, 0, [t.data_ptr() for t in (given, out, jobs)] + [pairs], flags)
    members = [(ids == 1 + e).nonzero().flatten().tolist() for e in range(5)]
    assert out.tolist() == [p for each in members for p in each]
    starts = [sum(map(len, members[:e])) for e in range(5)]
    expected_jobs = [
        (e, starts[e] + done, min(8, len(members[e]) - done)) for e in range(5) for done in range(0, len(members[e]), 8)
    ]
    assert list(zip(*jobs[:, : len(expected_jobs)].tolist(), strict=True)) == expected_jobs


@pytest.mark.parametrize("packing", ["int4", "dense"])
def test_a_row_does_not_depend_on_the_others(packing: str) -> None:
    """Neither on how many there are, nor on padding that holds garbage: NaN, ids of no expert, an expert twice."""
    case = Case(experts=16, top_k=4, hidden=256, inter=96, shared=96, packing=packing)
    given = weights(case, Memory())
    x, ids, w = routing(case, 33)
    alone = run(case, given, x[:1], ids[:1], w[:1], 0, FORWARD)
    assert torch.equal(alone, run(case, given, x, ids, w, 0, FORWARD)[:1])
    for rows in (5, 12):
        bad_x, bad_ids, bad_w = x[:rows].clone(), ids[:rows].clone(), w[:rows].clone()
        bad_x[1:] = float("nan")
        bad_w[1:] = float("nan")
        bad_ids[1:] = torch.tensor([-1, 2**40, ids[0, 0], ids[0, 0]])
        assert torch.equal(alone, run(case, given, bad_x, bad_ids, bad_w, 0, FORWARD)[:1])


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case(hidden=136), "hidden size 136"),
        (Case(inter=36), "expert width 36"),
        (Case(shared=12), "shared width 12"),
    ],
)
def test_sizes_without_a_kernel_are_refused(case: Case, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        experts(case.site())


def test_packings_without_a_kernel_are_refused() -> None:
    site = Case(shared=32).site()
    gate_up, down, *beside = site.records
    for records, message in (
        ((gate_up, replace_record(down, product="exact"), *beside), "packed in different ways"),
        ((replace_record(gate_up, group=64), replace_record(down, group=64), *beside), "groups of 64"),
        ((gate_up, down, gate_up, down), "a packed shared expert"),
    ):
        with pytest.raises(SpecError, match=message):
            experts(replace(site, records=records))


def replace_record(record: Weight, **changes: object) -> Weight:
    return msgspec.structs.replace(record, **changes)
