"""Drafts scored with the numbers that the target will draw with."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch

from ddtreec.artifacts.plan import Tree as TreePolicy
from ddtreec_runtime.drafting import propose
from ddtreec_runtime.foresight import CORRELATIONS, DOUBT, Foresight, expected, foresee
from ddtreec_runtime.sampling import SamplingParams, pick, uniform
from ddtreec_runtime.tree import top_logprobs

NORMAL = NormalDist()


def rows(count: int, vocab: int, seed: int = 0, spread: float = 2.0) -> torch.Tensor:
    return torch.randn(count, vocab, generator=torch.Generator().manual_seed(seed)) * spread


def law(logits: torch.Tensor, known: Foresight) -> np.ndarray:
    """Probabilities [L, V] in token order."""
    logprobs, ids = expected(logits, known, logits.shape[1])
    out = np.empty_like(logprobs)
    np.put_along_axis(out, ids, np.exp(logprobs), axis=1)
    return out


def test_numbers_are_those_of_the_positions_behind_the_root() -> None:
    params = SamplingParams(0.8, seed=9)
    known = foresee(params, 41, 3, request=2)
    assert known == Foresight(tuple(uniform(9, 2, position) for position in (42, 43, 44)), 0.8)
    assert foresee(SamplingParams(seed=9), 41, 3) is None


@pytest.mark.parametrize("number", [0.0, 1e-9, 0.3, 0.999999])
def test_the_law_is_that_of_the_copula(number: float) -> None:
    logits = rows(5, 12)
    got = law(logits, Foresight((number,) * 5, 0.7))
    for row, probs in enumerate(logits.double().softmax(-1).tolist()):
        c = 0.7 * CORRELATIONS[min(row, 3)]
        score, width = NORMAL.inv_cdf(max(number, 2.0**-54)), math.sqrt(1 - c * c)
        below, want = 0.0, []
        for token, prob in enumerate(probs):
            ends = [NORMAL.inv_cdf(x) if 0 < x < 1 else math.copysign(math.inf, x - 0.5)
                    for x in (below, 1.0 if token == 11 else below + prob)]  # fmt: skip
            low, high = (NORMAL.cdf((end - c * score) / width) for end in ends)
            want.append((1 - DOUBT) * (high - low) + DOUBT * prob)
            below += prob
        np.testing.assert_allclose(got[row], want, rtol=1e-4, atol=1e-9)


def test_the_law_averages_to_the_drafters_own() -> None:
    logits, steps = rows(4, 30), 4000
    total = sum(law(logits, Foresight(((step + 0.5) / steps,) * 4, 1.0)) for step in range(steps))
    np.testing.assert_allclose(total / steps, logits.softmax(-1).numpy(), atol=2e-4)


def test_a_law_sums_to_one_and_is_sorted() -> None:
    logprobs, ids = expected(rows(7, 200), Foresight((0.001, 0.2, 0.4, 0.5, 0.7, 0.9, 0.9999), 0.8), 200)
    np.testing.assert_allclose(np.exp(logprobs).sum(1), 1.0, rtol=1e-5)
    assert (np.diff(logprobs, axis=1) <= 0).all()
    assert (np.sort(ids, axis=1) == np.arange(200)).all()
    assert logprobs.dtype == np.float32 and ids.dtype == np.int64


def test_near_temperature_0_the_number_does_not_matter() -> None:
    logits = rows(7, 500)
    logprobs, ids = expected(logits, Foresight((0.9,) * 7, 1e-6), 40)
    plain, plain_ids = top_logprobs(logits, 40)
    np.testing.assert_allclose(logprobs, plain, atol=1e-3)
    assert (ids == plain_ids).mean() > 0.98


def test_a_draft_that_knows_the_law_guesses_more_of_the_draws() -> None:
    """The first guess is drawn at least as often as the drafter's best token at every depth, and in all far more."""
    logits, params = rows(7, 300, seed=1), [SamplingParams(1.0, seed=seed) for seed in range(400)]
    hits, plain = np.zeros(7), np.zeros(7)
    best = logits.argmax(1).numpy()
    for one in params:
        known = foresee(one, 10, 7)
        assert known is not None
        drawn = np.array(pick(logits, range(11, 18), one))
        hits += expected(logits, known, 1)[1][:, 0] == drawn
        plain += best == drawn
    assert (hits >= plain).all() and hits.sum() > 1.3 * plain.sum(), (hits, plain)


def test_tails_are_told_apart_at_both_ends() -> None:
    """Where the number speaks against a token with all its might, the drafter's share of it stays."""
    logits = torch.tensor([[20.0, 0.0, -5.0], [-5.0, 0.0, 20.0]])
    logprobs, ids = expected(logits, Foresight((0.5, 0.5), 1.0), 3)
    assert ids.tolist() == [[0, 1, 2], [2, 1, 0]]
    assert np.isfinite(logprobs).all()
    assert (
        logprobs[:, 1:] >= logits.log_softmax(-1).sort(descending=True).values[:, 1:].numpy() + math.log(DOUBT)
    ).all()


def test_equal_tokens_come_smaller_id_first_and_masked_ones_never() -> None:
    logits = torch.full((1, 600), float("-inf"))
    logits[0, [7, 300]] = 1.0
    logprobs, ids = expected(logits, Foresight((0.5,), 1.0), 4)
    assert ids[0, :2].tolist() == [7, 300]
    assert np.isfinite(logprobs[0, :2]).all() and (logprobs[0, 2:] == -np.inf).all()


@pytest.mark.parametrize("mode", ["tree", "chain"])
def test_a_broken_draft_gives_no_guesses(mode: str) -> None:
    logits, policy = rows(7, 64), TreePolicy("t", "ddtree", 8, 7)
    known = foresee(SamplingParams(0.8, seed=1), 5, 7)
    assert len(propose(logits, mode, 7, policy, known)) == 7  # type: ignore[arg-type]
    for value in (float("nan"), float("inf")):
        broken = logits.clone()
        broken[3, 5] = value
        assert len(propose(broken, mode, 7, policy, known)) == 0  # type: ignore[arg-type]


def test_more_rows_than_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="2 numbers for 3 rows"):
        expected(rows(3, 8), Foresight((0.1, 0.2), 0.8), 2)
