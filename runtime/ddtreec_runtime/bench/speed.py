"""Tokens per second of whole generations, every way in turn on each prompt; and whether the replay is right there."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from ddtreec_runtime.bench.replay import Replayed, Way
from ddtreec_runtime.bench.report import Speed
from ddtreec_runtime.engine import Engine
from ddtreec_runtime.generation import Generation
from ddtreec_runtime.sampling import SamplingParams

WARM_TOKENS = 16


def measure(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    params: Sequence[SamplingParams],
    told: Sequence[Replayed],
    ways: Sequence[Way],
    tick: Callable[[], None],
) -> list[Speed]:
    """One result a way. The ways take turns on every prompt, so that a busy moment of the machine hits all of them.

    `told[i]` is the replay of prompt i under params[i]; `tick` is called after every generation.
    """
    for way in ways:
        _generate(engine, prompts[0], WARM_TOKENS, params[0], way)
    runs: list[list[Generation]] = [[] for _ in ways]
    for prompt, law, known in zip(prompts, params, told, strict=True):
        for number, way in enumerate(ways):
            runs[number].append(_generate(engine, prompt, len(known.text), law, way))
            tick()
    base = [done.tokens_per_s for done in runs[next((n for n, way in enumerate(ways) if way.mode == "off"), 0)]]
    return [
        _result(done, base, [known.tallies[number].committed for known in told]) for number, done in enumerate(runs)
    ]


def _generate(engine: Engine, prompt: Sequence[int], tokens: int, law: SamplingParams, way: Way) -> Generation:
    return engine.generate(
        prompt, tokens, law.temperature, law.top_p, law.top_k, law.seed,
        speculation=way.mode, budget=None if way.mode == "off" else way.budget, ignore_eos=True,
    )  # fmt: skip


def _result(runs: Sequence[Generation], base: Sequence[float], told: Sequence[Sequence[int]]) -> Speed:
    rates = [done.tokens_per_s for done in runs]
    seconds = sum(done.decode_s for done in runs)
    tokens = sum(len(done.output_ids) - 1 for done in runs)
    equal = sum(
        here == there
        for done, known in zip(runs, told, strict=True)
        for here, there in zip(done.accepted_per_round, known, strict=False)
    )
    return Speed(
        runs=len(runs),
        tokens_per_s=tokens / seconds if seconds > 0 else 0.0,
        ratio_to_off=statistics.median(rate / other for rate, other in zip(rates, base, strict=True)),
        variation=statistics.stdev(rates) / statistics.mean(rates) if len(rates) > 1 else 0.0,
        rounds=sum(map(len, told)),
        rounds_equal=equal,
    )
