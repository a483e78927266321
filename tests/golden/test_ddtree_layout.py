"""Verifier inputs over two rounds on the same buffers, and cache compaction, against the stored arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ddtreec_runtime.tree import VerifierBuffers, build_tree, compact, compaction, verifier_inputs
from tests.golden.ragged import golden_tree_inputs, load, prefixes

COMPILE = load("ddtree/compile.npz")
COMPACT = load("ddtree/compact.npz")
PAIRS = sorted({p.rsplit("r", 1)[0] for p in prefixes(COMPILE, "allowed")}, key=lambda p: (len(p), p))
CACHES = prefixes(COMPACT, "keep")


def assert_round(inputs, prefix: str):
    for field in ("ids", "positions", "allowed"):
        np.testing.assert_array_equal(getattr(inputs, field), COMPILE[prefix + field], err_msg=prefix + field)


def test_the_files_are_whole():
    assert len(PAIRS) == 8
    assert len(CACHES) == len(COMPACT) // 6 >= 12


@pytest.mark.parametrize("pair", PAIRS)
def test_two_rounds_on_the_same_buffers(pair: str):
    widths = [COMPILE[f"{pair}r{r}_allowed"].shape for r in (0, 1)]
    buffers = VerifierBuffers(max(w[0] for w in widths), max(w[1] for w in widths))
    for prefix in (f"{pair}r0_", f"{pair}r1_", f"{pair}r0_"):
        tree = build_tree(*golden_tree_inputs(int(COMPILE[prefix + "tree_case"])))
        root, start = int(COMPILE[prefix + "root"]), int(COMPILE[prefix + "start"])
        inputs = buffers.fill(tree, root, start)
        assert_round(inputs, prefix)
        assert np.shares_memory(inputs.allowed, buffers.mask)
        assert_round(verifier_inputs(tree, root, start), prefix)


@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("case", CACHES)
def test_compaction(case: str, kind: str):
    keep, past = COMPACT[case + "keep"].tolist(), int(COMPACT[case + "past"])
    for name in ("k", "v"):
        cache = COMPACT[f"{case}{name}_before"].copy()
        after = compact(torch.from_numpy(cache) if kind == "torch" else cache, keep, past, axis=2)
        np.testing.assert_array_equal(np.asarray(after), COMPACT[f"{case}{name}_after"])
        assert np.shares_memory(np.asarray(after), cache)


def test_some_stored_paths_are_in_place_and_some_are_not():
    moves = [len(compaction(COMPACT[c + "keep"], 0)[0]) for c in CACHES]
    assert 0 in moves
    assert max(moves) >= 1
