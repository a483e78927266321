"""Runs the command line and compares what a person gets with a text in `texts/`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddtreec import __version__
from ddtreec.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
TEXTS = Path(__file__).resolve().parent / "texts"


def session(args: str, keep: str = "", hide: Sequence[tuple[str, str]] = ()) -> str:
    """A command, what it prints (stdout, then stderr marked with `!`), and its exit code. The folder of the project
    and its version are spelt `<ddtreec>` and `<version>`; `hide`: patterns of what differs from run to run."""
    result = CliRunner().invoke(main, shlex.split(args), prog_name="ddtreec")
    lines = result.stdout.splitlines() + [f"! {line}" for line in result.stderr.splitlines()]
    if keep:
        lines = [line for line in lines if re.search(keep, line.removeprefix("! "))]
    text = "\n".join([f"$ ddtreec {args}", *lines, f"exit code {result.exit_code}"]) + "\n"
    assert "Traceback" not in text and "internal error" not in text, text
    text = text.replace(str(ROOT), "<ddtreec>").replace(f"ddtreec {__version__}", "ddtreec <version>")
    for pattern, word in hide:
        text = re.sub(pattern, word, text)
    return text


def compare(request: pytest.FixtureRequest, name: str, text: str) -> None:
    """The text must be that of the file; with --rewrite-messages the file becomes the text."""
    path = TEXTS / f"{name}.txt"
    if request.config.getoption("--rewrite-messages", default=False):
        path.write_text(text, "utf-8")
    assert path.read_text("utf-8") == text, f"see {path.name}; rewrite with: pytest tests/messages --rewrite-messages"
