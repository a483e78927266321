"""The measurements of a GPU: what is timed, the facts fitted to it, the page, and how well steps are foretold."""

from __future__ import annotations

import json
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import gpu, gpu_fit, gpu_page
from ddtreec.passes.cost import Rates, Reached
from ddtreec_runtime import Generation
from ddtreec_runtime.backends.cuda.rank_bench import RankBench, lonely_machine
from tests.cuda_host.emulated import compiled, loaded_kernels
from tests.emulated.emulator import missing

RESULTS = gpu_page.RESULTS
EIGHT = ("topology=h200-x8", "limits.context=2048", "layout.vocab=parallel", "layout.attention=tp")


@cache
def rank() -> Any:
    return json.loads((RESULTS / "h200_rank.json").read_text())


@cache
def compared() -> list[tuple[str, int, int, float, float]]:
    return gpu_fit.compared(rank())


@pytest.mark.parametrize("step", [(s["context"], s["rows"]) for s in rank()["steps"] if s["rows"] <= 32], ids=str)
def test_steps_are_predicted_within_a_tenth(step: tuple[int, int]) -> None:
    """Of the target, without links, with the experts that were read."""
    found = {(context, rows): pair for program, context, rows, *pair in compared() if program == "target"}
    measured, predicted = found[step]
    assert predicted == pytest.approx(measured, rel=0.1)


def test_the_facts_are_those_of_the_measurement() -> None:
    spec = gpu_fit.TOPOLOGIES / "h200-x1.yaml"
    assert spec.read_text() == gpu_fit.written(spec.read_text(), gpu_fit.fitted(rank()))


def test_the_fit_finds_the_facts_that_made_a_measurement() -> None:
    """Steps and kernels priced by known rates, at points that tell all of them apart."""
    model = gpu_fit.Model("tiny-k2-h200-x1")
    told = {
        "linear": Reached(0.5e-6, 0.8, 2e14),
        "router": Reached(3e-6, 0.5, 1e14),
        "experts": Reached(4e-6, 0.6, 3e14),
        "latent_attention": Reached(5e-6, 0.4, 0.5e14),
    }
    rates = model.rates
    kinds = told | dict.fromkeys(gpu_fit.PRODUCTS, told["linear"])
    made = Rates(rates.read, rates.flops, 1.2e-6, rates.links, "cuda", kinds)
    points: list[gpu_fit.Point] = []
    for context in (128, 1024, 1900):
        for rows in (1, 2, 4, 8):
            at = gpu_fit.At(rows, rows, context, 2, 4.0 + rows)
            nodes = model.priced(gpu_fit.Point("target", at, 0.0, {}, True), made)
            kernels = {n.node: (1, n.predicted + 2e-6) for n in nodes if n.predicted}
            points.append(gpu_fit.Point("target", at, sum(n.predicted for n in nodes) + 2e-6, kernels, True))
    left, right = gpu_fit.equations(model, points)
    x = gpu_fit.least_squares(left, right, model.least)
    assert np.abs(left @ x - right).max() < 1e-6
    found = dict(zip(model.names, x, strict=True))
    assert found["start"] == pytest.approx(2e-6, rel=1e-3) and found["launch"] == pytest.approx(1.2e-6, rel=1e-3)
    for kind in ("experts", "latent_attention"):
        assert found[f"{kind}.fixed"] == pytest.approx(told[kind].fixed, rel=0.02)


def test_least_squares_keeps_its_bounds() -> None:
    rng = np.random.default_rng(3)
    left, least = rng.normal(size=(30, 4)) * [1.0, 1e6, 1e-6, 1.0], np.array([0.0, 0.0, 1e5, -2.0])
    x = gpu_fit.least_squares(left, left @ np.array([2.0, -1e-6, 3e6, -1.0]), least)
    assert (x >= least).all() and x[1] == 0
    # On the bounds the slope points outwards, elsewhere it is zero.
    slope = left.T @ (left @ x - left @ np.array([2.0, -1e-6, 3e6, -1.0]))
    free = x > least
    assert free.tolist() == [True, False, True, True] and np.abs(slope[free]).max() < 1e-6 * np.abs(left).sum()
    assert slope[1] > 0


def test_facts_take_the_place_of_old_ones() -> None:
    text = "a: 1\n  early_us: 2.5  # why\n  kernels:   # how\n    linear: {us: 1}\n    old: {us: 2}\n  sms: 3\n"
    want = "a: 1\n  early_us: 1.5  # why\n  kernels:   # how\n    linear: {us: 4}\n  sms: 3\n"
    facts = {"early_us": "1.5", "linear": "{us: 4}"}
    assert gpu_fit.written(text, facts) == want
    with pytest.raises(SystemExit, match="0 lines of early_us"):
        gpu_fit.written("sms: 3\n", facts)


def test_committed_page_is_rendered_from_the_committed_numbers() -> None:
    found = (gpu_page.measured(part) for part in ("rank", "pair", "verify"))
    assert gpu_page.PAGE.read_text() == gpu_page.render(*found)


