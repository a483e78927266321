"""Drawing the target's tokens: temperature, top-k, top-p, and draws that depend on position alone.

A draw is keyed by seed, request and the ABSOLUTE position of the token being drawn, never by a tree node or a
step. Any node that stands for position p therefore draws with the same number, so the text of one seed is the same
with a tree of any budget, with a chain and without speculation.

Each row is worked on by itself, in float64 and in token-id order: a row gives the same token whatever rows share
its batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ddtreec.core.errors import DdtreecError, Problem, SpecError
from ddtreec_runtime.arrays import ArrayLike, to_numpy
from ddtreec_runtime.tree import Tree, verify_walk, verify_walk_lazy

_MASK32 = 0xFFFFFFFF
_HEADS = (256, 8192)
"""How many best tokens are sorted, at first and then, to cut by top-p; the whole row only where they fall short."""


class NonFiniteLogits(DdtreecError, RuntimeError):
    """A row of logits holds NaN or +inf, or nothing but -inf. `row` is its number in the batch."""

    exit_code = 4

    def __init__(self, row: int, found: float):
        self.row = row
        what = "no token above -inf" if found == -math.inf else f"{found} as its largest value"
        super().__init__(
            Problem(
                code="R015",
                message=f"row {row} of the target's logits has {what}",
                note="no token can be chosen from it",
                help="check the checkpoint for damaged tensors, or run in a wider dtype (float32)",
            )
        )


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen from logits.

    temperature  0 takes the most probable token; above 0, logits are divided by it and a token is drawn
    top_p        0 < top_p <= 1: draw among the fewest best tokens whose probability reaches it; 1 is off
    top_k        draw among the k best tokens; 0 is off
    seed         0 <= seed < 2^64: the same seed draws the same text

    Raises SpecError (R011..R014) naming every field that is wrong.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        problems = [p for p in (self._temperature(), self._top_p(), self._top_k(), self._seed()) if p is not None]
        if problems:
            raise SpecError(problems)

    @property
    def greedy(self) -> bool:
        """Whether every pick is the most probable token."""
        return self.temperature == 0

    def _temperature(self) -> Problem | None:
        if _is_number(self.temperature) and 0 <= self.temperature < math.inf:
            return None
        return Problem(
            "R011",
            f"temperature is {self.temperature!r}; it must be a finite number, 0 or above",
            help="use 0 for greedy decoding, around 0.8 for varied text",
        )

    def _top_p(self) -> Problem | None:
        if _is_number(self.top_p) and 0 < self.top_p <= 1:
            return None
        return Problem(
            "R012",
            f"top_p is {self.top_p!r}; it must be above 0 and at most 1",
            help="use 1 to switch it off, top_k 1 or temperature 0 for the most probable token alone",
        )

    def _top_k(self) -> Problem | None:
        if _is_int(self.top_k) and self.top_k >= 0:
            return None
        return Problem(
            "R013", f"top_k is {self.top_k!r}; it must be a whole number, 0 or above", help="use 0 to switch it off"
        )

    def _seed(self) -> Problem | None:
        if _is_int(self.seed) and 0 <= self.seed < 2**64:
            return None
        return Problem("R014", f"seed is {self.seed!r}; it must be a whole number from 0 to 2^64 - 1", help="try 0")


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32 with 10 rounds: four random 32-bit words from a counter of four and a key of two.

    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        product0, product1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (
            (product1 >> 32) ^ c1 ^ k0,
            product1 & _MASK32,
            (product0 >> 32) ^ c3 ^ k1,
            product0 & _MASK32,
        )
        k0, k1 = (k0 + 0x9E3779B9) & _MASK32, (k1 + 0xBB67AE85) & _MASK32
    return c0, c1, c2, c3


def uniform(seed: int, request: int, position: int) -> float:
    """The draw for the token at absolute `position` (0 is the first of the prompt) of `request`: float64 in [0, 1).

    Key = the words of seed, low first; counter = the words of position, then of request, low first. The 53
    bits are the upper 27 of output word 0, then the upper 26 of word 1. Raises ValueError where an argument lies
    outside 0 .. 2^64 - 1.
    """
    for name, value in (("seed", seed), ("request", request), ("position", position)):
        if value < 0 or value >> 64:
            raise ValueError(f"{name} is {value}; it must be from 0 to 2^64 - 1")
    words = philox4x32(
        (position & _MASK32, position >> 32, request & _MASK32, request >> 32), (seed & _MASK32, seed >> 32)
    )
    return ((words[0] >> 5) * 67108864 + (words[1] >> 6)) * 2.0**-53


def probabilities(logits: ArrayLike, params: SamplingParams) -> np.ndarray:
    """The law that `pick` draws from: float64 [rows, V], each row summing to 1, from float logits [rows, V].

    Temperature first, then the top_k best tokens, then of those the fewest best whose share reaches top_p (so the
    most probable token always stays). Equal logits at either cut: smaller token id stays. Temperature 0 puts
    everything on the token `pick` takes. Raises NonFiniteLogits, and ValueError on other shapes or dtypes.
    """
    table = _table(logits)
    result = np.zeros(table.shape, dtype=np.float64)
    for row, values in enumerate(table):
        if params.greedy:
            result[row, _best(values, row)] = 1.0
            continue
        ids, weights = _weights(values, row, params)
        result[row, slice(None) if ids is None else ids] = weights / weights.sum()
    return result


def pick(logits: ArrayLike, positions: Sequence[int], params: SamplingParams, request: int = 0) -> list[int]:
    """The target's token for each row of float logits [rows, V].

    `positions[row]` is the absolute position of the token being drawn: one more than that of the token whose
    logits these are. Temperature 0 takes the largest logit, smaller id first among equals; otherwise the row's law
    (see `probabilities`) is inverted in token-id order at `uniform(seed, request, position)`.
    Raises NonFiniteLogits, and ValueError on other shapes or dtypes.
    """
    table = _table(logits)
    if params.greedy:
        return _best_of_each(table)
    if len(positions) != len(table):
        raise ValueError(f"{len(positions)} positions for {len(table)} rows of logits")
    # Nodes of one depth share their draw.
    draws = {position: uniform(params.seed, request, position) for position in map(int, positions)}
    return [_draw(*_weights(table[row], row, params), draws[int(p)]) for row, p in enumerate(positions)]


def pick_walk(
    tree: Tree, logits: ArrayLike, start: int, params: SamplingParams, request: int = 0
) -> tuple[list[int], int]:
    """`verify_walk` straight from the target's float logits [n + 1, V], row i being those after node i.

    `start` is the absolute position of the root, so the token after a node of depth d is drawn for start + d + 1.
    Equal to picking at every row and walking, but rows off the accepted path are not drawn from.
    Returns and raises as `verify_walk` and `pick` do.
    """
    table = _table(logits)
    if len(table) != tree.rows:
        raise ValueError(f"{len(table)} rows of logits for a tree of {tree.rows} rows (root included)")
    if params.greedy:
        return verify_walk(tree, _best_of_each(table))
    depths = [0, *tree.depths.tolist()]

    def pick_after(node: int) -> int:
        return _draw(*_weights(table[node], node, params), uniform(params.seed, request, start + depths[node] + 1))

    return verify_walk_lazy(tree, pick_after)


def _best_of_each(table: np.ndarray) -> list[int]:
    best = table.argmax(axis=1)
    peaks = table[np.arange(len(table)), best]
    if not np.isfinite(peaks).all():
        row = int(np.flatnonzero(~np.isfinite(peaks))[0])
        raise NonFiniteLogits(row, float(peaks[row]))
    return best.tolist()


def _best(values: np.ndarray, row: int) -> int:
    # numpy's argmax stops at the first NaN if there is one, else at the first of equal maxima.
    best = int(values.argmax())
    if not math.isfinite(values[best]):
        raise NonFiniteLogits(row, float(values[best]))
    return best


def _weights(values: np.ndarray, row: int, params: SamplingParams) -> tuple[np.ndarray | None, np.ndarray]:
    """What is left of a row after the cuts: token ids ascending (None: all) and their weights, not normalised."""
    peak = float(values[_best(values, row)])
    ids = _top_k(values, params.top_k) if 0 < params.top_k < len(values) else None
    weights = (values if ids is None else values[ids]).astype(np.float64)
    weights -= peak
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the best to -inf
        weights /= params.temperature
    torch.from_numpy(weights).exp_()  # in place; torch's exp and cumsum take a third of numpy's time
    if params.top_p < 1:
        inside = _top_p(weights, params.top_p)
        ids, weights = (inside if ids is None else ids[inside]), weights[inside]
    return ids, weights


def _top_k(values: np.ndarray, k: int) -> np.ndarray:
    """Indices, ascending, of the k largest values; of equal ones at the cut the first."""
    least = np.partition(values, len(values) - k)[len(values) - k]
    above = np.flatnonzero(values > least)
    level = np.flatnonzero(values == least)[: k - len(above)]
    return np.sort(np.concatenate([above, level]))


def _top_p(weights: np.ndarray, share: float) -> np.ndarray:
    """Indices, ascending, of the fewest largest weights that sum to `share` of the total; first of equal ones."""
    goal = share * weights.sum()
    best = int(weights.argmax())
    if weights[best] >= goal:
        return np.array([best])
    everything = np.arange(len(weights))
    for size in (*_HEADS, len(weights)):
        head = _top_k(weights, size) if size < len(weights) else everything
        # A stable sort keeps the smaller id first among equals.
        order = head[np.argsort(-weights[head], kind="stable")]
        reached = int(np.searchsorted(np.cumsum(weights[order]), goal))
        if reached < len(order):
            return np.sort(order[: reached + 1])
    # Rounding kept even the whole row from reaching the goal.
    return everything


def _draw(ids: np.ndarray | None, weights: np.ndarray, draw: float) -> int:
    """The first token whose cumulative weight exceeds `draw` of the total."""
    sums = torch.from_numpy(weights).cumsum(0).numpy()
    # A draw is at most 1 - 2^-53, so the product rounds to less than the total and the index is always in range.
    index = int(np.searchsorted(sums, draw * sums[-1], side="right"))
    return index if ids is None else int(ids[index])


def _table(logits: ArrayLike) -> np.ndarray:
    table = to_numpy(logits)
    if table.ndim != 2 or table.shape[1] == 0 or not np.issubdtype(table.dtype, np.floating):
        raise ValueError(f"logits is {table.dtype} {list(table.shape)}; floats [rows, vocabulary] are needed")
    return table


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _is_int(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
