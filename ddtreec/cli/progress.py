"""How far something long is: a bar on a terminal, plain lines elsewhere, JSON lines for tools, or nothing."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Generator
from typing import Literal

import click

Style = Literal["auto", "none", "plain", "json"]
Report = Callable[[int, int, str], None]
"""Done, in all (bytes, or what the unit is), what is worked on."""

BYTES = "bytes"

SCHEMA = "ddtreec.progress/1"

option = click.option(
    "--progress",
    type=click.Choice(["auto", "none", "plain", "json"]),
    default="auto",
    show_default=True,
    help="How far it is, on stderr: auto is a bar on a terminal and nothing elsewhere.",
)
"""The option of every verb that takes long."""


@contextlib.contextmanager
def reporting(style: Style, work: str, unit: str = BYTES) -> Generator[Report | None]:
    """What to call with progress of `work` ('loading'); None where nobody wants to know. `unit`: what is counted."""
    if style == "auto" and sys.stderr.isatty():
        with _bar(work, unit) as report:
            yield report
    elif style == "plain":
        yield Lines(work, unit=unit)
    elif style == "json":
        yield Lines(work, as_json=True, unit=unit)
    else:
        yield None


@contextlib.contextmanager
def _bar(work: str, unit: str) -> Generator[Report]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    counts = (DownloadColumn(), TransferSpeedColumn()) if unit == BYTES else (MofNCompleteColumn(), TextColumn(unit))
    columns = (TextColumn(work), BarColumn(), *counts, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(work, total=None)
        yield lambda done, total, _: bar.update(task, completed=done, total=total)


class Lines:
    """A line on stderr at every tenth of the way, as text or as JSON."""

    def __init__(self, work: str, as_json: bool = False, unit: str = BYTES) -> None:
        self.work, self.as_json, self.unit = work, as_json, unit
        self.tenth = -1
        self.began = time.monotonic()

    def __call__(self, done: int, total: int, label: str) -> None:
        """Done, in all, what is worked on."""
        tenth = 10 * done // total if total else 10
        if tenth <= self.tenth:
            return
        self.tenth = tenth
        seconds = time.monotonic() - self.began
        left = seconds * (total - done) / done if done else None
        if self.as_json:
            facts = {"schema": SCHEMA, "work": self.work, "done": done, "total": total, "label": label}
            line = json.dumps({**facts, "seconds": round(seconds, 3), "left_s": left and round(left, 3)})
        else:
            wait = f", {left:.0f} s left" if left and left >= 1 else ""
            size = f"{total / 1e6:.1f} MB" if self.unit == BYTES else f"{total} {self.unit}"
            line = f"{self.work}: {10 * tenth} % of {size}{wait}"
        print(line, file=sys.stderr, flush=True)
