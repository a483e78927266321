"""Text of tokens as they are committed: every increment is final, and together they equal `decode` of all ids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .stop import StopStrings
from .tokenizer import Tokenizer

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_REPLACEMENT = "\ufffd"
_KEEP = 8
"""Tokens of context kept when the window is cut. A pending character has at most 3 bytes, so at most 3 tokens; UTF-8
falls into step again within 3 bytes wherever decoding starts, so the end of the window decodes as in the whole."""
_MOST = 32
"""Tokens in the window before it is cut: each token is decoded at most about `_MOST` times, never all of them."""


class StreamDecoder:
    """Incremental `Tokenizer.decode`.

    A U+FFFD at the end is held back: it may be the start of a character whose other bytes are still to come. With
    byte fallback a run of byte tokens is held back until it ends, because one bad byte changes all of the run.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True):
        self._tokenizer = tokenizer
        self._skip = skip_special
        self._window: list[int] = []
        self._shown = 0
        self._run: list[int] = []

    def push(self, ids: Sequence[int]) -> str:
        """Takes committed ids; returns the text that they make final ('' if there is none yet)."""
        fresh = self._run + [i for i in ids if self._tokenizer.visible(i, self._skip)]
        cut = len(fresh)
        if self._tokenizer.byte_runs:
            while cut and _BYTE.fullmatch(self._tokenizer.token(fresh[cut - 1]) or ""):
                cut -= 1
        self._run = fresh[cut:]
        return self._take(fresh[:cut]) if cut else ""

    def flush(self) -> str:
        """The text still held back, as it stands. Call it once, when no more ids come."""
        text = self._tokenizer.decode(self._window + self._run, self._skip)
        held = text[self._shown :]
        self._window, self._run, self._shown = [], [], 0
        return held

    def _take(self, ids: list[int]) -> str:
        self._window += ids
        text = self._tokenizer.decode(self._window, self._skip)
        end = _final(text)
        fresh = text[self._shown : end]
        self._shown = max(self._shown, end)
        if len(self._window) > _MOST:
            self._window = self._window[-_KEEP:]
            self._shown = _final(self._tokenizer.decode(self._window, self._skip))
        return fresh


def _final(text: str) -> int:
    """How many characters of `text` cannot change any more."""
    return len(text) - text.endswith(_REPLACEMENT)


@dataclass(frozen=True, slots=True)
class Piece:
    """What a run of tokens adds.

    `text`: final and safe to show. `keep`: how many of the run's ids belong to the output. `stop`: the stop string
    that ended the text, or None; with a stop, `keep` ends at the token that completed it.
    """

    text: str
    keep: int
    stop: str | None = None


class TextStream:
    """`StreamDecoder` and `StopStrings` together, token by token, so that a stop inside an accepted run cuts it there.

    The shown texts add up to `decode` of the kept ids, cut before the stop string.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = (), skip_special: bool = True):
        """Raises SpecError R101 or R102 for a bad stop string."""
        self._decoder = StreamDecoder(tokenizer, skip_special)
        self._stops = StopStrings(stops)
        self._plain = not stops

    def push(self, ids: Sequence[int]) -> Piece:
        """Takes the ids of one committed run. After a stop: Piece('', 0, stop)."""
        if self._stops.found is not None:
            return Piece("", 0, self._stops.found)
        if self._plain:
            return Piece(self._decoder.push(ids), len(ids))
        shown: list[str] = []
        for count, token_id in enumerate(ids, start=1):
            shown.append(self._stops.feed(self._decoder.push((token_id,))))
            if self._stops.found is not None:
                return Piece("".join(shown), count, self._stops.found)
        return Piece("".join(shown), len(ids))

    def finish(self) -> Piece:
        """The text still held back; call it once, when no more ids come. `keep` is 0: every id was judged before.

        A stop string can still end here if the held text completes it (it ends in U+FFFD, or in byte-fallback tokens).
        """
        if self._stops.found is not None:
            return Piece("", 0, self._stops.found)
        text = self._stops.feed(self._decoder.flush())
        return Piece(text + self._stops.flush(), 0, self._stops.found)
