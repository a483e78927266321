"""Rates and tables: interpolation, floors and the cost-aware table, by hand-worked numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddtreec.artifacts.plan import Weight, WeightPart
from ddtreec.core.errors import VerifyError
from ddtreec.ops.add import Add
from ddtreec.ops.base import At, Cost
from ddtreec.ops.fused import Fused, Part
from ddtreec.ops.linear import Linear
from ddtreec.ops.split import Split
from ddtreec.passes import cost
from ddtreec.passes.schedule import row_buckets

RATES = cost.Rates(
    read=((4e6, 1.5e12), (16e6, 2.5e12), (64e6, 3.5e12)),
    flops=400e12,
    launch=1e-6,
    links={"all_reduce": ((8e3, 10e-6), (64e3, 24e-6), (128e3, 30e-6))},
)


@pytest.mark.parametrize(
    ("size", "rate"),
    [(1e3, 1.5e12), (4e6, 1.5e12), (8e6, 2.0e12), (16e6, 2.5e12), (32e6, 3.0e12), (64e6, 3.5e12), (1e9, 3.5e12)],
)
def test_read_rate_is_straight_over_log_bytes(size: float, rate: float) -> None:
    assert RATES.rate(size) == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize(
    ("size", "us"), [(1e3, 10), (8e3, 10), (36e3, 17), (64e3, 24), (96e3, 27), (128e3, 30), (192e3, 36)]
)
def test_collective_is_straight_over_bytes_and_keeps_its_slope(size: float, us: float) -> None:
    assert RATES.collective("all_reduce", size) == pytest.approx(us * 1e-6, rel=1e-12)


def test_no_links_no_time() -> None:
    assert RATES.collective("all_gather", 1e6) == 0.0


def test_floor_is_memory_or_arithmetic() -> None:
    assert RATES.floor(Cost(weight_bytes=35e6, activation_bytes=1e9)) == pytest.approx(10e-6)
    assert RATES.floor(Cost(weight_bytes=1, flops=4e9)) == pytest.approx(10e-6)


def test_predicted_adds_gap_and_activations() -> None:
    assert RATES.predicted(Cost(weight_bytes=30e6, activation_bytes=2e6)) == pytest.approx(1e-6 + 32e6 / 3.0e12)


def step(rows: int, seconds: float, floor: float = 0.0) -> cost.StepCost:
    return cost.StepCost("target", At(rows, rows, 100, 2), Cost(), floor, seconds, 0.0, 1)


def test_verify_costs_step_at_bucket_edges() -> None:
    steps = [step(1, 1.0), step(2, 2.0), step(4, 3.0), step(64, 9.0)]
    assert cost.verify_costs(steps, 5) == (1.0, 2.0, 3.0, 3.0, 9.0, 9.0)


@pytest.mark.parametrize("bad", [step(1, 0.0), step(1, float("nan")), step(1, 1.0, floor=2.0)])
def test_verifier_rejects_impossible_times(bad: cost.StepCost) -> None:
    with pytest.raises(VerifyError, match="cost"):
        cost.verify([bad])


@pytest.mark.parametrize(
    ("budget", "chunk", "expected"),
    [
        (0, 64, (1, 64)),
        (7, 64, (1, 2, 3, 4, 5, 6, 7, 8, 64)),
        (16, 64, (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 17, 64)),
        (4, 3, (1, 2, 3, 4, 5)),
        (127, 512, (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 512)),
    ],
)
def test_row_buckets(budget: int, chunk: int, expected: tuple[int, ...]) -> None:
    assert row_buckets(budget, chunk) == expected


def test_the_cpu_launches_the_parts_and_a_gpu_the_whole() -> None:
    adds = tuple(Part(f"n.a{i}", Add(), (f"x{i}", "y"), (f"x{i + 1}",)) for i in range(3))
    split = Part("n.s", Split((4, 4)), ("x3",), ("a", "b"))
    fused = Fused("adds", (*adds, split), ("x0", "y"), ("a", "b"))
    assert RATES.launches(fused) == 1
    assert replace(RATES, backend="cpu").launches(fused) == 3
    assert RATES.launches(Split((4, 4))) == 0


def test_alike_ops_have_one_signature_and_others_do_not() -> None:
    def linear(name: str, outputs: int, size: int) -> Linear:
        weight = Weight(name, "mlp", "target", (WeightPart(name, (outputs, 8)),), (outputs, 8), bytes=size)
        return Linear((8,), (outputs,), weight)

    assert cost.signature(linear("L00.a", 4, 64)) == cost.signature(linear("L01.a", 4, 64))
    assert cost.signature(linear("L00.a", 4, 64)) != cost.signature(linear("L00.a", 6, 64))
    assert cost.signature(linear("L00.a", 4, 64)) != cost.signature(linear("L00.a", 4, 20))
    assert cost.signature(Add()) != cost.signature(Split((4, 4)))
