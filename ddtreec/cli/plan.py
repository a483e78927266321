"""`ddtreec plan`: what would run, where and how fast, without writing anything."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ddtreec.cli.common import guarded
from ddtreec.cli.complete import ENGINE, SETTING
from ddtreec.cli.output import deliver


@click.command("plan", short_help="Show memory, layout, kernels and predicted speed of an engine.")
@click.argument("engine", type=ENGINE)
@click.option(
    "--set", "overrides", multiple=True, type=SETTING, metavar="A.B=C", help="Override one value; repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the report with charts to this file, as one page.")
@guarded
def plan(engine: str, overrides: tuple[str, ...], as_json: bool, html: Path | None) -> None:
    """Show what ENGINE would run: memory of a rank, layout with reasons, steps with floor and predicted time, tokens/s
    by budget, kernels by layer and, for a GPU, their entry points. Needs no GPU and, without --html, writes no files.

    \b
    Examples:
      ddtreec plan kimi-k2.6-rtx-pro-6000-x8-pcie --set limits.context=32768
      ddtreec plan tiny-k2-cpu --html plan.html
    """
    from ddtreec import driver
    from ddtreec.plan.report import encode
    from ddtreec.plan.text import text
    from ddtreec.spec.load import load_engine

    report = driver.plan(load_engine(engine, overrides))
    if html is not None:
        from ddtreec.emit.plan_page import plan_page

        deliver(plan_page(report), html)
    if as_json or html is None:
        sys.stdout.write(encode(report).decode() if as_json else text(report))
