"""Properties of trees over random drafts: against brute force, and what every tree must satisfy."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtreec_runtime.tree import (
    Tree,
    VerifierBuffers,
    build_tree,
    compact,
    verifier_inputs,
    verify_walk,
    verify_walk_lazy,
)

EXAMPLES = settings(max_examples=120, deadline=None)


@st.composite
def drafts(draw, max_rows: int = 4, max_columns: int = 5):
    """Sorted log-probs float32 [L, K] on a coarse grid (many exact ties) or a fine one, some -inf, and ids."""
    rows, columns = draw(st.integers(1, max_rows)), draw(st.integers(1, max_columns))
    grid = draw(st.sampled_from([1.0, 0.5, 2.0**-12]))
    steps = draw(st.lists(st.integers(0, 6 if grid > 0.1 else 40000), min_size=rows * columns, max_size=rows * columns))
    logprobs = -np.sort(np.array(steps, dtype=np.float32).reshape(rows, columns) * np.float32(grid), axis=1)
    cut = draw(st.integers(1, columns))
    if draw(st.booleans()):
        logprobs[draw(st.integers(0, rows - 1)), cut:] = -np.inf
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(50)[:columns] for _ in range(rows)])
    return logprobs, ids


def candidates(logprobs: np.ndarray) -> list[tuple[float, tuple[int, ...]]]:
    """Every possible node as (-score, rank path), best first: the global sort the search must agree with."""
    exact = logprobs.astype(np.float64)
    found = []
    for depth in range(1, len(exact) + 1):
        for path in product(range(exact.shape[1]), repeat=depth):
            score = sum(float(exact[d, r]) for d, r in enumerate(path))
            if score > -np.inf:
                found.append((-score, path))
    return sorted(found)


def rank_paths(tree: Tree) -> list[tuple[int, ...]]:
    paths: list[tuple[int, ...]] = [()]
    for rank, parent in zip(tree.ranks.tolist(), tree.parents.tolist()[1:], strict=True):
        paths.append((*paths[parent], rank))
    return paths[1:]


@EXAMPLES
@given(drafts(), st.integers(0, 60))
def test_equals_the_global_sort(draft, budget):
    logprobs, ids = draft
    tree = build_tree(logprobs, ids, budget)
    best = candidates(logprobs)[:budget]
    assert rank_paths(tree) == [path for _, path in best]
    np.testing.assert_allclose(tree.scores, [-score for score, _ in best], rtol=0, atol=1e-9)
    assert tree.tokens.tolist() == [int(ids[len(path) - 1, path[-1]]) for _, path in best]


@EXAMPLES
@given(drafts(max_rows=7, max_columns=12), st.integers(0, 40))
def test_shape_of_every_tree(draft, budget):
    logprobs, ids = draft
    tree = build_tree(logprobs, ids, budget)
    parents, depths = tree.parents.tolist(), [0, *tree.depths.tolist()]
    assert len(tree) <= budget
    assert parents[0] == -1
    assert all(0 <= parents[i] < i and depths[i] == depths[parents[i]] + 1 for i in range(1, tree.rows))
    children = list(zip(parents[1:], tree.tokens.tolist(), strict=True))
    assert len(set(children)) == len(children)
    assert all(np.diff(tree.scores) <= 1e-9)
    for path in rank_paths(tree):
        assert np.cumprod(np.array(path) + 1).sum() <= budget
    seen = [{0}]
    for node in range(1, tree.rows):
        seen.append(seen[parents[node]] | {node})
    assert [set(np.flatnonzero(row).tolist()) for row in tree.visibility] == seen


@EXAMPLES
@given(drafts(), st.lists(st.integers(1, 30), min_size=31, max_size=31), st.integers(0, 20))
def test_cost_aware_stop_equals_brute_force(draft, steps, draft_cost):
    logprobs, ids = draft
    cost = np.cumsum(np.array(steps, dtype=np.float64)) / 16 + 4
    tree = build_tree(logprobs, ids, 30, verify_cost=cost, draft_cost=float(draft_cost))
    full = build_tree(logprobs, ids, 30)
    # cumsum adds in the order the search does, so rates compare exactly
    expected = np.cumsum([1.0, *[math.exp(score) for score in full.scores]])
    rates = expected / (draft_cost + cost[: len(expected)])
    falls = np.flatnonzero(rates[1:] <= rates[:-1])
    assert len(tree) == (int(falls[0]) if len(falls) else len(full))
    assert tree.parents.tolist() == full.parents.tolist()[: tree.rows]


@st.composite
def random_trees(draw, vocabulary: int = 3, max_nodes: int = 24):
    """Any valid tree with distinct siblings, in any order a parent-first numbering allows."""
    n = draw(st.integers(0, max_nodes))
    parents, tokens, taken = [-1], [], set()
    for _ in range(n):
        parent, token = draw(st.integers(0, len(tokens))), draw(st.integers(0, vocabulary - 1))
        if (parent, token) not in taken:
            taken.add((parent, token))
            parents.append(parent)
            tokens.append(token)
    return Tree.from_parents(np.array(tokens, dtype=np.int32), parents)


@EXAMPLES
@given(random_trees(), st.data())
def test_walk_equals_following_children(tree, data):
    posterior = data.draw(st.lists(st.integers(0, 3), min_size=tree.rows, max_size=tree.rows))
    edges = zip(tree.parents.tolist()[1:], tree.tokens.tolist(), strict=True)
    children = {edge: node for node, edge in enumerate(edges, start=1)}
    current, path = 0, [0]
    while (current, posterior[current]) in children:
        current = children[current, posterior[current]]
        path.append(current)
    assert verify_walk(tree, posterior) == (path, posterior[current])
    assert verify_walk_lazy(tree, posterior.__getitem__) == (path, posterior[current])
    assert all(node >= place for place, node in enumerate(path))


@EXAMPLES
@given(st.lists(st.tuples(random_trees(), st.integers(0, 20)), min_size=1, max_size=4))
def test_buffers_never_keep_a_stale_mask(rounds):
    buffers = VerifierBuffers(25, 45)
    for root, (tree, start) in enumerate(rounds):
        inputs, fresh = buffers.fill(tree, root, start), verifier_inputs(tree, root, start)
        assert inputs.ids.tolist() == fresh.ids.tolist() == [root, *tree.tokens.tolist()]
        assert inputs.positions.tolist() == [start, *(tree.depths + start).tolist()]
        expected = np.ones((tree.rows, start + tree.rows), dtype=bool)
        expected[:, start:] = tree.visibility
        assert np.array_equal(inputs.allowed, expected)
        assert np.array_equal(fresh.allowed, expected)


@EXAMPLES
@given(st.sets(st.integers(1, 30), max_size=12), st.integers(0, 9))
def test_compaction_keeps_the_path(nodes, start):
    accepted = [0, *sorted(nodes)]
    cache = np.arange((start + 31) * 2).reshape(2, start + 31).copy()
    expected = cache[:, [*range(start), *[start + node for node in accepted]]]
    assert np.array_equal(compact(cache, accepted, start, axis=1), expected)
