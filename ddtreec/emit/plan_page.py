"""The page of `ddtreec plan --html`: the report with charts, one file. All numbers are of the report or the sweep."""

from __future__ import annotations

from markupsafe import Markup

from ddtreec.core.units import format_bytes
from ddtreec.emit import charts
from ddtreec.emit.charts import Series
from ddtreec.emit.pages import asset, json_island, page
from ddtreec.plan.components import COMPONENTS
from ddtreec.plan.report import Budget, Report, encode
from ddtreec.plan.sweep import Point, Sweep, of_rows
from ddtreec.plan.text import same

SMALL = 0.1
"""Below this share of the device the memory chart shows the used part alone: nothing could be seen else."""
SHOWN_TAUS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
"""Tokens a round that get a line."""


def plan_page(report: Report) -> str:
    """The HTML text."""
    sweep = report.sweep
    return page(
        "plan.html.j2",
        {
            "css": asset("plan.css"),
            "report": report,
            "facts": facts(report),
            "tiles": tiles(report),
            "size": format_bytes,
            "rows_chart": rows_chart(sweep),
            "components": [name for name in COMPONENTS if any(name in p.parts for p in sweep.by_rows)],
            "sweep": sweep,
            "memory_chart": memory_chart(report),
            "memory_style": memory_style,
            "used": sum(row.bytes for row in report.memory),
            "speed_chart": speed_chart(report),
            "taus": taus(report),
            "context_chart": context_chart(report, sweep),
            "context_table": context_table(sweep),
            "same": same,
            "data": json_island(encode(report)),
        },
    )


def context_table(sweep: Sweep) -> list[tuple[int, list[Point]]]:
    """Each context with its points, in the order of `context_rows`."""
    contexts = dict.fromkeys(p.context for p in sweep.by_context)
    return [
        (c, [p for r in sweep.context_rows for p in of_rows(sweep.by_context, r) if p.context == c]) for c in contexts
    ]


def facts(report: Report) -> str:
    """The engine in a line."""
    ranks = "1 rank" if report.ranks == 1 else f"{report.ranks} ranks"
    return f"{report.model} · {report.topology}, {ranks} · {report.dtype} · priced at context {report.context:,}"


def tiles(report: Report) -> list[tuple[str, str, str]]:
    """(name, value, remark) of the numbers people ask for first."""
    used = sum(row.bytes for row in report.memory)
    target = {step.rows: step for step in report.steps if step.program == "target"}
    one, plain = target[1], report.budgets[0].tokens_per_s["1"]
    result = [
        ("memory of a rank", format_bytes(used), f"of {format_bytes(report.device_bytes)}"),
        ("largest context", f"{report.largest_context:,}", "tokens that fit"),
        ("a step of one row", f"{one.predicted_ms:.3f} ms", f"floor {one.floor_ms:.3f} ms"),
        ("without speculation", f"{plain:.1f}", "tokens/s"),
    ]
    best = best_budget(report)
    if best is not None:
        result.append(("to gain from a tree", f"{best.break_even:.2f}", f"tokens a round at budget {best.budget}"))
    return result


def best_budget(report: Report) -> Budget | None:
    """The recommended tree, else the smallest, which needs the fewest tokens a round to pay. None without a drafter."""
    wanted = [b for b in report.budgets if b.budget and b.budget == report.recommended]
    return wanted[0] if wanted else min(report.budgets[1:], key=lambda b: b.round_ms, default=None)


def rows_chart(sweep: Sweep) -> Markup:
    """Predicted time of a step by rows, stacked by component."""
    names = [name for name in COMPONENTS if any(name in p.parts for p in sweep.by_rows)]
    series = [Series(n, n, tuple((i, p.parts.get(n, 0.0)) for i, p in enumerate(sweep.by_rows))) for n in names]
    rows = [str(p.rows) for p in sweep.by_rows]
    label = "Predicted milliseconds of a target step by rows, stacked by component, with the floor"
    return charts.columns(label, rows, series, [p.floor_ms for p in sweep.by_rows], ("rows of a step", "ms"))


def memory_style(purpose: str) -> str:
    """The colour of a row of the memory table."""
    if purpose.startswith("drafter"):
        return "drafter"
    if "weights: " in purpose:
        role = purpose.partition(": ")[2]
        return {"a_proj": "attention", "norm": "other"}.get(role, role if role in COMPONENTS else "other")
    return "cache" if purpose == "KV cache" else "reserved" if purpose.startswith("reserved") else "buffer"


def memory_chart(report: Report) -> Markup:
    """One rank's memory against the device."""
    parts = [
        (row.purpose, memory_style(row.purpose), float(row.bytes), format_bytes(row.bytes)) for row in report.memory
    ]
    used = sum(row.bytes for row in report.memory)
    whole = report.device_bytes if used > report.device_bytes * SMALL else used
    return charts.bar(f"Memory of one rank, {format_bytes(report.free_bytes)} free", parts, float(whole))


def taus(report: Report) -> list[str]:
    """Tokens a round of the columns of the table."""
    return list(max((b.tokens_per_s for b in report.budgets), key=len))


def speed_chart(report: Report) -> Markup:
    """Tokens a second by budget, a line a tau; empty without speculation."""
    if len(report.budgets) < 2:
        return Markup("")
    places = {b.budget: i for i, b in enumerate(report.budgets)}
    series: list[Series] = []
    known = [t for t in taus(report) if int(t) in SHOWN_TAUS and int(t) > 1]
    for i, tau in enumerate(known):
        points = tuple((float(places[b.budget]), b.tokens_per_s[tau]) for b in report.budgets if tau in b.tokens_per_s)
        series.append(Series(f"τ {tau}", f"ramp r{round(8 * (i + 1) / len(known))}", points))
    plain = report.budgets[0].tokens_per_s["1"]
    return charts.lines(
        "Predicted tokens a second by tree budget, one line for each number of tokens committed a round",
        series,
        ("budget: tree nodes besides the root", "tokens/s"),
        [(float(i), str(b.budget)) for b, i in zip(report.budgets, places.values(), strict=True)],
        "tokens/s",
        level=(plain, f"no speculation {plain:.1f}"),
        named_at_end=False,
    )


def context_chart(report: Report, sweep: Sweep) -> Markup:
    """Predicted time of a step by tokens of context, a line a row count."""
    series = [
        Series(f"{rows} row{'s' * (rows > 1)}", f"ramp r{(3, 6, 8)[min(i, 2)]}",
               tuple((float(p.context), p.predicted_ms) for p in of_rows(sweep.by_context, rows)))
        for i, rows in enumerate(sweep.context_rows)
    ]  # fmt: skip
    contexts = list(dict.fromkeys(p.context for p in sweep.by_context))
    at = [(float(sweep.limit), "limit of this engine")] if contexts[0] < sweep.limit <= contexts[-1] else []
    ticks = [(float(c), f"{c // 1024}k" if c >= 1024 else str(c)) for c in contexts]
    label = "Predicted milliseconds of a target step by tokens of context"
    return charts.lines(label, series, ("tokens of context", "ms"), ticks, "ms", log=True, marks_at=at)
