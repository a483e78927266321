"""Whether drafts change the text: off, chain and every tree, token by token, on the shipped pair's held-out prompts.

    python -m benchmarks.lossless [--limit 200] [--tokens 128] [--jobs 1]

Float32 sums in another order can turn a near tie, so a prompt whose texts part where the target hardly decides is
excluded and counted: greedy, its best two logits less than 1e-3 apart; drawn, the draw less than 1e-5 from the edge
between the two tokens. Any other difference is a fault. Writes `benchmarks/results/lossless.json`, exits 1 on a fault.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.record import write
from benchmarks.tau import PAIR
from ddtreec.cli.prompts import read_prompts
from ddtreec.driver import compile_engine
from ddtreec.spec.init import Request, init
from ddtreec_runtime import Engine
from ddtreec_runtime.bench.measure import ways
from ddtreec_runtime.bench.replay import NEAR
from ddtreec_runtime.sampling import SamplingParams, probabilities, uniform

BUDGETS = (4, 8, 16, 32, 64)
EDGE = 1e-5
"""A draw closer than this to the edge between two tokens is a near tie."""


@dataclass(slots=True)
class Outcome:
    """compared: texts held against that of plain decoding; ties: (prompt, mode, place, margin) of those that part at a
    near tie; faults: the same of all others that part. margin: of the logits, or of the draw.
    """

    compared: int = 0
    tokens: int = 0
    ties: list[tuple[int, str, int, float]] = field(default_factory=list)
    faults: list[tuple[int, str, int, float]] = field(default_factory=list)


def compare(
    engine: Engine,
    prompts: Iterable[Sequence[int]],
    tokens: int,
    temperature: float,
    budgets: Sequence[int] = BUDGETS,
    tick: Callable[[int], None] = lambda number: None,
    first: int = 0,
) -> Outcome:
    """Decode every prompt in every way with one seed a prompt, its number, and hold the texts against each other.
    `first`: number of the first of `prompts`."""
    outcome = Outcome()
    plain, *others = ways(engine, budgets)
    for number, prompt in enumerate(prompts, first):
        law = SamplingParams(temperature, seed=number)

        def text(mode: str, budget: int | None, prompt: Sequence[int] = prompt, law: SamplingParams = law) -> list[int]:
            return engine.generate(
                prompt, tokens, law.temperature, seed=law.seed, speculation=mode, budget=budget, ignore_eos=True
            ).output_ids

        want = text(plain.mode, None)
        for way in others:
            got = text(way.mode, way.budget)
            outcome.compared += 1
            outcome.tokens += len(want)
            if got == want:
                continue
            place = next((n for n, pair in enumerate(zip(want, got, strict=False)) if pair[0] != pair[1]), None)
            if place is None:  # one of them is shorter
                outcome.faults.append((number, way.name, min(len(want), len(got)), float("inf")))
                continue
            margin, least = decided_by(engine, [*prompt, *want[:place]], (want[place], got[place]), law)
            (outcome.ties if margin < least else outcome.faults).append((number, way.name, place, margin))
        tick(number + 1)
    return outcome


def decided_by(
    engine: Engine, before: Sequence[int], tokens: tuple[int, int], law: SamplingParams
) -> tuple[float, float]:
    """By how much the target chose between two tokens behind `before`, and what is too little to count."""
    logits = engine.logits(before)[-1:]
    if law.greedy:
        return abs(float(logits[0, tokens[0]] - logits[0, tokens[1]])), NEAR
    sums = np.cumsum(probabilities(logits, law)[0])
    first, last = sorted(tokens)
    draw = uniform(law.seed, 0, len(before))
    # Between two tokens of different ids lie the edges of all between them: the draw must be near both ends.
    return max(abs(float(sums[first]) - draw), abs(float(sums[last - 1]) - draw)), EDGE


Work = tuple[tuple[Path, Path, Path], list[list[int]], int, float, int]
"""Bundle, checkpoint and drafter; prompts; new tokens; temperature; number of the first prompt."""


def share(work: Work) -> Outcome:
    """`compare` on an engine of this process's own."""
    (bundle, checkpoint, drafter), prompts, tokens, temperature, first = work
    with Engine.load(bundle, checkpoint, drafter, dtype="float32", threads=1) as engine:
        return compare(engine, prompts, tokens, temperature, tick=_tick, first=first)


def together(works: Sequence[Work]) -> Outcome:
    """All shares, each in a process of its own, in the order of the prompts."""
    with ProcessPoolExecutor(len(works), get_context("spawn")) as pool:
        parts = list(pool.map(share, works))
    return Outcome(
        sum(part.compared for part in parts),
        sum(part.tokens for part in parts),
        [tie for part in parts for tie in part.ties],
        [fault for part in parts for fault in part.faults],
    )


def main() -> None:
    """Compare, print, write; exit 1 on a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=PAIR / "target")
    parser.add_argument("--drafter", type=Path, default=PAIR / "drafter")
    parser.add_argument("--prompts", type=Path, default=PAIR / "heldout.jsonl")
    parser.add_argument("--latent-norm-eps", type=float, default=1e-5)
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the prompts, a thread each")
    args = parser.parse_args()
    prompts = [list(one.ids) for one in read_prompts(None, None, None, args.prompts)[: args.limit]]
    results: list[dict[str, object]] = []
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        init(Request(args.checkpoint, out / "spec", args.drafter, "cpu", "ddtree-64", latent_eps=args.latent_norm_eps))
        compile_engine(out / "spec" / "engine.yaml", (), "bundle", out / "bundle")
        shares = [range(n * len(prompts) // args.jobs, (n + 1) * len(prompts) // args.jobs) for n in range(args.jobs)]
        where = out / "bundle", args.checkpoint, args.drafter
        for temperature in (0.0, 0.8):
            work = [(where, prompts[s.start : s.stop], args.tokens, temperature, s.start) for s in shares]
            found = together(work)
            faults += len(found.faults)
            results.append(
                {
                    "temperature": temperature,
                    "texts_compared": found.compared,
                    "tokens_compared": found.tokens,
                    "near_ties_excluded": len(found.ties),
                    "ties": found.ties,
                    "faults": found.faults,
                }
            )
            print(
                f"temperature {temperature:g}: {found.compared} texts, {len(found.ties)} part at a near tie, "
                f"{len(found.faults)} elsewhere"
            )
    write(
        "lossless",
        f"python -m benchmarks.lossless --limit {args.limit} --tokens {args.tokens} --jobs {args.jobs}",
        {"prompts": len(prompts), "tokens": args.tokens, "dtype": "float32", "budgets": BUDGETS, "results": results},
    )
    if faults:
        sys.exit(f"{faults} texts differ where the target decides clearly")


def _tick(number: int) -> None:
    if number % 10 == 0:
        print(f"{number} prompts", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
