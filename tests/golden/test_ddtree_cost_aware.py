"""The cost-aware stop against every stored case."""

from __future__ import annotations

import numpy as np
import pytest

from ddtreec_runtime.tree import build_tree
from tests.golden.ragged import load, prefixes

COSTS = load("ddtree/cost_aware.npz")
CASES = prefixes(COSTS, "Cv")


def build(case: str, shift: int = 0):
    budget = int(COSTS[case + "max_budget"])
    return build_tree(
        COSTS[case + "top_logprobs"],
        COSTS[case + "top_token_ids"],
        budget,
        verify_cost=COSTS[case + "Cv"][shift:],
        draft_cost=float(COSTS[case + "Cd"]),
    )


def test_the_file_is_whole():
    assert len(CASES) == 16
    assert {str(COSTS[c + "shape"]) for c in CASES} == {"affine", "convex", "steps", "free"}


@pytest.mark.parametrize("case", CASES)
def test_stop_is_exact(case: str):
    tree = build(case)
    assert len(tree) == int(COSTS[case + "n_nodes"])
    for field in ("tokens", "depths", "parents"):
        np.testing.assert_array_equal(getattr(tree, field), COSTS[case + field])


def test_the_stop_cuts_the_unbounded_tree():
    """Some stored cases end before the budget and the candidates do, and the tree is then a prefix of the full one."""
    cut = 0
    for case in CASES:
        tree = build(case)
        full = build_tree(COSTS[case + "top_logprobs"], COSTS[case + "top_token_ids"], int(COSTS[case + "max_budget"]))
        np.testing.assert_array_equal(full.parents[: tree.rows], tree.parents)
        cut += len(tree) < len(full)
    assert cut >= 8
