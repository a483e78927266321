"""A report as tables of words, for the terminal and for pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddtreec_runtime.bench.report import Estimate, ModeResult, Report, TemperatureResult

LOOPS = (
    "a text loops when, for some period p of 1 to 32 tokens, each of its last max(p, 32) tokens equals the one p before"
)


@dataclass(frozen=True, slots=True)
class Table:
    """A title, a head and rows as wide; the first column is text, the others are numbers."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def plain(self) -> str:
        """For a terminal: columns in line, the numbers to the right."""
        cells = [self.head, *self.rows]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.head))]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells]
        return "\n".join([self.title, lines[0], "-" * len(lines[0]), *lines[1:]])

    def markdown(self) -> str:
        """For a page."""
        rule = "| --- |" + " ---: |" * (len(self.head) - 1)
        return "\n".join([self._line(self.head), rule, *map(self._line, self.rows)])

    def _line(self, cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"


def tables(report: Report) -> list[Table]:
    """All tables of a report, one set a temperature."""
    found: list[Table] = []
    for at in report.temperatures:
        found += [_modes(at), _depths(at), _ranks(at)]
    return found


def describe(at: TemperatureResult) -> str:
    """'greedy' or 'temperature 0.8'."""
    return "greedy" if at.temperature == 0 else f"temperature {at.temperature:g}"


def notes(report: Report) -> list[str]:
    """What a reader of the numbers must know, a sentence or two each."""
    lines = [
        f"{report.prompts} prompts, {report.max_new_tokens} new tokens each, one sequence at a time "
        f"({report.dtype}). Tau is tokens committed per round, the bonus included, with a 95 % interval over prompts.",
        f"Without loops: {LOOPS}.",
    ]
    for at in report.temperatures:
        near = f"; {at.near_ties} greedy picks had their best two logits within 1e-3" if at.temperature == 0 else ""
        lines.append(
            f"{describe(at).capitalize()}: {at.looping} texts loop, {at.ended} end with a stop token. "
            f"One pass over all texts picked {at.differing} of {at.positions} tokens otherwise{near}."
        )
        checked = [mode.speed for mode in at.modes if mode.speed is not None]
        if checked:
            equal, rounds = sum(s.rounds_equal for s in checked), sum(s.rounds for s in checked)
            lines[-1] += f" {equal} of {rounds} rounds of the engine's own generations are as replayed."
    return lines


def _modes(at: TemperatureResult) -> Table:
    head = (
        "",
        "tau",
        "95 %",
        "without loops",
        "95 %",
        "tokens/s",
        "to off",
        "rows",
        "experts",
        "independent",
        "overlap",
    )
    return Table(f"{describe(at)}", head, tuple(_row(mode) for mode in at.modes))


def _row(mode: ModeResult) -> tuple[str, ...]:
    speed, touched = mode.speed, mode.experts
    fast = ("", "") if speed is None else (f"{speed.tokens_per_s:.0f}", f"{speed.ratio_to_off:.2f}x")
    overlap = "" if touched is None or touched.overlap is None else f"{touched.overlap:.2f}"
    shared = (
        ("", "", "")
        if touched is None
        else (f"{touched.rows:.1f}", f"{touched.distinct:.1f}", f"{touched.independent:.1f}")
    )
    return (mode.name, *_estimate(mode.tau), *_estimate(mode.tau_not_looping), *fast, *shared, overlap)


def _estimate(tau: Estimate | None) -> tuple[str, str]:
    if tau is None:
        return "", ""
    inside = "" if tau.low is None or tau.high is None else f"{tau.low:.2f}..{tau.high:.2f}"
    return f"{tau.value:.2f}", inside


def _depths(at: TemperatureResult) -> Table:
    """Of the rounds whose path came to the parent, how many accepted a draft at this depth."""
    drafting = [mode for mode in at.modes if mode.mode != "off"]
    depths = sorted({share.place for mode in drafting for share in mode.depths})
    rows = []
    for mode in drafting:
        known = {share.place: share for share in mode.depths}
        cells = [f"{known[d].accepted / known[d].reached:.2f}" if d in known else "" for d in depths]
        rows.append((mode.name, *cells))
    return Table(
        f"{describe(at)}: accepted at depth, of the rounds that came to its parent",
        ("", *map(str, depths)),
        tuple(rows),
    )


def _ranks(at: TemperatureResult) -> Table:
    """Accepted by offered per rank."""
    drafting = [mode for mode in at.modes if mode.mode != "off"]
    ranks = sorted({share.place for mode in drafting for share in mode.ranks if share.place < 6})
    rows = []
    for mode in drafting:
        known = {share.place: share for share in mode.ranks}
        cells = [f"{known[r].accepted / known[r].offered:.3f}" if r in known else "" for r in ranks]
        rows.append((mode.name, *cells))
    return Table(
        f"{describe(at)}: accepted of those offered, by rank (0 is the drafter's best)",
        ("", *map(str, ranks)),
        tuple(rows),
    )
