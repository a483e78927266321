"""What tests/gpu/wide.py compares, on the emulator: the tiny engine on eight ranks stands for the wide one."""

from __future__ import annotations

import pytest

from ddtreec_runtime.backends.cuda.steps import Shape
from tests.cuda_host.emulated import loaded_kernels
from tests.emulated.emulator import missing
from tests.gpu.wide import faults, summary
from tests.gpu.wide_program import Found, WideRank

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "here")

EIGHT = ("topology=h200-x8", "limits.context=512", "layout.vocab=parallel", "layout.attention=tp")
INT4 = (*EIGHT, "quant=int4-g32-experts", "layout.experts=ep8xtp1")


def wide(overrides: tuple[str, ...]) -> WideRank:
    bundle, loaded, driver = loaded_kernels("tiny-k2-h200-x1", overrides)
    return WideRank(bundle, loaded, driver, "cpu", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("overrides", [EIGHT, INT4], ids=["bf16", "int4-ep8"])
def test_all_programs_value_by_value(overrides: tuple[str, ...]) -> None:
    found, rank = Found(), wide(overrides)
    steps = [("target", 1, 0), ("target", 9, 40), ("draft_context", 9, 300), ("draft_block", 8, 300)]
    for name, rows, committed in steps:
        rank.step(name, rows, committed, found)
    assert not faults(found)
    judged = {(one.program, one.node, one.result) for one in found.results}
    for program in rank.plan.programs:
        for call in program.calls:
            floats = [name for name in call.outs if not name.endswith(".ids")]
            assert call.collective or all((program.name, call.node, name) in judged for name in floats)
    told = summary(found)
    assert all(0 < row["alone"] < 1e-2 for name, row in told["kernels"].items() if name[:3] not in ("emb", "tap"))
    assert len(told["routers"]) == 2 * 4


def test_a_wrong_weight_is_seen_where_it_is_read() -> None:
    found, rank = Found(), wide(EIGHT)
    rank.exact["L02.attention.o_proj"] = rank.exact["L02.attention.o_proj"] * 1.02
    rank.exact["L03.moe.router"] = rank.exact["L03.moe.router"].roll(1, 0)
    rank.step("target", 9, 40, found)
    said = [fault for fault in faults(found) if ": alone " in fault or "(alone)" in fault]
    assert said and all("L02.attention.o_proj" in one or "L03.moe.add_norm_router" in one for one in said)
    assert any("chose other experts" in one for one in said)


def test_a_wrong_weight_is_seen_behind_it() -> None:
    """Three percent, in a network whose rounding is one."""
    found, rank = Found(), wide(INT4)
    rank.exact["L00.mlp.down"] = rank.exact["L00.mlp.down"] * 1.03
    rank.step("target", 9, 40, found)
    said = faults(found)
    assert any("L01.attention.add_norm_linear L00.mlp.y: in_a_row " in one for one in said)
    assert any("L01.attention.add_norm_linear L00.mlp.y: in_a_row_row " in one for one in said)


def test_a_value_that_is_changed_between_kernels_is_seen_only_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel does what it is asked to with what it finds."""
    found, rank = Found(), wide(INT4)
    target, driver, calls = rank.machine.programs["target"], rank.machine.driver, 0
    value, run = target.values(Shape(1, 9, 9))["L00.attention.y"], driver.run
    nodes = [call.node for call in target.program.calls if not call.collective]
    between = nodes.index("L00.mlp.swiglu_linear") + 1

    def running(launches: object) -> None:
        nonlocal calls
        run(launches)  # type: ignore[arg-type]
        calls += 1
        if calls == between:
            value[5] *= 1.1

    monkeypatch.setattr(driver, "run", running)
    rank.step("target", 9, 40, found)
    said = faults(found)
    assert calls == len(nodes) and said
    assert all(": in_a_row_row " in one or ": in_a_row " in one for one in said)
    assert any("L00.mlp.y" in one for one in said) and not any("L00.mlp.gate_up" in one for one in said)
