"""A report as one picture: tau, tokens/s, acceptance by depth and experts touched. The only user of matplotlib."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ddtreec.core.errors import Loc, Problem, SpecError
from ddtreec_runtime.bench.experts import independent
from ddtreec_runtime.bench.report import ModeResult, Report, TemperatureResult
from ddtreec_runtime.bench.table import describe

ENDINGS = (".png", ".svg")
COLORS = ("#1f5fa8", "#c8571b", "#2b8a57", "#7a4fa3")
GREY = "#6b7280"
STYLE: dict[str, Any] = {
    "figure.facecolor": "white", "axes.facecolor": "white", "axes.edgecolor": "#9ca3af", "axes.grid": True,
    "axes.axisbelow": True, "grid.color": "#e5e7eb",
    "axes.spines.top": False, "axes.spines.right": False, "font.size": 9,
    "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left", "legend.frameon": False,
    "legend.fontsize": 8, "svg.hashsalt": "ddtreec", "svg.fonttype": "path", "lines.markersize": 4,
}  # fmt: skip


def refuse_early(paths: list[Path] | tuple[Path, ...]) -> None:
    """Says what would keep these pictures from being drawn, before anything is measured.

    Raises SpecError M004 for an ending that is not drawn or a folder that is not there, M005 without matplotlib.
    """
    for path in paths:
        if path.suffix.lower() not in ENDINGS:
            message = f"a plot cannot be written as '{path.suffix or path.name}'"
            raise SpecError(Problem("M004", message, Loc(str(path)), help="end the name in .png or .svg"))
        if not path.absolute().parent.is_dir():
            raise SpecError(Problem("M004", "there is no such folder", Loc(str(path)), help="make the folder first"))
    if paths:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            way = "install it (pip install 'ddtreec[plot]'), or leave --plot out: --json keeps all numbers"
            raise SpecError(Problem("M005", "plots need matplotlib, which is not installed", help=way)) from None


def write(report: Report, path: Path) -> None:
    """Draw the report to a .png or .svg file. Raises SpecError as `refuse_early` does, M004 where that cannot be."""
    refuse_early((path,))
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 6.6), layout="constrained")
        axes = figure.subplots(2, 2)
        _tau(axes[0][0], report)
        _speed(axes[0][1], report)
        _depth(axes[1][0], report)
        _experts(axes[1][1], report)
        stamp = report.stamp
        figure.suptitle(
            f"{report.engine}: {report.prompts} prompts x {report.max_new_tokens} tokens, {report.dtype}, "
            f"{stamp.machine.get('cpu', '')}, {stamp.date}",
            fontsize=9, color=GREY, x=0.01, ha="left",
        )  # fmt: skip
        try:
            figure.savefig(
                path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
            )
        except OSError as error:
            message = f"cannot write the plot: {error.strerror or error}"
            raise SpecError(Problem("M004", message, Loc(str(path)), help="name another file")) from None


def _tau(axes: Any, report: Report) -> None:
    """Tau by budget with intervals; the chain as a level line."""
    for color, at in zip(COLORS, report.temperatures, strict=False):
        _tau_line(axes, at, color, looping=True)
        if at.temperature == 0 and at.looping:
            _tau_line(axes, at, color, looping=False)
        chain = _named(at, "chain")
        if chain is not None:
            axes.axhline(chain.tau.value, color=color, linewidth=0.9, linestyle=":")
            axes.annotate(f"chain {chain.tau.value:.2f}", (0.99, chain.tau.value), xycoords=("axes fraction", "data"),
                          ha="right", va="bottom", fontsize=7.5, color=color)  # fmt: skip
    _budget_axis(axes, report)
    axes.set_ylim(bottom=1)
    axes.set_ylabel("tokens committed per round")
    axes.set_title("tau (95 % interval over prompts)")
    axes.legend(loc="lower right")


def _tau_line(axes: Any, at: TemperatureResult, color: str, *, looping: bool) -> None:
    found = [(m.budget, m.tau if looping else m.tau_not_looping) for m in _trees(at)]
    points = [(budget, tau) for budget, tau in found if tau is not None]
    if not points:
        return
    label = describe(at) if looping else f"{describe(at)}, texts that do not loop"
    centre = [tau.value for _, tau in points]
    low = [tau.value - (tau.value if tau.low is None else tau.low) for _, tau in points]
    high = [(tau.value if tau.high is None else tau.high) - tau.value for _, tau in points]
    side = 1.0 if looping else 1.04  # so that the two intervals of a budget can be told apart
    style = (
        {"linestyle": "-", "marker": "o"} if looping else {"linestyle": "--", "marker": "s", "markerfacecolor": "white"}
    )
    axes.errorbar(
        [b * side for b, _ in points],
        centre,
        yerr=[low, high],
        color=color,
        label=label,
        capsize=2,
        elinewidth=0.9,
        **style,
    )


def _speed(axes: Any, report: Report) -> None:
    """Tokens per second by mode, one group of bars a mode."""
    groups = [at for at in report.temperatures if any(mode.speed for mode in at.modes)]
    axes.set_title(f"decode speed (sequences: {report.sequences}, threads: {report.stamp.machine.get('threads', '?')})")
    axes.set_ylabel("tokens/s")
    if not groups:
        axes.text(0.5, 0.5, "not measured", ha="center", va="center", color=GREY, transform=axes.transAxes)
        return
    names = [mode.name for mode in groups[0].modes]
    width = 0.8 / len(groups)
    for number, (color, at) in enumerate(zip(COLORS, groups, strict=False)):
        places = [place - 0.4 + width * (number + 0.5) for place in range(len(names))]
        heights = [mode.speed.tokens_per_s if mode.speed else 0.0 for mode in at.modes]
        axes.bar(places, heights, width * 0.92, color=color, label=describe(at))
    axes.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names])
    axes.grid(visible=False, axis="x")
    axes.legend(loc="best")


def _depth(axes: Any, report: Report) -> None:
    """Share of rounds that accept a draft of at least this depth: chain, and the middle tree."""
    for color, at in zip(COLORS, report.temperatures, strict=False):
        trees = _trees(at)
        for mode, line in ((_named(at, "chain"), ":"), (trees[len(trees) // 2] if trees else None, "-")):
            if mode is None or not mode.tau.rounds:
                continue
            shares = [share.accepted / mode.tau.rounds for share in mode.depths]
            places = [share.place for share in mode.depths]
            axes.plot(places, shares, line, marker="o", color=color, label=f"{describe(at)}, {mode.name}")
    axes.set_ylim(0, 1)
    axes.set_xlabel("depth of the draft (tokens behind the root)")
    axes.set_ylabel("share of rounds that accept it")
    axes.set_title("acceptance by depth")
    axes.legend(loc="upper right")


def _experts(axes: Any, report: Report) -> None:
    """Distinct experts a MoE layer over rows, beside the independent estimate."""
    axes.set_title("routed experts a verify step touches")
    axes.set_xlabel("rows of the step (tree nodes and root)")
    axes.set_ylabel("distinct experts a MoE layer")
    most = 0.0
    for color, at in zip(COLORS, report.temperatures, strict=False):
        modes = sorted((m for m in at.modes if m.experts is not None), key=lambda m: (m.experts.rows, m.mode))  # type: ignore[union-attr]
        trees = [m.experts for m in modes if m.mode != "chain" and m.experts is not None]
        chain = [m.experts for m in modes if m.mode == "chain" and m.experts is not None]
        axes.plot([e.rows for e in trees], [e.distinct for e in trees], marker="o", color=color, label=describe(at))
        axes.plot([e.rows for e in chain], [e.distinct for e in chain], "D", color=color, markerfacecolor="white",
                  label=f"{describe(at)}, chain" if chain else None)  # fmt: skip
        most = max([most, *(e.rows for e in (*trees, *chain))])
    if not most:
        axes.text(0.5, 0.5, "not measured", ha="center", va="center", color=GREY, transform=axes.transAxes)
        return
    rows = range(1, math.ceil(most) + 1)
    estimate = [independent(r, report.experts, report.top_k) for r in rows]
    axes.plot(rows, estimate, "--", color=GREY, label="independent rows")
    axes.set_xscale("log", base=2)
    ticks = [2**n for n in range(8) if 2**n <= most]
    axes.set_xticks(ticks, list(map(str, ticks)))
    axes.set_ylim(bottom=0, top=report.experts * 1.05)
    axes.legend(loc="lower right")


def _budget_axis(axes: Any, report: Report) -> None:
    budgets = sorted({mode.budget for at in report.temperatures for mode in _trees(at)})
    axes.set_xlabel("tree nodes besides the root (budget)")
    if budgets and budgets[0] > 0:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
    axes.set_xticks(budgets, list(map(str, budgets)))


def _trees(at: TemperatureResult) -> list[ModeResult]:
    return sorted((mode for mode in at.modes if mode.mode == "tree"), key=lambda mode: mode.budget)


def _named(at: TemperatureResult, name: str) -> ModeResult | None:
    return next((mode for mode in at.modes if mode.name == name), None)
