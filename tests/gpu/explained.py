"""What explains that two runs of one model in bfloat16 choose different tokens, or fails to.

Greedy text takes the largest logit. Two runs take different tokens only where the difference between the logits of the
two is small against how far that difference moves when the same position is computed in other ways.

A draw takes the token in whose stretch of the cumulative law the number u lies. Two runs whose laws differ a little
take different tokens only where u lies beside the edges between the two: how near, against how much the law moves when
the same position is computed in other ways, is what a test can hold.

Measured on the shipped pair (temperature 0.8, 1344 positions of sampled text, bfloat16 against float32, both on the
CPU, logits of standard deviation 4.1): cumulative laws differ at most anywhere by 0.003 in the median, 0.012 at the
90th percentile, 0.036 at the 99th, and 0.23 once, where the router chose other experts; the gap between the two best
logits moves by 0.027 in the median, 0.08 at the 90th and 0.25 at the 99th percentile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from ddtreec_runtime.engine import Engine
from ddtreec_runtime.sampling import SamplingParams, probabilities, uniform

EDGE = 0.01
"""Distance in probability between u and the edge that explains a difference anywhere: below the 90th percentile of how
far bfloat16 moves the cumulative law."""
MOVED = 2.0
"""Where the law itself moves more, as where experts change: how often as far as was seen with a few ways to compute
it."""
CLOSE = 0.01
"""Difference of two logits that explains a difference of greedy text anywhere: below the median, 0.027, of what
bfloat16 moves such differences by."""
TIE = 0.25
"""Difference of two logits that nothing explains, however far it moves: the 99th percentile of what bfloat16 moves them
by. A fault of one way to compute a position would move it, too."""
CHUNKS = (16, 1)
"""Rows of a step in which a prefix is computed besides whole: eight sequences of a batch have 16 each in a prefill, and
a text that was decoded grew by one row at a time."""


@dataclass(frozen=True, slots=True)
class Tie:
    """The first token at which two greedy texts part. `gap`: between the logits of the two tokens; `moved`: how far
    that difference moves over all ways to compute the position; `ways`: how many these are."""

    place: int
    tokens: tuple[int, int]
    gap: float
    moved: float
    ways: int

    @property
    def explained(self) -> bool:
        """Whether the noise of the logits is enough to swap the two tokens."""
        return self.gap < min(TIE, max(CLOSE, MOVED * self.moved))

    def __str__(self) -> str:
        one, other = self.tokens
        return (
            f"token {self.place}: {one} or {other}, their logits are {self.gap:.5f} apart, which moves by "
            f"{self.moved:.5f} over {self.ways} ways: {'explained' if self.explained else 'NOT EXPLAINED'}"
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """The first token at which two sampled texts part. `distance`: from u to the edges between the two tokens;
    `moved`: the largest difference between the cumulative laws of all ways to compute the position."""

    place: int
    tokens: tuple[int, int]
    draw: float
    distance: float
    moved: float

    @property
    def explained(self) -> bool:
        """Whether the noise of the law is enough to swap the two tokens."""
        return self.distance <= max(EDGE, MOVED * self.moved)

    def __str__(self) -> str:
        one, other = self.tokens
        return (
            f"token {self.place}: {one} or {other}, u {self.draw:.5f} is {self.distance:.5f} from their edge, "
            f"the law moves by {self.moved:.5f}: {'explained' if self.explained else 'NOT EXPLAINED'}"
        )


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """First place where two outputs of one length differ."""
    assert len(one) == len(other)
    return next((place for place, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), None)


def ways(engine: Engine, prefix: Sequence[int], siblings: int) -> list[torch.Tensor]:
    """Logits [V] behind `prefix`, as the last row of a prefill, as a step of one row, and as the root of a tree."""
    *before, last = prefix
    return [
        engine.logits(prefix)[-1],
        engine.tree_logits(before, [last], [-1])[0],
        engine.tree_logits(before, [last] * (1 + siblings), [-1] + [0] * siblings)[0],
    ]


@contextmanager
def chunks_of(engine: Engine, rows: int) -> Iterator[None]:
    """While open, prefixes are computed in steps of so many rows."""
    target = engine._live().target
    whole, target.chunk = target.chunk, rows
    try:
        yield
    finally:
        target.chunk = whole


def wide_ways(engine: Engine, prefix: Sequence[int]) -> list[torch.Tensor]:
    """Logits [V] behind `prefix` as the root of a tree and as the end of a chain, of as many rows as a step may score:
    steps of many rows, as those of a batch with drafts, cut the keys of a sequence into fewer splits."""
    target = engine._live().target
    most = min(target.max_rows, target.max_out_rows, len(prefix))
    *before, last = prefix
    return [
        engine.tree_logits(before, [last] * most, [-1] + [0] * (most - 1))[0],
        engine.tree_logits(prefix[:-most], prefix[-most:], range(-1, most - 1))[-1],
    ]


def histories(engine: Engine, prefix: Sequence[int], siblings: int) -> list[torch.Tensor]:
    """Logits [V] behind `prefix` in all `ways`, with the prefix computed as a whole and in `CHUNKS`: what lies in the
    cache is rounded as the steps that made it summed. And in `wide_ways`."""
    found = [*ways(engine, prefix, siblings), *wide_ways(engine, prefix)]
    for rows in CHUNKS:
        with chunks_of(engine, rows):
            found += ways(engine, prefix, siblings)
    return found


def greedy_difference(
    prompt: Sequence[int],
    texts: tuple[Sequence[int], Sequence[int]],
    logits: Callable[[Sequence[int]], list[torch.Tensor]],
) -> Tie | None:
    """Where two greedy texts of one prompt part, None where they do not. `logits`: all ways to compute those behind a
    prefix, [V] each; the gap is that of the first."""
    place = first_difference(*texts)
    if place is None:
        return None
    tokens = texts[0][place], texts[1][place]
    found = torch.stack([one.detach().double().cpu() for one in logits([*prompt, *texts[0][:place]])])
    gaps = found[:, tokens[0]] - found[:, tokens[1]]
    return Tie(place, tokens, float(gaps[0].abs()), float(gaps.max() - gaps.min()), len(gaps))


def sampled_difference(
    prompt: Sequence[int],
    texts: tuple[Sequence[int], Sequence[int]],
    params: SamplingParams,
    logits: Callable[[Sequence[int]], list[torch.Tensor]],
) -> Difference | None:
    """Where two texts of one prompt and seed part, None where they do not. `logits`: all ways to compute those behind a
    prefix, [V] each; the distance is taken in the law of the first."""
    place = first_difference(*texts)
    if place is None:
        return None
    found = torch.stack([one.detach().double().cpu() for one in logits([*prompt, *texts[0][:place]])])
    sums = probabilities(found, params).cumsum(axis=1)
    draw = uniform(params.seed, 0, len(prompt) + place)
    tokens = texts[0][place], texts[1][place]
    moved = max(float(np.abs(sums - one).max()) for one in sums)
    return Difference(place, tokens, draw, edge_distance(sums[0], draw, tokens), moved)


def edge_distance(sums: np.ndarray, draw: float, tokens: tuple[int, int]) -> float:
    """How far a cumulative law [V] must move at most for either of two tokens to be drawn at `draw`.

    The smaller id is drawn only below the end of its stretch, the larger only from the start of its own on.
    """
    low, high = min(tokens), max(tokens)
    return max(0.0, draw - float(sums[low]), float(sums[high - 1]) - draw)
