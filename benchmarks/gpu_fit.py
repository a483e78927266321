"""Facts of a GPU's kernels from a measurement, for the topology spec, and how well the steps are predicted with them.

    python -m benchmarks.gpu_fit [--device h200] [--write]

Reads `results/<device>_rank.json`, prints `early_us` and `kernels` as they stand in `specs/topologies/<device>-x1.yaml`
(with --write puts them there) and a table of measured and predicted times. Takes seconds.

What is fitted: `passes/cost.py` prices a node as a sum that is linear in the time of a launch and, for each kind of
op, in its fixed time, the inverse of its share of the read rate and the inverse of its FLOP rate. Each step of the
target is an equation, and so is each kernel apart, of the drafter's programs too; all in relative errors. It is a least
squares fit under the bounds that no kernel beats the best read rate and the FLOP rate of the device. A step weighs
STEP_WEIGHT, a kernel the square root of its share in the step (the drafter's: in a step of the target of as many rows);
all of a step of more than VERIFIED rows, which prompts have and trees seldom, weighs PROMPT_WEIGHT times as much. The
start of a graph, which every time has in it once, is found beside the facts. Routed experts apart are left out where
rows did not choose evenly: the kernels of all layers then ran with one layer's choice. Steps and experts
are priced with the experts that were really read.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import RESULTS, table
from ddtreec import driver
from ddtreec.ops.base import At
from ddtreec.passes.cost import COLLECTIVES, PRODUCTS, Costed, NodeCost, Rates, Reached
from ddtreec.passes.memory import ITEMSIZE
from ddtreec.spec.load import load_engine

TOPOLOGIES = Path(__file__).resolve().parent.parent / "specs" / "topologies"
KINDS = ("linear", "router", "experts", "latent_attention", "block_attention")
STEP_WEIGHT, VERIFIED, PROMPT_WEIGHT = 4.0, 32, 0.5
START = "start"


@dataclass(frozen=True)
class Point:
    """A measured program: `at` with the experts that were read, seconds in all, and of kernels apart by first node:
    (calls, seconds)."""

    program: str
    at: At
    seconds: float
    kernels: Mapping[str, tuple[int, float]]
    alike: bool


def points(found: Mapping[str, Any], itemsize: int) -> Iterator[Point]:
    """The steps of a measurement, then the programs of the drafter."""
    for row in (*found["steps"], *found["drafter"]):
        spread = row.get("experts")
        rows, out_rows = row["rows"], row.get("out_rows", row["rows"])
        at = At(rows, out_rows, row["context"], itemsize, spread["mean"] if spread else None)
        kernels = {k["node"]: (k["calls"], k["ms"] * 1e-3) for k in row.get("kernels", ()) if "node" in k}
        alike = spread is None or spread["even"]
        yield Point(row.get("program", "target"), at, row["ms"] * 1e-3, kernels, alike)


class Model:
    """The cost pass on one engine, with its rates as numbers to be found."""

    def __init__(self, engine: str):
        state = driver.planned(load_engine(engine))
        assert state.programs is not None
        self.itemsize = ITEMSIZE[state.loaded.engine.dtype]
        self.rates = Rates.of(state.loaded.topology)
        self.programs = {name: Costed(graph, self.rates) for name, graph in state.programs.graphs.items()}
        self.names = (START, "launch", *(f"{kind}.{what}" for kind in KINDS for what in ("fixed", "read", "flops")))
        self.least = np.array([0.0, 0.0, *[0.0, 1.0, 1.0 / self.rates.flops] * len(KINDS)])

    def with_unit(self, name: str) -> Rates:
        """Rates under which the one number `name` is 1 and all others are 0."""
        kind, _, what = name.partition(".")
        told = dict.fromkeys(KINDS, Reached(0.0, inf, inf))
        if what:
            told[kind] = replace(told[kind], **{what: 1.0})
        told |= dict.fromkeys(PRODUCTS, told["linear"])
        return replace(self.rates, launch=float(name == "launch"), kernels=told)

    def priced(self, point: Point, rates: Rates) -> list[NodeCost]:
        """Every node of the measured program under these rates."""
        program = self.programs[point.program]
        program.rates = rates
        return program.nodes(point.at)

    def rows(self, point: Point) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """Of every node that is no collective: the factors of all numbers, and the seconds that none touches."""
        priced = [self.priced(point, self.with_unit(name)) for name in ("", *self.names)]
        fixed = {n.node: n.predicted for n in priced[0] if n.kind not in COLLECTIVES}
        columns = [{n.node: n.predicted for n in nodes} for nodes in priced[1:]]
        return {n: np.array([c[n] - fixed[n] for c in columns]) for n in fixed}, fixed


def equations(model: Model, measured: Sequence[Point]) -> tuple[np.ndarray, np.ndarray]:
    """Left and right sides, every row divided by the measured time and weighted."""
    left: list[np.ndarray] = []
    right: list[float] = []
    once = np.array([float(name == START) for name in model.names])
    steps = {point.at.rows: point.seconds for point in reversed(measured) if point.program == "target"}

    def add(factors: np.ndarray, rest: float, seconds: float, weight: float) -> None:
        left.append(weight * (factors + once) / seconds)
        right.append(weight * (seconds - rest) / seconds)

    for point in measured:
        factors, rest = model.rows(point)
        times = 1.0 if point.at.rows <= VERIFIED else PROMPT_WEIGHT
        if point.program == "target":
            total = sum(factors.values(), np.zeros(len(model.names)))
            add(total, sum(rest.values()), point.seconds, times * STEP_WEIGHT)
        for node, (calls, seconds) in point.kernels.items():
            if "experts" in node and not point.alike:
                continue
            weight = times * (seconds / steps[point.at.rows]) ** 0.5
            add(calls * factors[node], calls * rest[node], seconds, weight)
    return np.array(left), np.array(right)


def least_squares(left: np.ndarray, right: np.ndarray, least: np.ndarray) -> np.ndarray:
    """x >= least with the smallest |left x - right|, by active sets (Lawson and Hanson, Solving Least Squares Problems,
    1974, chapter 23). Columns are brought to one size first, as they differ by many orders of magnitude."""
    size = np.linalg.norm(left, axis=0)
    size[size == 0] = 1.0
    matrix, rest = left / size, right - left @ least
    x, free = np.zeros(len(least)), np.zeros(len(least), dtype=bool)
    while True:
        slope = matrix.T @ (rest - matrix @ x)
        slope[free] = -inf
        if slope.max() <= 1e-10:
            return least + x / size
        free[slope.argmax()] = True
        while True:
            best = np.zeros(len(x))
            best[free] = np.linalg.lstsq(matrix[:, free], rest, rcond=None)[0]
            if best[free].min() > 0:
                x = best
                break
            stuck = free & (best <= 0)
            x += (best - x) * (x[stuck] / (x[stuck] - best[stuck])).min()
            free &= x > 1e-12
            x[~free] = 0.0


def fitted(found: Mapping[str, Any]) -> dict[str, str]:
    """The facts as the topology spec writes them, by key: 'early_us', then the kinds of op that were measured."""
    model = Model(found["engine"])
    left, right = equations(model, list(points(found, model.itemsize)))
    x = dict(zip(model.names, least_squares(left, right, model.least), strict=True))
    known = dict(zip(model.names, left.any(axis=0), strict=True))
    facts = {"early_us": f"{x['launch'] * 1e6:.3g}"}
    for kind in KINDS:
        if known[f"{kind}.fixed"]:
            fixed, read, flops = (x[f"{kind}.{what}"] for what in ("fixed", "read", "flops"))
            facts[kind] = f"{{us: {fixed * 1e6:.3g}, read: {1 / read:.3g}, flops: {1 / flops:.3g}}}"
    return facts


def written(text: str, facts: Mapping[str, str]) -> str:
    """The topology's text with these facts in place of those it has."""
    lines = "".join(f"    {key}: {value}\n" for key, value in facts.items() if key != "early_us")
    text, early = re.subn(r"(?m)^  early_us: [0-9.]+( *)", lambda m: f"  early_us: {facts['early_us']}{m[1]}", text)
    text, block = re.subn(r"(?m)^(  kernels:.*\n)(?:    .*\n)*", lambda m: m[1] + lines, text)
    if (early, block) != (1, 1):
        raise SystemExit(f"the topology has {early} lines of early_us and {block} of kernels; it must have one of each")
    return text


