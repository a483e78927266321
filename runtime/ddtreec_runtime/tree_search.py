"""The search behind `tree.build_tree`: integer keys, the best-first heap, the cost-aware stop, top-k of logits.

Nothing here checks shapes; `tree` does. The heap is plain Python over small tuples: for the trees one sequence can
use (tens of nodes) it beats array code, and Python integers keep every key exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from heapq import heappop, heappush, heapreplace

import numpy as np
import torch

FIXED_POINT = 2.0**32
"""Steps per nat of the integer keys that scores are compared by."""

INT64_NATS = 2.0**31
"""A log-prob at or below minus this does not fit an int64 key."""

Stop = Callable[[int, float], bool]
"""`stop(m, score)`: whether to leave out what would be node m, of path log-prob `score`, and all after it."""


def keys(logprobs: np.ndarray, lowest: float) -> tuple[list[list[int]], list[int]]:
    """Integer costs -round(log-prob * 2^32) of each row of float64 [L, K], and each row's count of finite entries.

    `lowest` is the least log-prob; a log-prob that rounding put just above 0 costs 0.
    """
    steps = np.maximum(np.rint(logprobs * -FIXED_POINT), 0.0)
    if lowest > -INT64_NATS:
        return steps.astype(np.int64).tolist(), [steps.shape[1]] * len(steps)
    # Beyond 64 bits, Python integers: slower, and exact for any float.
    rows = [[int(step) for step in row if step < math.inf] for row in steps.tolist()]
    return rows, [len(row) for row in rows]


def best_first(
    costs: list[list[int]], widths: list[int], logprobs: list[list[float]], budget: int, stop: Stop | None
) -> tuple[list[int], list[int], list[int], list[float]]:
    """Parents and scores of nodes 0..n, depths and ranks of nodes 1..n, in the order they are taken.

    Row d - 1 of `costs` and `logprobs` holds depth d; only its first `widths[d - 1]` entries are candidates.
    """
    parents, depths, ranks, scores = [-1], [], [], [0.0]
    deepest = widths.index(0) if 0 in widths else len(widths)
    # Entries are (cost, rank path, parent): cost decides, then the path; no two paths are equal.
    heap: list[tuple[int, tuple[int, ...], int]] = [(costs[0][0], (0,), 0)] if deepest else []
    for node in range(1, budget + 1):
        if not heap:
            break
        cost, path, parent = heap[0]
        depth, rank = len(path), path[-1]
        score = scores[parent] + logprobs[depth - 1][rank]
        if stop is not None and stop(node, score):
            break
        parents.append(parent)
        depths.append(depth)
        ranks.append(rank)
        scores.append(score)
        row = costs[depth - 1]
        has_sibling = rank + 1 < widths[depth - 1]
        if has_sibling:
            heapreplace(heap, (cost - row[rank] + row[rank + 1], (*path[:-1], rank + 1), parent))
        else:
            heappop(heap)
        if depth < deepest:
            heappush(heap, (cost + costs[depth][0], (*path, 0), node))
    return parents, depths, ranks, scores


def cost_stop(verify_cost: Sequence[float], draft_cost: float) -> Stop:
    """CaDDTree's rule: take node m only while (1 + sum of node probabilities) / (draft + verify cost) strictly rises.

    `verify_cost[m]` is the cost of a verify with m nodes besides the root (arXiv 2606.01813).
    """
    expected = 1.0
    rate = expected / (draft_cost + verify_cost[0])

    def stop(nodes: int, score: float) -> bool:
        nonlocal expected, rate
        gain = expected + math.exp(score)
        new_rate = gain / (draft_cost + verify_cost[nodes])
        if not new_rate > rate:
            return True
        expected, rate = gain, new_rate
        return False

    return stop


def top_rows(table: torch.Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The best k <= V entries of each row of float32 logits [L, V]: log-probs float32 [L, k] and ids int64 [L, k].

    Descending, equal logits smaller id first; `torch.topk` promises no order among them.
    """
    # One more than needed shows whether an equal logit was left outside.
    values, ids = table.topk(min(k + 1, table.shape[1]), dim=1)
    best, order = values.cpu().numpy(), ids[:, :k].cpu().numpy()
    log_z = table.logsumexp(dim=1, keepdim=True).cpu().numpy()
    # A row without any candidate has log_z = -inf, and -inf - -inf would be NaN.
    with np.errstate(invalid="ignore"):  # +inf - +inf is the NaN meant to come out
        logprobs = best[:, :k] - np.where(log_z == -np.inf, np.float32(0), log_z)
    tied = (best[:, 1:] == best[:, :-1]).any(axis=1)
    # topk puts NaN first: such a row has no order to mend, and its log-probs are all NaN.
    tied &= ~np.isnan(best[:, 0])
    if tied.any():
        for row in np.flatnonzero(tied).tolist():
            order[row] = _ids_in_order(table[row].cpu().numpy(), best[row, k - 1], k)
    return logprobs, order


def _ids_in_order(logits: np.ndarray, least: np.float32, k: int) -> np.ndarray:
    """Ids of the best k entries, all at or above `least`, by value descending, then by id."""
    ids = np.flatnonzero(logits >= least)
    # A stable sort of ascending ids keeps the smaller id first among equals.
    return ids[np.argsort(-logits[ids], kind="stable")[:k]]
