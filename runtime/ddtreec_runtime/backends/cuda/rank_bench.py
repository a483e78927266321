"""How long the kernels of one rank take: random weights, whole step programs as graphs, collectives left out."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from ddtreec.artifacts.plan import Plan, Program
from ddtreec.core.errors import Loc, Problem, SpecError
from ddtreec.core.units import parse_rate
from ddtreec_runtime.backends.cuda.alone import alone
from ddtreec_runtime.backends.cuda.decode import causal_words
from ddtreec_runtime.backends.cuda.device import (
    check_arch,
    check_room,
    load_kernels,
    open_driver,
    read_table,
    telling_of_room,
)
from ddtreec_runtime.backends.cuda.driver import Driver, Launch
from ddtreec_runtime.backends.cuda.machine import Loaded, Machine
from ddtreec_runtime.backends.cuda.routing import EVEN, Chosen, chosen, even, held_means, routers_of, spread
from ddtreec_runtime.backends.cuda.steps import DeviceProgram, Shape
from ddtreec_runtime.backends.cuda.synthetic import synthetic_weights
from ddtreec_runtime.backends.cuda.weights import layouts_of
from ddtreec_runtime.bundle import Bundle, open_bundle
from ddtreec_runtime.program import namespace

REPEATS, WARM = 40, 5
COUNTED = 4
"""Steps, each of other tokens, whose experts are counted."""
SPEC = "spec.json"

Told = Callable[[int, int, str], None]


def measure_rank(
    path: Path, rank: int, rows: Sequence[int], context: int, kernels: bool = True, progress: Told | None = None
) -> dict[str, Any]:
    """Medians of the step programs of one rank at these row counts behind `context` tokens, as plain data.

    kernels: time the launches of each kernel apart too, over all layers. Raises SpecError (M010 a rank, row count or
    context that the bundle does not have) and BundleError as `Engine.load`.
    """
    bundle = open_bundle(path)
    check_asked(bundle.plan, rank, rows, context, path)
    driver, table = open_driver(bundle), read_table(bundle)
    name = torch.cuda.get_device_name()
    check_arch(table, torch.cuda.get_device_capability(), name, path)
    check_room(bundle.plan, torch.cuda.mem_get_info()[0], name, path)
    with driver.ordered(), torch.inference_mode(), telling_of_room(path):
        machine = lonely_machine(bundle, load_kernels(bundle, table, driver), driver, "cuda", rank, progress)
        bench = RankBench(machine, context, read_rate(path))
        steps = [bench.step(count, kernels) for count in rows]
        drafts = [bench.draft(program) for program in ("draft_block", "draft_context") if program in machine.programs]
    return {
        "engine": bundle.plan.engine,
        "topology": bundle.plan.topology,
        "rank": rank,
        "ranks": bundle.plan.mesh.ranks,
        "context": context,
        "device": name,
        "driver": driver.version(),
        "torch": str(torch.__version__),
        "weights": "random, made on the device",
        "collectives": "left out" if bundle.plan.mesh.ranks > 1 else "none",
        "read_rate": bench.rate,
        "allocated": torch.cuda.memory_allocated(),
        "steps": steps,
        "drafter": drafts,
    }


def lonely_machine(
    bundle: Bundle, loaded: Loaded, driver: Driver, device: torch.device | str, rank: int, progress: Told | None = None
) -> Machine:
    """The machine of one rank without the others: random weights, and nothing behind its collectives."""
    plan = bundle.plan
    apart = [alone(program) for program in plan.programs]
    lonely = msgspec.structs.replace(plan, programs=tuple(one.program for one in apart))
    embeddings = {call.weights[0] for one in plan.programs for call in one.calls if call.kernel == "embedding"}
    weights = synthetic_weights(plan.weights, layouts_of(plan, loaded.table), device, embeddings, progress=progress)
    nothing = dict.fromkeys(("all_reduce", "all_gather"), _nothing)
    own = dataclasses.replace(bundle, plan=lonely)
    machine = Machine(own, loaded, driver, weights, device, plan.drafter is not None, rank, nothing)
    for one in apart:
        for value in one.gathered:
            machine.kept[one.program.name][value].normal_()
    return machine


class RankBench:
    """Times steps of one machine. `rate`: bytes a second that the topology says large reads reach."""

    def __init__(self, machine: Machine, context: int, rate: float):
        self.machine = machine
        self.context = context
        self.rate = rate
        self._first_token, self._tokens = self._vocabulary()
        self.routers = routers_of(machine.plan, machine.programs["target"].program, machine.rank)
        for name in ("latent", "context"):
            if name in machine.arrays:
                machine.arrays[name].normal_()

    def step(self, rows: int, kernels: bool) -> dict[str, Any]:
        """The target on one sequence with `rows` rows behind the context, logits for every one; other tokens in every
        replay."""
        program = self.machine.programs["target"]
        shape = Shape(1, rows, min(rows, program.program.max_out_rows))
        self.begin(rows, program)
        launches = program.launches(shape)
        counted = [self.experts(program, shape) for _ in range(COUNTED)]
        size = self.bytes_read(program.program, rows, held_means(counted))
        times = self._times(launches, f"a step of {rows} rows", before=lambda: self.draw(rows, program))
        found = _numbers(times) | {
            "rows": rows,
            "launches": len(launches),
            "gigabytes": size / 1e9,
            "floor_ms": size / self.rate * 1e3,
            "gb_per_s": size / statistics.median(times) / 1e6,
            "experts": spread(self.routers, rows, counted),
        }
        if kernels:
            found["kernels"] = self._kernels(program, shape)
        return found

    def draft(self, name: str, kernels: bool = False) -> dict[str, Any]:
        """A program of the drafter on one sequence with the rows of a block."""
        program = self.machine.programs[name]
        contract = self.machine.plan.drafter
        assert contract is not None
        rows = contract.block
        self.begin(rows, program)
        shape = Shape(1, rows, rows - 1 if name == "draft_block" else 0)
        launches = program.launches(shape)
        size = self.bytes_read(program.program, rows, [])
        times = self._times(launches, name)
        found = _numbers(times) | {
            "program": name,
            "rows": rows,
            "launches": len(launches),
            "gigabytes": size / 1e9,
            "floor_ms": size / self.rate * 1e3,
            "gb_per_s": size / statistics.median(times) / 1e6,
        }
        if kernels:
            found["kernels"] = self._kernels(program, shape)
        return found

    # ---- steps ----

    def begin(self, rows: int, program: DeviceProgram) -> None:
        """A chain of rows behind the context, with tokens that this rank holds."""
        arrays = self.machine.arrays
        arrays.put("positions", torch.arange(self.context, self.context + rows))
        arrays.put("committed", torch.tensor([self.context]))
        arrays.put("valid", torch.tensor([rows]))
        arrays.put("masks", torch.from_numpy(causal_words(rows)))
        asked = torch.arange(min(rows, program.program.max_out_rows))
        arrays.put("out_index", asked if program.program.name == "target" else torch.arange(1, rows))
        for name, buffer in program.homes.inputs.items():
            if name != "tokens":
                buffer.normal_()
        self.draw(rows, program)

    def draw(self, rows: int, program: DeviceProgram) -> None:
        """Other tokens, of those that this rank holds."""
        tokens = program.homes.inputs.get("tokens")
        if tokens is not None:
            tokens[:rows].random_(self._first_token, self._first_token + self._tokens)

    def _vocabulary(self) -> tuple[int, int]:
        """First token and number of tokens whose embedding this rank holds; others would be rows of zeros."""
        program = self.machine.programs["target"].program
        call = next(call for call in program.calls if call.kernel == "embedding")
        held = int(self.machine.weights[call.weights[0]].shape[0])
        per = int(call.params.get("first_per") or 0)
        coord = str(call.params.get("coord") or "rank")
        return per * self.machine.plan.mesh.coord(coord, self.machine.rank), held

    def experts(self, program: DeviceProgram, shape: Shape) -> list[Chosen]:
        """Distinct experts that the rows of a step with tokens of its own chose, by layer."""
        self.draw(shape.rows, program)
        values = program.values(shape)
        routers = {router.ids: router for router in self.routers}
        found: list[Chosen] = []
        for call, launches in zip(program.kernel_calls, program.by_call(shape), strict=True):
            self.machine.driver.run(launches)
            found += [chosen(routers[name], values[name]) for name in call.outs if name in routers]
        self.machine.driver.wait()
        return found

    def bytes_read(self, program: Program, rows: int, chosen: Sequence[float]) -> int:
        """Bytes that a step must read: each weight once, of experts the chosen ones (held by this rank, by layer), of
        the embedding its rows, the latents of the context."""
        records = {weight.id: weight for weight in self.machine.plan.weights}
        routed = iter(chosen)
        total, seen, count = 0, set[str](), 0.0
        for call in program.calls:
            held = [records[name] for name in call.weights if name not in seen]
            seen |= set(call.weights)
            if any(weight.experts for weight in held):
                count = next(routed)
            for weight in held:
                if call.kernel == "embedding":
                    total += rows * weight.bytes // weight.shape[0]
                elif weight.experts:
                    total += round(weight.bytes * count / weight.shape[0])
                else:
                    total += weight.bytes
        kind = "latent" if program.name == "target" else "context"
        if program.name != "draft_context":
            for cache in self.machine.plan.caches:
                if cache.kind == kind:
                    width = cache.width if kind == "latent" else 2 * cache.heads * cache.head_dim
                    total += 2 * width * min(self.context, cache.window or self.context)
        return total

    # ---- clocks ----

    def _times(
        self,
        launches: Sequence[Launch],
        name: str,
        repeats: int = REPEATS,
        before: Callable[[], None] | None = None,
    ) -> list[float]:
        """Milliseconds of each of `repeats` replays of these launches as one graph. `before`: put into the stream ahead
        of every replay, and not timed."""
        driver = self.machine.driver
        graph = driver.capture(lambda: driver.run(launches), name)
        stream = torch.cuda.current_stream()
        marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
        for _ in range(WARM):
            driver.replay(graph)
        for begin, end in marks:
            if before is not None:
                before()
            begin.record(stream)
            driver.replay(graph)
            end.record(stream)
        driver.wait()
        driver.forget(graph)
        return [begin.elapsed_time(end) for begin, end in marks]

    def _kernels(self, program: DeviceProgram, shape: Shape) -> list[dict[str, Any]]:
        """Every kernel apart: one graph of its launches in all layers, so that each finds its weights cold. It reads
        what a whole step left, experts even choices: each layer's in memory of its own, since layers share theirs."""
        values = program.values(shape)
        choices = {router.ids: router for router in self.routers if router.ids in values}
        values |= {name: torch.empty_like(values[name]) for name in choices}
        groups: dict[str, list[list[Launch]]] = {}
        for launches in program.bind(shape, namespace(values)):
            if launches:
                groups.setdefault(launches[0].label.partition(":")[0], []).append(launches)
        found: list[dict[str, Any]] = []
        for name, calls in groups.items():
            self.machine.driver.run(program.launches(shape))
            for ids, router in choices.items():
                values[ids].copy_(even(router, shape.rows, values[ids].device))
            times = self._times([launch for call in calls for launch in call], name, repeats=20)
            middle = statistics.median(times)
            found.append({"kernel": name, "calls": len(calls), "ms": middle, "us_each": middle / len(calls) * 1e3})
        return sorted(found, key=lambda row: -row["ms"])


