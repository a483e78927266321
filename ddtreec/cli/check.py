"""`ddtreec check`: everything that can be wrong without weights and devices, all of a stage at once."""

from __future__ import annotations

import gc
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from ddtreec.cli.common import guarded
from ddtreec.core.errors import DdtreecError, Problem

if TYPE_CHECKING:
    from ddtreec.spec.load import LoadedEngine

JSON_FORMAT = 1
"""Version of what `--json` prints."""


@click.command()
@click.argument("engine")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Override a field, e.g. tree.budget=16.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@guarded
def check(engine: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check ENGINE, a shipped name or the path of an engine spec."""
    gc.disable()  # a second of life and little garbage: collecting costs a sixth of it
    from ddtreec.spec.load import load_engine

    try:
        loaded = load_engine(engine, overrides)
        from ddtreec import driver  # only sound specs pay for the graph library

        driver.check(loaded)
    except DdtreecError as error:
        if not as_json:
            raise
        print(json.dumps({"format": JSON_FORMAT, "ok": False, "problems": [_plain(p) for p in error.problems]}))
        sys.exit(error.exit_code)
    if as_json:
        warnings = [_plain(problem) for problem in loaded.warnings]
        print(json.dumps({"format": JSON_FORMAT, "ok": True, **_facts(loaded), "warnings": warnings}))
        return
    for warning in loaded.warnings:
        print(warning.render().replace("error[", "warning[", 1), file=sys.stderr)
    print(f"ok: {summary(loaded)}")


def summary(loaded: LoadedEngine) -> str:
    """The engine in one line."""
    facts = _facts(loaded)
    drafting = f" with {facts['drafter']} and {facts['tree']}" if facts["drafter"] else ", no speculation"
    machine = f"{facts['devices']} x {loaded.topology.device.name}"
    return f"{facts['engine']}: {facts['model']} ({facts['quant']}){drafting}, on {machine} ({facts['topology']})"


def _facts(loaded: LoadedEngine) -> dict[str, Any]:
    names: dict[str, Any] = {kind: spec.name for kind, spec in loaded.specs().items()}
    return {"drafter": None, "tree": None, **names, "devices": loaded.topology.devices}


def _plain(problem: Problem) -> dict[str, Any]:
    loc = problem.loc
    place = {"file": loc.file, "line": loc.line, "col": loc.col} if loc else {"file": None, "line": 0, "col": 0}
    return {"code": problem.code, "message": problem.message, **place, "note": problem.note, "help": problem.help}
