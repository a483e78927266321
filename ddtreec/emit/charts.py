"""Charts as inline SVG: columns, one bar, lines. Colours and fonts come from the page's style, so both themes work.

A series is drawn with the CSS class it is given; every mark has a <title> with its exact value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from ddtreec.core.units import format_bytes

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 14, 40


@dataclass(frozen=True)
class Series:
    """One set of values under a name; `style` is a CSS class. `points` are (x, y), x a category number or a number."""

    name: str
    style: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Axes:
    """The plane of a chart: names of the axes, x positions, and the top of y."""

    x_name: str
    y_name: str
    x: Callable[[float], float]
    ticks: tuple[tuple[float, str], ...]
    top: float

    def y(self, value: float) -> float:
        """Pixel of a value."""
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / self.top)


def nice_top(most: float) -> tuple[float, float]:
    """The top of an axis that holds `most`, and the step of its ticks: 1, 2 or 5 times a power of ten."""
    if most <= 0:
        return 1.0, 0.5
    raw = most / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= raw * (1 - 1e-9))
    return step * math.ceil(most / step - 1e-9), step


def number(value: float) -> str:
    """A tick: no digits that say nothing."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.3g}"


def svg(label: str, body: Sequence[str], height: int = HEIGHT) -> Markup:
    """The element around the marks of a chart."""
    head = f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">'
    return Markup(head + "".join(body) + "</svg>")


def title(text: str) -> str:
    """What a mark says when it is pointed at."""
    return f"<title>{escape(text)}</title>"