def test_what_is_slower_is_said() -> None:
    step = {
        "context": 8192, "rows": 8, "ms": 9.5, "floor_ms": 3.5, "experts": {"even": True},
        "kernels": [
            {"node": "L01.moe.experts_shared", "us_each": 90.0},
            {"node": "L00.attention.latent_attention_v_up", "us_each": 20.0},
            {"node": "L00.attention.o_proj", "us_each": 7.5},
        ],
    }  # fmt: skip
    found = {"steps": [step]}
    text = "\n".join(gpu_page._peers(found))
    assert "a step of 8 rows takes 9.50 ms; the goal is 9.0 ms" in text
    assert "experts at 8 rows: 90.0 us, Marlin MoE chain 81.8 us" in text and "Humming" in text.split("**Missed**")[1]
    assert "cuBLAS o_proj 6.8 to 7.1 us; ours (o_proj): 7.5 at 8" in text and "FlashMLA" not in text.split("Missed")[1]
    step["experts"] = {"even": False}
    text = "\n".join(gpu_page._peers(found))
    assert "not measured with uniform routing" in text and "90.0" not in text


def test_a_page_without_measurements() -> None:
    assert gpu_page.render(None, None, None).count("Not measured yet.") == 3


@pytest.mark.parametrize(("name", "want"), [("NVIDIA H200", "h200"), ("NVIDIA RTX PRO 6000", "rtx_pro_6000")])
def test_file_names(name: str, want: str) -> None:
    assert gpu.short(name) == want


def test_points_without_room_are_left_out() -> None:
    plan = compiled("tiny-k2-h200-x1", EIGHT)[0].plan
    points, reasons = gpu.fitting(plan)
    assert points == [(1024, 1), (1024, 8)]
    assert reasons == ["8192 tokens: the bundle has room for 1920", "32768 tokens: the bundle has room for 1920"]


@pytest.mark.skipif(bool(missing()), reason=missing() or "here")
def test_steps_of_a_rank_on_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but the clock, rows beyond the logits that a step gives among it."""
    monkeypatch.setattr(RankBench, "_times", lambda self, launches, name, **how: [2.0, 1.0, 3.0])
    bundle, loaded, driver = loaded_kernels("tiny-k2-h200-x1", EIGHT)
    bench = RankBench(lonely_machine(bundle, loaded, driver, "cpu", 0), 0, 4.5e12)  # type: ignore[arg-type]
    most = bench.machine.programs["target"].program.max_out_rows
    steps = list(gpu.timed(bench, [(40, 1), (20, most + 4)]))
    assert [(s["context"], s["rows"], s["out_rows"], s["ms"]) for s in steps] == [
        (40, 1, 1, 2.0),
        (20, most + 4, most, 2.0),
    ]
    drafts = list(gpu.drafted(bench, [(40, 1), (40, 2), (20, 1)]))
    assert [(d["context"], d["program"]) for d in drafts] == [
        (c, p) for c in (40, 20) for p in ("draft_block", "draft_context")
    ]
    # Every kernel is told with a node that the cost pass prices.
    model = gpu_fit.Model("tiny-k2-h200-x1")
    for point in gpu_fit.points({"steps": steps, "drafter": drafts}, 2):
        priced = {n.node for n in model.priced(point, model.rates)}
        assert point.kernels and set(point.kernels) <= priced


class Pair:
    """An engine that takes 1 ms a round as graphs, 4 ms launch by launch, and commits 2 tokens a round with drafts."""

    def __init__(self) -> None:
        self.decoder = SimpleNamespace(captures=True)
        self.plan = SimpleNamespace(limits=SimpleNamespace(sequences=3, context=1024))

    def generate(self, prompt: list[int], tokens: int, *, speculation: str, ignore_eos: bool) -> Generation:
        each = 1 if speculation == "off" else 2
        rounds = (tokens - 1) // each
        took = rounds * (1e-3 if self.decoder.captures else 4e-3)
        ids = list(range(1 + rounds * each))
        return Generation(prompt, ids, rounds=rounds, prefill_s=len(prompt) * 1e-6, decode_s=took)

    def generate_batch(self, prompts: list[list[int]], tokens: int, **how: Any) -> list[Generation]:
        return [self.generate(prompt, tokens, **how) for prompt in prompts]


def test_speeds_of_the_pair() -> None:
    engine: Any = Pair()
    prompts = [[1] * 128] * 8
    one = list(gpu.one_sequence(engine, prompts[:2], 101))
    assert engine.decoder.captures
    found = {(o["launching"], o["speculation"]): (o["tokens_per_s"], o["round_us"], o["tau"]) for o in one}
    assert found["graphs", "off"] == pytest.approx((1000, 1000, 1))
    assert found["graphs", "tree"] == pytest.approx((2000, 1000, 2))
    assert found["one by one", "chain"] == pytest.approx((500, 4000, 2))
    several = list(gpu.several_sequences(engine, prompts, 101))
    assert [(s["speculation"], s["sequences"]) for s in several] == [(m, n) for m in ("off", "tree") for n in (1, 2, 3)]
    prefill = {(p["speculation"], p["tokens"]): p["ms"] for p in gpu.prefills(engine, prompts)}
    assert prefill == {(m, n): pytest.approx(n * 1e-3) for m in ("off", "tree") for n in (128, 512)}


def test_medians() -> None:
    assert gpu.medians([{"a": 1.0, "b": 5.0}, {"a": 3.0, "b": 4.0}, {"a": 2.0, "b": 6.0}]) == {"a": 2.0, "b": 5.0}
