"""What explains a difference between sampled texts does so for the noise of bfloat16, and for nothing else."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from ddtreec import driver
from ddtreec_runtime import Engine
from ddtreec_runtime.sampling import SamplingParams
from tests.cuda_host.emulated import PAIR, emulated
from tests.emulated.emulator import missing
from tests.gpu.explained import (
    TIE,
    Difference,
    Tie,
    edge_distance,
    greedy_difference,
    histories,
    sampled_difference,
    ways,
    wide_ways,
)
from tests.runtime.engines import scratch

HEAT, TOKENS = 0.8, 64


@cache
def engine(dtype: str) -> Engine:
    bundle = scratch() / "explained"
    if not bundle.exists():
        driver.compile_engine("tiny-k2-cpu", out=bundle)
    return Engine.load(bundle, PAIR / "target", dtype=dtype)


@cache
def prompts() -> list[list[int]]:
    with np.load(PAIR / "goldens.npz") as file:
        return file["prompts"].tolist()


@cache
def text(number: int, dtype: str) -> list[int]:
    return engine(dtype).generate(prompts()[number], TOKENS, HEAT, seed=number, ignore_eos=True).output_ids


def difference(number: int, one: list[int], other: list[int]) -> Difference | None:
    return sampled_difference(
        prompts()[number],
        (one, other),
        SamplingParams(HEAT, seed=number),
        lambda prefix: [*ways(engine("bfloat16"), prefix, 8), engine("float32").logits(prefix)[-1]],
    )


def test_bfloat16_against_float32() -> None:
    found = [difference(number, text(number, "bfloat16"), text(number, "float32")) for number in range(8)]
    parted = [one for one in found if one is not None]
    print("\n".join(map(str, parted)))
    assert len(parted) > 1 and all(one.explained for one in parted)


def test_another_token_is_not_explained() -> None:
    """Every tenth token replaced by the next id, or by the best but one: most of them, far from any edge."""
    plain, faults = text(0, "float32"), []
    for place in range(5, TOKENS, 10):
        for wrong in ((plain[place] + 1) % 4096, (plain[place] + 2000) % 4096):
            one = difference(0, plain, [*plain[:place], wrong, *plain[place + 1 :]])
            assert one is not None and one.place == place
            faults.append(one)
    assert sum(not one.explained for one in faults) >= 0.7 * len(faults), list(map(str, faults))


@cache
def greedy(number: int, dtype: str) -> list[int]:
    return engine(dtype).generate(prompts()[number], 2 * TOKENS, ignore_eos=True).output_ids


def tie(number: int, one: list[int], other: list[int]) -> Tie | None:
    return greedy_difference(prompts()[number], (one, other), lambda p: histories(engine("bfloat16"), p, 8))


def test_greedy_bfloat16_against_float32() -> None:
    """Float32 is not among the ways, so that what bfloat16 alone moves must explain all."""
    found = [tie(number, greedy(number, "bfloat16"), greedy(number, "float32")) for number in range(8)]
    parted = [one for one in found if one is not None]
    print("\n".join(map(str, parted)))
    assert len(parted) > 1 and all(one.explained for one in parted)


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_what_moves_in_a_batch_is_seen_in_wide_steps() -> None:
    """Where a text of a batch of eight left its own on an H200: a step of few rows sums the same bits in every way, one
    of as many rows as the batch's cuts the 135 keys into other splits and moves the difference."""
    prompt = prompts()[1][:115]
    prefix = [*prompt, *engine("float32").generate(prompt, 20, speculation="off", ignore_eos=True).output_ids]
    with emulated() as on_device:
        few, many = ways(on_device, prefix, 8), wide_ways(on_device, prefix)
    best, second = engine("float32").logits(prefix)[-1].topk(2).indices.tolist()
    gaps = [float(found[best] - found[second]) for found in (*few, *many)]
    print(gaps)
    assert gaps[0] == gaps[1] == gaps[2]
    assert max(gaps) - min(gaps) > 0.03 and all(abs(gap) < TIE for gap in gaps)


def test_another_greedy_token_is_not_explained() -> None:
    """The best but one in place of the best, and a shift of a whole text."""
    plain = greedy(0, "bfloat16")
    faults: list[Tie] = []
    for place in range(5, TOKENS, 10):
        second = int(engine("bfloat16").logits([*prompts()[0], *plain[:place]])[-1].topk(2).indices[1])
        one = tie(0, plain, [*plain[:place], second, *plain[place + 1 :]])
        assert one is not None and one.place == place and one.ways == 11
        faults.append(one)
    print("\n".join(map(str, faults)))
    assert sum(not one.explained for one in faults) >= 0.7 * len(faults)


@pytest.mark.parametrize(
    ("gap", "moved", "explained"), [(0.009, 0.0, True), (0.011, 0.005, False), (0.07, 0.04, True), (0.3, 1.0, False)]
)
def test_a_tie(gap: float, moved: float, explained: bool) -> None:
    assert Tie(0, (1, 2), gap, moved, 2).explained == explained


@pytest.mark.parametrize(
    ("draw", "tokens", "distance"),
    [(0.19, (0, 1), 0.01), (0.25, (1, 0), 0.05), (0.71, (1, 3), 0.01), (0.45, (0, 3), 0.25), (0.2, (0, 1), 0.0)],
)
def test_distance_to_the_edge(draw: float, tokens: tuple[int, int], distance: float) -> None:
    sums = np.array([0.2, 0.7, 0.7, 1.0])
    assert edge_distance(sums, draw, tokens) == pytest.approx(distance)
