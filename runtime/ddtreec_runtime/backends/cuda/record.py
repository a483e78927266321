"""What the device tells of each round: records in pinned host memory (`ddtreec.artifacts.record`), read.

The kernel `walk` writes a record's number last, so it is whole once the number is there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ddtreec.artifacts.record import HEAD, Layout
from ddtreec_runtime.rounds import Round

RUNS, STOPPED, FULL, BROKEN, CANCELLED = 1, 2, 3, 4, 5
"""`status` of a slot: running, ended by a stop token, by length, by logits that are no numbers, by the host."""

FAULTS = {-1: math.nan, -2: math.inf, -3: -math.inf}
"""What a pick says where no token can be chosen: the largest value of its row."""


@dataclass(frozen=True, slots=True)
class Record:
    """One round of one slot as `walk` wrote it. `committed`: accepted drafts, then the next token; how many of them are
    output, the host finds as it does on the CPU. `words`: a copy of the record."""

    number: int
    start: int
    root: int
    next_token: int
    status: int
    committed: list[int]
    accepted: list[int]
    words: np.ndarray
    layout: Layout

    @classmethod
    def read(cls, words: np.ndarray, layout: Layout) -> Record:
        """A record from its words, copied: the ring's place is free afterwards."""
        words = words.copy()
        number, start, root, _, count, bonus, _, status = words[:HEAD].tolist()
        committed = words[layout.committed : layout.committed + count].tolist()
        accepted = words[layout.accepted : layout.accepted + count].tolist()
        return cls(number, start, root, bonus, status, committed, accepted, words, layout)

    @property
    def fault(self) -> tuple[int, float]:
        """Row and largest value of the logits that no token could be chosen from. Only for a broken round."""
        picks = self._run(3, self.layout.nodes + 1)
        row = self.next_token
        return row, FAULTS.get(int(picks[row]), math.nan)

    def round(self) -> Round:
        """The record as listeners of rounds get it."""
        nodes = int(self.words[3])
        tokens, parents, ranks, picks = (self._run(run, nodes + 1) for run in range(4))
        scores = self.words[self.layout.scores :].view(np.float64)[: nodes + 1]
        depths = [0]
        for parent in parents[1:].tolist():
            depths.append(depths[parent] + 1)
        return Round(
            start=self.start,
            root=self.root,
            tokens=tuple(tokens[1:].tolist()),
            parents=tuple(parents.tolist()),
            depths=tuple(depths[1:]),
            ranks=tuple(ranks[1:].tolist()),
            probabilities=tuple(None if math.isnan(s) else math.exp(min(s, 0.0)) for s in scores[1:].tolist()),
            accepted=tuple(self.accepted),
            posterior=tuple(None if pick < 0 else pick for pick in picks.tolist()),
            next_token=self.next_token,
        )

    def _run(self, number: int, count: int) -> np.ndarray:
        begin = self.layout.lists + number * (self.layout.nodes + 1)
        return self.words[begin : begin + count]
