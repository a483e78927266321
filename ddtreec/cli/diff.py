"""`ddtreec diff`: two engines or bundles, their values, and the effect on memory and predicted time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddtreec.cli.common import guarded
from ddtreec.cli.output import as_json as json_text
from ddtreec.core.errors import BundleError, DdtreecError, Loc, Problem

if TYPE_CHECKING:
    from ddtreec.plan.diff import Difference, Effect, Number, Side
    from ddtreec.spec.load import LoadedEngine
    from ddtreec.spec.resolved import Leaf


@click.command("diff", short_help="Compare two engines or bundles: values, memory, predicted speed.")
@click.argument("a")
@click.argument("b")
@click.option("--set-a", multiple=True, metavar="P=V", help="Override one value of A (an engine); repeatable.")
@click.option("--set-b", multiple=True, metavar="P=V", help="Override one value of B (an engine); repeatable.")
@click.option("--all", "everything", is_flag=True, help="Print every budget and row count.  [default: a few]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@guarded
def diff(a: str, b: str, set_a: tuple[str, ...], set_b: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Compare A and B, each an engine or the folder of a bundle: every value that differs with the place that set it,
    and what it does to the memory of a rank, to predicted steps and to tokens/s.

    \b
    Examples:
      ddtreec diff tiny-k2-cpu tiny-k2-cpu-x2
      ddtreec diff tiny-k2-cpu tiny-k2-cpu --set-b tree.budget=8
      ddtreec diff generated/tiny-k2-cpu tiny-k2-cpu
    """
    import msgspec

    found = difference((a, set_a), (b, set_b))
    if as_json:
        sys.stdout.write(json_text(msgspec.to_builtins(found)))
    else:
        sys.stdout.write("\n".join(_lines(found, everything)) + "\n")


def difference(a: tuple[str, Sequence[str]], b: tuple[str, Sequence[str]]) -> Difference:
    """Both sides loaded, compared and planned. Raises DdtreecError where a side cannot be read."""
    from ddtreec import driver
    from ddtreec.plan.diff import DIFF_SCHEMA, Difference, changes, effect

    (one, ours), (two, theirs) = (_load(*side) for side in (a, b))
    different = changes(ours, theirs)
    why, told = "", None
    try:
        told = effect(driver.plan(one), driver.plan(two)) if different else None
    except DdtreecError as error:
        why = error.problems[0].message
    return Difference(DIFF_SCHEMA, a[0], b[0], different, told, why)


def _load(ref: str, overrides: Sequence[str]) -> tuple[LoadedEngine, list[Leaf]]:
    """An engine or the engine of a bundle, with its leaves."""
    from ddtreec.spec.load import load_engine
    from ddtreec.spec.resolved import Leaf, from_resolved, leaves
    from ddtreec.toolchain.inspect import is_bundle, read_bundle

    if not is_bundle(ref):
        loaded = load_engine(ref, overrides)
        return loaded, leaves(loaded)
    if overrides:
        problem = Problem("S022", "a bundle is compiled, nothing can be set in it", Loc(ref), help="compare its engine")
        raise BundleError(problem)
    bundle = read_bundle(Path(ref))
    try:
        loaded = from_resolved(bundle.spec, bundle.manifest.overrides)
    except ValueError as error:
        text = f"the spec of the bundle cannot be read: {error}"
        raise BundleError(Problem("B017", text, Loc(ref), help="compile it again")) from None
    where = f"{ref}/spec.json"
    return loaded, [Leaf(leaf.path, leaf.value, where) for leaf in leaves(loaded)]


# ---- text ---------------------------------------------------------------------------------------------------------

FEW_ROWS = {"1", "2", "4", "8", "16", "32", "64"}


def _lines(found: Difference, everything: bool) -> Iterator[str]:
    yield f"a: {found.a}"
    yield f"b: {found.b}"
    if found.same:
        yield from ("", "no difference")
        return
    yield from (
        "",
        f"{len(found.changes)} value{'s' * (len(found.changes) > 1)} differ{'s' * (len(found.changes) == 1)}",
    )
    for change in found.changes:
        yield f"  {change.path}"
        yield f"    a  {_value(change.a)}"
        yield f"    b  {_value(change.b)}"
    yield ""
    if found.effect is None:
        yield f"no effect can be told: {found.why_not}"
        return
    yield from _effect(found.effect, everything)


def _value(side: Side) -> str:
    if not side.there:
        return "absent"
    shown = side.value if isinstance(side.value, str) else json.dumps(side.value)
    return f"{shown}   ({side.origin})"


def _effect(effect: Effect, everything: bool) -> Iterator[str]:
    from ddtreec.core.units import format_bytes
    from ddtreec.plan.text import table

    for question, a, b in effect.layout:
        yield f"layout {question}: {a} -> {b}"
    if not (effect.memory or effect.steps_ms):
        yield "no effect on memory and predicted time"
        return
    if effect.memory:
        yield "memory of one rank"
        yield from table(("purpose", "a", "b", "change"), [_row(n, format_bytes, "bytes") for n in effect.memory])
    steps = [n for n in effect.steps_ms if everything or n.name.rpartition(" ")[2] in FEW_ROWS]
    if steps:
        a, b = effect.contexts
        at = f"context {a}" if a == b else f"contexts {a} and {b}"
        yield f"predicted ms of a step at {at}, by program and rows"
        yield from table(("step", "a", "b", "change"), [_row(n, "{:.3f}".format) for n in steps])
    speeds = [n for n in effect.tokens_per_s if everything or _shown(n.name)]
    if speeds:
        yield "predicted tokens/s, by budget and tokens committed a round"
        yield from table(("budget and tau", "a", "b", "change"), [_row(n, "{:.1f}".format) for n in speeds])


def _shown(name: str) -> bool:
    """Budgets of the few row counts, at their largest tau up to 4."""
    _, budget, _, tau = name.split(" ")
    return str(int(budget) + 1) in FEW_ROWS and int(tau) == min(4, int(budget) + 1)


def _row(n: Number, form: Callable[[Any], str], unit: str = "") -> tuple[str, str, str, str]:
    a, b = n.a, n.b
    if a is None or b is None:
        return n.name, form(a) if a is not None else "-", form(b) if b is not None else "-", ""
    percent = f" ({100 * (b - a) / a:+.1f} %)" if a else ""
    sign = "+" if b >= a else "-"
    change = f"{sign}{form(abs(b - a))}"
    return n.name, form(a), form(b), change + percent
