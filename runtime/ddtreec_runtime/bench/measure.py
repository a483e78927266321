"""The whole measurement: texts and rounds of all prompts, then speed and experts on the first few."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import msgspec

from ddtreec.core.digest import of_data
from ddtreec.core.errors import Problem, SpecError
from ddtreec_runtime import checks
from ddtreec_runtime.bench import experts, speed, tally
from ddtreec_runtime.bench.record import Stamp
from ddtreec_runtime.bench.replay import Replayed, Way, replay
from ddtreec_runtime.bench.report import REPORT_FORMAT, Experts, ModeResult, Report, Speed, TemperatureResult
from ddtreec_runtime.engine import Engine
from ddtreec_runtime.sampling import SamplingParams

Progress = Callable[[int, int, str], None]
"""Called as (generations done, generations in all, what they are for)."""


@dataclass(frozen=True, slots=True)
class Source:
    """What to load: the arguments of `Engine.load`."""

    bundle: Path
    weights: Path
    drafter: Path | None
    dtype: str | None = None
    threads: int | None = None

    def load(self) -> Engine:
        """The engine."""
        return Engine.load(self.bundle, self.weights, self.drafter, dtype=self.dtype, threads=self.threads)


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure. tokens: new tokens a prompt. speed_prompts, expert_prompts: how many prompts, from the first,
    are decoded by every way for tokens/s and for expert counts. jobs: processes that share the texts, each with an
    engine of its own on one thread; 1 uses the engine at hand. Prompt i draws with seed + i.
    """

    tokens: int = 128
    budgets: tuple[int, ...] = (4, 8, 16, 32, 64)
    temperatures: tuple[float, ...] = (0.0, 0.8)
    seed: int = 0
    speed_prompts: int = 8
    expert_prompts: int = 8
    jobs: int = 1

    def law(self, temperature: float, number: int) -> SamplingParams:
        """How prompt `number` is sampled."""
        return SamplingParams(temperature, seed=self.seed + number)


def ways(engine: Engine, budgets: Sequence[int]) -> list[Way]:
    """Off, chain and a tree a budget. Raises SpecError R004 for a budget that the bundle has no room for."""
    drafter = engine.plan.drafter
    if drafter is None or not engine.drafts:
        raise SpecError(checks.no_drafter(engine.plan))
    chain = min(drafter.block - 1, engine.plan.tree.budget)
    listed = [checks.budget(budget, engine.plan, "tree") for budget in budgets]
    return [Way("off", 0), Way("chain", chain), *(Way("tree", budget) for budget in listed)]


def measure(
    engine: Engine,
    source: Source,
    prompts: Sequence[Sequence[int]],
    settings: Settings,
    stamp: Stamp,
    progress: Progress | None = None,
) -> Report:
    """Measure; `engine` is what `source` loads. Raises SpecError as `ways` and `Engine.generate` do, and M008 where no
    prompt leaves a round to measure.
    """
    began = perf_counter()
    listed = ways(engine, settings.budgets)
    for prompt in prompts:
        checks.tokens(prompt, engine.plan, "a prompt", room=1)  # all of them before the first minute is spent
    told = texts(engine, source, prompts, settings, listed, progress or _quiet)
    results = tuple(
        _temperature(engine, prompts, settings, listed, heat, told[number], progress or _quiet)
        for number, heat in enumerate(settings.temperatures)
    )
    plan, layers = engine.plan, experts.routing(engine.plan)
    assert plan.drafter is not None
    return Report(
        format=REPORT_FORMAT,
        kind="tau",
        stamp=msgspec.structs.replace(stamp, machine={**stamp.machine, "threads": engine.threads}),
        engine=plan.engine,
        drafter=plan.drafter.name,
        dtype=source.dtype or plan.dtype,
        block=plan.drafter.block,
        tree=plan.tree.name,
        prompts_sha256=of_data([list(prompt) for prompt in prompts]),
        prompts=len(prompts),
        max_new_tokens=settings.tokens,
        seed=settings.seed,
        sequences=1,
        experts=layers.experts if layers else 0,
        top_k=layers.top_k if layers else 0,
        seconds=round(perf_counter() - began, 1),
        temperatures=results,
    )


