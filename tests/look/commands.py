"""Runs the command in this process and keeps what it says; texts of tests/look/expected as golden text.

`DDTREEC_REWRITE=1 pytest tests/look` writes the golden texts anew; the diff is the review.
"""

from __future__ import annotations

import os
from pathlib import Path

from click.testing import CliRunner, Result

from ddtreec.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = Path(__file__).parent / "expected"


def run(*arguments: str, code: int = 0) -> Result:
    """The result of `ddtreec arguments...` in the root of the repository, which must leave with `code`."""
    here = Path.cwd()
    os.chdir(ROOT)
    try:
        result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    finally:
        os.chdir(here)
    assert result.exit_code == code, f"{result.exit_code}: {result.stdout[-2000:]}{result.stderr[-2000:]}"
    assert "Traceback" not in result.output
    return result


def matches(name: str, text: str) -> None:
    """`text` is that of tests/look/expected/<name>."""
    path = EXPECTED / name
    if os.environ.get("DDTREEC_REWRITE"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{name} differs: see DDTREEC_REWRITE in tests/look/commands.py"
