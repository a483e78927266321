"""The record of a round: fixed int32 words that the kernel `walk` writes into the host's memory and the runtime reads.

A record is number, start, root, nodes, accepted, next token (the row of the fault where the logits were broken), tokens
that are output, status afterwards; then the runs of `Layout`. A slot has a ring of them.
"""

from __future__ import annotations

from dataclasses import dataclass

RING = 64
"""Records of a slot before the first is overwritten: more rounds must never be under way unread."""

HEAD = 8
"""Words before the runs."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the runs of a record begin, in words. `block`: B, slots of a draft block; `nodes`: N, most nodes besides
    the root."""

    block: int
    nodes: int

    @property
    def committed(self) -> int:
        """Accepted drafts, then the next token [B]."""
        return HEAD

    @property
    def accepted(self) -> int:
        """Accepted nodes, root first [B]."""
        return HEAD + self.block

    @property
    def lists(self) -> int:
        """Tokens, parents, ranks and picks of nodes 0..n: four lists of N + 1."""
        return HEAD + 2 * self.block

    @property
    def scores(self) -> int:
        """float64 [N + 1], at an even word."""
        end = self.lists + 4 * (self.nodes + 1)
        return end + end % 2

    @property
    def words(self) -> int:
        """Words of a record, an even number so that every record's scores are aligned."""
        return self.scores + 2 * (self.nodes + 1)
