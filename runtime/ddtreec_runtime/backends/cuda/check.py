"""Holds kernels against their parts in float64: for a GPU's tests, for `ddtreec verify`, and on an emulator.

A step is run on random numbers; all that no kernel may rely on (outputs, scratch, rows that are padding, tokens that
are not in a cache) is NaN before. Looked at are the results, bit for bit those of a second run and, of a kernel that
promises so (`Kernel.alike`), of a larger step, and whether anything was written that is not the kernel's to write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from ddtreec.artifacts.kernels import Kernel, KernelTable
from ddtreec.artifacts.plan import Call, Plan, Program
from ddtreec_runtime.backends.cuda.check_bench import Bench, Launcher, Outcome, Step
from ddtreec_runtime.backends.cuda.check_case import Case, cache_kind, make_case, pool_of
from ddtreec_runtime.backends.cuda.check_weights import Layout, Made, make_weights

COUNTS = (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 128)
"""Rows of a step: around the edges of tiles."""

TOLERANCE = 1e-2
"""||out - ref|| / ||ref|| of a row: a bfloat16 holds 8 bits, results are rounded a few times."""

SLOTS, SLOT_ROWS = 3, 9
"""Sequences, and rows of each, of a step of several."""


@dataclass(frozen=True, slots=True)
class Result:
    """One step of one kernel. `error`: the worst relative error of a row, of all outputs and of what was written to a
    cache; `faults`: what is wrong, in words."""

    kernel: str
    program: str
    rows: int
    valid: tuple[int, ...]
    committed: tuple[int, ...]
    error: float
    faults: tuple[str, ...] = ()


def check_kernel(
    launcher: Launcher,
    plan: Plan,
    table: KernelTable,
    kernel: Kernel,
    layouts: Mapping[str, Layout],
    counts: Sequence[int] = COUNTS,
    lengths: Sequence[int] = (),
    seed: int = 0,
) -> list[Result]:
    """Every step of one kernel. `lengths`: committed tokens of sequences to try, those at edges of pages without it.

    Raises ValueError for a kernel of the round, which has no parts.
    """
    program, call = served(plan, table, kernel)
    draw = torch.Generator().manual_seed(seed)
    records = {weight.id: weight for weight in plan.weights}
    pool = pool_of(plan, kernel, draw)
    # Large tensors are drawn where they are used; on the CPU from the one generator.
    there = draw if launcher.device == "cpu" else torch.Generator(launcher.device).manual_seed(seed)
    weights = make_weights(kernel, call, records, layouts, pool, launcher, there)
    found: list[Result] = []
    for committed, group, steps in samples(plan, program, kernel, counts, lengths):
        case = make_case(plan, program, kernel, call, committed, group, weights, pool, draw, launcher.device)
        found += _check_case(launcher, table, case, weights, steps, draw)
    return found


def served(plan: Plan, table: KernelTable, kernel: Kernel) -> tuple[Program, Call]:
    """The program and call whose parts are the reference of a kernel. Raises ValueError where there is none."""
    for program in plan.programs:
        for call, name in zip(program.calls, table.programs.get(program.name, ()), strict=False):
            if name == kernel.name and kernel.reference.calls:
                return program, call
    raise ValueError(f"{kernel.name} serves no call of a program")


def samples(
    plan: Plan, program: Program, kernel: Kernel, counts: Sequence[int], lengths: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], int, tuple[Step, ...]]]:
    """(committed tokens by slot, rows of a slot, steps) of every case. The first step of a case is the largest."""
    page, sequences = plan.limits.page, plan.limits.sequences
    fixed = plan.drafter.block if plan.drafter and program.name == "draft_block" else 0
    most = fixed or program.max_rows
    edges = lengths or (5 * page + 3, 0, 1, page - 1, page, 2 * page + 1)
    room = plan.limits.context - most
    edges = [min(length, room) for length in edges]
    alone = sorted({min(count, most) for count in counts}, reverse=True)
    for length in edges if cache_kind(kernel) else edges[:1]:
        if fixed:
            steps = (Step(fixed, (fixed,)),)
        else:
            steps = (*(Step(count, (count,)) for count in alone), Step(alone[0], (max(1, alone[0] * 2 // 3),)))
        yield (length,), steps[0].group, steps
    slots = min(SLOTS, sequences, program.max_rows // (fixed or 2))
    if slots > 1:
        group = fixed or min(SLOT_ROWS, program.max_rows // slots)
        every = tuple(group for _ in range(slots))
        some = tuple((group, 0, group - 1 if not fixed else group)[slot % 3] for slot in range(slots))
        several = (Step(group, every), Step(group, some), Step(group, every[:1]))
        yield tuple(edges[slot % len(edges)] for slot in range(slots)), group, several


def _check_case(
    launcher: Launcher,
    table: KernelTable,
    case: Case,
    weights: Mapping[str, Made],
    steps: Sequence[Step],
    draw: torch.Generator,
) -> Iterator[Result]:
    largest: Outcome | None = None
    for step in steps:
        bench = Bench(launcher, table, case, weights, step, draw)
        first, second = bench.run(again=False), bench.run(again=True)
        faults = [*first.faults, *(fault for fault in second.faults if fault not in first.faults)]
        if not first.same(second):
            faults.append("a second run gave other bits")
        largest = largest or first
        if case.kernel.alike and not first.same(largest):
            faults.append("a row has other bits than in a larger step")
        error = max(first.errors(case), default=0.0)
        if not error < TOLERANCE:
            faults.append(f"relative error {error:.2g}")
        if wild := first.wild(case):
            faults.append(f"{wild} elements far off")
        yield Result(case.kernel.name, case.program.name, step.rows, step.valid, case.committed, error, tuple(faults))
