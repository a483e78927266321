"""`ddtreec check`: everything that can be wrong without weights and devices, all of a stage at once."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ddtreec.cli.colour import paint
from ddtreec.cli.common import guarded
from ddtreec.cli.complete import ENGINE, SETTING
from ddtreec.cli.output import schema_json
from ddtreec.core.errors import DdtreecError, Problem

if TYPE_CHECKING:
    from ddtreec.spec.load import LoadedEngine


@click.command("check", short_help="Say whether an engine spec fits together.")
@click.argument("engine", type=ENGINE)
@click.option(
    "--set", "overrides", multiple=True, type=SETTING, metavar="A.B=C", help="Override one value; repeatable."
)
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json", "gcc"]),
    default="text",
    show_default=True,
    help="gcc: `file:line:col: error: [S003] message`, a line a problem, for editors and CI.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@guarded
def check(engine: str, overrides: tuple[str, ...], style: str, as_json: bool) -> None:
    """Check ENGINE, a shipped name or the path of an engine spec: everything that can be wrong without weights and
    devices. All errors of a stage come together.

    \b
    Examples:
      ddtreec check tiny-k2-cpu --set tree.budget=8
      ddtreec check engine.yaml --format gcc
    """
    gc.disable()  # a second of life and little garbage: collecting costs a sixth of it
    from ddtreec.spec.load import load_engine

    style = "json" if as_json else style
    warnings: tuple[Problem, ...] = ()
    try:
        loaded = load_engine(engine, overrides)
        warnings = loaded.warnings
        from ddtreec import driver  # only sound specs pay for the passes

        driver.check(loaded)
    except DdtreecError as error:
        if style == "text":
            _warn(warnings)
            raise
        sys.stdout.write(_told(style, False, {}, error.problems, warnings))
        sys.exit(error.exit_code)
    if style != "text":
        sys.stdout.write(_told(style, True, _facts(loaded), (), warnings))
        return
    _warn(warnings)
    print(f"ok: {summary(loaded)}")


def _warn(warnings: Sequence[Problem]) -> None:
    for warning in warnings:
        print(paint(warning.render().replace("error[", "warning[", 1), sys.stderr), file=sys.stderr)


def _told(style: str, ok: bool, facts: dict[str, Any], problems: Sequence[Problem], warnings: Sequence[Problem]) -> str:
    """Problems and warnings for a program to read."""
    if style == "json":
        told = {"problems": [_plain(p) for p in problems], "warnings": [_plain(p) for p in warnings]}
        return schema_json("check", {"ok": ok, **facts, **told})
    lines = [line for p in problems for line in _gcc(p, "error")]
    lines += [line for p in warnings for line in _gcc(p, "warning")]
    return "".join(f"{line}\n" for line in lines)


def _gcc(problem: Problem, level: str) -> list[str]:
    """As gcc writes: the place, the level, the message; then the note and the way out as notes at the same place."""
    loc = problem.loc
    whole = loc is not None and not loc.line and not loc.file.startswith("--set")  # a --set has no lines
    start = f"{loc}{':1:1' * whole}: " if loc is not None else "ddtreec: "
    lines = [f"{start}{level}: [{problem.code}] {problem.message}"]
    return lines + [f"{start}note: {text}" for text in (problem.note, problem.help) if text]


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
