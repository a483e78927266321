"""A draft tree as lines of text: depth runs to the right, the accepted path straight on top.

    ● ·of ━┯━ ✓ ·item 91% ━┯━ ✓ s 45% ━━━━┯━ ✓ , 17% ━━━ ◆ ·last
           │               │              └─ ·of 5%  . 4%  s 4%  ·to 3%
           │               ├─ ·item 11% ──── , 17%
           │               └─ , 3%  ·of 1%  . 1%
           └─ ·the 2%

Rejected siblings without children share a line; every other node starts one or stands on its parent's.
A tree deeper than the width continues in a further band below, which starts from the last accepted node that fits;
rejected nodes beyond the edge, or hidden for want of height, are counted as `+N more`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from ddtreec_runtime.rounds import Round
from ddtreec_runtime.show.pieces import clip, shorten, visible, width_of

Kind = Literal["root", "accepted", "rejected", "bonus", "more", "onward"]
Span = tuple[str, str]
"""Text and style: 'root', 'accepted', 'bonus', 'rejected', 'plain'."""

_CAPS = (18, 15, 12, 10, 8)
"""Cells a piece may take; the first that lets the whole depth fit is used, else the last but in bands."""
_BAND_CAPS = (10, 7, 5, 3)


@dataclass(slots=True)
class Cell:
    """One thing drawn: a node, the bonus token, a count of hidden nodes or the sign that the path goes on."""

    kind: Kind
    text: str
    children: list[Cell] = field(default_factory=list)

    @property
    def on_path(self) -> bool:
        """Whether the line that leads here is the accepted one."""
        return self.kind in ("accepted", "bonus", "onward")


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The marks of one style of drawing. Lines are three cells wide; `tee` carries on and goes down."""

    root: str
    accepted: str
    bonus: str
    onward: str
    lines: dict[tuple[bool, bool], str]
    """By (on the accepted path, siblings below)."""
    fill: tuple[str, str]
    """One cell of line, off and on the accepted path."""
    branch: str
    last: str
    down: str


UNICODE = Glyphs(
    root="● ",
    accepted="✓ ",
    bonus="◆ ",
    onward="▸",
    lines={(True, True): "━┯━", (True, False): "━━━", (False, True): "─┬─", (False, False): "───"},
    fill=("─", "━"),
    branch=" ├─",
    last=" └─",
    down=" │ ",
)
ASCII = Glyphs(
    root="",
    accepted="* ",
    bonus="=> ",
    onward=">",
    lines={(True, True): "=+=", (True, False): "===", (False, True): "-+-", (False, False): "---"},
    fill=("-", "="),
    branch=" |-",
    last=" `-",
    down=" | ",
)


