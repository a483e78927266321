"""Token pieces as a terminal can show them: every character visible, every width known."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any

_ELLIPSIS = "…"
_RUN = 4
"""From this many spaces on, a run is written as a count."""


def visible(piece: str, *, ascii_only: bool = False) -> str:
    """A token's text on one line, nothing hidden in it.

    Newlines, tabs and spaces become ⏎, ⇥ and ·; four or more spaces in a row become ·×n. Control, format and
    unassigned characters become escapes such as \\x1b or \\u200d, a mark without a letter gets a dotted circle. The
    empty piece is ∅. With `ascii_only` the piece is a quoted Python string without any non-ASCII character.
    """
    if ascii_only:
        return ascii(piece)
    shown: list[str] = []
    spaces = 0
    for char in piece + "\0":
        if char == " ":
            spaces += 1
            continue
        if spaces:
            shown.append("·" * spaces if spaces < _RUN else f"·×{spaces}")  # noqa: RUF001
            spaces = 0
        shown.append(_shown(char, "".join(shown[-1:])))
    return "".join(shown[:-1]) or "∅"


def _shown(char: str, before: str) -> str:
    if char in "\n\t":
        return "⏎" if char == "\n" else "⇥"
    category = unicodedata.category(char)
    if category[0] == "C" or category in ("Zl", "Zp"):
        return ascii(char)[1:-1]
    if category == "Zs":
        return f"\\u{ord(char):04x}"
    if "\ufe00" <= char <= "\ufe0f":
        return ""  # variation selectors change how wide some terminals draw the character before
    if category in ("Mn", "Me") and (not before or before[-1] in "·⏎⇥"):
        return f"◌{char}"
    return char


@lru_cache(maxsize=4096)
def char_width(char: str) -> int:
    """Terminal cells of one visible character: 0 for combining marks, 2 for wide ones (UAX #11), else 1."""
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def width_of(text: str) -> int:
    """Terminal cells of a visible text; never less than a terminal takes that joins characters."""
    return len(text) if text.isascii() else sum(char_width(char) for char in text)


def clip(text: str, width: int) -> str:
    """The longest start of `text` within `width` cells, marks kept with their letter."""
    used = 0
    for index, char in enumerate(text):
        used += char_width(char)
        if used > width:
            return text[:index]
    return text


def shorten(text: str, width: int, *, ascii_only: bool = False) -> str:
    """`text` in at most `width` cells: whole, or its start and its end around an ellipsis.

    Both ends are kept since tokens that share a start are common (`·self_name`, `·self_node`).
    """
    if width_of(text) <= width:
        return text
    mark = ".." if ascii_only else _ELLIPSIS
    room = width - width_of(mark)
    if room < 1:
        return clip(mark, width)
    tail = clip(text[::-1], room // 3)[::-1]
    while tail and char_width(tail[0]) == 0:  # a mark may not land on the ellipsis
        tail = tail[1:]
    return clip(text, room - width_of(tail)) + mark + tail


class TokenPieces:
    """The text of single token ids, from a `text.Tokenizer` or, with None, the bare number (`#42`).

    A token that holds only part of a character has no text of its own; its bytes are given instead (`<0xE4><0xBD>`),
    or its spelling in the vocabulary where that is not a byte-level one. Special tokens keep their name.
    """

    def __init__(self, tokenizer: Any | None):
        self._tokenizer = tokenizer
        self._known: dict[int, str] = {}

    def __call__(self, token_id: int) -> str:
        """Text of one id."""
        if token_id not in self._known:
            self._known[token_id] = self._piece(token_id)
        return self._known[token_id]

    def _piece(self, token_id: int) -> str:
        if self._tokenizer is None:
            return f"#{token_id}"
        text = self._tokenizer.decode([token_id], skip_special=False)
        if text and "\ufffd" not in text:
            return text
        spelling = self._tokenizer.token(token_id)
        if spelling is None:
            return f"#{token_id}"
        values = [_byte_alphabet().get(char) for char in spelling]
        return spelling if None in values else "".join(f"<0x{value:02X}>" for value in values)


@lru_cache(maxsize=1)
def _byte_alphabet() -> dict[str, int]:
    """Character to byte of byte-level BPE: printable Latin-1 stands for itself, the other bytes follow from U+0100."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + index): byte for index, byte in enumerate(others)}