def _nothing(outs: Sequence[Tensor], ins: Sequence[Tensor], **params: object) -> None:
    """A collective that is left out."""


def _numbers(times: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(times)
    return {"ms": statistics.median(ordered), "ms_least": ordered[0], "ms_most": ordered[-1], "replays": len(ordered)}


def read_rate(path: Path) -> float:
    """Bytes a second of the largest reads that the bundle's topology names."""
    spec = json.loads((path / SPEC).read_text())
    return parse_rate(spec["topology"]["device"]["read_rate"][-1][1])


def room(plan: Plan) -> int:
    """The most tokens that a step of the target's most rows can follow."""
    return plan.limits.context - next(program for program in plan.programs if program.name == "target").max_rows


def check_asked(plan: Plan, rank: int, rows: Sequence[int], context: int, path: Path) -> None:
    """M010 for a rank, a number of rows or a context that the bundle does not have."""
    target = next(program for program in plan.programs if program.name == "target")
    most, ranks = room(plan), plan.mesh.ranks
    if not 0 <= rank < ranks:
        found, way = f"--rank {rank}: the bundle has {ranks} rank{'s' * (ranks > 1)}", "ranks count from 0"
    elif bad := [count for count in rows if not 1 <= count <= min(target.max_rows, target.max_out_rows)]:
        found = f"--rows {bad[0]}: a step with logits takes 1 to {min(target.max_rows, target.max_out_rows)} rows"
        way = "give fewer rows, or compile with a larger tree"
    elif not 0 <= context <= most:
        found, way = f"--context {context}: this bundle has room for {most}", "compile with --set limits.context=N"
    else:
        return
    raise SpecError(Problem("M010", found, Loc(str(path)), help=way))


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The measurement as a person reads it."""
    yield f"{found['engine']}, rank {found['rank']} of {found['ranks']}, {found['context']} tokens of context"
    yield f"{found['device']}, driver {found['driver']}; weights {found['weights']}; collectives {found['collectives']}"
    yield "median of graph replays; GB: what a step must read; floor: that over the topology's read rate"
    yield ""
    yield "  program          rows      ms   floor     GB    GB/s  launches  distinct experts a layer"
    for row in [*found["steps"], *found["drafter"]]:
        routed = row.get("experts")
        told = ""
        if routed:
            told = f"  {routed['mean']:.1f} ({routed['least']} to {routed['most']}), even {routed['expected']:.1f}"
        yield (
            f"  {row.get('program', 'target'):<15} {row['rows']:>5} {row['ms']:>7.3f} {row['floor_ms']:>7.3f} "
            f"{row['gigabytes']:>6.3f} {row['gb_per_s']:>7.0f} {row['launches']:>9}{told}"
        )
    for row in found["steps"]:
        if "kernels" in row:
            yield ""
            yield f"  kernels at {row['rows']} rows, each apart   calls  us each      ms"
            for kernel in row["kernels"]:
                yield f"  {kernel['kernel']:<44} {kernel['calls']:>4} {kernel['us_each']:>8.2f} {kernel['ms']:>7.3f}"


def warnings(found: Mapping[str, Any]) -> list[str]:
    """What makes the measurement of some steps one of something else."""
    return [
        f"at {row['rows']} rows {row['experts']['mean']:.1f} experts a layer were chosen where even routing chooses "
        f"{row['experts']['expected']:.1f}: below {EVEN:.0%} of that, so the step read too little to be a measure"
        for row in found["steps"]
        if row["experts"] is not None and not row["experts"]["even"]
    ]
