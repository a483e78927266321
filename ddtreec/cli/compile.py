"""`ddtreec compile`: from an engine spec to a bundle."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ddtreec.cli.common import guarded


@click.command("compile", short_help="Compile an engine spec into a bundle.")
@click.argument("engine")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Folder to write  [default: ./generated/ENGINE]")
@click.option("--set", "overrides", multiple=True, metavar="A.B=C", help="Override one value of the specs; repeatable.")
@click.option(
    "--to",
    type=click.Choice(["spec", "graph", "plan", "src", "bundle"]),
    default="bundle",
    show_default=True,
    help="Stop after this stage. Without -o, a stage before the bundle is printed instead of written.",
)
@guarded
def compile_(engine: str, out: Path | None, overrides: tuple[str, ...], to: str) -> None:
    """Compile ENGINE, the name of a shipped engine spec or the path of your own, into a folder that runs by itself.

    The folder appears by one rename: it is whole or not there.

    \b
    Example:
      ddtreec compile tiny-k2-cpu -o demo/tiny --set tree=ddtree-8
    """
    from ddtreec import driver

    done = driver.compile_engine(engine, overrides, driver.stage(to), out)
    if done.out is None:
        sys.stdout.write(driver.stage_text(done, driver.stage(to)))
        return
    size = sum(map(len, done.files.values()))
    print(f"{done.engine}: {len(done.files) + 1} files, {size / 1e6:.1f} MB", file=sys.stderr)
    print(done.out)
