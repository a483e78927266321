"""What `plan` says of budgets: break-even, expected tau, the budget it recommends, and the sweep over contexts."""

from __future__ import annotations

import msgspec
import pytest

from ddtreec import driver
from ddtreec.artifacts import kernels
from ddtreec.artifacts import plan as plan_file
from ddtreec.plan import report as reports
from ddtreec.plan.text import text
from ddtreec.spec.load import load_engine

BIG, PLAIN = "kimi-k2.6-rtx-pro-6000-x8-pcie", "moonlight-16b-a3b-h200-x1"


@pytest.mark.parametrize(
    ("nodes", "tau"),
    [(1, 1.75), (2, 2.5), (4, 4.0), (6, 4.5), (8, 5.0), (9, None)],
)
def test_expected_tau_lies_on_straight_lines(nodes: int, tau: float | None) -> None:
    assert reports.expected([(8, 5.0), (4, 4.0)], nodes) == tau


def test_break_even_is_the_tau_of_equal_speed() -> None:
    found = driver.plan(load_engine(BIG))
    plain = found.budgets[0]
    assert plain.break_even == 1.0
    for budget in found.budgets[1:]:
        per_s = budget.break_even / budget.round_ms * 1e3
        assert per_s == pytest.approx(plain.tokens_per_s["1"])


def test_the_recommended_budget_is_the_fastest_expected() -> None:
    found = driver.plan(load_engine(BIG))
    known = [b for b in found.budgets if b.expected_per_s is not None]
    assert len(known) > 5
    best = max(known, key=lambda b: b.expected_per_s or 0.0)
    assert found.recommended == best.budget
    assert best.expected_per_s == pytest.approx(best.expected_tau / best.round_ms * 1e3)  # type: ignore[operator]
    said = text(found)
    assert f"recommended budget: {best.budget} (tau {best.expected_tau:.2f} expected" in said
    assert "expected tau: " in said


def test_no_tree_is_recommended_where_none_pays() -> None:
    """Every tree commits one token a round."""
    found = driver.plan(load_engine(BIG)).budgets
    flat = [msgspec.structs.replace(b, expected_per_s=1e3 / b.round_ms) for b in found]
    assert reports.recommended(flat) == 0


def test_without_a_drafter_nothing_is_recommended() -> None:
    found = driver.plan(load_engine(PLAIN))
    assert found.recommended is None
    assert "recommended" not in text(found)


def test_a_drafter_without_expectations_says_how_to_get_them() -> None:
    found = driver.plan(load_engine(BIG, ("drafter.expected_tau=null",)))
    assert found.recommended is None and all(b.expected_tau is None for b in found.budgets)
    assert "no budget is recommended: the drafter spec has no expected_tau" in text(found)


def test_the_text_sweeps_contexts() -> None:
    found = driver.plan(load_engine(BIG))
    lines = text(found).splitlines()
    at = lines.index("predicted ms of a step of the target by tokens of context")
    assert lines[at + 1].split() == ["context", "1", "row", "8", "rows", "9", "rows"]
    sweep = [line.split() for line in lines[at + 2 : at + 11]]
    assert [row[0] for row in sweep] == [str(2**n) for n in range(10, 19)]
    steps = {s.rows: s for s in found.steps if s.program == "target"}
    assert [float(x) for x in sweep[3][1:]] == pytest.approx([steps[r].predicted_ms for r in (1, 8, 9)], abs=6e-4)


def test_a_gpu_plan_tells_its_entry_points_and_the_memory_of_its_kernels() -> None:
    loaded = load_engine(BIG)
    found = driver.plan(loaded)
    files = driver.build_files(loaded, "src")
    table = kernels.decode(files[kernels.KERNELS])
    stages = {(kernel.name, stage.name): stage for kernel in table.kernels for stage in kernel.stages}
    assert {(t.kernel, t.stage) for t in found.tiles} == set(stages)
    for tiles in found.tiles:
        variants = stages[tiles.kernel, tiles.stage].variants
        assert list(zip(tiles.rows, tiles.threads, tiles.shared, strict=True)) == [
            (v.rows, v.threads, v.shared) for v in variants
        ]
        assert max(tiles.shared) <= 99 * 1024
    assert found.memory == plan_file.decode(files["plan.json"]).memory
    assert files["plan.txt"].decode() == text(found)
    assert "kernels by stage" in text(found) and "kernels by stage" not in text(driver.plan(load_engine("tiny-k2-cpu")))
