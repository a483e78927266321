"""Rates and tables: interpolation, floors and the cost-aware table, by hand-worked numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddtreec import driver
from ddtreec.artifacts.plan import Weight, WeightPart
from ddtreec.core.errors import VerifyError
from ddtreec.core.paths import data_folder
from ddtreec.emit.cuda.table import kernel_table
from ddtreec.ops.add import Add
from ddtreec.ops.base import At, Cost, TensorType
from ddtreec.ops.fused import Fused, Part
from ddtreec.ops.linear import Linear
from ddtreec.ops.rms_norm import RmsNorm
from ddtreec.ops.split import Split
from ddtreec.passes import cost
from ddtreec.passes.schedule import row_buckets
from ddtreec.spec.load import load_engine

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


ONE_ROW = At(1, 1, 100, 2)


def linear(name: str, outputs: int, inputs: int, size: int) -> Linear:
    weight = Weight(name, "mlp", "target", (WeightPart(name, (outputs, inputs)),), (outputs, inputs), bytes=size)
    return Linear((inputs,), (outputs,), weight)


def norm_linear(name: str, outputs: int, inputs: int, size: int) -> Fused:
    scales = Weight("w", "norm", "target", (WeightPart("w", (inputs,)),), (inputs,), bytes=0)
    parts = (
        Part("n", RmsNorm(inputs, 1e-5, scales), ("x",), ("h",)),
        Part("p", linear(name, outputs, inputs, size), ("h",), ("y",)),
    )
    return Fused("norm_linear", parts, ("x",), ("y",))


def test_predicted_adds_gap_and_activations() -> None:
    op, ins = linear("w", 600_000, 400_000, int(30e6)), (TensorType(("rows", 400_000)),)
    assert replace(RATES, flops=1e30).predicted(op, ins, ONE_ROW) == pytest.approx(1e-6 + 32e6 / 3.0e12)


def test_predicted_of_measured_kernels() -> None:
    """Launches, activations at the best rate, and of the product its fixed time, bytes at its share, FLOPs."""
    rates = replace(RATES, launch=2e-6, kernels={"linear": cost.Reached(3e-6, 0.5, 100e12)})
    op, ins = norm_linear("w", 600_000, 400_000, int(30e6)), (TensorType(("rows", 400_000)),)
    want = 2 * 2e-6 + 2e6 / 3.5e12 + 3e-6 + 30e6 / (0.5 * 3.5e12) + 2 * 600_000 * 400_000 / 100e12
    assert rates.predicted(op, ins, ONE_ROW) == pytest.approx(want)
    assert rates.predicted(op, ins, ONE_ROW) > rates.floor(op.cost(ins, ONE_ROW))
    assert replace(rates, kernels={"router": cost.Reached(9.0, 0.1, 1.0)}).predicted(op, ins, ONE_ROW) == pytest.approx(
        2 * 2e-6 + 32e6 / 3.5e12 + 2 * 600_000 * 400_000 / 400e12
    )


@pytest.mark.parametrize("name", ["h200-x1", "h200-x8", "rtx-pro-6000-x8-pcie"])
def test_products_of_heads_are_like_linear_ones(name: str) -> None:
    loaded = load_engine("tiny-k2-h200-x1", (f"topology={name}",))
    rates = cost.Rates.of(loaded.topology)
    if loaded.topology.device.kernels is None:
        assert rates.kernels == {} and rates.launch == pytest.approx(loaded.topology.device.launch_us * 1e-6)
    else:
        assert rates.kernels["q_absorb"] == rates.kernels["v_up"] == rates.kernels["linear"]
        assert rates.launch == pytest.approx((loaded.topology.device.early_us or 0) * 1e-6)


def test_experts_that_were_counted_take_the_place_of_those_expected() -> None:
    state = driver.planned(load_engine("tiny-k2-h200-x1"))
    assert state.programs is not None
    costed = cost.Costed(state.programs.graphs["target"], RATES)

    def read(distinct: float | None) -> float:
        nodes = costed.nodes(At(4, 4, 100, 2, distinct))
        return next(n.cost.weight_bytes for n in nodes if n.node == "L01.moe.experts_shared")

    expected = 16 * (1 - (1 - 4 / 16) ** 4)
    assert read(expected) == pytest.approx(read(None))
    assert (read(16) - read(8)) / (read(8) - read(4)) == pytest.approx(2)


def test_launches_are_the_stages_of_the_kernels() -> None:
    """The table beside the patterns says what the emitters do, for every kind of the shipped engines."""
    seen: set[str] = set()
    for engine in sorted(path.stem for path in (data_folder("specs") / "engines").glob("*.yaml")):
        loaded = load_engine(engine)
        if loaded.topology.backend != "cuda":
            continue
        state = driver.planned(loaded)
        table, _ = kernel_table(state)
        stages = {kernel.name: len(kernel.stages) for kernel in table.kernels}
        assert state.programs is not None
        rates = cost.Rates.of(loaded.topology)
        for name, graph in state.programs.graphs.items():
            kernels = table.programs[name]
            nodes = [node for node in graph if node.op.kind != "split"]
            assert len(kernels) == len(nodes)
            for node, kernel in zip(nodes, kernels, strict=True):
                if kernel:
                    seen.add(kernel.partition("__")[0])
                    assert rates.launches(node.op) == stages[kernel], node.id
    assert {"experts_shared", "block_attention", "take_norm_linear"} <= seen


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
    assert RATES.launches(norm_linear("w", 4, 8, 64)) == replace(RATES, backend="cpu").launches(
        norm_linear("w", 4, 8, 64)
    )
    assert RATES.launches(Split((4, 4))) == 0


def test_alike_ops_have_one_signature_and_others_do_not() -> None:
    assert cost.signature(linear("L00.a", 4, 8, 64)) == cost.signature(linear("L01.a", 4, 8, 64))
    assert cost.signature(linear("L00.a", 4, 8, 64)) != cost.signature(linear("L00.a", 6, 8, 64))
    assert cost.signature(linear("L00.a", 4, 8, 64)) != cost.signature(linear("L00.a", 4, 8, 20))
    assert cost.signature(Add()) != cost.signature(Split((4, 4)))
