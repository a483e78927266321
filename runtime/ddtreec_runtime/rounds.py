"""The record of one round: what was drafted, what the target picked, what was accepted.

The generation loop makes one `Round` per round, after the walk and before the next draft, and only if somebody
listens:

    if on_round is not None:
        on_round(Round.of(tree, start=start, root=root, accepted=accepted, posterior=posterior, next_token=next_token))

with `tree` the verified `Tree`, `start` the absolute position of the root, `posterior` the target's pick per node
(None where the walk did not ask) and `(accepted, next_token)` what `verify_walk` returned. With speculation off the
tree is empty, `accepted` is [0] and every token is a round of its own. The root of the first round is the first
output token (the prefill's pick); every later root is the next token of the round before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Round:
    """One round: a draft tree of n nodes, what the target picked, what was accepted.

    Node 0 is the root, the last committed token; nodes 1..n are the drafts in the order of the tree.

    start          absolute position of the root (tokens before it)
    root           token id of node 0
    tokens         [n] token ids of nodes 1..n
    parents        [n + 1] parent of nodes 0..n; parents[0] = -1, parents[i] < i
    depths         [n] depth of nodes 1..n, from 1; a node stands at position start + depth
    ranks          [n] place of the token in its row of the draft, from 0; -1 where unknown
    probabilities  [n] the drafter's probability of the whole path from the root to nodes 1..n; None where unknown
    accepted       nodes of the accepted path, the root (0) first
    posterior      [n + 1] token the target picks after nodes 0..n; None where it was not asked
    next_token     the token behind the accepted path (the bonus), root of the next round

    Raises ValueError where lengths do not match, a parent does not come first, a depth is not its parent's plus one
    or `accepted` is no path from the root.
    """

    start: int
    root: int
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    ranks: tuple[int, ...]
    probabilities: tuple[float | None, ...]
    accepted: tuple[int, ...]
    posterior: tuple[int | None, ...]
    next_token: int

    def __post_init__(self) -> None:
        n = len(self.tokens)
        lengths = (len(self.parents), len(self.depths), len(self.ranks), len(self.probabilities), len(self.posterior))
        if lengths != (n + 1, n, n, n, n + 1):
            raise ValueError(
                f"a round of {n} tokens has {lengths} parents, depths, ranks, probabilities and posterior picks; "
                f"{(n + 1, n, n, n, n + 1)} are needed"
            )
        levels = (0, *self.depths)
        for node, parent in enumerate(self.parents):
            if node == 0 and parent != -1:
                raise ValueError(f"parents[0] is {parent}; the root comes first, with parent -1")
            if node and not 0 <= parent < node:
                raise ValueError(f"parents[{node}] is {parent}; a parent comes before its children, so 0..{node - 1}")
            if node and levels[node] != levels[parent] + 1:
                raise ValueError(f"node {node} has depth {levels[node]} under a parent of depth {levels[parent]}")
        if self.accepted[:1] != (0,):
            raise ValueError(f"accepted is {self.accepted}; it starts with the root, node 0")
        for above, node in zip(self.accepted, self.accepted[1:], strict=False):
            if not 0 < node <= n or self.parents[node] != above:
                raise ValueError(f"accepted node {node} is no child of node {above}")

    @classmethod
    def of(
        cls,
        tree: Any,
        *,
        start: int,
        root: int,
        accepted: Iterable[int],
        posterior: Iterable[int | None],
        next_token: int,
    ) -> Round:
        """The record of one verified `Tree` (tokens, parents, depths, ranks, scores); `start` is the root's position.

        NaN scores become probability None, negative picks become None.
        """
        return cls(
            start=int(start),
            root=int(root),
            tokens=tuple(int(token) for token in tree.tokens),
            parents=tuple(int(parent) for parent in tree.parents),
            depths=tuple(int(depth) for depth in tree.depths),
            ranks=tuple(int(rank) for rank in tree.ranks),
            probabilities=tuple(
                None if math.isnan(score) else math.exp(min(float(score), 0.0)) for score in tree.scores
            ),
            accepted=tuple(int(node) for node in accepted),
            posterior=tuple(None if pick is None or pick < 0 else int(pick) for pick in posterior),
            next_token=int(next_token),
        )

    @property
    def committed(self) -> tuple[int, ...]:
        """Tokens this round adds to the output: the accepted drafts, then the next token."""
        return (*(self.tokens[node - 1] for node in self.accepted[1:]), self.next_token)

    def step_probability(self, node: int) -> float | None:
        """The drafter's probability of this node's own token in its row (1..n); None where unknown."""
        path, parent = self.probabilities[node - 1], self.parents[node]
        above = 1.0 if parent == 0 else self.probabilities[parent - 1]
        if path is None or above is None:
            return None
        return min(path / above, 1.0) if above > 0 else 0.0
