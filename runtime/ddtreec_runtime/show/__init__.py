"""Draft trees in the terminal: what the drafter proposed in a round, what the target took."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TextIO

from ddtreec_runtime.rounds import Round
from ddtreec_runtime.show.layout import Drawing, Span
from ddtreec_runtime.show.pieces import TokenPieces

__all__ = ["TokenPieces", "TreePrinter", "draw_round"]

_SGR = {"root": "1", "accepted": "1;32", "bonus": "1;36", "rejected": "2", "title": "1", "note": "2"}
_PIPED_WIDTH = 120
"""Cells a line may have where no terminal says so."""


def draw_round(
    record: Round,
    piece: Callable[[int], str],
    width: int,
    color: bool,
    *,
    height: int | None = None,
    number: int | None = None,
) -> str:
    """One round as text, lines joined by newlines, none wider than `width` terminal cells (at least 1).

    piece    text of one token id
    color    True: box drawing and ANSI colours, accepted path bold and ticked. False: ASCII alone, no escape codes,
             pieces quoted, accepted nodes marked `*`
    height   lines it should take at most: the least probable rejected branches give way to `+N more`. The accepted
             path is always drawn whole, even where it needs more
    number   of the round, for the title

    Every node shows the drafter's probability of its own token. Raises ValueError on a width below 1.
    """
    if width < 1:
        raise ValueError(f"width is {width}; at least one cell is needed")
    drawing = Drawing(record, piece, width, ascii_only=not color)
    order = drawing.hiding_order()
    room = None if height is None else height - 1
    lines = drawing.lines(frozenset())
    if room is not None and len(lines) > room:
        # Halving finds a count that fits; where packing makes the lines jump it may hide one node more than needed.
        low, high = 1, len(order)
        while low < high:
            middle = (low + high) // 2
            if len(drawing.lines(frozenset(order[:middle]))) <= room:
                high = middle
            else:
                low = middle + 1
        lines = drawing.lines(frozenset(order[:high]))
    title = drawing.fit(_title(record, number, width, color))
    return "\n".join(_painted(line, color) for line in [title, *lines])


def _title(record: Round, number: int | None, width: int, color: bool) -> list[Span]:
    """The title within the width: facts are left out from the least important on, rather than cut."""
    drafts, accepted = len(record.tokens), len(record.accepted) - 1
    facts = {"name": f"round {number}" if number is not None else "round", "position": f"position {record.start}"}
    if drafts:
        facts["accepted"] = f"{accepted} of {drafts} accepted"
        if all(chance is not None for chance in record.probabilities):
            expected = sum(chance for chance in record.probabilities if chance is not None)
            facts["expected"] = f"{expected:.1f} expected"
    facts["tokens"] = f"+{accepted + 1} token{'s' if accepted else ''}"
    between = " · " if color else ", "
    for least in ("expected", "position", "tokens", "accepted"):
        if len(between.join(facts.values())) <= width:
            break
        facts.pop(least, None)
    name, *rest = facts.values()
    return [(name, "title"), *((between + fact, "note") for fact in rest)]


def _painted(line: list[Span], color: bool) -> str:
    """Spans to text; without trailing blanks."""
    while line and not line[-1][0].strip():
        line = line[:-1]
    if not color:
        return "".join(text for text, _ in line).rstrip()
    out = ""
    for text, style in line:
        code = _SGR.get(style)
        out += f"\x1b[{code}m{text}\x1b[0m" if code and text.strip() else text
    return out


class TreePrinter:
    """Draws each round on a stream as it ends: give it to `Engine.generate` as `on_round`.

    Colour and box drawing where `stream` is a terminal that takes them (NO_COLOR unset or empty, TERM not dumb, an
    encoding that has the characters); its size is asked before every round. Meant for stderr: stdout keeps pure text.
    Where stdout is the same terminal, print the text when the generation has ended, or the two will mix.
    """

    def __init__(self, piece: Callable[[int], str], stream: TextIO | None = None, *, width: int | None = None):
        self.piece = piece
        self.stream = sys.stderr if stream is None else stream
        self.width = width
        self.count = 0

    @property
    def color(self) -> bool:
        """Whether the stream takes colour and box drawing."""
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not self.stream.isatty():
            return False
        try:
            "●✓◆━┯│├└⏎⇥·…▸".encode(self.stream.encoding or "ascii")
        except UnicodeEncodeError:
            return False
        return True

    def __call__(self, record: Round) -> None:
        """Draw one round and an empty line."""
        self.count += 1
        columns, rows = self._size()
        height = None if rows is None else max(rows - 2, 8)
        text = draw_round(record, self.piece, columns, self.color, height=height, number=self.count)
        self.stream.write(text + "\n\n")
        self.stream.flush()

    def _size(self) -> tuple[int, int | None]:
        """Columns and rows of the stream's own terminal; no rows where it is none."""
        try:
            size = os.get_terminal_size(self.stream.fileno())
        except (OSError, ValueError):  # a file, a pipe, or a stream without a descriptor
            return self.width or _PIPED_WIDTH, None
        return self.width or size.columns or _PIPED_WIDTH, size.lines or None
