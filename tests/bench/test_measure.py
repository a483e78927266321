"""The numbers of a measurement, its file, its page and its pictures."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import msgspec
import pytest
import torch

from benchmarks.tau_page import PAGE, render
from ddtreec.core.errors import BundleError, DdtreecError, SpecError
from ddtreec_runtime import Engine
from ddtreec_runtime.bench import experts, plot, tally
from ddtreec_runtime.bench.measure import Settings, Source, measure
from ddtreec_runtime.bench.record import stamp
from ddtreec_runtime.bench.replay import Tally
from ddtreec_runtime.bench.report import Report, decode, encode
from ddtreec_runtime.bench.table import tables
from tests.bench.pair import ROOT, Pair, any_pair, golden_pair

README = {
    (0.0, "chain"): 3.76, (0.0, "tree 4"): 3.47, (0.0, "tree 8"): 4.20, (0.0, "tree 16"): 4.56, (0.0, "tree 32"): 4.83,
    (0.0, "tree 64"): 5.05, (0.8, "chain"): 2.19, (0.8, "tree 4"): 2.33, (0.8, "tree 8"): 2.61, (0.8, "tree 16"): 2.84,
    (0.8, "tree 32"): 3.04, (0.8, "tree 64"): 3.22,
}  # fmt: skip
"""The golden pair's table, on 256 prompts."""


@pytest.fixture(scope="module")
def small() -> tuple[Report, Pair]:
    """A measurement of three prompts."""
    pair = any_pair()
    source = Source(pair.bundle, pair.target, pair.drafter, "float32")
    settings = Settings(24, (4, 16), speed_prompts=1, expert_prompts=1)
    with source.load() as engine:
        return measure(engine, source, pair.prompts[:3], settings, stamp("a test", "0")), pair


def test_report(small: tuple[Report, Pair]) -> None:
    report, _ = small
    assert [at.temperature for at in report.temperatures] == [0.0, 0.8]
    assert report.sequences == 1 and report.prompts == 3 and report.experts == 16 and report.top_k == 4
    for at in report.temperatures:
        assert [mode.name for mode in at.modes] == ["off", "chain", "tree 4", "tree 16"]
        off, _, four, sixteen = at.modes
        assert off.tau.value == 1.0 and off.tau.low == 1.0 and off.depths == () and off.ranks == ()
        assert off.tau.rounds <= 3 * 23
        assert sixteen.tau.value >= four.tau.value > 1.2
        assert at.positions == 3 * (24 + report.block)
        for mode in at.modes:
            assert mode.tau.low is not None and mode.tau.low <= mode.tau.value
            # Every accepted draft is counted at one depth and one rank; with the bonus they make the tokens.
            assert sum(share.accepted for share in mode.depths) + mode.tau.rounds == mode.tau.tokens
            assert sum(share.accepted for share in mode.ranks) + mode.tau.rounds == mode.tau.tokens
            for share in mode.depths:
                assert share.accepted <= share.offered <= share.reached <= mode.tau.rounds
            assert mode.depths == () or mode.depths[0].reached == mode.tau.rounds
            assert mode.speed is not None and mode.speed.tokens_per_s > 0
            assert mode.speed.rounds_equal == mode.speed.rounds > 0
            assert mode.experts is not None and 4 <= mode.experts.distinct <= 16
            assert math.isclose(statistics.fmean(mode.experts.by_layer), mode.experts.distinct)
        assert off.experts is not None and off.experts.distinct == 4.0 and off.experts.overlap is None
        assert sixteen.experts is not None and sixteen.experts.overlap is not None
        assert sixteen.experts.distinct < sixteen.experts.independent


def test_file(small: tuple[Report, Pair], tmp_path: Path) -> None:
    data = encode(small[0])
    assert decode(data) == small[0]
    head = json.loads(data)
    assert {"date", "version", "commit", "machine", "command"} == set(head["stamp"])
    assert {"cpu", "cores", "threads", "torch", "python", "system"} == set(head["stamp"]["machine"])
    # Readers validate with this; it must cover every field.
    assert set(head) == set(msgspec.json.schema(Report)["$defs"]["Report"]["properties"])
    with pytest.raises(BundleError, match="M007"):
        decode(data.replace(b'"format": 1', b'"format": 99', 1))
    for broken in (b"{}", b"[1]", b"no", data.replace(b'"tau":', b'"tow":', 1)):
        with pytest.raises(SpecError, match="M006"):
            decode(broken)


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("b.svg", b"<?xml")])
def test_pictures(small: tuple[Report, Pair], tmp_path: Path, name: str, magic: bytes) -> None:
    pytest.importorskip("matplotlib")
    plot.write(small[0], tmp_path / name)
    first = (tmp_path / name).read_bytes()
    assert first.startswith(magic) and len(first) > 10_000
    plot.write(small[0], tmp_path / name)
    assert (tmp_path / name).read_bytes() == first  # no time, no random ids


