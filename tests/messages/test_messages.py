"""What a person gets for the mistakes that users of engines like this one report in public, as golden text."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.messages.cases import CASES, SWEEP, Case
from tests.messages.golden import ROOT, TEXTS, compare, session


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_message(case: Case, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in case.files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    if case.name.startswith("15-"):  # no weight in sight: the configuration files alone
        shutil.copytree(ROOT / "tests" / "data" / "configs" / "kimi-k2.6", tmp_path / "Kimi-K2.6")
        session("init Kimi-K2.6 --topology rtx-pro-6000-x8-pcie --context 65536 -o k26")
    compare(request, case.name, session(case.args, case.keep))


def test_every_group_size_over_every_number_of_ranks(request: pytest.FixtureRequest) -> None:
    """Number 11: accepted exactly where the group divides the slice of a rank."""
    rows: list[str] = []
    for group, tp, args in SWEEP:
        text = session(args)
        accepted = text.endswith("exit code 0\n")
        assert accepted == (640 % (tp * group) == 0), text
        said = next((line for line in text.splitlines() if ": error: " in line), "ok")
        rows.append(f"group {group:3d} tp {tp}: {said.partition(': error: ')[2] or said}")
    compare(request, "11-groups-and-ranks", "\n".join(rows) + "\n")


def test_every_text_has_its_test() -> None:
    from tests.messages.test_bundles import NAMES

    known = {case.name for case in CASES} | {"11-groups-and-ranks", *NAMES}
    assert {path.stem for path in TEXTS.glob("*.txt")} == known
