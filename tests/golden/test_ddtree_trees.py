"""Tree construction against every stored tree: exact nodes, order, ties, scores and visibility."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ddtreec_runtime.tree import build_tree
from tests.golden.ragged import golden_tree_inputs, load, ragged

TREES = load("ddtree/trees.npz")
CASES = range(len(TREES["case_kind"]))


def test_the_file_is_whole():
    assert len(CASES) == 371


@pytest.mark.parametrize("kind", sorted(set(TREES["case_kind"].tolist())))
def test_trees_are_exact(kind: str):
    cases = np.flatnonzero(TREES["case_kind"] == kind).tolist()
    assert cases
    for case in cases:
        logprobs, token_ids, budget = golden_tree_inputs(case)
        tree = build_tree(logprobs, token_ids, budget)
        n = int(TREES["case_n_nodes"][case])
        assert len(tree) == n <= budget
        for field in ("tokens", "depths", "parents", "ranks", "scores"):
            expected = ragged(TREES, field, case)
            np.testing.assert_array_equal(getattr(tree, field), expected, err_msg=f"{field}, case {case}")
        bits = np.unpackbits(ragged(TREES, "visibility_bits", case), count=(n + 1) ** 2)
        np.testing.assert_array_equal(tree.visibility, bits.reshape(n + 1, n + 1).astype(bool), err_msg=f"case {case}")
        assert np.exp(tree.scores).sum() == pytest.approx(float(TREES["case_sum_prob"][case]), rel=1e-12)


def test_torch_tensors_give_the_same_tree():
    for case in CASES[::40]:
        logprobs, token_ids, budget = golden_tree_inputs(case)
        tree = build_tree(torch.from_numpy(logprobs), torch.from_numpy(token_ids), budget)
        np.testing.assert_array_equal(tree.parents, ragged(TREES, "parents", case))
        np.testing.assert_array_equal(tree.tokens, ragged(TREES, "tokens", case))


def test_every_stored_node_meets_the_pruning_bound():
    """A node with ranks r_1..r_d stands behind all paths it is dominated by: sum of prod (r_i + 1) <= budget."""
    checked = 0
    for case in CASES:
        ranks = [0, *ragged(TREES, "ranks", case).tolist()]
        parents, budget = ragged(TREES, "parents", case).tolist(), int(TREES["case_budget"][case])
        products, sums = [1], [0]
        for node, parent in enumerate(parents[1:], start=1):
            products.append(products[parent] * (ranks[node] + 1))
            sums.append(sums[parent] + products[node])
        assert max(sums) <= budget
        checked += len(parents) - 1
    assert checked == len(TREES["tokens"])
