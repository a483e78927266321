"""What this machine's GPU does: one rank of K2.6, the shipped pair, and every kernel held against the CPU.

    python -m benchmarks.gpu [--parts rank,pair,verify] [--out DIR]

Writes `<device>_<part>.json` into `benchmarks/results` (`h200_rank.json`); `python -m benchmarks.gpu_page` makes the
page of them. Bundles are those of `tests/gpu/payload.py`: ready ones where they lie, so that nothing of the compiler is
needed. Takes less than two minutes.
"""

from __future__ import annotations

import argparse
import re
import shlex
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from benchmarks.record import RESULTS, write
from ddtreec.artifacts.plan import Plan
from ddtreec_runtime.backends.cuda.device import check_arch, check_room, load_kernels, open_driver, read_table
from ddtreec_runtime.backends.cuda.engine import CudaEngine
from ddtreec_runtime.backends.cuda.rank_bench import RankBench, lonely_machine, read_rate
from ddtreec_runtime.backends.cuda.verifying import TOLERANCE, verify_bundle
from ddtreec_runtime.bundle import open_bundle
from ddtreec_runtime.doctor.probe import machine as seen_machine
from tests.gpu.payload import PAIR, RANK, bundle, pair_engine

POINTS: tuple[tuple[int, tuple[int, ...]], ...] = (
    (8192, (1, 2, 4, 8, 16, 32, 64, 128)),
    (1024, (1, 8)),
    (32768, (1, 8)),
)
"""Tokens of context, and rows of the steps that are timed behind them."""

SPECULATIONS = ("off", "chain", "tree")
LENGTHS = (128, 512, 1024, 1920)
"""Tokens of the prompts whose prefill is timed."""


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the files")
    args = parser.parse_args()
    parts = args.parts.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]}")
    if not torch.cuda.is_available():
        parser.error("no CUDA device is here")
    command = shlex.join(["python", "-m", "benchmarks.gpu", *sys.argv[1:]])
    device = facts()
    for part in parts:
        began = perf_counter()
        found = PARTS[part]()
        seconds = round(perf_counter() - began, 1)
        path = write(
            f"{short(device['name'])}_{part}", command, {"device": device, "seconds": seconds} | found, args.out
        )
        print(f"{path.name}: {seconds} s", flush=True)


def facts() -> dict[str, Any]:
    """The first GPU and its driver."""
    seen = seen_machine()
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "arch": f"sm_{properties.major}{properties.minor}",
        "sms": properties.multi_processor_count,
        "memory": properties.total_memory,
        "driver": seen.driver,
        "cuda": seen.cuda,
    }


