"""Trees straight from full logits, against the stored ones."""

from __future__ import annotations

import numpy as np
import pytest

from ddtreec_runtime.tree import build_tree_from_logits
from tests.golden.ragged import load, prefixes

LOGITS = load("ddtree/logits.npz")
CASES = prefixes(LOGITS, "logits")


def test_the_file_is_whole():
    assert len(CASES) == 24


@pytest.mark.parametrize("case", CASES)
def test_tree_from_logits(case: str):
    logits, budget = LOGITS[case + "logits"], int(LOGITS[case + "budget"])
    tree = build_tree_from_logits(logits, budget)
    scores = LOGITS[case + "scores"]
    assert len(tree) == len(scores)
    # log Z is a float32 sum whose order a library may choose: two rounding steps of the largest logit a row.
    step = float(np.spacing(np.abs(logits[np.isfinite(logits)]).max())) * 2
    assert step < 1e-5
    np.testing.assert_allclose(tree.scores, scores, rtol=0, atol=step * len(logits))
    if bool(LOGITS[case + "logit_ties"]):
        # The reference leaves the order of equal logits to chance; ours is fixed: smaller id first.
        assert_equal_logits_ascend(tree, logits)
        return
    for field in ("tokens", "depths", "parents"):
        np.testing.assert_array_equal(getattr(tree, field), LOGITS[case + field], err_msg=case + field)


def assert_equal_logits_ascend(tree, logits: np.ndarray):
    for depth, rank, token in zip(tree.depths.tolist(), tree.ranks.tolist(), tree.tokens.tolist(), strict=True):
        row = logits[depth - 1]
        better = int((row > row[token]).sum()) + int((row[:token] == row[token]).sum())
        assert rank == better
