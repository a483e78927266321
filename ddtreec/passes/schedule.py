"""Says which row counts get a step of their own, and in which order its kernels are launched.

Runs on the fused graph. Launch order is graph order, which is a topological order; on a GPU a launch may start before
its predecessor has ended (programmatic dependent launch) where it has weights to fetch meanwhile. It does not place
buffers (memory) or say what anything costs (cost).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from ddtreec.artifacts.plan import Call, Tree
from ddtreec.core.errors import VerifyError
from ddtreec.spec.load import LoadedEngine

ROW_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128)
"""Rows of a verify step. Each of the first eight, because at one sequence the best trees are that small."""


OFF = Tree("off", "chain", 0, 0)
"""The tree of an engine without speculation: the root alone."""


def tree_policy(loaded: LoadedEngine) -> Tree:
    """The tree of the engine without costs. A chain never holds more nodes than the drafter proposes."""
    drafter, tree = loaded.drafter, loaded.tree
    if drafter is None or tree is None:
        return OFF
    depth = drafter.block_size - 1
    budget = min(tree.budget, depth) if tree.mode == "chain" else tree.budget
    return Tree(tree.name, tree.mode, budget, depth)


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a program: the node, its kernels, and whether it may start before its predecessor ends."""

    node: str
    kernels: tuple[str, ...]
    early: bool
    collective: bool


def row_buckets(budget: int, chunk: int) -> tuple[int, ...]:
    """Row counts, ascending: those of ROW_COUNTS up to budget + 1 rows, budget + 1 itself, and the prefill chunk.

    `budget`: tree nodes besides the root, 0 without speculation. `chunk`: prefill rows a step.
    """
    most = budget + 1
    return tuple(sorted({*(rows for rows in ROW_COUNTS if rows <= most), most, chunk}))


def launches(calls: Sequence[Call], backend: str) -> tuple[Launch, ...]:
    """The launches of a program in order; calls of one node are one launch."""
    result: list[Launch] = []
    for node, group in groupby(calls, key=lambda call: call.node):
        members = tuple(group)
        collective = any(call.collective for call in members)
        prefetch = any(call.weights for call in members)
        early = backend == "cuda" and bool(result) and prefetch and not collective
        result.append(Launch(node, tuple(call.kernel for call in members), early, collective))
    return tuple(result)


def verify(buckets: Sequence[int], budget: int, chunk: int, order: Sequence[Launch], calls: Sequence[Call]) -> None:
    """Raises VerifyError where a row count has no bucket, a node is launched twice, or a value is read too early."""
    if list(buckets) != sorted(set(buckets)) or 1 not in buckets or not {budget + 1, chunk} <= set(buckets):
        raise VerifyError("schedule", "buckets", f"{list(buckets)} do not serve budget {budget} and chunk {chunk}")
    seen: set[str] = set()
    for launch in order:
        if launch.node in seen:
            raise VerifyError("schedule", launch.node, "launched twice")
        seen.add(launch.node)
    if [call.node for call in calls if call.node not in seen]:
        raise VerifyError("schedule", next(call.node for call in calls if call.node not in seen), "never launched")
    writer = {value: number for number, call in enumerate(calls) for value in call.outs}
    for number, call in enumerate(calls):
        for value in call.ins:
            if writer.get(value, -1) >= number:
                raise VerifyError("schedule", call.node, f"reads '{value}' before it is written")
