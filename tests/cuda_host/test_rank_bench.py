"""One rank of many without the others: its values lie where nothing overwrites them, and what is counted of a step."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from ddtreec.artifacts.plan import Program, decode
from ddtreec.core.errors import SpecError
from ddtreec_runtime.backends.cuda.alone import alone
from ddtreec_runtime.backends.cuda.rank_bench import RankBench, check_asked, lines, lonely_machine
from ddtreec_runtime.backends.cuda.routing import routers_of, spread
from ddtreec_runtime.backends.cuda.steps import Shape
from ddtreec_runtime.program import Homes
from tests.cuda_host.emulated import compiled, loaded_kernels
from tests.emulated.emulator import missing

EIGHT = ("topology=h200-x8", "limits.context=256", "layout.vocab=parallel", "layout.attention=tp")
K26 = Path(__file__).resolve().parents[2] / "generated" / "kimi-k2.6-rtx-pro-6000-x8-pcie" / "plan.json"


def programs() -> list[Program]:
    """All programs of one rank of K2.6, and of the tiny pair on eight ranks."""
    return [*decode(K26.read_bytes()).programs, *compiled("tiny-k2-h200-x1", EIGHT)[0].plan.programs]


@pytest.mark.parametrize("program", programs(), ids=lambda p: f"{p.name}-{len(p.calls)}")
def test_values_that_are_needed_at_one_time_lie_apart(program: Program) -> None:
    """Written as byte ranges that later writes destroy: every read finds what was written last under its name."""
    one = alone(program)
    values = {value.id: value for value in one.program.values}
    owner = {name: value.parent if value.home == "alias" else name for name, value in values.items()}
    sizes = {"compute": 2, "float32": 4, "int64": 8, "int32": 4}
    holder: dict[int, str] = {}  # by 64 bytes of the arena

    def run(name: str) -> range:
        value, count = values[owner[name]], 1
        for size in value.shape:
            count *= (
                {"rows": program.max_rows, "out_rows": program.max_out_rows}[size] if isinstance(size, str) else size
            )
        end = value.offset + count * sizes[value.dtype]
        assert end <= one.program.arena_bytes
        return range(value.offset // 64, -(-end // 64))

    for call in one.program.calls:
        names = [name for name in (*call.ins, *call.outs) if values[owner[name]].home == "arena"]
        if not call.collective:
            holder |= {at: owner[n] for n in call.outs if values[owner[n]].home == "arena" for at in run(n)}
        for name in names:
            assert all(holder[at] == owner[name] for at in run(name)), (call.node, name)
    assert all(values[owner[name]].home == "persistent" for name in one.gathered)


@cache
def bench() -> RankBench:
    bundle, loaded, driver = loaded_kernels("tiny-k2-h200-x1", EIGHT)
    assert bundle.plan.mesh.ranks == 8
    machine = lonely_machine(bundle, loaded, driver, "cpu", 3)  # type: ignore[arg-type]
    return RankBench(machine, 40, 4.5e12)


@pytest.mark.skipif(bool(missing()), reason=missing() or "here")
def test_a_step_of_one_rank_alone() -> None:
    """The same numbers as with a place of its own for every value."""
    program, shape = bench().machine.programs["target"], Shape(1, 4, 4)
    bench().begin(4, program)
    tokens = program.homes.inputs["tokens"][:4].tolist()
    first = 3 * bench().machine.plan.model.vocab // 8
    assert all(first <= token < first + bench().machine.plan.model.vocab // 8 for token in tokens)
    bench().machine.driver.run(program.launches(shape))
    got = program.values(shape)["logits.part"].clone()
    assert got.shape == (4, bench().machine.plan.model.vocab // 8) and torch.isfinite(got).all() and got.std() > 0

    top, values = 0, []
    for value in program.program.values:
        values.append(msgspec.structs.replace(value, offset=top) if value.home == "arena" else value)
        top += 1 << 20 if value.home == "arena" else 0
    roomy = program.at(Homes(program.homes.inputs, torch.zeros(top, dtype=torch.uint8), program.homes.kept))
    roomy.program = msgspec.structs.replace(program.program, values=tuple(values))
    bench().machine.driver.run(roomy.launches(shape))
    assert torch.equal(roomy.values(shape)["logits.part"], got)


@pytest.mark.skipif(bool(missing()), reason=missing() or "here")
def test_what_a_step_reads() -> None:
    program, plan = bench().machine.programs["target"], bench().machine.plan
    bench().begin(4, program)
    steps = [bench().experts(program, Shape(1, 4, 4)) for _ in range(4)]
    found = spread(bench().routers, 4, steps)
    assert found is not None and found["even"] and found["expected"] == pytest.approx(16 * (1 - 0.75**4))
    assert len({tuple(step) for step in steps}) > 1, "other tokens choose other experts"
    layers = steps[0]
    assert len(layers) == 4 and all(4 <= layer.distinct <= 16 for layer in layers)
    counts = [float(layer.held) for layer in layers]
    assert counts == [float(layer.distinct) for layer in layers], "all experts are on all ranks here"
    records = [weight for weight in plan.weights if weight.store == "target"]
    used = {name for call in program.program.calls for name in call.weights}
    plain = sum(w.bytes for w in records if w.id in used and not w.experts and w.id != "embed.tokens")
    embedding = next(w for w in records if w.id == "embed.tokens")
    routed = sum(
        w.bytes * count // w.shape[0]
        for count, layer in zip(counts, range(1, 5), strict=True)
        for w in records
        if w.experts and w.id.startswith(f"L{layer:02d}")
    )
    latents = 40 * 2 * sum(cache.width for cache in plan.caches if cache.kind == "latent")
    want = plain + 4 * embedding.bytes // embedding.shape[0] + routed + latents
    assert bench().bytes_read(program.program, 4, counts) == want


def test_experts_of_a_rank_that_holds_a_part() -> None:
    plan = compiled("tiny-k2-h200-x1", (*EIGHT, "layout.experts=ep8xtp1"))[0].plan
    target = next(program for program in plan.programs if program.name == "target")
    for rank in (0, 3, 7):
        found = routers_of(plan, target, rank)
        assert [(one.experts, one.top_k, one.first, one.held) for one in found] == [(16, 4, 2 * rank, 2)] * 4


def test_what_is_refused() -> None:
    plan = compiled("tiny-k2-h200-x1", EIGHT)[0].plan
    check_asked(plan, 7, [1, 9], 100, Path("b"))
    for rank, rows, context, said in (
        (8, [1], 0, "8 ranks"),
        (0, [1, 500], 0, "--rows 500"),
        (0, [1], 999, "room for"),
    ):
        with pytest.raises(SpecError, match=f"M010.*{said}"):
            check_asked(plan, rank, rows, context, Path("b"))


def test_the_table() -> None:
    step: dict[str, Any] = {
        "rows": 8, "ms": 9.5, "floor_ms": 3.5, "gigabytes": 16.1, "gb_per_s": 1700.0, "launches": 600,
        "experts": {"least": 50, "mean": 57.5, "most": 61, "expected": 59.5, "even": True},
        "kernels": [{"kernel": "experts_shared__e384", "calls": 60, "us_each": 80.0, "ms": 4.8}],
    }  # fmt: skip
    draft = {"program": "draft_block", "rows": 8, "ms": 1.0, "floor_ms": 0.2, "gigabytes": 1.1, "gb_per_s": 1100.0}
    found = {
        "engine": "k26", "rank": 0, "ranks": 8, "context": 8192, "device": "NVIDIA H200", "driver": "13.0",
        "weights": "random", "collectives": "left out", "steps": [step], "drafter": [draft | {"launches": 60}],
    }  # fmt: skip
    text = "\n".join(lines(found))
    assert "rank 0 of 8" in text and "collectives left out" in text and "57.5 (50 to 61), even 59.5" in text
    assert "experts_shared__e384" in text and "80.00" in text and "draft_block" in text
