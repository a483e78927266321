"""Which experts a step of random weights chose, and whether so many different ones that its time says something.

A step of M rows whose rows choose k of E experts evenly and apart from each other reads E (1 - (1 - k/E)^M) of them a
layer in the mean. Rows that have grown alike choose the same few, and the step looks faster than it is.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Plan, Program
from ddtreec_runtime.bench.experts import independent

EVEN = 0.9
"""Share of the expectation below which routing does not count as even."""


@dataclass(frozen=True, slots=True)
class Router:
    """One layer's choice. `ids`: the value that holds it, int64 [rows, top_k]; of all `experts` the rank holds `held`
    from `first` on."""

    ids: str
    experts: int
    top_k: int
    first: int
    held: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """Distinct experts of a layer in one step: of all, and of those that the rank holds."""

    distinct: int
    held: int


def routers_of(plan: Plan, program: Program, rank: int) -> list[Router]:
    """The layers with routed experts, in order."""
    weights = {weight.id: weight for weight in plan.weights}
    choices = {value.id for value in program.values if value.dtype == "int64"}
    choosers = {name: call for call in program.calls for name in call.outs if name in choices}
    found: list[Router] = []
    for call in program.calls:
        routed = [weights[name] for name in call.weights if weights[name].experts]
        if not routed:
            continue
        ids = next(name for name in call.ins if name in choosers)
        chooser = choosers[ids]
        experts = next(weights[n].shape[0] for n in chooser.weights if weights[n].role == "router")
        place = plan.mesh.coord(str(call.params.get("coord") or "rank"), rank)
        first = int(call.params.get("first_per") or 0) * place
        found.append(Router(ids, experts, int(chooser.params["top_k"] or 0), first, routed[0].shape[0]))
    return found


def chosen(router: Router, ids: Tensor) -> Chosen:
    """Counts of ids [rows, top_k]."""
    different = torch.unique(ids)
    inside = (different >= router.first) & (different < router.first + router.held)
    return Chosen(different.numel(), int(inside.sum()))


def expected(router: Router, rows: int) -> float:
    """Distinct experts of `rows` rows in the mean, where every choice is even and apart from the others."""
    return independent(rows, router.experts, router.top_k)


def even(router: Router, rows: int, device: torch.device) -> Tensor:
    """int64 [rows, top_k]: distinct experts of each row, every choice as likely as any other."""
    return torch.rand(rows, router.experts, device=device).topk(router.top_k).indices


def spread(routers: Sequence[Router], rows: int, steps: Sequence[Sequence[Chosen]]) -> dict[str, Any] | None:
    """Distinct experts a layer over several steps [steps][layers], beside what even routing gives; None without any."""
    counts = [layer.distinct for step in steps for layer in step]
    if not counts:
        return None
    mean, even = statistics.fmean(counts), statistics.fmean(expected(router, rows) for router in routers)
    return {
        "least": min(counts),
        "mean": mean,
        "most": max(counts),
        "expected": even,
        "even": mean >= EVEN * even,
    }


def held_means(steps: Sequence[Sequence[Chosen]]) -> list[float]:
    """Experts that the rank reads, by layer, in the mean over steps."""
    return [statistics.fmean(layer.held for layer in layers) for layers in zip(*steps, strict=True)]
