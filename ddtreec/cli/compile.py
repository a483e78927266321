"""`ddtreec compile`: from an engine spec to a bundle."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddtreec.cli.common import guarded
from ddtreec.cli.complete import ENGINE, SETTING
from ddtreec.cli.output import schema_json
from ddtreec.cli.progress import Style, reporting
from ddtreec.cli.progress import option as progress_option

if TYPE_CHECKING:
    from ddtreec.driver import Compiled


@click.command("compile", short_help="Compile an engine spec into a bundle.")
@click.argument("engine", type=ENGINE)
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Folder to write  [default: ./generated/ENGINE]")
@click.option(
    "--set", "overrides", multiple=True, type=SETTING, metavar="A.B=C", help="Override one value; repeatable."
)
@click.option(
    "--to",
    type=click.Choice(["spec", "graph", "plan", "src", "bundle"]),
    default="bundle",
    show_default=True,
    help="Stop after this stage. Without -o, a stage before the bundle is printed instead of written.",
)
@click.option(
    "--override",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Take hand-edited kernels (.cu, .cuh) from DIR; the manifest records them.",
)
@progress_option
@click.option("--json", "as_json", is_flag=True, help="Print what was made as one JSON object.")
@guarded
def compile_(
    engine: str,
    out: Path | None,
    overrides: tuple[str, ...],
    to: str,
    override: Path | None,
    progress: Style,
    as_json: bool,
) -> None:
    """Compile ENGINE, the name of a shipped engine spec or the path of your own, into a folder that runs by itself.

    The folder appears by one rename: it is whole or not there. CUDA kernels are compiled with NVRTC
    (pip install 'ddtreec[cuda]') and need no GPU; --to src stops before them.

    \b
    Examples:
      ddtreec compile tiny-k2-cpu -o demo/tiny --set tree=ddtree-8
      ddtreec compile tiny-k2-h200-x1 --to src -o demo/sources
    """
    from ddtreec import driver

    with reporting(progress, "compiling", unit="kernels") as report:
        done = driver.compile_engine(engine, overrides, driver.stage(to), out, override, report)
    size = sum(map(len, done.files.values()))
    if as_json:
        sys.stdout.write(schema_json("compile", _facts(done, to, size)))
    elif done.out is None:
        sys.stdout.write(driver.stage_text(done, driver.stage(to)))
    else:
        print(f"{done.engine}: {len(done.files) + 1} files, {size / 1e6:.1f} MB", file=sys.stderr)
        print(done.out)


def _facts(done: Compiled, to: str, size: int) -> dict[str, Any]:
    """What was made: the files with their bytes and, where nothing was written, their text."""
    facts = {"engine": done.engine, "to": to, "out": None if done.out is None else str(done.out), "bytes": size}
    if done.out is None:
        return {**facts, "files": {path: data.decode() for path, data in sorted(done.files.items())}}
    return {**facts, "files": {path: len(data) for path, data in sorted(done.files.items())}}
