"""Stop strings, found while text arrives in pieces of any size."""

from __future__ import annotations

from collections.abc import Sequence

from ddtreec.core.errors import Problem, SpecError

from .tokenizer import check_text


class StopStrings:
    """Scans text for the first stop string and holds back what may be the beginning of one.

    The stop that is complete first wins (at the same end, the longest), whatever the pieces are. Each stop is followed
    by its Knuth-Morris-Pratt automaton: constant time a character and stop, amortised.
    """

    def __init__(self, stops: Sequence[str]):
        """Raises SpecError R102 for an empty stop string, R101 for one with lone surrogates."""
        self._stops = (stops,) if isinstance(stops, str) else tuple(stops)
        for stop in self._stops:
            if not stop:
                raise SpecError(
                    Problem("R102", "a stop string is empty: it would stop before the first token", help="leave it out")
                )
            check_text(stop, "a stop string")
        self._tables = tuple(_borders(stop) for stop in self._stops)
        self._matched = [0] * len(self._stops)
        self._held = ""
        self.found: str | None = None
        """The stop string that ended the text, once there is one."""

    def feed(self, text: str) -> str:
        """Takes the next piece; returns the text that is safe to show. After a stop was found it returns ''."""
        if self.found is not None:
            return ""
        if not self._stops:
            return text
        self._held += text
        for offset, char in enumerate(text, start=len(self._held) - len(text)):
            hit = self._step(char)
            if hit is not None:
                self.found = hit
                shown, self._held = self._held[: offset + 1 - len(hit)], ""
                return shown
        keep = max(self._matched)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def flush(self) -> str:
        """What was held back and turned out to be no stop string. Call it when no more text comes."""
        held, self._held = self._held, ""
        return held

    def _step(self, char: str) -> str | None:
        """Advances every automaton by one character; the longest stop that is complete now, if any."""
        hit: str | None = None
        for index, stop in enumerate(self._stops):
            table, matched = self._tables[index], self._matched[index]
            while matched and stop[matched] != char:
                matched = table[matched - 1]
            matched += stop[matched] == char
            self._matched[index] = matched
            if matched == len(stop) and (hit is None or len(stop) > len(hit)):
                hit = stop
        return hit


def _borders(word: str) -> list[int]:
    """border[i]: length of the longest proper prefix of word[: i + 1] that is also its suffix."""
    borders = [0] * len(word)
    length = 0
    for i in range(1, len(word)):
        while length and word[i] != word[length]:
            length = borders[length - 1]
        length += word[i] == word[length]
        borders[i] = length
    return borders
