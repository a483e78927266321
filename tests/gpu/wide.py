"""Kimi K2.6 at its real widths on a GPU, every kernel of three layers against float32: numbers for test_wide.py.

    python -m tests.gpu.wide results.json

The reference runs in float32 too on the GPU, TF32 off: the CPU backend's own kernels on tensors of the device. On a
CPU the matrices of one layer alone would take minutes.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import torch

from ddtreec_runtime.backends.cuda.device import check_arch, load_kernels, open_driver, read_table
from ddtreec_runtime.bundle import open_bundle
from tests.gpu.payload import READY, scratch
from tests.gpu.wide_program import Found, Judged, WideRank

RANKS = {"tp8": 0, "ep8": 3, "one": 0}
"""Engines of wide_specs.py and the rank that runs. With experts of their own the first rank's begin at zero, which
hides a fault: the fourth is taken."""

TARGET_ROWS, TARGET_BEHIND = (1, 8, 9, 33, 128), (0, 1000)
DRAFT_CONTEXT = ((1, 0), (8, 1000), (128, 5000))
DRAFT_BEHIND = (1, 1000, 5000)
"""Rows and committed tokens. 5000 are more than the drafter's windows see, and more than the rings of these layers
hold."""

ALONE, ALONE_ROW = 1e-2, 2e-2
"""Largest relative errors of a kernel given the same inputs: of a whole result and of its worst row."""

FACTOR, FACTOR_ROW = 2.0, 3.0
"""Times the error of the rounded parts that kernels may be off behind all kernels before them: of a whole result, and
of its worst row against the worst row of the rounded parts, which may be another. Kernels of several stages round
inside too: up to three values where the rounded parts round one, root(3) times the error. One row has fewer numbers to
average over, so more is left to chance."""

FLOOR = 3 * 1.66e-3
"""Added to both: rounding to bfloat16 moves random numbers by 1.66e-3 of their size, and a kernel may do it three
times where the rounded parts do not, as before a value that is kept in float32."""


BLIND = 0.1
"""Where rounding alone moves a row by this much, its network shows no fault of a kernel any more: the test is wrong."""

LIMITS = {
    "alone": ALONE,
    "alone_row": ALONE_ROW,
    "factor": FACTOR,
    "factor_row": FACTOR_ROW,
    "floor": FLOOR,
    "blind": BLIND,
}


def bundle(name: str) -> Path:
    """A ready bundle, or one that is compiled now."""
    ready = READY / f"wide-{name}" / "bundle"
    if (ready / "manifest.json").exists():
        return ready
    from ddtreec import driver
    from tests.gpu.wide_specs import write_specs

    folder = scratch() / f"wide-{name}"
    driver.compile_engine(write_specs(folder / "spec", name), (), "bundle", folder / "bundle")
    return folder / "bundle"


def measured(name: str) -> tuple[Found, dict[str, Any]]:
    """All steps of an engine: what was found, and how it was found."""
    began, path = time.perf_counter(), bundle(name)
    opened = open_bundle(path)
    driver, table = open_driver(opened), read_table(opened)
    device = torch.cuda.get_device_name()
    check_arch(table, torch.cuda.get_device_capability(), device, path)
    assert not torch.backends.cuda.matmul.allow_tf32
    found = Found()
    with driver.ordered(), torch.inference_mode():
        rank = WideRank(opened, load_kernels(opened, table, driver), driver, "cuda", RANKS[name])
        driver.wait()
        made = time.perf_counter()
        for rows in TARGET_ROWS:
            for committed in TARGET_BEHIND:
                rank.step("target", rows, committed, found)
        for rows, committed in DRAFT_CONTEXT:
            rank.step("draft_context", rows, committed, found)
        for committed in DRAFT_BEHIND:
            rank.step("draft_block", opened.plan.drafter.block if opened.plan.drafter else 0, committed, found)
        driver.wait()
        done = time.perf_counter()
        rank.machine.close()
        del rank
    about = {
        "engine": opened.plan.engine,
        "layout": opened.plan.layout,
        "rank": RANKS[name],
        "ranks": opened.plan.mesh.ranks,
        "device": device,
        "driver": driver.version(),
        "torch": str(torch.__version__),
        "compiler": table.compiler,
        "reference": "the CPU backend's kernels in float32 on this GPU, TF32 off",
        "weights": "random; INT4 experts all different",
        "weights_seconds": made - began,
        "seconds": done - made,
        "allocated": torch.cuda.max_memory_allocated(),
    }
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return found, about


def faults(found: Found) -> list[str]:
    """What is not as it must be, in words."""
    said: list[str] = []
    for one in found.results:
        for which, most in limits(one).items():
            error = getattr(one, which)
            if not error < most:
                said.append(f"{_place(one)} {one.node} {one.result}: {which} {error:.3g}, at most {most:g}")
    for choice in found.choices:
        if choice.wrong:
            place = f"{choice.program} {choice.rows} rows behind {choice.committed}"
            said.append(
                f"{place} {choice.node} ({choice.kind}): {choice.wrong} rows chose other experts by more than rounding "
                f"explains: {choice.gap:.3g}, at most {choice.bound:.3g}"
            )
    return said


def limits(one: Judged) -> dict[str, float]:
    """What each error of a result must be below."""
    return {
        "alone": ALONE,
        "alone_row": ALONE_ROW,
        "in_a_row": FACTOR * one.rounded + FLOOR,
        "in_a_row_row": FACTOR_ROW * one.rounded_row + FLOOR,
        "rounded_row": BLIND,
    }


def _place(one: Judged) -> str:
    return f"{one.program} {one.rows} rows behind {one.committed}"


USED = {"used": "in_a_row", "used_row": "in_a_row_row"}
"""Largest share of a limit, and the error that it limits."""

OF_A_RESULT = ("in_a_row", "in_a_row_row", "rounded", "rounded_row", *USED)


def summary(found: Found) -> dict[str, Any]:
    """By kernel and by result the worst errors over all steps and the most they used of a limit, and all choices that
    differ."""
    kernels: dict[str, dict[str, Any]] = {}
    results: dict[str, dict[str, Any]] = {}
    for one in found.results:
        kernel = kernels.setdefault(one.kernel, {"results": 0, "alone": 0.0, "alone_row": 0.0})
        kernel["results"] += 1
        result = results.setdefault(f"{one.program} {one.node} {one.result}", dict.fromkeys(OF_A_RESULT, 0.0))
        for into in (kernel, result):
            into |= {key: max(into[key], getattr(one, key)) for key in into if key not in ("results", *USED)}
        for used, of in USED.items():
            result[used] = max(result[used], getattr(one, of) / limits(one)[of])
    routers: dict[str, dict[str, Any]] = {}
    for choice in found.choices:
        router = routers.setdefault(
            f"{choice.node} {choice.kind}",
            {"rows": 0, "flips": 0, "largest_gap": 0.0, "least_bound": math.inf, "wrong": 0, "most_experts": 0},
        )
        router["rows"] += choice.rows
        router["flips"] += choice.flips
        router["wrong"] += choice.wrong
        router["largest_gap"] = max(router["largest_gap"], choice.gap)
        router["least_bound"] = min(router["least_bound"], choice.bound)
        router["most_experts"] = max(router["most_experts"], choice.experts)
    return {"kernels": kernels, "steps": steps(found), "results": results, "routers": routers}


def steps(found: Found) -> list[dict[str, Any]]:
    """Of every step what stands at its end, and the worst of all in it."""
    told: dict[tuple[str, int, int], dict[str, Any]] = {}
    for one in found.results:
        key = (one.program, one.rows, one.committed)
        step = told.setdefault(key, {"worst_alone": 0.0, "worst_in_a_row": 0.0})
        step["worst_alone"] = max(step["worst_alone"], one.alone)
        step["worst_in_a_row"] = max(step["worst_in_a_row"], one.in_a_row)
        step |= {"last": one.result, "last_in_a_row": one.in_a_row}
    return [{"program": p, "rows": rows, "behind": behind} | step for (p, rows, behind), step in told.items()]


def lines(name: str, found: Found, about: dict[str, Any]) -> list[str]:
    """The summary to read."""
    told = summary(found)
    head = (
        f"{name}: rank {about['rank']} of {about['ranks']} on {about['device']}, {about['allocated'] / 2**30:.1f} GiB, "
        f"weights {about['weights_seconds']:.1f} s, steps {about['seconds']:.1f} s"
    )
    text = [head, f"{'kernel':<40} {'results':>7} {'alone':>9} {'worst row':>9}"]
    for kernel, row in told["kernels"].items():
        text.append(f"{kernel:<40} {row['results']:>7} {row['alone']:>9.2e} {row['alone_row']:>9.2e}")
    text.append(f"{'step':<40} {'alone':>9} {'in a row':>9} {'its end':>9}")
    for step in told["steps"]:
        place = f"{step['program']}, {step['rows']} rows behind {step['behind']}"
        text.append(
            f"{place:<40} {step['worst_alone']:>9.2e} {step['worst_in_a_row']:>9.2e} {step['last_in_a_row']:>9.2e}"
        )
    titles = ("error", "rounded", "of limit", "worst row", "rounded", "of limit")
    text.append(f"{'result, behind all kernels before it':<85}" + "".join(f" {title:>9}" for title in titles))
    for result, row in told["results"].items():
        numbers = [
            f" {row[of]:>9.2e} {row[rounded]:>9.2e} {row[used]:>9.2f}"
            for of, rounded, used in (("in_a_row", "rounded", "used"), ("in_a_row_row", "rounded_row", "used_row"))
        ]
        text.append(f"{result:<85}" + "".join(numbers))
    text.append(f"{'router':<40} {'rows':>5} {'flips':>5} {'largest gap':>11} {'bound from':>11} {'experts':>7}")
    for router, row in told["routers"].items():
        text.append(
            f"{router:<40} {row['rows']:>5} {row['flips']:>5} {row['largest_gap']:>11.2e} {row['least_bound']:>11.2e} "
            f"{row['most_experts']:>7}"
        )
    return text


def main() -> int:
    """Prints all engines and writes them to a file; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description="Kimi K2.6 at its real widths against float32.")
    parser.add_argument("results", type=Path)
    parser.add_argument("engines", nargs="*", default=list(RANKS))
    asked = parser.parse_args()
    written: dict[str, Any] = {"schema": "ddtreec.wide/2", "limits": LIMITS}
    wrong = 0
    for name in asked.engines:
        found, about = measured(name)
        said = faults(found)
        wrong += len(said)
        print("\n".join([*lines(name, found, about), *said[:20], f"{name}: {len(said)} faults"]), flush=True)
        written[name] = about | {"faults": said} | summary(found)
        asked.results.write_text(json.dumps(written, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