class Drawing:
    """The layout of one round at one width; `lines` draws it with some nodes hidden."""

    def __init__(self, record: Round, piece: Callable[[int], str], width: int, *, ascii_only: bool):
        self.record, self.piece, self.width, self.ascii_only = record, piece, width, ascii_only
        self.glyphs = ASCII if ascii_only else UNICODE
        self.path = dict(zip(record.accepted, record.accepted[1:], strict=False))
        self.labels: dict[tuple[int, int], str] = {}
        self.children: list[list[int]] = [[] for _ in record.parents]
        for node, parent in enumerate(record.parents[1:], start=1):
            self.children[parent].append(node)
        for node, chosen in self.path.items():
            self.children[node].sort(key=lambda child, first=chosen: (child != first, child))
        self.sizes = [1] * len(record.parents)
        for node in range(len(record.tokens), 0, -1):
            self.sizes[record.parents[node]] += self.sizes[node]

    def hiding_order(self) -> list[int]:
        """Rejected nodes, the least probable first and children before their parents."""
        reach = [2.0]
        for node, parent in enumerate(self.record.parents[1:], start=1):
            own = self.record.probabilities[node - 1]
            reach.append(min(reach[parent], 1.0 if own is None else own))
        kept = set(self.record.accepted)
        return sorted((n for n in range(1, len(reach)) if n not in kept), key=lambda n: (reach[n], -n))

    def lines(self, hidden: frozenset[int]) -> list[list[Span]]:
        """Every line as spans, none wider than the width."""
        drawn: list[list[Span]] = []
        top, first = 0, True
        while True:
            cell, onward = self._band(top, first, hidden)
            drawn.extend(self._draw(cell))
            if onward is None:
                return [_clipped(line, self.width) for line in drawn]
            top, first = onward, False

    def fit(self, line: list[Span]) -> list[Span]:
        """A line of another hand, cut to the width."""
        return _clipped(line, self.width)

    def _band(self, top: int, first: bool, hidden: frozenset[int]) -> tuple[Cell, int | None]:
        """The cells from `top` to as deep as fits, and the accepted node the next band starts from."""
        deepest = max((0, *self.record.depths)) + 1
        level = self._level(top)
        if first:
            for cap in _CAPS:
                cell = self._cell(top, deepest, cap, hidden)
                if _total(self._columns(cell)) <= self.width:
                    return cell, None
        # Deepest first; where not even one level fits, its pieces give way.
        tries = [(edge, _BAND_CAPS[0]) for edge in range(deepest, level, -1)]
        tries += [(level + 1, cap) for cap in _BAND_CAPS[1:]]
        for edge, cap in tries:
            cell = self._cell(top, edge, cap, hidden)
            if _total(self._columns(cell)) <= self.width:
                break
        last = [node for node in self.record.accepted if self._level(node) <= edge][-1]
        ends_here = last == self.record.accepted[-1] and self._level(last) < edge
        return cell, None if ends_here else last

    def _level(self, node: int) -> int:
        return self.record.depths[node - 1] if node else 0

    def _cell(self, node: int, edge: int, cap: int, hidden: frozenset[int]) -> Cell:
        """`node` and what is drawn below it down to depth `edge`."""
        on_path = node == 0 or node in self.record.accepted
        cell = Cell("root" if node == 0 else "accepted" if on_path else "rejected", self._label(node, cap))
        if self._level(node) == edge:
            below = self.sizes[node] - 1
            if node in self.path or node == self.record.accepted[-1]:
                cell.children.append(Cell("onward", self.glyphs.onward))
            elif below:
                cell.children.append(Cell("more", f"+{below} more"))
            return cell
        if node == self.record.accepted[-1]:
            text = self._short(self.record.next_token, cap)
            cell.children.append(Cell("bonus", self.glyphs.bonus + text))
        shown = [child for child in self.children[node] if child not in hidden]
        cell.children.extend(self._cell(child, edge, cap, hidden) for child in shown)
        missing = sum(self.sizes[child] for child in self.children[node] if child in hidden)
        if missing:
            cell.children.append(Cell("more", f"+{missing} more"))
        return cell

    def _short(self, token: int, cap: int) -> str:
        return shorten(visible(self.piece(token), ascii_only=self.ascii_only), cap, ascii_only=self.ascii_only)

    def _label(self, node: int, cap: int) -> str:
        """Mark, piece and chance of a node; kept, since a drawing tries many layouts."""
        if (node, cap) not in self.labels:
            self.labels[node, cap] = self._new_label(node, cap)
        return self.labels[node, cap]

    def _new_label(self, node: int, cap: int) -> str:
        if node == 0:
            return self.glyphs.root + self._short(self.record.root, cap)
        mark = self.glyphs.accepted if node in self.record.accepted else ""
        chance = self.record.step_probability(node)
        text = mark + self._short(self.record.tokens[node - 1], cap)
        return text if chance is None else f"{text} {percent(chance)}"

    def _columns(self, cell: Cell) -> list[int]:
        """Width of each column: its widest label."""
        columns: list[int] = []
        row = [cell]
        while row:
            columns.append(max(width_of(item.text) for item in row))
            row = [child for item in row for child in item.children]
        return columns

    def _draw(self, top: Cell) -> list[list[Span]]:
        columns = self._columns(top)
        out: list[list[Span]] = [[]]

        def put(cell: Cell, column: int, before: list[Span]) -> None:
            """Draw `cell` at the end of the last line; `before` is what stands left of it on later lines."""
            out[-1].append((cell.text, _STYLES[cell.kind]))
            if not cell.children:
                return
            gap = columns[column] - width_of(cell.text)
            below = [*before, (" " * (columns[column] + 1), "plain")]
            rows = self._rows(cell.children, sum(columns[: column + 1]) + 5 * (column + 1))
            for index, row in enumerate(rows):
                last = index == len(rows) - 1
                style = "accepted" if row[0].on_path else "rejected"
                if index == 0:
                    line = self.glyphs.lines[row[0].on_path, not last]
                    out[-1].append((" " + self.glyphs.fill[row[0].on_path] * gap + line + " ", style))
                else:
                    line = self.glyphs.last if last else self.glyphs.branch
                    out.append([*below, (line + " ", style)])
                rest = "   " if last else self.glyphs.down
                put(row[0], column + 1, [*below, (rest + " ", "rejected")])
                out[-1].extend((_APART + leaf.text, _STYLES[leaf.kind]) for leaf in row[1:])

        put(top, 0, [])
        return out

    def _rows(self, cells: list[Cell], left: int) -> list[list[Cell]]:
        """Which children share a line that starts `left` cells from the edge: childless rejected ones, as they fit."""
        alone = [cell for cell in cells if cell.children or cell.on_path]
        rows, used = [[cell] for cell in alone], self.width
        for cell in cells:
            if cell.children or cell.on_path:
                continue
            more = width_of(_APART + cell.text)
            if used + more <= self.width:
                rows[-1].append(cell)
                used += more
            else:
                rows.append([cell])
                used = left + width_of(cell.text)
        return rows


_APART = "  "
"""Between nodes that share a line."""
_STYLES: dict[Kind, str] = {
    "root": "root",
    "accepted": "accepted",
    "rejected": "rejected",
    "bonus": "bonus",
    "more": "rejected",
    "onward": "accepted",
}


def _total(columns: list[int]) -> int:
    return sum(columns) + 5 * (len(columns) - 1)


def _clipped(line: list[Span], width: int) -> list[Span]:
    """The line within `width` cells: only a terminal narrower than one node needs this."""
    out: list[Span] = []
    for text, style in line:
        part = clip(text, width)
        out.append((part, style))
        width -= width_of(part)
        if part != text:
            break
    return out


def percent(chance: float) -> str:
    """A probability in at most four characters; never 0% or 100% by rounding."""
    if chance < 0.01:
        return "<1%"
    return f"{min(round(100 * chance), 99)}%" if chance < 1 else "100%"