def compared(found: Mapping[str, Any]) -> list[tuple[str, int, int, float, float]]:
    """(program, context, rows, measured ms, predicted ms without collectives) with the facts of the specs."""
    model = Model(found["engine"])
    rows: list[tuple[str, int, int, float, float]] = []
    for point in points(found, model.itemsize):
        predicted = sum(n.predicted for n in model.priced(point, model.rates) if n.kind not in COLLECTIVES) * 1e3
        rows.append((point.program, point.at.context, point.at.rows, point.seconds * 1e3, predicted))
    return rows


def main() -> None:
    """Fit, print, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--write", action="store_true", help="put the facts into the topology spec")
    args = parser.parse_args()
    found = json.loads((RESULTS / f"{args.device}_rank.json").read_text())
    facts = fitted(found)
    print("\n".join(f"{key}: {value}" for key, value in facts.items()))
    if args.write:
        spec = TOPOLOGIES / f"{args.device}-x1.yaml"
        spec.write_text(written(spec.read_text(), facts))
    rows = [(p, c, r, f"{m:.3f}", f"{s:.3f}", f"{s / m - 1:+.1%}") for p, c, r, m, s in compared(found)]
    print(table(("program", "context", "rows", "measured ms", "predicted ms", "off"), rows))


if __name__ == "__main__":
    main()
