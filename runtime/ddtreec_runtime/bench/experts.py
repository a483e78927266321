"""Routed experts that the rows of a verify step share, counted in real rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Plan
from ddtreec_runtime.bench.replay import Way
from ddtreec_runtime.bench.report import Experts
from ddtreec_runtime.engine import Engine
from ddtreec_runtime.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class Routing:
    """The MoE layers of a plan: the values that hold their router's choice [rows, top_k], in order, E and k."""

    values: tuple[str, ...]
    experts: int
    top_k: int


def routing(plan: Plan) -> Routing | None:
    """The routers of the target, None without any (or where layers differ in size, which has no one estimate)."""
    program = next(program for program in plan.programs if program.name == "target")
    calls = [call for call in program.calls if call.kernel == "router"]
    shapes = {weight.id: weight.shape for weight in plan.weights}
    sizes = {(shapes[call.weights[0]][0], int(call.params["top_k"] or 0)) for call in calls}
    if len(sizes) != 1:
        return None
    experts, top_k = sizes.pop()
    return Routing(tuple(call.outs[0] for call in calls), experts, top_k)


def independent(rows: int, experts: int, top_k: int) -> float:
    """Expected distinct experts where each row chooses k of E evenly and independently: E (1 - (1 - k / E)^rows)."""
    return experts * (1 - (1 - top_k / experts) ** rows)


@dataclass(slots=True)
class Count:
    """Sums over the steps of a way."""

    routing: Routing
    steps: int = 0
    rows: int = 0
    expected: float = 0.0
    distinct: list[int] = field(default_factory=list)

    def add(self, values: dict[str, Tensor]) -> None:
        """Count one step from its router choices."""
        chosen = [values[name] for name in self.routing.values]
        rows = chosen[0].shape[0]
        self.steps += 1
        self.rows += rows
        self.expected += independent(rows, self.routing.experts, self.routing.top_k)
        found = [int(torch.unique(ids).numel()) for ids in chosen]
        self.distinct = [a + b for a, b in zip(self.distinct, found, strict=True)] if self.distinct else found

    def result(self) -> Experts | None:
        """Means over the steps, None without any."""
        if not self.steps:
            return None
        layers = tuple(total / self.steps for total in self.distinct)
        mean, expected, k = sum(layers) / len(layers), self.expected / self.steps, self.routing.top_k
        overlap = (mean - k) / (expected - k) if expected - k > 1e-9 else None
        return Experts(self.steps, self.rows / self.steps, mean, expected, overlap, layers)


def count(
    engine: Engine, prompts: Sequence[Sequence[int]], tokens: int, params: Sequence[SamplingParams], way: Way
) -> Experts | None:
    """Generate behind each prompt and count in every verify step; None for a target without routed experts."""
    layers = routing(engine.plan)
    if layers is None:
        return None
    counted = Count(layers)
    for prompt, law in zip(prompts, params, strict=True):
        first = len(prompt)

        def hear(start: int, values: dict[str, Tensor], first: int = first) -> None:
            if start >= first:  # a verify step, not the prompt's own pass
                counted.add(values)

        with engine.observe(layers.values, hear):
            engine.generate(
                prompt, tokens, law.temperature, law.top_p, law.top_k, law.seed,
                speculation=way.mode, budget=None if way.mode == "off" else way.budget,
            )  # fmt: skip
    return counted.result()
