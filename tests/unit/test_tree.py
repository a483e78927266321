"""Trees: the cases no golden file holds, and what each wrong argument is answered with."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from ddtreec_runtime.tree import (
    Tree,
    VerifierBuffers,
    build_tree,
    build_tree_from_logits,
    chain_tree,
    compact,
    compaction,
    top_logprobs,
    verifier_inputs,
    verify_walk,
)

LOGPROBS = np.log(np.array([[0.6, 0.25, 0.15], [0.5, 0.4, 0.1]], dtype=np.float32))
TOKENS = np.array([[7, 0, 3], [5, 7, 1]])


def assert_root_only(tree: Tree):
    assert len(tree) == 0
    assert tree.rows == 1
    assert tree.parents.tolist() == [-1]
    assert tree.visibility.tolist() == [[True]]
    assert verify_walk(tree, [42]) == ([0], 42)


def test_a_small_tree_by_hand():
    tree = build_tree(LOGPROBS, TOKENS, 5)
    assert np.round(np.exp(tree.scores), 4).tolist() == [0.6, 0.3, 0.25, 0.24, 0.15]
    assert tree.tokens.tolist() == [7, 5, 0, 7, 3]
    assert tree.parents.tolist() == [-1, 0, 1, 0, 1, 0]
    assert tree.depths.tolist() == [1, 2, 1, 2, 1]
    assert tree.ranks.tolist() == [0, 0, 1, 1, 2]
    for node in range(1, 6):
        row, parent = tree.visibility[node], tree.parents[node]
        assert row.tolist() == [bool(tree.visibility[parent][j]) or j == node for j in range(6)]
    assert tree.tokens.dtype == tree.parents.dtype == tree.depths.dtype == tree.ranks.dtype == np.int32
    assert tree.scores.dtype == np.float64
    assert tree.visibility.dtype == np.bool_


def test_exact_tie_takes_the_prefix_then_the_smaller_rank_path():
    half = np.full((2, 2), -1.0, dtype=np.float32)
    half[1] = -0.0, -2.0
    tree = build_tree(half, [[4, 9], [2, 3]], 4)
    # scores -1 for (0), (0, 0), (1), (1, 0): all tie
    assert tree.ranks.tolist() == [0, 0, 1, 0]
    assert tree.parents.tolist() == [-1, 0, 1, 0, 3]
    assert tree.tokens.tolist() == [4, 2, 9, 2]


def test_root_only_cases():
    assert_root_only(build_tree(LOGPROBS, TOKENS, 0))
    assert_root_only(build_tree(np.empty((0, 3), np.float32), np.empty((0, 3), np.int32), 8))
    for row in (0, 1):
        broken = LOGPROBS.copy()
        broken[row, 2] = np.nan
        assert_root_only(build_tree(broken, TOKENS, 8))
    assert_root_only(build_tree(np.full((2, 3), -np.inf, np.float32), TOKENS, 8))
    assert_root_only(build_tree_from_logits(np.zeros((3, 5), np.float32), 0))
    assert_root_only(build_tree_from_logits(np.full((3, 5), -np.inf, np.float32), 4))
    for bad in (np.nan, np.inf):
        logits = np.zeros((3, 5), np.float32)
        logits[1, 3] = bad
        for budget in range(1, 6):  # ties are put in order whatever the cut, NaN or not
            assert_root_only(build_tree_from_logits(logits, budget))
    for row in ([np.nan, 5, 5, 1], [np.nan, np.nan, 1, 1]):
        assert_root_only(build_tree_from_logits(np.array([row], np.float32), 3))


def test_impossible_tokens_are_never_taken():
    logprobs = LOGPROBS.copy()
    logprobs[0, 1:] = -np.inf
    logprobs[1, 2] = -np.inf
    tree = build_tree(logprobs, TOKENS, 50)
    assert tree.tokens.tolist() == [7, 5, 7]
    assert np.isfinite(tree.scores).all()


def test_an_impossible_row_ends_the_tree():
    logits = np.zeros((3, 2), dtype=np.float32)
    logits[1] = -np.inf
    tree = build_tree_from_logits(logits, 50)
    assert tree.depths.tolist() == [1, 1]


def test_keys_beyond_64_bits_stay_exact():
    logprobs = np.array([[0.0, -3e30], [0.0, -1e38]], dtype=np.float32)
    tree = build_tree(logprobs, [[1, 2], [3, 4]], 9)
    assert tree.ranks.tolist() == [0, 0, 1, 0, 1, 1]
    assert tree.depths.tolist() == [1, 2, 1, 2, 2, 2]


def test_a_log_prob_rounded_above_zero_counts_as_zero():
    tree = build_tree(np.array([[1e-7], [1e-7]], np.float32), [[1], [2]], 5)
    assert tree.tokens.tolist() == [1, 2]
    # (0, 1) at -3 comes before (0, 0, 1) at -3.00005, which counting the excess would lift to -2.99995
    draft = np.array([[-1, -np.inf], [1e-4, -2], [-0.5, -2.00005]], np.float32)
    assert build_tree(draft, [[1, 2], [3, 4], [5, 6]], 5).tokens.tolist() == [1, 3, 5, 4, 6]


def test_bfloat16_and_half_tensors():
    exact = build_tree(LOGPROBS.astype(np.float16), TOKENS, 4)
    half = build_tree(torch.from_numpy(LOGPROBS).half(), torch.from_numpy(TOKENS), 4)
    assert exact.tokens.tolist() == half.tokens.tolist()
    brain = torch.from_numpy(LOGPROBS).bfloat16()
    assert build_tree(brain, TOKENS, 4).tokens.tolist() == build_tree(brain.float(), TOKENS, 4).tokens.tolist()


def test_equal_logits_rank_by_token_id_across_the_cut():
    logits = np.zeros((2, 300), dtype=np.float32)
    logits[1, [250, 40, 7]] = 1.0
    logprobs, ids = top_logprobs(logits, 5)
    assert ids.tolist() == [[0, 1, 2, 3, 4], [7, 40, 250, 0, 1]]
    assert logprobs.dtype == np.float32
    np.testing.assert_allclose(logprobs[0], -np.log(300), rtol=1e-6)
    # one tie alone, right at the cut: the entries of rank 39 and 40 are equal
    rng = np.random.default_rng(1)
    ranks = np.stack([rng.permutation(100) for _ in range(64)])
    values = -np.where(ranks == 40, 39, ranks).astype(np.float32)
    expected = np.argsort(-values, axis=1, kind="stable")[:, :40]
    assert top_logprobs(values, 40)[1].tolist() == expected.tolist()
    assert top_logprobs(logits, 1000)[1].shape == (2, 300)
    assert top_logprobs(torch.from_numpy(logits).bfloat16(), 5)[1].tolist() == top_logprobs(logits, 5)[1].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": -1}, "budget is -1"),
        ({"budget": 2.0}, "budget is 2.0"),
        ({"budget": True}, "budget is True"),
        ({"top_token_ids": TOKENS[:, :2]}, r"top_logprobs is \[2, 3\] but top_token_ids is \[2, 2\]"),
        ({"top_logprobs": LOGPROBS[0]}, r"top_logprobs has shape \[3\]; 2 axes"),
        ({"top_token_ids": TOKENS.astype(float)}, "top_token_ids is float64; integers"),
        ({"top_logprobs": TOKENS}, "top_logprobs is int64; floats"),
        ({"top_logprobs": np.empty((2, 0), np.float32), "top_token_ids": np.empty((2, 0), int)}, "no columns"),
        ({"top_logprobs": LOGPROBS[:, ::-1]}, "row 0 rises from column 0 to 1"),
        ({"top_logprobs": np.exp(LOGPROBS)}, "row 0 starts with 0.6; log-probs are at most 0"),
        ({"top_logprobs": np.where(LOGPROBS > -1, np.float32(np.inf), LOGPROBS)}, "row 0 starts with inf"),
        ({"verify_cost": [1.0, 1.0, 1.0]}, r"verify_cost has shape \[3\]; it needs a cost for each of 0..4 nodes"),
        ({"verify_cost": 1.0}, r"verify_cost has shape \[\]"),
        ({"verify_cost": [1, 1, np.nan, 1, 1]}, "finite and above 0"),
        ({"verify_cost": [0, 1, 1, 1, 1]}, "finite and above 0"),
        ({"verify_cost": [1, 1, 1, 1, 1], "draft_cost": -1.0}, "finite and above 0"),
    ],
)
def test_wrong_arguments(change: dict, message: str):
    arguments = {"top_logprobs": LOGPROBS, "top_token_ids": TOKENS, "budget": 4, **change}
    with pytest.raises(ValueError, match=message):
        build_tree(arguments.pop("top_logprobs"), arguments.pop("top_token_ids"), arguments.pop("budget"), **arguments)


@pytest.mark.parametrize("bad", [np.zeros(5, np.float32), np.zeros((2, 5), int), np.zeros((2, 0), np.float32)])
def test_wrong_logits(bad: np.ndarray):
    with pytest.raises(ValueError, match=r"logits is|cannot take"):
        build_tree_from_logits(bad, 4)


def test_cost_aware_stop_by_hand():
    # Rates with a cost of 1 + 0.5 m: 1/1, 1.6/1.5, then 1.9/2 falls.
    cost = [1.0, 1.5, 2.0, 2.5, 3.0]
    assert len(build_tree(LOGPROBS, TOKENS, 4, verify_cost=cost)) == 1
    # A dear draft makes more nodes worth it; equal rates stop (strictly rises).
    assert len(build_tree(LOGPROBS, TOKENS, 4, verify_cost=cost, draft_cost=100.0)) == 4
    assert len(build_tree(np.zeros((1, 1), np.float32), [[1]], 4, verify_cost=[1.0, 2.0, 3.0, 4.0, 5.0])) == 0
    assert len(build_tree(LOGPROBS, TOKENS, 4, verify_cost=torch.tensor(cost))) == 1


def test_chain():
    tree = chain_tree([5, 0, 5], [-0.5, -0.25, -1.0])
    assert tree.parents.tolist() == [-1, 0, 1, 2]
    assert tree.depths.tolist() == [1, 2, 3]
    assert tree.scores.tolist() == [-0.5, -0.75, -1.75]
    assert tree.visibility.tolist() == np.tri(4, dtype=bool).tolist()
    assert verify_walk(tree, [5, 0, 9, 9]) == ([0, 1, 2], 9)
    assert np.isnan(chain_tree(torch.tensor([1, 2])).scores).all()
    assert_root_only(chain_tree([]))
    with pytest.raises(ValueError, match="2 entries for 3 tokens"):
        chain_tree([5, 0, 5], [-0.5, -0.25])
    with pytest.raises(ValueError, match="integers"):
        chain_tree([0.5])


def test_budget_equal_to_depth_is_no_chain():
    flat = np.log(np.full((3, 4), 0.25, np.float32))
    tree = build_tree(flat, np.tile(np.arange(4), (3, 1)), 3)
    assert tree.parents.tolist() == [-1, 0, 0, 0]


def test_from_parents():
    tree = Tree.from_parents([4, 5, 6, 0], [-1, 0, 0, 1, 1])
    assert tree.depths.tolist() == [1, 1, 2, 2]
    assert tree.visibility[3].tolist() == [True, True, False, True, False]
    assert tree.ancestor_bits == (1, 3, 5, 11, 19)
    assert_root_only(Tree.from_parents([], [-1]))
    for parents, message in [([-1, 0], "2 entries for 2"), ([0, 0, 1], "root comes first"), ([-1, 0, 2], "0..1")]:
        with pytest.raises(ValueError, match=message):
            Tree.from_parents([1, 2], parents)
    with pytest.raises(ValueError, match=r"parents\[1\] is -1"):
        Tree.from_parents([1, 2], [-1, -1, 0])


def test_visibility_of_more_than_a_byte_of_nodes():
    for n in (6, 7, 8, 9, 63, 64, 65, 130):
        assert chain_tree(np.arange(n)).visibility.tolist() == np.tri(n + 1, dtype=bool).tolist()


def test_walk_takes_token_zero_and_repeated_tokens_as_any_other():
    tree = Tree.from_parents([0, 3, 0, 0], [-1, 0, 0, 1, 3])
    assert verify_walk(tree, [0, 0, 9, 0, 8]) == ([0, 1, 3, 4], 8)
    assert verify_walk(tree, torch.tensor([3, 0, 0, 0, 8])) == ([0, 2], 0)
    with pytest.raises(ValueError, match="posterior has 4 picks for 5 rows"):
        verify_walk(tree, [0, 0, 0, 0])
    with pytest.raises(ValueError, match="posterior is float64"):
        verify_walk(tree, np.zeros(5))


def test_buffers_refuse_what_does_not_fit():
    buffers = VerifierBuffers(4, 10)
    tree = chain_tree([1, 2, 3])
    assert buffers.fill(tree, 9, 6).allowed.shape == (4, 10)
    for start, n in ((7, 3), (0, 4)):
        with pytest.raises(ValueError, match="do not fit"):
            buffers.fill(chain_tree(range(n)), 9, start)
    with pytest.raises(ValueError, match="start is -1"):
        buffers.fill(tree, 9, -1)
    assert verifier_inputs(tree, 9, 0).positions.tolist() == [0, 1, 2, 3]


def test_inputs_become_tensors_without_a_copy_or_a_warning():
    inputs = VerifierBuffers(4, 10).fill(chain_tree([1, 2, 3]), 9, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.from_numpy(inputs.ids).tolist() == [9, 1, 2, 3]
        assert torch.from_numpy(inputs.allowed).shape == (4, 6)


def test_compaction():
    source, destination = compaction([0, 1, 4, 6], 10)
    assert source.tolist() == [14, 16]
    assert destination.tolist() == [12, 13]
    assert [len(part) for part in compaction([0, 1, 2], 10)] == [0, 0]
    for bad in ([], [1, 2], [0, 2, 2], [0, 3, 1]):
        with pytest.raises(ValueError, match="starts with 0 and strictly increases"):
            compaction(bad, 0)


def test_compact_reads_before_it_writes_and_minds_its_bounds():
    for axis in (0, 1, -1):
        cache = torch.arange(12).reshape((-1, 1) if axis == 0 else (1, -1))
        kept = compact(cache, [0, 2, 3, 4, 8], 3, axis)
        assert kept.flatten().tolist() == [0, 1, 2, 3, 5, 6, 7, 11]
        assert kept.data_ptr() == cache.data_ptr()
    with pytest.raises(ValueError, match="needs 13 rows; the cache has 12"):
        compact(torch.arange(12), [0, 9], 3, 0)
    with pytest.raises(ValueError, match="needs 13 rows"):
        compact(np.arange(12), [0, 1, 2], 10, 0)
