"""Draft trees: build the best one under a node budget, and walk it with the target's picks.

Node 0 is the root: the last committed token, whose own position is `start`. Drafted nodes are numbered 1..n in the
order the best-first search takes them, so `parents[i] < i` always. A node at depth d (1..L) carries a token of row
d - 1 of the draft and stands at absolute position `start + d`. The budget counts drafted nodes only: the verifier
sees n + 1 rows.

Order and ties (DDTree, arXiv 2604.12989, and its public implementation): nodes leave the search by score
descending, then by rank path ascending (lexicographic, a prefix before its extensions). Scores are compared as
integers, -round(log-prob * 2^32), summed without error: equal sums tie here exactly when they tie on any device.

The search itself is in `tree_search`; `tree_layout`, whose names are offered here too, feeds a tree to the verifier.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch

from ddtreec_runtime import tree_search
from ddtreec_runtime.arrays import ArrayLike, matrix, to_numpy, vector
from ddtreec_runtime.tree_layout import VerifierBuffers, VerifierInputs, compact, compaction, verifier_inputs

__all__ = [
    "Tree",
    "VerifierBuffers",
    "VerifierInputs",
    "build_tree",
    "build_tree_from_logits",
    "chain_tree",
    "compact",
    "compaction",
    "top_logprobs",
    "verifier_inputs",
    "verify_walk",
    "verify_walk_lazy",
]

_LOGPROB_SLACK = 1e-3
"""How far above 0 rounding may carry a log-prob before it is taken for something else."""


@dataclass(frozen=True, eq=False)
class Tree:
    """A draft tree of n nodes besides the root. Arrays are not to be written to.

    tokens   int32 [n]      token of nodes 1..n (the root's token is not known here)
    parents  int32 [n + 1]  parent of nodes 0..n; parents[0] = -1, parents[i] < i
    depths   int32 [n]      depth of nodes 1..n, from 1
    ranks    int32 [n]      place of the token in its row of the draft, from 0; -1 where unknown
    scores   float64 [n]    log-probability of the path to nodes 1..n, in nats; NaN where unknown
    """

    tokens: np.ndarray
    parents: np.ndarray
    depths: np.ndarray
    ranks: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        """Nodes besides the root."""
        return len(self.tokens)

    @property
    def rows(self) -> int:
        """Rows the verifier sees: the nodes and the root."""
        return len(self.tokens) + 1

    @cached_property
    def ancestor_bits(self) -> tuple[int, ...]:
        """Per node 0..n an integer whose bit j says that j is the node itself or one of its ancestors."""
        bits = [1]
        for node, parent in enumerate(self.parents.tolist()[1:], start=1):
            bits.append(bits[parent] | 1 << node)
        return tuple(bits)

    @cached_property
    def visibility(self) -> np.ndarray:
        """bool [n + 1, n + 1]: row i may attend column j (itself and its ancestors; column 0 always)."""
        width = (self.rows + 7) // 8
        packed = b"".join([row.to_bytes(width, "little") for row in self.ancestor_bits])
        table = np.frombuffer(packed, dtype=np.uint8).reshape(self.rows, width)
        return np.unpackbits(table, axis=1, count=self.rows, bitorder="little").view(np.bool_)

    @classmethod
    def from_parents(cls, tokens: ArrayLike, parents: ArrayLike) -> Tree:
        """A tree given by hand: integer tokens [n] of nodes 1..n and parents [n + 1] with parents[0] = -1.

        Ranks are -1 and scores NaN. Raises ValueError on wrong shapes or where not 0 <= parents[i] < i.
        """
        token_list = vector(tokens, "tokens", np.integer)
        parent_list = vector(parents, "parents", np.integer)
        if len(parent_list) != len(token_list) + 1:
            raise ValueError(
                f"parents has {len(parent_list)} entries for {len(token_list)} tokens; the root needs one too"
            )
        if parent_list[0] != -1:
            raise ValueError(f"parents[0] is {parent_list[0]}; the root comes first, with parent -1")
        depths = [0]
        for node, parent in enumerate(parent_list.tolist()[1:], start=1):
            if not 0 <= parent < node:
                raise ValueError(f"parents[{node}] is {parent}; a parent comes before its children, so 0..{node - 1}")
            depths.append(depths[parent] + 1)
        n = len(token_list)
        return cls(
            tokens=token_list.astype(np.int32),
            parents=parent_list.astype(np.int32),
            depths=np.array(depths[1:], dtype=np.int32),
            ranks=np.full(n, -1, dtype=np.int32),
            scores=np.full(n, np.nan),
        )


def build_tree(
    top_logprobs: ArrayLike,
    top_token_ids: ArrayLike,
    budget: int,
    *,
    verify_cost: ArrayLike | None = None,
    draft_cost: float = 0.0,
) -> Tree:
    """The `budget` most probable prefixes of a draft, as a tree (ddtree best-first search).

    top_logprobs   float [L, K]: per draft row the K best log-probs (of the full vocabulary), descending
    top_token_ids  integer [L, K]: their token ids, distinct within a row
    budget         nodes besides the root; fewer come out when the candidates run out
    verify_cost    float [>= budget + 1]: cost of a verify of m nodes besides the root at index m, in any unit. With
                   it the next best node is taken only while (1 + sum of node probabilities) / (draft_cost +
                   verify_cost[m]) strictly rises (CaDDTree, arXiv 2606.01813)
    draft_cost     cost of the draft itself, in the unit of verify_cost

    Candidates of log-prob -inf are never taken. A NaN anywhere gives the root alone: a broken drafter costs speed,
    never a wrong token. Budget 0 or L = 0 gives the root alone. Raises ValueError on a negative budget, on shapes
    or dtypes that do not match, K = 0, rows not descending, log-probs above 0, and on unusable costs.
    """
    logprobs = matrix(top_logprobs, "top_logprobs", np.floating)
    token_ids = matrix(top_token_ids, "top_token_ids", np.integer)
    if logprobs.shape != token_ids.shape:
        raise ValueError(f"top_logprobs is {list(logprobs.shape)} but top_token_ids is {list(token_ids.shape)}")
    budget = _checked_budget(budget)
    stop = None if verify_cost is None else _checked_stop(verify_cost, draft_cost, budget)
    if budget == 0 or len(logprobs) == 0:
        return _root_only()
    if logprobs.shape[1] == 0:
        raise ValueError("top_logprobs has no columns; give at least one candidate a row")
    lowest = float(logprobs.min())
    if math.isnan(lowest):
        return _root_only()
    highest = float(logprobs[:, 0].max())
    if highest > _LOGPROB_SLACK or (logprobs[:, 1:] > logprobs[:, :-1]).any():
        raise ValueError(_why_not_logprobs(logprobs))
    # A node of rank r is preceded by its r better siblings, one of depth d by its d - 1 ancestors.
    logprobs = logprobs[:budget, :budget].astype(np.float64)
    costs, widths = tree_search.keys(logprobs, lowest)
    parents, depths, ranks, scores = tree_search.best_first(costs, widths, logprobs.tolist(), budget, stop)
    depth_array = np.array(depths, dtype=np.int32)
    rank_array = np.array(ranks, dtype=np.int32)
    return Tree(
        tokens=token_ids[depth_array - 1, rank_array].astype(np.int32),
        parents=np.array(parents, dtype=np.int32),
        depths=depth_array,
        ranks=rank_array,
        scores=np.array(scores[1:], dtype=np.float64),
    )


def build_tree_from_logits(logits: ArrayLike, budget: int) -> Tree:
    """`build_tree` on whole draft logits, float [L, V]: row d - 1 scores the tokens of depth d.

    Log-probs are taken in float32 over the full row; equal logits rank by token id, smaller first. Masked tokens
    (-inf) are never taken and a row of nothing else ends the tree; NaN or +inf gives the root alone.
    Raises ValueError as `build_tree` does.
    """
    budget = _checked_budget(budget)
    return build_tree(*top_logprobs(logits, max(budget, 1)), budget)


def top_logprobs(logits: ArrayLike, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The min(k, V) best tokens of each row of logits, float [L, V], with their log-probs over the full row.

    Returns log-probs float32 [L, k], descending, and token ids int64 [L, k]; equal logits come smaller id first.
    Log-prob = logit - logsumexp(row), in float32. A row of -inf only gives -inf; NaN and +inf give NaN.
    Raises ValueError on other shapes or dtypes, on an empty vocabulary and on k < 1.
    """
    table = logits.detach() if isinstance(logits, torch.Tensor) else torch.as_tensor(np.asarray(logits))
    if table.ndim != 2 or not table.is_floating_point():
        raise ValueError(f"logits is {table.dtype} {list(table.shape)}; floats [rows, vocabulary] are needed")
    if table.shape[1] == 0 or k < 1:
        raise ValueError(f"cannot take the best {k} of {table.shape[1]} tokens")
    return tree_search.top_rows(table.float(), min(k, table.shape[1]))


def chain_tree(token_ids: ArrayLike, logprobs: ArrayLike | None = None) -> Tree:
    """The top-1 spine as a tree: integer token_ids [L], one node a depth, each the child of the one before.

    `logprobs`, float [L], gives the scores; without it they are NaN. Raises ValueError on other shapes or dtypes.
    """
    tokens = vector(token_ids, "token_ids", np.integer).astype(np.int32)
    n = len(tokens)
    scores = np.full(n, np.nan)
    if logprobs is not None:
        steps = vector(logprobs, "logprobs", np.floating)
        if len(steps) != n:
            raise ValueError(f"logprobs has {len(steps)} entries for {n} tokens")
        scores = np.cumsum(steps, dtype=np.float64)
    return Tree(
        tokens=tokens,
        parents=np.arange(-1, n, dtype=np.int32),
        depths=np.arange(1, n + 1, dtype=np.int32),
        ranks=np.zeros(n, dtype=np.int32),
        scores=scores,
    )


def verify_walk(tree: Tree, posterior: ArrayLike) -> tuple[list[int], int]:
    """Follow the target's choices down the tree.

    `posterior`, integer [n + 1], holds the token the target picks after each node 0..n. Returns the accepted nodes
    (strictly increasing, starting with 0) and the next token: the pick of the last accepted node, which no child
    carries. The round commits `len(accepted)` tokens: the root's children on the path, then the next token.
    Raises ValueError unless there is one pick a node.
    """
    picks = vector(posterior, "posterior", np.integer)
    if len(picks) != tree.rows:
        raise ValueError(f"posterior has {len(picks)} picks for {tree.rows} rows (root included)")
    return verify_walk_lazy(tree, picks.tolist().__getitem__)


def verify_walk_lazy(tree: Tree, pick: Callable[[int], int]) -> tuple[list[int], int]:
    """`verify_walk` that asks for picks of accepted nodes only: `pick(node)` is the target's token after `node`.

    With draws keyed by position this equals drawing at every node, at the cost of the accepted ones.
    """
    accepted, token = [0], pick(0)
    parents, tokens = tree.parents.tolist(), tree.tokens.tolist()
    # Children come after their parent, so one pass over the nodes finds the whole path, whatever the tokens are.
    for node, carried in enumerate(tokens, start=1):
        if carried == token and parents[node] == accepted[-1]:
            accepted.append(node)
            token = pick(node)
    return accepted, token


# --- arguments ---


def _root_only() -> Tree:
    return chain_tree(np.empty(0, dtype=np.int32))


def _checked_budget(budget: int) -> int:
    if isinstance(budget, bool) or not isinstance(budget, (int, np.integer)):
        raise ValueError(f"budget is {budget!r}; a count of nodes is needed")
    if budget < 0:
        raise ValueError(f"budget is {budget}; it counts nodes besides the root, 0 or more")
    return int(budget)


def _checked_stop(verify_cost: ArrayLike, draft_cost: float, budget: int) -> tree_search.Stop:
    costs = np.asarray(to_numpy(verify_cost), dtype=np.float64)
    if costs.ndim != 1 or len(costs) <= budget:
        raise ValueError(f"verify_cost has shape {list(costs.shape)}; it needs a cost for each of 0..{budget} nodes")
    totals = costs[: budget + 1] + draft_cost
    if not (np.isfinite(totals).all() and (totals > 0).all()):
        raise ValueError("verify_cost + draft_cost must be finite and above 0 for every node count")
    return tree_search.cost_stop(costs.tolist(), float(draft_cost))


def _why_not_logprobs(logprobs: np.ndarray) -> str:
    for row, values in enumerate(logprobs.tolist()):
        if values[0] > _LOGPROB_SLACK:
            return f"top_logprobs row {row} starts with {values[0]:.6g}; log-probs are at most 0"
        for column, (left, right) in enumerate(pairwise(values)):
            if right > left:
                return f"top_logprobs row {row} rises from column {column} to {column + 1}; rows are sorted, best first"
    raise AssertionError("called without a fault")
