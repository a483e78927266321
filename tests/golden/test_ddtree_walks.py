"""The verification walk against every stored walk."""

from __future__ import annotations

import numpy as np
import pytest

from ddtreec_runtime.tree import Tree, build_tree, verify_walk, verify_walk_lazy
from tests.golden.ragged import golden_tree_inputs, load, ragged

TREES = load("ddtree/trees.npz")
WALKS = load("ddtree/verify.npz")


def stored_tree(case: int) -> Tree:
    return Tree.from_parents(ragged(TREES, "tokens", case), ragged(TREES, "parents", case))


def test_the_file_is_whole():
    assert len(WALKS["tree_case"]) == 1653


@pytest.mark.parametrize("kind", sorted(set(WALKS["kind"].tolist())))
def test_walks_are_exact(kind: str):
    walks = np.flatnonzero(WALKS["kind"] == kind).tolist()
    assert walks
    for walk in walks:
        tree = stored_tree(int(WALKS["tree_case"][walk]))
        posterior = ragged(WALKS, "posterior", walk)
        expected = ragged(WALKS, "accepted", walk).tolist(), int(WALKS["next_token"][walk])
        assert verify_walk(tree, posterior) == expected
        assert verify_walk_lazy(tree, lambda node, picks=posterior: int(picks[node])) == expected


def test_lazy_walk_asks_for_accepted_nodes_only():
    walk = int(np.diff(WALKS["accepted_off"]).argmax())
    posterior, asked = ragged(WALKS, "posterior", walk), []

    def pick(node: int) -> int:
        asked.append(node)
        return int(posterior[node])

    accepted, _ = verify_walk_lazy(stored_tree(int(WALKS["tree_case"][walk])), pick)
    assert asked == accepted == ragged(WALKS, "accepted", walk).tolist()
    assert len(accepted) > 4


def test_a_built_tree_walks_like_the_stored_one():
    for walk in range(0, len(WALKS["tree_case"]), 97):
        tree = build_tree(*golden_tree_inputs(int(WALKS["tree_case"][walk])))
        accepted, token = verify_walk(tree, ragged(WALKS, "posterior", walk))
        assert accepted == ragged(WALKS, "accepted", walk).tolist()
        assert token == WALKS["next_token"][walk]
