"""Draws, cuts and picks; that the law is the target's, and that trees change no text."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from ddtreec.core.errors import DdtreecError, SpecError
from ddtreec_runtime import sampling
from ddtreec_runtime.sampling import (
    NonFiniteLogits,
    SamplingParams,
    philox4x32,
    pick,
    pick_walk,
    probabilities,
    uniform,
)
from ddtreec_runtime.tree import build_tree_from_logits, chain_tree, verify_walk

ALL_ONES = 0xFFFFFFFF


# --- draws ---


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # the known-answer vectors published with Random123
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ALL_ONES,) * 4, (ALL_ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter, key, expected):
    assert philox4x32(counter, key) == expected


def test_uniform_is_the_first_53_bits():
    # key 0, counter 0: words 0x6627E8D5, 0xE169C58D
    assert uniform(0, 0, 0) == ((0x6627E8D5 >> 5) * 2**26 + (0xE169C58D >> 6)) / 2**53
    # every argument matters, in both its words
    wide = 1 << 32
    keys = [(0, 0, 0), (1, 0, 0), (wide, 0, 0), (0, 1, 0), (0, wide, 0), (0, 0, 1), (0, 0, wide)]
    draws = [uniform(*key) for key in keys]
    assert len(set(draws)) == len(draws)
    for bad in [(-1, 0, 0), (0, 1 << 64, 0), (0, 0, -1)]:
        with pytest.raises(ValueError, match=r"must be from 0 to 2\^64 - 1"):
            uniform(*bad)


def test_uniform_is_uniform():
    draws = np.array([uniform(3, 1, position) for position in range(20000)])
    assert draws.min() >= 0
    assert draws.max() < 1
    counts = np.histogram(draws, bins=50, range=(0, 1))[0]
    # chi-square with 49 degrees of freedom: 85.4 is the 0.1 % point
    assert ((counts - 400) ** 2 / 400).sum() < 85.4
    # neighbours are independent: the lag-1 correlation of 20000 draws has standard deviation 0.0071
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 0.025


# --- parameters ---


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("temperature", -0.1, "R011"),
        ("temperature", float("nan"), "R011"),
        ("temperature", float("inf"), "R011"),
        ("temperature", "1", "R011"),
        ("top_p", 0.0, "R012"),
        ("top_p", 1.01, "R012"),
        ("top_p", True, "R012"),
        ("top_p", float("nan"), "R012"),
        ("top_k", -1, "R013"),
        ("top_k", 2.0, "R013"),
        ("seed", -1, "R014"),
        ("seed", 2**64, "R014"),
        ("seed", None, "R014"),
    ],
)
def test_wrong_parameters(field, value, code):
    with pytest.raises(SpecError) as caught:
        SamplingParams(**{field: value})
    (problem,) = caught.value.problems
    assert problem.code == code
    assert problem.message.startswith(f"{field} is {value!r};")
    assert problem.help


def test_all_wrong_parameters_at_once():
    with pytest.raises(SpecError) as caught:
        SamplingParams(-1, 2, -3, -4)
    assert [p.code for p in caught.value.problems] == ["R011", "R012", "R013", "R014"]


# --- cuts ---


def reference(row: np.ndarray, temperature: float, top_k: int, top_p: float) -> np.ndarray:
    """The documented law, the slow way: rank by (probability descending, id ascending), cut, renormalise."""
    law = np.exp((row.astype(np.float64) - row.max()) / temperature)
    law /= law.sum()
    order = sorted(range(len(row)), key=lambda t: (-row[t], t))
    order = order[: top_k or len(order)]
    kept, mass, total = [], 0.0, law[order].sum()
    for token in order:
        kept.append(token)
        mass += law[token]
        if top_p < 1 and mass >= top_p * total:
            break
    result = np.zeros(len(row))
    result[kept] = law[kept] / law[kept].sum()
    return result


@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.3, 1e-6])
@pytest.mark.parametrize("top_k", [0, 1, 3, 1000])
@pytest.mark.parametrize("vocabulary", [7, 700])
def test_probabilities_against_the_slow_way(vocabulary, top_k, top_p):
    rng = np.random.default_rng(vocabulary + top_k)
    logits = (rng.standard_normal((4, vocabulary)) * 2).astype(np.float32)
    logits[1] = np.round(logits[1])  # many ties
    logits[2, ::2] = -np.inf
    logits[3] *= 0.01  # nearly flat: the cut lies beyond the first head of the sort
    for temperature in (0.3, 1.0):
        law = probabilities(torch.from_numpy(logits), SamplingParams(temperature, top_p, top_k))
        expected = np.stack([reference(row, temperature, top_k, top_p) for row in logits])
        assert ((law > 0) == (expected > 0)).all()
        np.testing.assert_allclose(law, expected, rtol=1e-12, atol=0)


def test_order_of_the_cuts():
    """top_p looks at shares after temperature and top_k: of 0.5, 0.3, 0.2 the best two make 0.625 and 0.375."""
    logits = np.log([[0.5, 0.3, 0.2]])
    assert np.flatnonzero(probabilities(logits, SamplingParams(1, top_p=0.6, top_k=2))[0]).tolist() == [0]
    assert np.flatnonzero(probabilities(logits, SamplingParams(1, top_p=0.6))[0]).tolist() == [0, 1]
    assert np.flatnonzero(probabilities(logits, SamplingParams(0.5, top_p=0.6))[0]).tolist() == [0]


def test_ties_at_the_cut_keep_the_smaller_id():
    flat = np.zeros((1, 600))
    assert np.flatnonzero(probabilities(flat, SamplingParams(1, top_k=3))[0]).tolist() == [0, 1, 2]
    assert np.flatnonzero(probabilities(flat, SamplingParams(1, top_p=0.009))[0]).tolist() == list(range(6))
    assert np.flatnonzero(probabilities(flat, SamplingParams(1, top_p=0.75))[0]).tolist() == list(range(450))
    wide = probabilities(np.zeros((1, 20000)), SamplingParams(1, top_p=0.75))
    assert np.flatnonzero(wide[0]).tolist() == list(range(15000))


def test_temperature_zero_is_the_first_largest():
    logits = np.array([[1, 3, 3, 2], [5, 5, 5, 5]], dtype=np.float32)
    assert pick(logits, [0, 0], SamplingParams()) == [1, 0]
    assert pick(torch.from_numpy(logits).bfloat16(), [0, 0], SamplingParams()) == [1, 0]
    assert probabilities(logits, SamplingParams()).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]


def test_extreme_rows():
    tiny = SamplingParams(1e-300)
    assert pick(np.array([[0.0, 1.0, -1e30]]), [3], tiny) == [1]
    assert pick(np.array([[-3e38, 3e38]], dtype=np.float32), [3], SamplingParams(1.0)) == [1]
    lone = np.array([[-np.inf, -np.inf, -5.0, -np.inf]])
    for params in (SamplingParams(), SamplingParams(1.0), SamplingParams(1.0, 0.5, 2)):
        assert {pick(lone, [p], params)[0] for p in range(50)} == {2}


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(0.8), SamplingParams(0.8, 0.9, 2)])
@pytest.mark.parametrize(("bad", "word"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "no token above -inf")])
def test_non_finite_rows_are_named(params, bad, word):
    logits = np.zeros((3, 4))
    logits[2, 1] = bad
    if bad == -np.inf:
        logits[2] = bad
    for function in (lambda: pick(logits, [1, 2, 3], params), lambda: probabilities(logits, params)):
        with pytest.raises(NonFiniteLogits, match=word) as caught:
            function()
        assert caught.value.row == 2
        assert isinstance(caught.value, DdtreecError)
        assert isinstance(caught.value, RuntimeError)


def test_wrong_shapes():
    with pytest.raises(ValueError, match=r"logits is float64 \[4\]"):
        pick(np.zeros(4), [0], SamplingParams())
    with pytest.raises(ValueError, match="logits is int64"):
        probabilities(np.zeros((1, 4), dtype=np.int64), SamplingParams())
    with pytest.raises(ValueError, match="1 positions for 2 rows"):
        pick(np.zeros((2, 4)), [0], SamplingParams(1.0))
    with pytest.raises(ValueError, match="1 rows of logits for a tree of 3 rows"):
        pick_walk(chain_tree([1, 2]), np.zeros((1, 4)), 0, SamplingParams())


# --- picks ---


@pytest.mark.parametrize(
    "params", [SamplingParams(0.8, seed=11), SamplingParams(1.3, 0.85, seed=12), SamplingParams(1.0, 0.97, 5, seed=13)]
)
def test_the_law_of_picks_is_the_targets(params):
    logits = np.array([[0.3, -1.0, 1.2, 0.0, 0.9, -0.4, 2.0, -3.0]], dtype=np.float32)
    law, n = probabilities(logits, params)[0], 20000
    tokens = pick(np.repeat(logits, n, axis=0), range(n), params)
    counts = np.bincount(tokens, minlength=len(law))
    assert counts[law == 0].sum() == 0
    kept = law > 0
    expected = law[kept] * n
    # 0.1 % points of chi-square for 1..7 degrees of freedom
    limit = [10.83, 13.82, 16.27, 18.47, 20.52, 22.46, 24.32][int(kept.sum()) - 2]
    assert ((counts[kept] - expected) ** 2 / expected).sum() < limit


def test_picks_invert_the_cumulative_law_in_token_order():
    logits = np.random.default_rng(5).standard_normal((1, 40))
    for params in (SamplingParams(0.9, seed=4), SamplingParams(0.9, 0.8, 20, seed=4)):
        sums = np.cumsum(probabilities(logits, params)[0])
        for position in range(200):
            expected = int(np.flatnonzero(sums > uniform(4, 9, position))[0])
            assert pick(logits, [position], params, request=9) == [expected]


def test_draws_at_the_edges_of_a_token(monkeypatch):
    def picked(logits: list[float], draw: float) -> int:
        monkeypatch.setattr(sampling, "uniform", lambda *_: draw)
        return pick(np.array([logits]), [1], SamplingParams(1.0))[0]

    last = 1 - 2.0**-53
    assert picked([-np.inf, 0.0, 0.0, -np.inf], 0.0) == 1
    assert picked([-np.inf, 0.0, 0.0, -np.inf], np.nextafter(0.5, 0)) == 1
    assert picked([-np.inf, 0.0, 0.0, -np.inf], 0.5) == 2
    rng = np.random.default_rng(0)
    for _ in range(300):  # totals of every kind: the last token of any weight, never one behind it
        assert picked([*rng.standard_normal(5), 0.0, -np.inf], last) == 5


def test_a_row_is_picked_alike_in_any_batch():
    rng = np.random.default_rng(6)
    logits = torch.from_numpy(rng.standard_normal((33, 1000)).astype(np.float32))
    positions = rng.integers(0, 50, 33).tolist()
    for params in (SamplingParams(), SamplingParams(0.8), SamplingParams(0.8, 0.9), SamplingParams(0.8, 0.9, 30)):
        together = pick(logits, positions, params)
        assert together == [pick(logits[i : i + 1], positions[i : i + 1], params)[0] for i in range(33)]
        assert together[5:20] == pick(logits[5:20], positions[5:20], params)


def test_seed_request_and_position_each_change_the_draw():
    flat = np.zeros((1, 2**20), dtype=np.float32)
    base = pick(flat, [7], SamplingParams(1.0, seed=1), request=3)
    assert base == pick(flat, [7], SamplingParams(1.0, seed=1), request=3)
    assert base != pick(flat, [8], SamplingParams(1.0, seed=1), request=3)
    assert base != pick(flat, [7], SamplingParams(1.0, seed=2), request=3)
    assert base != pick(flat, [7], SamplingParams(1.0, seed=1), request=4)


# --- trees change no text ---


class Target:
    """A target whose next-token logits depend on the last two tokens, and a drafter that is often wrong."""

    def __init__(self, seed: int, vocabulary: int = 6):
        rng = np.random.default_rng(seed)
        self.table = rng.standard_normal((vocabulary, vocabulary, vocabulary)) * 1.5
        self.rng = rng

    def logits(self, text: list[int]) -> np.ndarray:
        return self.table[text[-2], text[-1]]

    def draft(self, text: list[int], depth: int) -> np.ndarray:
        """Logits [depth, V]: right about the next token, vaguer with depth."""
        rows = [self.logits(text)] + [self.table[:, text[-1]].mean(axis=0) for _ in range(depth - 1)]
        return (np.stack(rows) + self.rng.standard_normal((depth, self.table.shape[0]))).astype(np.float32)

    def plain(self, prompt: list[int], length: int, params: SamplingParams) -> list[int]:
        text = list(prompt)
        while len(text) < length:
            text += pick(self.logits(text)[None], [len(text)], params, request=2)
        return text

    def drafted(self, prompt, length, params, make_tree, every_row: bool) -> tuple[list[int], list[int]]:
        """The same text by rounds; `every_row` picks at all nodes and walks, else only along the path."""
        text, taken = list(prompt), []
        while len(text) < length:
            start = len(text) - 1
            tree = make_tree(self.draft(text, 4))
            paths = [text]
            for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist()[1:], strict=True):
                paths.append([*paths[parent], token])
            logits = np.stack([self.logits(path) for path in paths])
            if every_row:
                positions = [start + 1, *(start + tree.depths + 1).tolist()]
                accepted, token = verify_walk(tree, pick(logits, positions, params, request=2))
            else:
                accepted, token = pick_walk(tree, logits, start, params, request=2)
            text = [*paths[accepted[-1]], token]
            taken.append(len(accepted))
        return text[:length], taken


@pytest.mark.parametrize("every_row", [True, False])
@pytest.mark.parametrize(
    "params", [SamplingParams(), SamplingParams(0.8, seed=7), SamplingParams(1.0, 0.9, 4, seed=2**63)]
)
def test_text_is_the_same_for_every_budget(params, every_row):
    for seed in range(3):
        target = Target(seed)
        plain = target.plain([1, 2, 3], 60, params)
        accepted = 0
        for budget in (0, 1, 2, 7, 8, 16, 64):
            make_tree = partial(build_tree_from_logits, budget=budget)
            text, taken = target.drafted([1, 2, 3], 60, params, make_tree, every_row)
            assert text == plain
            accepted += sum(taken) - len(taken)
        text, _ = target.drafted([1, 2, 3], 60, params, lambda rows: chain_tree(rows.argmax(axis=1)), every_row)
        assert text == plain
        # the trees are of use, so that the walk is exercised past the root
        assert accepted > 100