def test_pictures_without_speed_and_experts(small: tuple[Report, Pair], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    bare = msgspec.structs.replace(
        small[0],
        temperatures=tuple(
            msgspec.structs.replace(
                at, modes=tuple(msgspec.structs.replace(mode, speed=None, experts=None) for mode in at.modes)
            )
            for at in small[0].temperatures
        ),
    )
    plot.write(bare, tmp_path / "bare.svg")
    assert all(table.plain() for table in tables(bare))


@pytest.mark.parametrize("path", ["tau.pdf", "tau", "missing/tau.png"])
def test_pictures_that_cannot_be(tmp_path: Path, path: str) -> None:
    with pytest.raises(DdtreecError, match="M004"):
        plot.refuse_early([tmp_path / path])


def test_page(small: tuple[Report, Pair]) -> None:
    page = render(small[0])
    for mode in small[0].temperatures[0].modes:
        assert f"| {mode.name} | {mode.tau.value:.2f} |" in page


def test_committed_page_is_rendered_from_the_committed_numbers() -> None:
    source = ROOT / "benchmarks" / "results" / "tau.json"
    if not source.exists():
        pytest.skip("the shipped pair is not measured yet")
    assert PAGE.read_text() == render(decode(source.read_bytes()))


def test_workers_tell_the_same(small: tuple[Report, Pair]) -> None:
    report, pair = small
    source = Source(pair.bundle, pair.target, pair.drafter, "float32")
    settings = Settings(24, (4, 16), (0.8,), speed_prompts=0, expert_prompts=0, jobs=2)
    with source.load() as engine:
        other = measure(engine, source, pair.prompts[:3], settings, stamp("a test", "0"))
    assert [m.tau for m in other.temperatures[0].modes] == [m.tau for m in report.temperatures[1].modes]


def test_observed_steps_change_nothing(small: tuple[Report, Pair]) -> None:
    pair = small[1]
    with pair.load() as engine:
        layers = experts.routing(engine.plan)
        assert layers is not None and len(layers.values) == engine.plan.model.layers - 1  # the first is dense
        plain = engine.generate(pair.prompts[0], 16, speculation="tree", budget=8, ignore_eos=True)
        heard: list[tuple[int, int]] = []

        def hear(start: int, values: dict[str, torch.Tensor]) -> None:
            assert all(v.shape == (len(v), 4) and v.min() >= 0 and v.max() < 16 for v in values.values())
            heard.append((start, len(values[layers.values[0]])))

        with engine.observe(layers.values, hear):
            seen = engine.generate(pair.prompts[0], 16, speculation="tree", budget=8, ignore_eos=True)
        assert seen.output_ids == plain.output_ids and seen.accepted_per_round == plain.accepted_per_round
        prefill = [rows for start, rows in heard if start < len(pair.prompts[0])]
        assert sum(prefill) == len(pair.prompts[0]) and len(heard) - len(prefill) == seen.rounds
        again = len(heard)
        engine.generate(pair.prompts[0], 4, speculation="off")
        assert len(heard) == again
        with pytest.raises(SpecError, match="R010"), engine.observe(["L99.moe.ids"], hear):
            pass


def test_interval_covers_the_truth() -> None:
    """A ratio over prompts of different length: the 95 % interval holds the true ratio about that often."""
    draw = torch.Generator().manual_seed(5)
    inside = 0
    for _ in range(400):
        tallies = []
        for _ in range(40):
            mean = 2 + 2 * float(torch.rand((), generator=draw))
            rounds = round(120 / mean)
            counts = torch.poisson(torch.full((rounds,), mean - 1), generator=draw) + 1
            tallies.append(Tally(committed=counts.int().tolist()))
        got = tally.tau(tallies)
        assert got.low is not None and got.high is not None
        # E tokens / E rounds with tokens about 120 and rounds 120 / mean, mean uniform in [2, 4]: 1 / E(1 / mean).
        inside += got.low < 2 / math.log(2) < got.high
    assert 0.90 < inside / 400 < 0.98


def test_independent_estimate() -> None:
    """Against draws: 9 rows that choose 4 of 16 evenly."""
    draw = torch.Generator().manual_seed(1)
    found = [
        torch.unique(torch.stack([torch.randperm(16, generator=draw)[:4] for _ in range(9)])).numel()
        for _ in range(2000)
    ]
    assert abs(sum(found) / 2000 - experts.independent(9, 16, 4)) < 0.06
    assert experts.independent(1, 16, 4) == 4.0


@pytest.mark.slow
def test_golden_table() -> None:
    """The golden pair's table of 256 prompts within the sampling error of 20 of them.

    Tolerance: three standard errors of the 20, as measured (the 256 add under a tenth of that variance). The table's
    prompts hold these 20.
    """
    pair = golden_pair()
    source = Source(pair.bundle, pair.target, pair.drafter, "float32")
    with source.load() as engine:
        report = measure(
            engine, source, pair.prompts, Settings(speed_prompts=0, expert_prompts=0), stamp("a test", "0")
        )
    for at in report.temperatures:
        for mode in at.modes[1:]:
            assert mode.tau.high is not None
            error = (mode.tau.high - mode.tau.value) / tally.NORMAL_95
            assert error < 0.4
            assert abs(mode.tau.value - README[at.temperature, mode.name]) < 3 * error, (at.temperature, mode.name)


def test_engine_without_a_drafter(small: tuple[Report, Pair]) -> None:
    pair = small[1]
    with Engine.load(pair.bundle, pair.target) as engine, pytest.raises(SpecError, match="R005"):
        measure(engine, Source(pair.bundle, pair.target, None), pair.prompts[:1], Settings(), stamp("a test", "0"))