def texts(
    engine: Engine,
    source: Source,
    prompts: Sequence[Sequence[int]],
    settings: Settings,
    listed: Sequence[Way],
    progress: Progress,
) -> list[list[Replayed]]:
    """Replays by temperature and prompt."""
    work = [
        (list(prompt), settings.tokens, settings.law(heat, number), tuple(listed))
        for heat in settings.temperatures
        for number, prompt in enumerate(prompts)
    ]
    done: list[Replayed] = []
    with _spread(engine, source, min(settings.jobs, len(work))) as run:
        for result in run(work):
            done.append(result)
            progress(len(done), len(work), "texts")
    n = len(prompts)
    return [done[first : first + n] for first in range(0, len(done), n)]


def _quiet(done: int, total: int, what: str) -> None:
    """Reports nothing."""


Task = tuple[list[int], int, SamplingParams, tuple[Way, ...]]


@contextmanager
def _spread(engine: Engine, source: Source, jobs: int) -> Iterator[Callable[[Sequence[Task]], Iterator[Replayed]]]:
    """A map over tasks, in order: here, or by `jobs` processes."""
    if jobs <= 1:
        yield lambda work: (replay(engine, *task) for task in work)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, _start, (source,)) as pool:
        yield lambda work: pool.imap(_work, work)


_ENGINE: list[Engine] = []
"""The engine of a worker process; empty elsewhere."""


def _start(source: Source) -> None:
    _ENGINE.append(replace(source, threads=1).load())


def _work(task: Task) -> Replayed:
    return replay(_ENGINE[0], *task)


def _temperature(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    settings: Settings,
    listed: Sequence[Way],
    heat: float,
    told: Sequence[Replayed],
    progress: Progress,
) -> TemperatureResult:
    """Everything at one temperature."""
    if not any(one.tallies[0].committed for one in told):
        raise SpecError(
            Problem(
                "M008",
                "no prompt leaves a round to measure",
                note="the texts end with their first tokens, or the context is full",
                help="raise --max-new-tokens, shorten the prompts, or compile with a longer context",
            )
        )
    fast = min(settings.speed_prompts, len(prompts))
    laws = [settings.law(heat, number) for number in range(len(prompts))]
    speeds: list[Speed | None] = [None] * len(listed)
    if fast:
        ticks = iter(range(1, fast * len(listed) + 1))
        what = f"speed at temperature {heat:g}"
        speeds[:] = speed.measure(
            engine, prompts[:fast], laws[:fast], told[:fast], listed,
            lambda: progress(next(ticks), fast * len(listed), what),
        )  # fmt: skip
    few = min(settings.expert_prompts, len(prompts))
    touched: list[Experts | None] = []
    for number, way in enumerate(listed, start=1):
        touched.append(experts.count(engine, prompts[:few], settings.tokens, laws[:few], way) if few else None)
        if few:
            progress(number, len(listed), f"experts at temperature {heat:g}")
    modes = tuple(
        _mode(
            way, [one.tallies[number] for one in told], [one.looping for one in told], speeds[number], touched[number]
        )
        for number, way in enumerate(listed)
    )
    return TemperatureResult(
        temperature=heat,
        prompts=len(prompts),
        looping=sum(one.looping for one in told),
        ended=sum(one.ended for one in told),
        positions=sum(one.positions for one in told),
        near_ties=sum(one.near_ties for one in told),
        differing=sum(one.differing for one in told),
        modes=modes,
    )


def _mode(
    way: Way, tallies: Sequence[tally.Tally], looping: Sequence[bool], fast: Speed | None, touched: Experts | None
) -> ModeResult:
    straight = [one for one, loop in zip(tallies, looping, strict=True) if not loop]
    return ModeResult(
        name=way.name,
        mode=way.mode,
        budget=way.budget,
        tau=tally.tau(tallies),
        tau_not_looping=tally.tau(straight) if any(one.committed for one in straight) else None,
        depths=tally.by_depth(tallies),
        ranks=tally.by_rank(tallies),
        speed=fast,
        experts=touched,
    )