def words(text: str, x: float, y: float, style: str = "", anchor: str = "start") -> str:
    """A text mark."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{style}">{escape(text)}</text>'


def plane(axes: Axes, step: float) -> list[str]:
    """Grid, ticks and names of the axes."""
    marks: list[str] = []
    for i in range(round(axes.top / step) + 1):
        y = axes.y(i * step)
        marks.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        marks.append(words(number(i * step), LEFT - 8, y + 4, "tick", "end"))
    marks += [words(text, axes.x(x), HEIGHT - BOTTOM + 17, "tick", "middle") for x, text in axes.ticks]
    marks.append(words(axes.x_name, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, "axis", "middle"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    marks.append(f'<text class="axis" text-anchor="middle" transform="translate(13 {middle:.0f}) rotate(-90)">'
                 f"{escape(axes.y_name)}</text>")  # fmt: skip
    return marks


def columns(
    label: str, categories: Sequence[str], series: Sequence[Series], floors: Sequence[float], names: tuple[str, str]
) -> Markup:
    """Stacked columns, one a category, with a dash where the floor lies; milliseconds. `names`: of the axes."""
    stacks = [math.fsum(dict(s.points).get(i, 0.0) for s in series) for i in range(len(categories))]
    top, step = nice_top(max(stacks))
    pitch = (WIDTH - LEFT - RIGHT) / len(categories)
    axes = Axes(*names, lambda i: LEFT + (i + 0.5) * pitch, tuple(enumerate(categories)), top)
    marks = plane(axes, step)
    for i, category in enumerate(categories):
        below = 0.0
        left, wide = axes.x(i) - pitch * 0.36, pitch * 0.72
        for s in series:
            value = dict(s.points).get(i, 0.0)
            high, low = axes.y(below + value), axes.y(below)
            below += value
            if low - high > 0.05:
                marks.append(
                    f'<rect class="{s.style}" x="{left:.1f}" y="{high:.1f}" width="{wide:.1f}" '
                    f'height="{max(low - high - 0.6, 0.4):.1f}">{title(f"{s.name}, {category}: {value:.3f} ms")}</rect>'
                )
        y = axes.y(floors[i])
        marks.append(f'<path class="floor" d="M{left - 3:.1f} {y:.1f}h{wide + 6:.1f}">'
                     f'{title(f"floor, {category}: {floors[i]:.3f} ms")}</path>')  # fmt: skip
    return svg(label, marks)


def bar(label: str, parts: Sequence[tuple[str, str, float, str]], whole: float) -> Markup:
    """One bar of (name, style, value, value in words) against `whole`; parts that are wide enough say their name."""
    height, high = 78, 44
    wide = WIDTH - 4
    marks = [f'<rect class="track" x="2" y="2" width="{wide}" height="{high}" rx="6"/>']
    x = 2.0
    for name, style, value, text in parts:
        width = wide * value / whole
        if width >= 0.4:
            marks.append(f'<rect class="{style}" x="{x:.1f}" y="2" width="{max(width - 1, 0.4):.1f}" height="{high}">'
                         f'{title(f"{name}: {text}")}</rect>')  # fmt: skip
            if width > 9.0 * max(len(name), len(text)) * 0.72 + 12:
                marks.append(words(name, x + 8, 20, "inside"))
                marks.append(words(text, x + 8, 36, "inside"))
        x += width
    marks += [words("0", 2, high + 20, "tick"), words(format_bytes(whole), 2 + wide, high + 20, "tick", "end")]
    return svg(label, marks, height)


def lines(
    label: str,
    series: Sequence[Series],
    axes_names: tuple[str, str],
    ticks: Sequence[tuple[float, str]],
    unit: str,
    *,
    log: bool = False,
    marks_at: Sequence[tuple[float, str]] = (),
    level: tuple[float, str] | None = None,
    named_at_end: bool = True,
) -> Markup:
    """Lines with their names at their ends, or above their first points. `marks_at`: upright lines with words;
    `level`: a dashed line across."""
    right = WIDTH - RIGHT - (62 if named_at_end else 12)
    low, high = min(x for x, _ in ticks), max(x for x, _ in ticks)
    scale: Callable[[float], float] = math.log2 if log else float
    span = (scale(high) - scale(low)) or 1.0
    most = max([y for s in series for _, y in s.points] + ([level[0]] if level else []))
    top, step = nice_top(most if named_at_end else most * 1.1)  # room for names above the points
    axes = Axes(
        *axes_names, lambda x: LEFT + 12 + (right - LEFT - 12) * (scale(x) - scale(low)) / span, tuple(ticks), top
    )
    marks = plane(axes, step)
    for x, text in marks_at:
        marks.append(f'<path class="upright" d="M{axes.x(x):.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        marks.append(words(text, axes.x(x) - 5, TOP + 11, "tick", "end"))
    if level:
        marks.append(f'<path class="level" d="M{LEFT} {axes.y(level[0]):.1f}H{WIDTH - RIGHT}"/>')
        marks.append(words(level[1], LEFT + 4, axes.y(level[0]) + 15, "tick"))
    ends = spread([(axes.y(s.points[-1][1]), s) for s in series])
    for y_end, s in ends:
        path = "".join(f"{'L' if i else 'M'}{axes.x(x):.1f} {axes.y(y):.1f}" for i, (x, y) in enumerate(s.points))
        marks.append(f'<path class="line {s.style}" d="{path}"/>')
        for x, y in s.points:
            marks.append(f'<circle class="dot {s.style}" cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="3">'
                         f'{title(f"{s.name}, {axes_names[0]} {x:g}: {y:.6g} {unit}")}</circle>')  # fmt: skip
        if named_at_end:
            marks.append(words(s.name, axes.x(s.points[-1][0]) + 8, y_end + 4, f"name {s.style}"))
        else:
            marks.append(words(s.name, axes.x(s.points[0][0]), axes.y(s.points[0][1]) - 9, f"name {s.style}", "middle"))
    return svg(label, marks)


def spread(ends: Sequence[tuple[float, Series]], gap: float = 13.0) -> list[tuple[float, Series]]:
    """The same ends, moved apart so that no two names lie on each other."""
    placed: list[tuple[float, Series]] = []
    for y, s in sorted(ends, key=lambda e: -e[0]):
        placed.append((min(y, placed[-1][0] - gap) if placed else y, s))
    return placed
