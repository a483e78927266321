"""Rounds told from one text are the rounds that the engine runs."""

from __future__ import annotations

import pytest

from ddtreec.core.errors import SpecError
from ddtreec_runtime import Engine
from ddtreec_runtime.bench.measure import ways
from ddtreec_runtime.bench.replay import Tally, Way, loops, replay
from ddtreec_runtime.rounds import Round
from ddtreec_runtime.sampling import SamplingParams
from ddtreec_runtime.tree import Tree
from tests.bench.pair import Pair, any_pair

BUDGETS = (1, 4, 16, 64)
TOKENS = 40


@pytest.fixture(scope="module")
def pair() -> Pair:
    return any_pair()


@pytest.fixture(scope="module")
def engine(pair: Pair) -> Engine:
    return pair.load("float64")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_replayed_rounds_are_the_engine_rounds(pair: Pair, engine: Engine, temperature: float) -> None:
    for number in range(2):
        law = SamplingParams(temperature, seed=3 + number)
        listed = ways(engine, BUDGETS)
        told = replay(engine, pair.prompts[number], TOKENS, law, listed)
        assert told.differing == 0
        for way, tally in zip(listed, told.tallies, strict=True):
            rounds: list[Round] = []
            done = engine.generate(
                pair.prompts[number], len(told.text), temperature, seed=law.seed, speculation=way.mode,
                budget=None if way.mode == "off" else way.budget, ignore_eos=True, on_round=rounds.append,
            )  # fmt: skip
            assert done.output_ids == told.text
            # All rounds with roots before token TOKENS - 1 (and the stop token), no more and no fewer.
            stop = next((n for n, token in enumerate(told.text) if token in engine.plan.model.eos), len(told.text))
            counted = [r for r in rounds if r.start - len(pair.prompts[number]) <= min(TOKENS - 2, stop - 1)]
            assert tally.committed == [len(r.accepted) for r in counted], way
            assert sum(tally.rank_accepted) == sum(len(r.accepted) - 1 for r in counted)
            assert sum(tally.rank_offered) == sum(sum(p in r.accepted for p in r.parents[1:]) for r in counted)


def test_near_the_end_of_the_context(pair: Pair, engine: Engine) -> None:
    """Where the context ends, rounds that the end would cut do not count."""
    context, block = engine.plan.limits.context, 8
    prompt = (pair.prompts[0] * (context // len(pair.prompts[0]) + 1))[: context - 20]
    told = replay(engine, prompt, TOKENS, SamplingParams(), [Way("off", 0), Way("chain", 7)])
    assert len(told.text) == 20
    assert len(told.tallies[0].committed) == 20 - block
    assert (
        replay(engine, [*prompt, *told.text[:14]], TOKENS, SamplingParams(), [Way("off", 0)]).tallies[0].committed == []
    )


def test_budget_beyond_the_bundle(engine: Engine) -> None:
    with pytest.raises(SpecError, match="R004"):
        ways(engine, (4, 65))


def test_tally_counts_a_round_by_hand() -> None:
    # root -> a (rank 0), b (rank 1); a -> c (rank 0); b -> d (rank 0), e (rank 2). Accepted: root, b, e.
    tree = Tree.from_parents([10, 11, 12, 13, 14], [-1, 0, 0, 1, 2, 2])
    tree.ranks[:] = [0, 1, 0, 0, 2]
    tally = Tally()
    tally.add(tree, [0, 2, 5])
    assert tally.committed == [3]
    assert (tally.reached, tally.offered, tally.accepted) == ([1, 1, 1], [1, 1], [1, 1])
    assert (tally.rank_offered, tally.rank_accepted) == ([2, 1, 1], [0, 1, 1])
    tally.add(tree, [0])
    assert (tally.reached, tally.offered, tally.accepted) == ([2, 1, 1], [2, 1], [1, 1])
    assert tally.rank_offered == [3, 2, 1]


@pytest.mark.parametrize(
    ("text", "looping"),
    [
        ([1, 2, 3] * 20, True),
        ([9] * 33, True),
        ([9] * 32, False),
        (list(range(50)), False),
        ([*range(100), *[4, 5] * 17], True),
        ([*[4, 5] * 40, 7], False),
        (list(range(33)) * 3, False),
        (list(range(32)) * 2, True),
    ],
)
def test_what_loops(text: list[int], looping: bool) -> None:
    assert loops(text) == looping
