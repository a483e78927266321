"""Where committed tokens become output: stop tokens, stop strings, text, and the caller's listener."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ddtreec_runtime.text import TextStream, Tokenizer


class Output:
    """Takes runs of committed ids, cuts them at the first stop token or at the token that completes a stop string."""

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        eos: Sequence[int],
        stops: Sequence[str],
        listen: Callable[[list[int], str], None] | None,
    ):
        self.stopped = False
        self._eos = frozenset(eos)
        self._stream = TextStream(tokenizer, stops) if tokenizer is not None else None
        self._pieces: list[str] = []
        self._listen = listen

    def accept(self, ids: list[int]) -> tuple[int, bool]:
        """How many of `ids` belong to the output, and whether it ends with them. The stop token itself belongs."""
        keep = next((n for n, token in enumerate(ids, start=1) if token in self._eos), len(ids))
        self.stopped = keep > 0 and ids[keep - 1] in self._eos
        text = ""
        if self._stream is not None:
            piece = self._stream.push(ids[:keep])
            text = piece.text
            if piece.stop is not None:
                keep, self.stopped = piece.keep, True
            self._pieces.append(text)
        if self._listen is not None and (keep or text):
            self._listen(ids[:keep], text)
        return keep, self.stopped

    def finish(self) -> str | None:
        """The whole text, with what the stream held back; None without a tokenizer."""
        if self._stream is None:
            return None
        piece = self._stream.finish()
        self.stopped = self.stopped or piece.stop is not None
        if piece.text:
            self._pieces.append(piece.text)
            if self._listen is not None:
                self._listen([], piece.text)
        return "".join(self._pieces)