def short(name: str) -> str:
    """'NVIDIA H200' to 'h200', as file names begin."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower().removeprefix("nvidia")).strip("_")


# ---- one rank ----


def rank() -> dict[str, Any]:
    """Steps of one rank of K2.6 on random weights, without collectives."""
    path, number = bundle(RANK), 0
    opened = open_bundle(path)
    points, left_out = fitting(opened.plan)
    driver, table = open_driver(opened), read_table(opened)
    name = torch.cuda.get_device_name()
    check_arch(table, torch.cuda.get_device_capability(), name, path)
    check_room(opened.plan, torch.cuda.mem_get_info()[0], name, path)
    with driver.ordered(), torch.inference_mode():
        loaded = load_kernels(opened, table, driver)
        bench = RankBench(lonely_machine(opened, loaded, driver, "cuda", number), 0, read_rate(path))
        steps, drafts = list(timed(bench, points)), list(drafted(bench, points))
    return {
        "how": "random weights made on the device, collectives left out; medians of 40 replays of a step as one graph, "
        "with other tokens each, and of 20 of the launches of one kernel in all layers as one graph",
        "engine": opened.plan.engine,
        "spec_digest": opened.manifest.spec_digest,
        "topology": opened.plan.topology,
        "rank": number,
        "ranks": opened.plan.mesh.ranks,
        "limits": {"context": opened.plan.limits.context, "sequences": opened.plan.limits.sequences},
        "read_rate": bench.rate,
        "allocated": torch.cuda.memory_allocated(),
        "left_out": left_out,
        "steps": steps,
        "drafter": drafts,
    }


def fitting(plan: Plan) -> tuple[list[tuple[int, int]], list[str]]:
    """(context, rows) of POINTS that the bundle has room for, and why others are left out."""
    target = next(program for program in plan.programs if program.name == "target")
    room = plan.limits.context - target.max_rows
    found: list[tuple[int, int]] = []
    reasons: list[str] = []
    for context, counts in POINTS:
        if context > room:
            reasons.append(f"{context} tokens: the bundle has room for {room}")
            continue
        found += [(context, rows) for rows in counts if rows <= target.max_rows]
        reasons += [f"{rows} rows: a step takes {target.max_rows}" for rows in counts if rows > target.max_rows]
    return found, reasons


def timed(bench: RankBench, points: Sequence[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    """Steps of the target, with its kernels apart."""
    most = bench.machine.programs["target"].program.max_out_rows
    for context, rows in points:
        bench.context = context
        step = bench.step(rows, True)
        print(f"{context} tokens, {rows} rows: {step['ms']:.3f} ms", file=sys.stderr, flush=True)
        yield {"context": context, "out_rows": min(rows, most), **placed(bench, "target", step)}


def drafted(bench: RankBench, points: Sequence[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    """The programs of the drafter, behind every context."""
    for context in dict.fromkeys(context for context, _ in points):
        bench.context = context
        for name in ("draft_block", "draft_context"):
            if name in bench.machine.programs:
                yield {"context": context, **placed(bench, name, bench.draft(name, True))}


def placed(bench: RankBench, name: str, step: dict[str, Any]) -> dict[str, Any]:
    """The measurement with the first call that each kernel serves as `node`."""
    program, names = bench.machine.programs[name].program, bench.machine.table.programs[name]
    first: dict[str, str] = {}
    for call, kernel in zip(program.calls, names, strict=True):
        first.setdefault(kernel, call.node)
    return step | {"kernels": [{"node": first[row["kernel"]], **row} for row in step["kernels"]]}


# ---- the shipped pair ----


def pair() -> dict[str, Any]:
    """Tokens a second of the shipped pair, by speculation, sequences at a time, and way to launch; its prefill."""
    engine = pair_engine()
    prompts: list[list[int]] = np.load(PAIR / "goldens.npz")["prompts"].tolist()
    return {
        "how": "wall clock of this process; medians of three runs, after one that is not counted; greedy, stop tokens "
        "ignored; tokens/s of decode alone for one sequence, prefill included for several",
        "engine": engine.plan.engine,
        "spec_digest": engine.bundle.manifest.spec_digest,
        "budget": engine.plan.tree.budget,
        "one": [*one_sequence(engine, prompts[:4], 512)],
        "several": [*several_sequences(engine, prompts, 256)],
        "prefill": [*prefills(engine, prompts)],
    }


def one_sequence(engine: CudaEngine, prompts: Sequence[list[int]], tokens: int) -> Iterator[dict[str, Any]]:
    """One sequence at a time, rounds as graphs and launch by launch."""
    for captures in (True, False):
        engine.decoder.captures = captures
        try:
            for mode in SPECULATIONS:
                engine.generate(prompts[0], 64, speculation=mode, ignore_eos=True)
                runs: list[dict[str, float]] = []
                for _ in range(3):
                    done = [engine.generate(p, tokens, speculation=mode, ignore_eos=True) for p in prompts]
                    made, rounds = sum(len(d.output_ids) - 1 for d in done), sum(d.rounds for d in done)
                    seconds = sum(d.decode_s for d in done)
                    runs.append(
                        {"tokens_per_s": made / seconds, "round_us": seconds / rounds * 1e6, "tau": made / rounds}
                    )
                yield {"launching": "graphs" if captures else "one by one", "speculation": mode} | medians(runs)
        finally:
            engine.decoder.captures = True


def several_sequences(engine: CudaEngine, prompts: Sequence[list[int]], tokens: int) -> Iterator[dict[str, Any]]:
    """1 to 8 sequences at a time: tokens of all of them a second."""
    for mode in ("off", "tree"):
        for count in range(1, min(8, engine.plan.limits.sequences) + 1):
            engine.generate_batch(prompts[:count], 16, speculation=mode, ignore_eos=True)
            runs: list[dict[str, float]] = []
            for _ in range(3):
                began = perf_counter()
                done = engine.generate_batch(prompts[:count], tokens, speculation=mode, ignore_eos=True)
                runs.append({"tokens_per_s": sum(len(d.output_ids) for d in done) / (perf_counter() - began)})
            yield {"sequences": count, "speculation": mode} | medians(runs)


def prefills(engine: CudaEngine, prompts: Sequence[list[int]]) -> Iterator[dict[str, Any]]:
    """From the call to the first token of the output, with and without the drafter's context."""
    every = [token for prompt in prompts for token in prompt]
    for mode in ("off", "tree"):
        for length in LENGTHS:
            if length >= engine.plan.limits.context:
                continue
            engine.generate(every[:length], 2, speculation=mode, ignore_eos=True)
            runs: list[dict[str, float]] = []
            for _ in range(5):
                done = engine.generate(every[:length], 2, speculation=mode, ignore_eos=True)
                runs.append({"ms": done.prefill_s * 1e3})
            yield {"tokens": length, "speculation": mode} | medians(runs)


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of every column."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


# ---- every kernel against the CPU ----


def verified() -> dict[str, Any]:
    """`ddtreec verify` of the shipped pair."""
    path = bundle("tiny")
    opened = open_bundle(path)
    kernels = [
        {
            "kernel": one.kernel,
            "program": one.program,
            "steps": one.steps,
            "rows": list(one.rows),
            "error": one.error if np.isfinite(one.error) else None,
            "ok": one.ok,
            "faults": list(one.faults),
        }
        for one in verify_bundle(path)
    ]
    return {
        "how": "random numbers through every kernel that serves a step, against its basic operations in float64 on the "
        "CPU; the error of a row is the norm of the difference over the norm",
        "engine": opened.plan.engine,
        "spec_digest": opened.manifest.spec_digest,
        "tolerance": TOLERANCE,
        "kernels": kernels,
    }


PARTS: Mapping[str, Callable[[], dict[str, Any]]] = {"rank": rank, "pair": pair, "verify": verified}
"""What is measured, in order."""


if __name__ == "__main__":
    main()
