"""docs/cli.md is what the program says of itself, and every verb shows an example."""

from __future__ import annotations

import pytest

from ddtreec.cli.main import COMMANDS
from tools import cli_docs


def test_page_is_current() -> None:
    assert cli_docs.PAGE.read_text() == cli_docs.text(), "run: python -m tools.cli_docs"


@pytest.mark.parametrize("verb", COMMANDS)
def test_help_has_an_example(verb: str) -> None:
    section = cli_docs.text().split(f"## ddtreec {verb}\n", 1)[1].split("\n## ", 1)[0]
    assert "Example" in section and f"ddtreec {verb}" in section
