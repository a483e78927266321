"""The one table of codes against the sources, and `ddtreec explain CODE`."""

from __future__ import annotations

import json
import re

import pytest

from ddtreec.core.codes import CODES, FAMILIES

from .commands import ROOT, matches, run

RAISED = re.compile(r"[\"'\[]([A-Z][0-9]{3})[\"'\]]")


def raised() -> dict[str, str]:
    """Every code in the sources of compiler and runtime, with a file that has it."""
    found: dict[str, str] = {}
    for folder in ("ddtreec", "runtime"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "codes" not in path.relative_to(ROOT).parts:
                found.update(dict.fromkeys(RAISED.findall(path.read_text(encoding="utf-8")), str(path)))
    return found


def test_every_code_that_is_raised_is_in_the_table_and_the_other_way() -> None:
    sources = raised()
    assert len(sources) > 90
    assert {code: file for code, file in sources.items() if code not in CODES} == {}
    assert [code for code in CODES if code not in sources] == []


@pytest.mark.parametrize("code", CODES)
def test_entries_are_whole(code: str) -> None:
    entry = CODES[code]
    assert code[0] in FAMILIES
    assert not entry.title.endswith(".") and len(entry.title) < 80
    for words in (entry.rule, entry.cause, entry.fix):
        assert words.endswith(".") and len(words) < 160
    assert entry.example


def test_titles_differ_within_a_family() -> None:
    seen = [(code[0], entry.title) for code, entry in CODES.items() if code[0] != "R"]
    assert len(seen) == len(set(seen))


def test_golden() -> None:
    matches("explain-S010.txt", run("explain", "S010").stdout)
    assert run("explain", "s010").stdout == run("explain", "S010").stdout


def test_json() -> None:
    data = json.loads(run("explain", "F001", "--json").stdout)
    assert data["schema"] == "ddtreec.explain/1" and data["what"] == "code" and data["title"] == CODES["F001"].title


def test_an_unknown_code() -> None:
    said = run("explain", "S099", code=2).stderr
    assert "C002" in said and "did you mean" in said
