"""`ddtreec plan`: what would run, where and how fast, without writing anything."""

from __future__ import annotations

import sys

import click

from ddtreec.cli.common import guarded


@click.command("plan", short_help="Show memory, layout, kernels and predicted speed of an engine.")
@click.argument("engine")
@click.option("--set", "overrides", multiple=True, metavar="A.B=C", help="Override one value of the specs; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@guarded
def plan(engine: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show what ENGINE would run: memory of a rank, layout with reasons, steps with floor and predicted time, tokens/s
    by budget, kernels by layer. Needs no GPU and writes no files.

    \b
    Example:
      ddtreec plan kimi-k2.6-rtx-pro-6000-x8-pcie --set limits.context=32768
    """
    from ddtreec import driver
    from ddtreec.plan.report import encode
    from ddtreec.plan.text import text
    from ddtreec.spec.load import load_engine

    report = driver.plan(load_engine(engine, overrides))
    sys.stdout.write(encode(report).decode() if as_json else text(report))
