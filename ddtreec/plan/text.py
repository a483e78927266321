"""The plan for a reader: plan.txt in the bundle, and what `ddtreec plan` prints. Plain ASCII, stable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddtreec.core.units import format_bytes
from ddtreec.plan.report import LayerKernels, Report


def text(report: Report) -> str:
    """All sections, ending with a newline."""
    sections = (
        head(report), memory(report), layout(report), steps(report), contexts(report), speeds(report), kernels(report),
        tiles(report),
    )  # fmt: skip
    return "\n\n".join("\n".join(section) for section in map(list, sections) if section) + "\n"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> Iterator[str]:
    """Columns two spaces apart; the first `left` flush left, the others flush right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, *rows):
        cells = (
            cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        yield "  " + "  ".join(cells).rstrip()


def head(report: Report) -> Iterator[str]:
    """What this is a plan of."""
    ranks = "1 rank" if report.ranks == 1 else f"{report.ranks} ranks"
    yield f"engine {report.engine}"
    yield f"  model {report.model}, topology {report.topology}, {ranks}, {report.dtype}"


def memory(report: Report) -> Iterator[str]:
    """Bytes of one rank."""
    yield "memory of one rank"
    used = sum(row.bytes for row in report.memory)
    rows = [(row.purpose, format_bytes(row.bytes), str(row.bytes)) for row in report.memory]
    rows += [
        ("all of it", format_bytes(used), str(used)),
        ("the device", format_bytes(report.device_bytes), str(report.device_bytes)),
        ("free", format_bytes(report.free_bytes), str(report.free_bytes)),
    ]
    yield from table(("purpose", "size", "bytes"), rows)
    yield f"  the largest context that fits: {report.largest_context} tokens"


def layout(report: Report) -> Iterator[str]:
    """Each choice of the shard pass with its reason."""
    yield "layout"
    width = max((len(question) for question in report.layout), default=0)
    for question, answer in report.layout.items():
        yield f"  {question.ljust(width)}  {answer}"
    if not report.layout:
        yield "  one rank: nothing to choose"


def steps(report: Report) -> Iterator[str]:
    """Bytes, floor and prediction a step."""
    yield f"steps at context {report.context}, one rank (predicted from the topology's facts, not measured)"
    rows = [
        (
            step.program,
            str(step.rows),
            f"{(step.weight_bytes + step.cache_bytes) / 1e9:.3f}",
            f"{step.flops / 1e9:.1f}",
            f"{step.floor_ms:.3f}",
            f"{step.predicted_ms:.3f}",
            f"{step.collective_ms:.3f}",
            str(step.launches),
        )
        for step in report.steps
    ]
    header = ("program", "rows", "GB read", "GFLOP", "floor ms", "predicted ms", "links ms", "launches")
    yield from table(header, rows)


def contexts(report: Report) -> Iterator[str]:
    """The target's step over contexts."""
    points, rows = report.sweep.by_context, report.sweep.context_rows
    yield "predicted ms of a step of the target by tokens of context"
    lines = [
        (str(context), *(f"{p.predicted_ms:.3f}" for r in rows for p in points if (p.rows, p.context) == (r, context)))
        for context in dict.fromkeys(p.context for p in points)
    ]
    yield from table(("context", *(f"{r} row{'s' * (r > 1)}" for r in rows)), lines, left=0)


def speeds(report: Report) -> Iterator[str]:
    """Tokens a second by budget and tau, the tau at which a tree begins to pay, and the budget to take."""
    if not any(b.budget for b in report.budgets):
        yield from (f"without speculation: {b.tokens_per_s['1']:.1f} tokens/s predicted" for b in report.budgets)
        return
    yield "predicted tokens/s by budget (tree nodes besides the root) and tau (tokens committed a round)"
    taus = list(report.budgets[-1].tokens_per_s)
    rows = [
        (
            str(b.budget),
            str(b.rows),
            f"{b.verify_ms:.3f}",
            f"{b.round_ms:.3f}",
            f"{b.break_even:.2f}",
            *(f"{b.tokens_per_s[t]:.1f}" if t in b.tokens_per_s else "-" for t in taus),
        )
        for b in report.budgets
    ]
    header = ("budget", "rows", "verify ms", "round ms", "break-even", *(f"tau {t}" for t in taus))
    yield from table(header, rows, left=0)
    yield "  break-even: the tau at which a round is as fast as decoding without speculation"
    yield from advice(report)


def advice(report: Report) -> Iterator[str]:
    """The recommended budget, or why there is none."""
    if report.recommended is None:
        yield "  no budget is recommended: the drafter spec has no expected_tau; `ddtreec bench --tau` measures it"
        return
    best = next(b for b in report.budgets if b.budget == report.recommended)
    plain = report.budgets[0].tokens_per_s["1"]
    speed = f"tau {best.expected_tau:.2f} expected, {best.expected_per_s:.1f} tokens/s; without speculation {plain:.1f}"
    yield f"  recommended budget: {best.budget} ({speed})"
    yield f"  expected tau: {' '.join(report.tau_source.split())}"


def kernels(report: Report) -> Iterator[str]:
    """Launches of each layer."""
    yield (
        "launches by layer, weights read, and microseconds of floor and prediction, at "
        + " and ".join(map(str, report.rows))
        + " rows"
    )
    yield "  (+ may start before its predecessor ends)"
    for layer in report.layers:
        yield f"  {layer.program} {layer.layer}{same(layer)}"
        rows = [
            (
                ("+ " if k.early else "  ") + k.node,
                " ".join(k.kernels),
                format_bytes(k.weight_bytes),
                *(f"{value:.1f}" for pair in zip(k.floor_us, k.predicted_us, strict=True) for value in pair),
            )
            for k in layer.kernels
        ]
        columns = tuple(f"{name} {r}" for r in report.rows for name in ("floor", "pred"))
        yield from (
            "  " + line for line in table(("  node", "kernels", f"weights {report.rows[-1]}", *columns), rows, left=2)
        )


def tiles(report: Report) -> Iterator[str]:
    """Entry points of the kernels, by the rows they serve; nothing on a CPU."""
    if not report.tiles:
        return
    yield "kernels by stage: for each entry point the rows it serves, threads and shared memory of a block"
    rows = [
        (t.kernel, t.stage, *(" ".join(map(str, column)) for column in (t.rows, t.threads, t.shared)))
        for t in report.tiles
    ]
    yield from table(("kernel", "stage", "rows", "threads", "shared bytes"), rows, left=5)


def same(layer: LayerKernels) -> str:
    """In words, which other layers are like it."""
    if not layer.same:
        return ""
    if len(layer.same) == 1:
        return f" (and {layer.same[0]})"
    return f" (and {len(layer.same)} alike: {layer.same[0]} .. {layer.same[-1]})"
