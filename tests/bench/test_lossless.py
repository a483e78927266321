"""Drafts never change the text of a trained pair, up to near ties, which are counted."""

from __future__ import annotations

import pytest

from benchmarks.lossless import compare, decided_by
from ddtreec_runtime.sampling import SamplingParams
from tests.bench.pair import any_pair, shipped_pair


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_few_prompts(temperature: float) -> None:
    pair = any_pair()
    with pair.load() as engine:
        found = compare(engine, pair.prompts[:8], 64, temperature, budgets=(4, 64))
    assert found.compared == 8 * 3
    assert found.faults == []
    assert len(found.ties) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_two_hundred_prompts(temperature: float) -> None:
    pair = shipped_pair()
    with pair.load() as engine:
        found = compare(engine, pair.prompts[:200], 128, temperature)
    assert found.compared == 200 * 6
    assert found.faults == []
    assert len(found.ties) <= 24  # 2 % of the texts


def test_what_a_difference_is_held_to() -> None:
    """Two tokens that the target clearly tells apart are no near tie."""
    pair = any_pair()
    with pair.load() as engine:
        best, other = engine.logits(pair.prompts[0])[-1].topk(2).indices.tolist()
        margin, least = decided_by(engine, pair.prompts[0], (best, other), SamplingParams())
        assert margin > least == 1e-3
        drawn, edge = decided_by(engine, pair.prompts[0], (best, other), SamplingParams(0.8))
        assert drawn > edge == 1e-5
