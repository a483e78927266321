"""Colour for messages: only on a terminal, and never where NO_COLOR is set (https://no-color.org)."""

from __future__ import annotations

import os
import re
from typing import TextIO

RESET = "\x1b[0m"
STYLES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"^(internal )?error(\[\w+\])?(?=:)"), "\x1b[1;31m"),
    (re.compile(r"^warning(\[\w+\])?(?=:)"), "\x1b[1;33m"),
    (re.compile(r"^  -->(?= )"), "\x1b[1;34m"),
    (re.compile(r"^   +\d+ \|"), "\x1b[34m"),
    (re.compile(r"(?<=\| ) *\^.*$"), "\x1b[1;31m"),
    (re.compile(r"^  note:"), "\x1b[1;36m"),
    (re.compile(r"^  help:"), "\x1b[1;32m"),
)
"""What is painted in a rendered problem: its head, the place, the caret, note and help."""


def wanted(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that may be painted on."""
    terminal = hasattr(stream, "isatty") and stream.isatty()
    return terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, stream: TextIO) -> str:
    """Rendered problems with colour where `stream` takes it, else as they are."""
    return "\n".join(map(_line, text.split("\n"))) if wanted(stream) else text


def _line(line: str) -> str:
    for pattern, style in STYLES:
        if match := pattern.search(line):
            return f"{line[: match.start()]}{style}{match[0]}{RESET}{line[match.end() :]}"
    return line
