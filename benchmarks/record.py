"""Where a result was measured and how, and one way to write it down."""

from __future__ import annotations

import datetime
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

from ddtreec_runtime.bench.record import commit, machine

RESULTS = Path(__file__).resolve().parent / "results"


def write(name: str, command: str, result: dict[str, object], folder: Path = RESULTS) -> Path:
    """Write `<folder>/<name>.json` with date, commit, machine and the command that reproduces it."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    body = {
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "command": command,
        **result,
    }
    path.write_text(json.dumps(body, indent=1) + "\n")
    return path


def median_seconds(run: Callable[[], object], times: int) -> float:
    """Median wall time of `run` over `times` calls, after one call that is not counted."""
    run()
    taken: list[float] = []
    for _ in range(times):
        start = perf_counter()
        run()
        taken.append(perf_counter() - start)
    return statistics.median(taken)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Left column to the left, the others to the right."""
    cells = [list(map(str, head)), *[list(map(str, row)) for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *[c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]])
        for row in cells
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
