"""What a person wants to know before anything runs, as data: memory, layout, steps, tokens per second, kernels.

`ddtreec plan --json` prints it as it is; `plan.text` makes it readable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import cast

import msgspec

from ddtreec.artifacts.kernels import KernelTable
from ddtreec.artifacts.plan import MemoryRow, Tree
from ddtreec.passes.cost import Costs, StepCost, tokens_per_second
from ddtreec.passes.schedule import Launch
from ddtreec.passes.stages import COST_ROWS
from ddtreec.passes.state import State
from ddtreec.plan.sweep import Sweep, sweep

REPORT_SCHEMA = "ddtreec.plan/1"
"""What the JSON is; the number is raised when a field goes away or changes meaning."""


class Step(msgspec.Struct, frozen=True):
    """One program at one row count. Bytes and FLOPs of one rank; milliseconds."""

    program: str
    rows: int
    context: int
    weight_bytes: float
    cache_bytes: float
    activation_bytes: float
    flops: float
    floor_ms: float
    predicted_ms: float
    collective_ms: float
    launches: int


class Budget(msgspec.Struct, frozen=True):
    """One tree budget: the verify step it needs, the whole round, and tokens a second by tau (tokens a round).

    `break_even`: the tau at which a round is as fast as decoding without speculation. `expected_tau`: what the drafter
    spec says such a tree commits, None where it says nothing; `expected_per_s`: tokens a second at that tau.
    """

    budget: int
    rows: int
    verify_ms: float
    round_ms: float
    tokens_per_s: dict[str, float]
    break_even: float
    expected_tau: float | None = None
    expected_per_s: float | None = None


class Kernel(msgspec.Struct, frozen=True):
    """One launch of a layer at two row counts. `early`: may start before its predecessor ends."""

    node: str
    kernels: tuple[str, ...]
    early: bool
    weight_bytes: float
    floor_us: tuple[float, ...]
    predicted_us: tuple[float, ...]


class LayerKernels(msgspec.Struct, frozen=True):
    """Launches of one stretch of a program; `same` names the stretches that are like it."""

    program: str
    layer: str
    same: tuple[str, ...]
    kernels: tuple[Kernel, ...]


class Tiles(msgspec.Struct, frozen=True):
    """One stage of a kernel: for each entry point the most rows it serves, threads of a block, and bytes of shared
    memory that a block asks for."""

    kernel: str
    stage: str
    rows: tuple[int, ...]
    threads: tuple[int, ...]
    shared: tuple[int, ...]


class Report(msgspec.Struct, frozen=True):
    """All of it. `rows`: the row counts of the kernel columns. `recommended`: the budget of the most expected tokens a
    second, None where the drafter spec expects nothing; `tau_source`: where its figures are from."""

    schema: str
    engine: str
    model: str
    topology: str
    ranks: int
    dtype: str
    context: int
    device_bytes: int
    free_bytes: int
    largest_context: int
    memory: tuple[MemoryRow, ...]
    layout: dict[str, str]
    steps: tuple[Step, ...]
    budgets: tuple[Budget, ...]
    rows: tuple[int, ...]
    layers: tuple[LayerKernels, ...]
    sweep: Sweep
    recommended: int | None = None
    tau_source: str = ""
    tiles: tuple[Tiles, ...] = ()


def step_of(cost: StepCost) -> Step:
    """The same in milliseconds."""
    c = cost.cost
    return Step(
        cost.program, cost.at.rows, cost.at.context, c.weight_bytes, c.cache_bytes, c.activation_bytes, c.flops,
        cost.floor * 1e3, cost.predicted * 1e3, cost.collective * 1e3, cost.launches,
    )  # fmt: skip


def expected(points: Sequence[tuple[int, float]], nodes: int) -> float | None:
    """Tau of a tree of `nodes` besides the root: straight lines between the points, from (0, 1); None beyond them."""
    known = [(0, 1.0), *sorted(points)]
    for (low, less), (high, more) in pairwise(known):
        if nodes <= high:
            return less + (more - less) * (nodes - low) / (high - low)
    return None


def recommended(found: Sequence[Budget]) -> int | None:
    """The budget of the most expected tokens a second, 0 where no tree pays; None where nothing is expected."""
    known = [(b.expected_per_s, b.budget) for b in found if b.expected_per_s is not None]
    return max(known, key=lambda item: (item[0], -item[1]))[1] if len(known) > 1 else None


def budgets(costs: Costs, tree: Tree, taus: Sequence[tuple[int, float]] = ()) -> tuple[Budget, ...]:
    """Each row count as a tree budget, rows - 1 nodes besides the root, also beyond the engine's own; without a drafter
    the root alone. `taus`: (budget, expected tau) points."""
    deepest = tree.depth + 1
    plain = next(step.predicted for step in costs.target if step.at.rows == 1)
    result: list[Budget] = []
    for step in costs.target:
        rows = step.at.rows
        if rows > (COST_ROWS + 1 if tree.budget else 1):
            continue
        draft = costs.draft_seconds if rows > 1 else 0.0
        reached = range(1, min(rows, deepest) + 1)
        speed = {str(tau): tokens_per_second(tau, step.predicted, draft) for tau in reached}
        tau = expected(taus, rows - 1) if taus else None
        result.append(
            Budget(
                rows - 1, rows, step.predicted * 1e3, (step.predicted + draft) * 1e3, speed,
                break_even=(step.predicted + draft) / plain,
                expected_tau=tau,
                expected_per_s=None if tau is None else tokens_per_second(tau, step.predicted, draft),
            )
        )  # fmt: skip
    return tuple(result)


def layers(costs: Costs, launches: Mapping[str, Sequence[Launch]]) -> tuple[LayerKernels, ...]:
    """The launches of each program by layer; layers whose launches are alike are told once."""
    result: list[LayerKernels] = []
    for program, columns in costs.detail.items():
        early = {launch.node: launch for launch in launches[program]}
        groups: dict[str, list[Kernel]] = {}
        for same_node in zip(*columns, strict=True):
            node = same_node[0]
            if node.node not in early:
                continue  # a rename, nothing is launched
            launch = early[node.node]
            groups.setdefault(_layer(node.node), []).append(
                Kernel(
                    node.node.partition(".")[2] or node.node,
                    launch.kernels,
                    launch.early,
                    same_node[-1].cost.weight_bytes,
                    tuple(n.floor * 1e6 for n in same_node),
                    tuple(n.predicted * 1e6 for n in same_node),
                )
            )
        alike: dict[tuple[Kernel, ...], list[str]] = {}
        for layer, kernels in groups.items():
            alike.setdefault(tuple(kernels), []).append(layer)
        result += [LayerKernels(program, names[0], tuple(names[1:]), kernels) for kernels, names in alike.items()]
    return tuple(result)


def _layer(node: str) -> str:
    return node.partition(".")[0]


def report(state: State) -> Report:
    """Everything about a state that went through all passes."""
    loaded, done, placed, costs = state.loaded, state.schedule, state.placed, state.costs
    assert done is not None and placed is not None and costs is not None
    tau = loaded.drafter.expected_tau if loaded.drafter is not None else None
    found = budgets(costs, done.tree, tau.points if tau else ())
    return Report(
        schema=REPORT_SCHEMA,
        engine=loaded.engine.name,
        model=loaded.model.name,
        topology=loaded.topology.name,
        ranks=state.mesh.ranks,
        dtype=loaded.engine.dtype,
        context=costs.target[0].at.context,
        device_bytes=placed.device,
        free_bytes=placed.free,
        largest_context=placed.largest_context,
        memory=placed.table,
        layout=dict(state.layout),
        steps=tuple(step_of(c) for c in (*costs.target, *costs.drafts)),
        budgets=found,
        rows=costs.rows,
        layers=layers(costs, done.launches),
        sweep=sweep(state),
        recommended=recommended(found),
        tau_source=tau.source if tau else "",
    )


def with_kernels(report: Report, memory: tuple[MemoryRow, ...], table: KernelTable) -> Report:
    """The report with what an emitted plan knows besides: what its kernels need, and how they are launched."""
    free = report.device_bytes - sum(row.bytes for row in memory)
    tiles = tuple(
        Tiles(
            kernel.name,
            stage.name,
            tuple(variant.rows for variant in stage.variants),
            tuple(variant.threads for variant in stage.variants),
            tuple(variant.shared for variant in stage.variants),
        )
        for kernel in table.kernels
        for stage in kernel.stages
    )
    return msgspec.structs.replace(report, memory=memory, free_bytes=free, tiles=tiles)


def encode(value: Report) -> bytes:
    """The report as stable, indented JSON ending with a newline; numbers rounded to six digits for reading."""
    return msgspec.json.format(msgspec.json.encode(_rounded(msgspec.to_builtins(value))), indent=1) + b"\n"


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_rounded(item) for item in cast("list[object]", value)]
    return list(map(_rounded, cast("tuple[object, ...]", value))) if isinstance(value, tuple) else value
