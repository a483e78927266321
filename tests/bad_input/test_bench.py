"""Faults of `ddtreec bench`: one clear message each, before anything is measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ddtreec.cli.main import main
from tests.runtime.engines import K26, bundle, random_drafter

A = K26 / "a-flat-8e"


def ddtreec(*args: object) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, args)], catch_exceptions=False)


def refused(result: Result, code: str, exit_code: int, *parts: str) -> None:
    assert result.exit_code == exit_code, result.output
    assert result.stderr.startswith(f"error[{code}]: "), result.stderr
    assert result.stderr.count("error[") == 1
    assert "  help: " in result.stderr
    assert result.stdout == ""
    for part in parts:
        assert part in result.stderr, result.stderr


@pytest.fixture(scope="module")
def drafter() -> Path:
    return random_drafter(128, 3, 512, 511)


@pytest.fixture(scope="module")
def made(drafter: Path) -> Path:
    return bundle(A, drafter=drafter, tree="ddtree-8")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt_ids": [5, 6, 7], "text": "for people"}\n{"prompt_ids": [8, 9, 5]}\n')
    return path


@pytest.mark.parametrize(
    ("args", "code", "exit_code", "parts"),
    [
        ((), "M001", 2, ("--tau",)),
        (("--tau", "--budgets", "4,eight"), "M002", 2, ("'4,eight'", "4,8,16")),
        (("--tau", "--budgets", "0"), "M002", 2, ("'0'",)),
        (("--tau", "--budgets", "4,,8"), "M002", 2, ("'4,,8'",)),
        (("--tau", "--budgets", "-4"), "M002", 2, ("'-4'",)),
        (("--tau", "--budgets", "4,4"), "M002", 2, ("twice",)),
        (("--tau", "--temperatures", "warm"), "M003", 2, ("'warm'", "0,0.8")),
        (("--tau", "--temperatures", "-1"), "M003", 2, ("'-1'",)),
        (("--tau", "--temperatures", "nan"), "M003", 2, ("'nan'",)),
        (("--tau", "--temperatures", ""), "M003", 2, ("''",)),
        (("--tau", "--temperatures", "0,0.0"), "M003", 2, ("different numbers",)),
        (("--tau", "--json", "no/such/folder.json"), "M004", 2, ("no such folder",)),
        (("--tau", "--json", "."), "M004", 2, ("this is a folder",)),
        (("--tau", "--plot", "tau.pdf"), "M004", 2, ("'.pdf'", ".png or .svg")),
        (("--tau", "--plot", "no/such/tau.png"), "M004", 2, ("no such folder",)),
        (("--tau", "--prompts", "missing.jsonl"), "R022", 2, ("missing.jsonl", "No such file")),
        (("--tau", "--budgets", "4,9"), "R004", 2, ("budget 9 is more than the 8",)),
        (("--tau", "--max-new-tokens", "2", "--speed-prompts", "x"), "", 2, ()),
    ],
)
def test_refused(
    made: Path, drafter: Path, prompts: Path, args: tuple[str, ...], code: str, exit_code: int, parts: tuple[str, ...]
) -> None:
    given = [] if "--prompts" in args else ["--prompts", prompts]
    result = ddtreec(made, "--weights", A, "--drafter-weights", drafter, *given, *args)
    if code:
        refused(result, code, exit_code, *parts)
    else:
        assert result.exit_code == exit_code and "Traceback" not in result.output


def test_no_prompts_named(made: Path, drafter: Path) -> None:
    refused(ddtreec(made, "--weights", A, "--drafter-weights", drafter, "--tau"), "R020", 2, "no prompt")


@pytest.mark.parametrize(
    ("args", "code", "part"),
    [
        (("--tau",), "M001", "it takes no --tau"),
        (("--weights", "a"), "M001", "it takes no --weights"),
        (("--plot", "a.png"), "M001", "it takes no --plot"),
        (("--dtype", "float32"), "M001", "it takes no --dtype"),
        (("--json", "."), "M004", "this is a folder"),
        (("--rows", "0"), "M002", "--rows '0'"),
    ],
)
def test_synthetic_refused(made: Path, args: tuple[str, ...], code: str, part: str) -> None:
    refused(ddtreec(made, "--synthetic", *args), code, 2, part)


def test_no_drafter(made: Path, prompts: Path) -> None:
    refused(ddtreec(made, "--weights", A, "--prompts", prompts, "--tau"), "R005", 2, "no drafter is loaded")


def test_bundle_without_a_drafter(prompts: Path) -> None:
    refused(ddtreec(bundle(A), "--weights", A, "--prompts", prompts, "--tau"), "R005", 2, "without a drafter")


def test_no_weights(made: Path, prompts: Path) -> None:
    refused(ddtreec(made, "--prompts", prompts, "--tau"), "R030", 2, "--weights")


def test_prompt_that_fills_the_context(made: Path, drafter: Path, tmp_path: Path) -> None:
    full = tmp_path / "full.jsonl"
    full.write_text(f'{{"prompt_ids": {[7] * 4096}}}\n')
    refused(ddtreec(made, "--weights", A, "--drafter-weights", drafter, "--prompts", full, "--tau"), "R002", 2, "4096")
    full.write_text(f'{{"prompt_ids": {[7] * 4090}}}\n')
    got = ddtreec(made, "--weights", A, "--drafter-weights", drafter, "--prompts", full, "--tau", "--temperatures", "0")
    refused(got, "M008", 2, "no prompt leaves a round")


def test_without_matplotlib(made: Path, drafter: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    args = (made, "--weights", A, "--drafter-weights", drafter, "--prompts", prompts, "--tau", "--plot", "tau.png")
    refused(ddtreec(*args), "M005", 2, "ddtreec[plot]")


def test_measures(made: Path, drafter: Path, prompts: Path, tmp_path: Path) -> None:
    """A random drafter: everything is there, little is accepted. The default budgets are those the bundle takes."""
    out = tmp_path / "tau.json"
    args = ("--weights", A, "--drafter-weights", drafter, "--prompts", prompts, "--tau", "--max-new-tokens", "8")
    result = ddtreec(made, *args, "--limit", "1", "--speed-prompts", "1", "--json", out, "--progress", "plain")
    assert result.exit_code == 0, result.output
    assert "tree 8" in result.stdout and "tree 16" not in result.stdout and "temperature 0.8" in result.stdout
    assert "texts: 2 of 2" in result.stderr and "wrote" in result.stderr

    from ddtreec_runtime.bench.report import decode

    report = decode(out.read_bytes())
    assert report.prompts == 1 and report.max_new_tokens == 8
    assert all(mode.tau.prompts == 1 and mode.tau.low is None for at in report.temperatures for mode in at.modes)
