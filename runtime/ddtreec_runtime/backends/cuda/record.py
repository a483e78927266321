"""What the device tells of each round: fixed records in pinned host memory, a ring of them for every slot.

A record is int32 words. The kernel `walk` writes it and its sequence number last, so a record is whole once the number
is there. The layout is that of the kernels: B = slots of a draft block, N = nodes besides the root.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ddtreec_runtime.rounds import Round

RING = 64
"""Records of a slot before the first is overwritten: more rounds must never be under way unread."""

RUNS, STOPPED, FULL, BROKEN, CANCELLED = 1, 2, 3, 4, 5
"""`status` of a slot: running, ended by a stop token, by length, by logits that are no numbers, by the host."""

HEAD = 8
FAULTS = {-1: math.nan, -2: math.inf, -3: -math.inf}
"""What a pick says where no token can be chosen: the largest value of its row."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the runs of a record begin, in words."""

    block: int
    nodes: int

    @property
    def accepted(self) -> int:
        """Accepted nodes, root first [B]; committed tokens [B] lie between HEAD and here."""
        return HEAD + self.block

    @property
    def runs(self) -> int:
        """Tokens, parents, ranks and picks of nodes 0..n, [N + 1] each."""
        return HEAD + 2 * self.block

    @property
    def scores(self) -> int:
        """float64 [N + 1], at an even word."""
        end = self.runs + 4 * (self.nodes + 1)
        return end + end % 2

    @property
    def words(self) -> int:
        """Words of a record, an even number so that every record's scores are aligned."""
        return self.scores + 2 * (self.nodes + 1)


@dataclass(frozen=True, slots=True)
class Record:
    """One round of one slot as `walk` wrote it. `committed`: accepted drafts, then the next token; the first `kept` of
    them belong to the output. `words`: a copy of the record."""

    number: int
    start: int
    root: int
    next_token: int
    kept: int
    status: int
    committed: list[int]
    accepted: list[int]
    words: np.ndarray
    layout: Layout

    @classmethod
    def read(cls, words: np.ndarray, layout: Layout) -> Record:
        """A record from its words, copied: the ring's place is free afterwards."""
        words = words.copy()
        number, start, root, _, count, bonus, kept, status = words[:HEAD].tolist()
        committed = words[HEAD : HEAD + count].tolist()
        accepted = words[layout.accepted : layout.accepted + count].tolist()
        return cls(number, start, root, bonus, kept, status, committed, accepted, words, layout)

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
        begin = self.layout.runs + number * (self.layout.nodes + 1)
        return self.words[begin : begin + count]
