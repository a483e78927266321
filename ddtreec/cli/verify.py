"""`ddtreec verify`: hold every kernel of a bundle against float64, on the GPU of this machine."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddtreec.cli.common import guarded
from ddtreec.cli.output import schema_json
from ddtreec.cli.progress import Style, reporting
from ddtreec.cli.progress import option as progress_option
from ddtreec.core.errors import BundleError, Loc, Problem

if TYPE_CHECKING:
    from ddtreec_runtime.backends.cuda.verifying import Verdict


@click.command("verify", short_help="Hold every kernel of a bundle against float64, on this machine's GPU.")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@progress_option
@guarded
def verify(bundle: Path, as_json: bool, progress: Style) -> None:
    """Run every kernel of BUNDLE that serves a step on random numbers, at row counts around the edges of its tiles, and
    compare with the basic operations it stands for, done by torch in float64. Looked at besides: that two runs give
    the same bits, that a row's bits do not depend on the rows beside it, and that nothing else is written.

    Attention makes no such promise of a row's bits across steps of other sizes: it cuts its keys by how many rows there
    are. The column "same bits" says of every kernel what was compared: "any rows", or "each run". What follows: text
    with drafts is that of plain decoding up to near-ties of bfloat16.

    Exit code 5 where a kernel is not ok, and on a machine without a GPU.

    \b
    Examples:
      ddtreec verify demo/k26
      ddtreec verify demo/k26 --json > kernels.json
    """
    from ddtreec_runtime.bundle import open_bundle
    from ddtreec_runtime.checks import backend

    backend(open_bundle(bundle), "cuda")  # before the GPU's half of the runtime is imported

    from ddtreec_runtime.backends.cuda.verifying import TOLERANCE, verify_bundle

    with reporting(progress, "verifying", "kernels") as report:
        found = list(verify_bundle(bundle, report))
    if as_json:
        sys.stdout.write(schema_json("verify", {"tolerance": TOLERANCE, "kernels": [plain(one) for one in found]}))
    else:
        print_table(found, TOLERANCE)
    wrong = [one for one in found if not one.ok]
    if wrong:
        raise BundleError(
            Problem(
                "B046",
                f"{len(wrong)} of {len(found)} kernels are not ok: {', '.join(one.kernel for one in wrong[:4])}",
                Loc(str(bundle)),
                note="; ".join(wrong[0].faults[:3]),
                help="report them with what `ddtreec doctor` says; kernels of --override are yours to mend",
            )
        )


def plain(one: Verdict) -> dict[str, Any]:
    """A verdict as JSON; an error that is no number is null."""
    return {
        "kernel": one.kernel,
        "program": one.program,
        "steps": one.steps,
        "rows": list(one.rows),
        "error": one.error if math.isfinite(one.error) else None,
        "ok": one.ok,
        "faults": list(one.faults),
        "same_bits": bits_text(one),
    }


def bits_text(one: Verdict) -> str:
    """Where a row's bits must be the same: in steps of any rows, or in each run of the same step."""
    return "any rows" if one.alike else "each run"


def print_table(found: list[Verdict], tolerance: float) -> None:
    """One line a kernel, in colour on a terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for name, right in (("kernel", False), ("steps", True), ("rows", True), ("error", True), ("tolerance", True)):
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    table.add_column("same bits", no_wrap=True)
    table.add_column("ok")
    for one in found:
        ok = "[green]ok[/green]" if one.ok else f"[red]{'; '.join(one.faults[:2])}[/red]"
        rows, error = f"{min(one.rows)}..{max(one.rows)}", f"{one.error:.2e}"
        table.add_row(one.kernel, str(one.steps), rows, error, f"{tolerance:.0e}", bits_text(one), ok)
    console = Console()
    console.print(table, soft_wrap=not console.is_terminal)


__all__ = ["verify"]
