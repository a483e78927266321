"""The choice of experts on the emulator against the CPU kernel: groups, ties, scores, float32 weights, broken rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from ddtreec import driver
from ddtreec.artifacts.plan import Call, Weight
from ddtreec.emit.cuda.base import Device, Site, Tensor
from ddtreec.emit.cuda.router import router
from ddtreec.emit.cuda.source import kernel_source
from ddtreec.plan.assemble import assemble
from ddtreec.spec.load import load_engine
from ddtreec_runtime.backends.cpu.kernels.router import router as reference
from tests.emulated.emulator import BACKWARD, FORWARD, Memory, library, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
Choice = tuple[torch.Tensor, torch.Tensor]
"""ids [rows, top_k] int64 and their weights [rows, top_k] float32."""
PLAN = assemble(driver.planned(load_engine("tiny-k2-h200-x1")))


@dataclass
class Case:
    """A router of `experts` experts; the rest are parameters of the call."""

    experts: int
    inputs: int = 64
    top_k: int = 4
    groups: int = 1
    top_groups: int = 1
    score: str = "sigmoid"
    normalize: bool = True
    scale: float = 1.5
    bias: bool = True
    wide: bool = False
    most: int = 16
    memory: Memory = field(default_factory=Memory)

    def site(self) -> Site:
        rule = {n: getattr(self, n) for n in ("top_k", "groups", "top_groups", "score", "normalize", "scale")}
        call = Call("L00.router", "router", ("ids", "w"), ("x",), ("weight", "bias")[: 1 + self.bias], rule)
        shape = (self.experts, self.inputs)
        size = self.experts * self.inputs * (4 if self.wide else 2)
        records = [Weight("weight", "router", "target", (), shape, precision="float32", bytes=size)]
        weights = [Tensor("t:3", shape, self.inputs, "float32")]
        if self.bias:
            records.append(Weight("bias", "router", "target", (), (self.experts,), precision="float32"))
            weights.append(Tensor("t:4", (self.experts,), self.experts, "float32"))
        outs = (Tensor("t:0", (self.top_k,), self.top_k, "int64"), Tensor("t:1", (self.top_k,), self.top_k, "float32"))
        ins = (Tensor("t:2", (self.inputs,), self.inputs),)
        most = {"rows": self.most, "out_rows": self.most, "slots": 1, "group": self.most}
        return Site(PLAN, Device("sm_90", 132, 232448), call, outs, ins, tuple(weights), tuple(records), most)

    def chosen(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, flags: int = FORWARD) -> Choice:
        """ids and weights of the rows of x, from the emulator."""
        draft, rows = router(self.site()), len(x)
        ids = self.memory.tensor((rows, self.top_k), torch.int64)
        w = self.memory.tensor((rows, self.top_k), torch.float32)
        dtypes = (torch.bfloat16, torch.float32 if self.wide else torch.bfloat16, torch.float32)
        held = [self.memory.tensor(t.shape, d).copy_(t) for t, d in zip((x, weight, bias), dtypes, strict=True)]
        given = {"int:rows": rows} | {f"t:{i}": t.data_ptr() for i, t in enumerate((ids, w, *held))}
        scratch = {s.name: self.memory.tensor((s.bytes.value({"rows": rows}),), torch.uint8) for s in draft.scratch}
        given |= {f"scratch:{name}": t.data_ptr() for name, t in scratch.items()}
        for stage in draft.kernel().stages:
            variant = next(v for v in stage.variants if v.rows >= rows)
            grid = [d.value({"rows": rows}) for d in variant.grid]
            args = [given[arg] for arg in stage.args]
            library(kernel_source(draft)).launch(variant.function, grid, variant.threads, variant.shared, args, flags)
        return ids, w

    def expected(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Choice:
        """The same from the CPU kernel."""
        ids = torch.empty((len(x), self.top_k), dtype=torch.int64)
        w = torch.empty((len(x), self.top_k))
        reference(ids, w, x.float(), weight.float(), bias if self.bias else None, top_k=self.top_k,
                  groups=self.groups, top_groups=self.top_groups, score=self.score, normalize=self.normalize,
                  scale=self.scale)  # fmt: skip
        return ids, w


def operands(case: Case, rows: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x, weight and bias whose products are sums of few small numbers: exact in any order, so ties are ties."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-3, 4, (rows, case.inputs), generator=generator) / 4
    weight = torch.randint(-3, 4, (case.experts, case.inputs), generator=generator) / 8
    bias = torch.randint(0, 3, (case.experts,), generator=generator) / 8
    return x, weight, bias if case.bias else torch.zeros_like(bias)


CASES = [
    Case(16),
    Case(384, top_k=8, scale=2.827),
    Case(64, groups=8, top_groups=3, top_k=8),
    Case(256, groups=8, top_groups=4, top_k=8, normalize=False),
    Case(12, groups=12, top_groups=5, top_k=5, score="softmax"),
    Case(40, score="softmax", normalize=False, bias=False, scale=1.0),
    Case(70, inputs=33, wide=True),
    Case(8, inputs=1024, top_k=2, most=64),
]


def described(case: Case) -> str:
    return f"{case.experts}-{case.inputs}-{case.groups}-{case.score}-{'f32' if case.wide else 'bf16'}"


@pytest.mark.parametrize("case", CASES, ids=described)
@pytest.mark.parametrize("rows", [1, 9, 16])
def test_choices(case: Case, rows: int) -> None:
    given = operands(case, rows, seed=rows)
    ids, w = case.chosen(*given)
    want_ids, want_w = case.expected(*given)
    assert torch.equal(ids, want_ids)
    torch.testing.assert_close(w, want_w, rtol=2e-6, atol=1e-7)
    again = case.chosen(*given, flags=BACKWARD)
    assert torch.equal(again[0], ids) and torch.equal(again[1], w)


def test_equal_scores_go_to_the_smaller_id() -> None:
    case = Case(48, bias=False)
    x, weight, bias = operands(case, 3)
    weight[:] = weight[0]
    weight[40] = 1.0
    weight[41] = 1.0
    ids, _ = case.chosen(x.abs() + 1, weight, bias)
    assert ids.tolist() == [[40, 41, 0, 1]] * 3


def test_equal_groups_go_to_the_smaller_group() -> None:
    case = Case(32, groups=4, top_groups=2, top_k=4, bias=False)
    x, weight, bias = operands(case, 2)
    weight[:] = weight[0]
    weight[24] = weight[25] = 1.0
    ids, _ = case.chosen(x.abs() + 1, weight, bias)
    assert ids.tolist() == [[24, 25, 0, 1]] * 2


@pytest.mark.parametrize("case", [CASES[0], CASES[2]], ids=described)
def test_a_broken_row_chooses_distinct_experts_and_spoils_no_other(case: Case) -> None:
    x, weight, bias = operands(case, 4)
    clean, _ = case.chosen(x, weight, bias)
    x[2] = torch.nan
    ids, _ = case.chosen(x, weight, bias)
    assert len(set(ids[2].tolist())) == case.top_k and ids.min() >= 0 and ids.max() < case.experts
    others = [0, 1, 3]
    assert torch.equal(ids[others], clean[others])
