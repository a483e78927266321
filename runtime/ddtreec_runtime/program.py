"""Step programs bound to buffers: everything that can be worked out before a step is, once a row count.

A step function is straight-line, so it is run once a row count, with kernels that note their calls; a step then makes
those calls in order. What changes from step to step reaches kernels through the state alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Program, Value
from ddtreec.core.ids import attribute
from ddtreec_runtime.backends.cpu.interpreter import alias, resolve, run_calls
from ddtreec_runtime.ranks import StepRun, drive
from ddtreec_runtime.state import StepState, buffer_dtype

StepFunction = Callable[[SimpleNamespace, SimpleNamespace, SimpleNamespace, StepState], StepRun]

PLANNED_ITEMSIZE = {"float32": 4, "bfloat16": 2, "float64": 8}


def load_steps(source: bytes, path: str) -> ModuleType:
    """The module of a bundle's step.py, from text that was already checked. Nothing is written or registered."""
    module = ModuleType("ddtreec_step")
    module.__file__ = path
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    return module


def namespace(tensors: Mapping[str, Tensor]) -> SimpleNamespace:
    """Weights by id as attributes, spelt as the step program spells them."""
    return SimpleNamespace(**{attribute(name): tensor for name, tensor in tensors.items()})


def new_arena(programs: Sequence[Program], planned: str, dtype: torch.dtype) -> Tensor:
    """One rank's arena, bytes for the largest of the programs that share it, in `dtype` instead of `planned`."""
    return torch.empty(max(p.arena_bytes for p in programs) * scale(planned, dtype), dtype=torch.uint8)


def scale(planned: str, dtype: torch.dtype) -> int:
    """By how much offsets and sizes grow when computing in a wider dtype than planned."""
    return max(1, dtype.itemsize // PLANNED_ITEMSIZE[planned])


class BoundProgram:
    """One step program with the buffers of every rank.

    `inputs`: for each value of home 'input' a buffer of `max_rows` rows, which the caller fills before a run; shared by
    all ranks. `persistent[rank][value id]`: the buffers that outlive the step. Rank 0's outputs are everyone's.
    """

    def __init__(
        self,
        program: Program,
        function: StepFunction,
        recorder: Callable[[list[Callable[[], object]]], SimpleNamespace],
        weights: Sequence[SimpleNamespace],
        states: Sequence[StepState],
        arenas: Sequence[Tensor],
        inputs: Mapping[str, Tensor],
        planned: str,
    ):
        self.program = program
        self.function = function
        self.recorder = recorder
        self.weights = list(weights)
        self.states = list(states)
        self.arenas = list(arenas)
        self.inputs = dict(inputs)
        self.scale = scale(planned, states[0].dtype)
        self.poison = False
        """Fill the arena with NaN bytes before every run, to show that nothing reads stale data. For tests."""
        self.watch: Callable[[StepState, Mapping[str, Tensor]], None] | None = None
        """Hears of every value of every step (rank 0's), which then runs call by call: slower, the same results."""
        self.persistent = [kept_buffers(program, state.dtype) for state in states]
        self._shape_of = {v.id: v.shape for v in program.values if v.home == "persistent"}
        self._bound: dict[tuple[int, int], list[Callable[[], object]]] = {}

    def run(self) -> None:
        """One step of the rows that the states were begun with, on all ranks."""
        if self.watch is not None:
            self._run_watched(self.watch)
            return
        state = self.states[0]
        calls = self._bound.get((state.rows, state.out_rows)) or self._bind(state.rows, state.out_rows)
        if self.poison:
            for arena in self.arenas:
                arena.fill_(0xFF)
        for call in calls:
            call()

    def _run_watched(self, watch: Callable[[StepState, Mapping[str, Tensor]], None]) -> None:
        """`run` through the interpreter; what outlives the step is copied to where `run` puts it."""
        names = {name for call in self.program.calls for name in call.weights}
        weights = [{name: getattr(of_rank, attribute(name)) for name in names} for of_rank in self.weights]
        for state in self.states:
            state.inputs = {name: buffer[: state.rows] for name, buffer in state.inputs.items()}
        found = run_calls(self.program.values, self.program.calls, weights, self.states)
        for kept, values in zip(self.persistent, found, strict=True):
            for value, buffer in kept.items():
                buffer[: len(values[value])] = values[value]
        watch(self.states[0], found[0])

    def output(self, value: str) -> Tensor:
        """The rows of a persistent value that the last step wrote; valid until the next run."""
        buffer = self.persistent[0][value]
        rows = self._shape_of[value][0]
        return buffer[: self.states[0].out_rows if rows == "out_rows" else self.states[0].rows]

    def _bind(self, rows: int, out_rows: int) -> list[Callable[[], object]]:
        """The calls of a step of this many rows on all ranks, in order; kept for the next step of this size."""
        if rows > self.program.max_rows or out_rows > max(self.program.max_out_rows, 0):
            raise ValueError(
                f"{self.program.name} takes {self.program.max_rows} rows and {self.program.max_out_rows} out rows, "
                f"not {rows} and {out_rows}"
            )
        buffers = [self._buffers(rank, rows, out_rows) for rank in range(len(self.states))]
        calls: list[Callable[[], object]] = []
        kernels = self.recorder(calls)
        runs = zip(self.weights, buffers, self.states, strict=True)
        drive([self.function(kernels, w, b, s) for w, b, s in runs], kernels)
        self._bound[rows, out_rows] = calls
        return calls

    def _buffers(self, rank: int, rows: int, out_rows: int) -> SimpleNamespace:
        """Views of one rank's buffers for this many rows."""
        homes = Homes(self.inputs, self.arenas[rank], self.persistent[rank])
        return namespace(views(self.program, homes, rows, out_rows, self.states[rank].dtype, self.scale))


@dataclass(frozen=True, slots=True)
class Homes:
    """Where the values of a program lie: buffers of the inputs and of what outlives a step, and the arena, bytes."""

    inputs: Mapping[str, Tensor]
    arena: Tensor
    kept: Mapping[str, Tensor]


def views(
    program: Program, homes: Homes, rows: int, out_rows: int, dtype: torch.dtype, grown: int = 1
) -> dict[str, Tensor]:
    """Every value that carries data, for a step of this many rows. `grown`: see `scale`."""
    found: dict[str, Tensor] = {}
    for value in program.values:
        if value.home != "token":
            found[value.id] = _view(value, found, homes, resolve(value.shape, rows, out_rows), dtype, grown)
    return found


def _view(
    value: Value, found: Mapping[str, Tensor], homes: Homes, shape: tuple[int, ...], dtype: torch.dtype, grown: int
) -> Tensor:
    if value.home == "alias":
        return alias(found[value.parent], value.start, shape)
    if value.home == "input":
        return homes.inputs[value.id][: shape[0]]
    if value.home == "persistent":
        return homes.kept[value.id][: shape[0]]
    kind = buffer_dtype(value.dtype, dtype)
    start = value.offset * grown
    return homes.arena[start : start + math.prod(shape) * kind.itemsize].view(kind).view(shape)


def kept_buffers(program: Program, dtype: torch.dtype, device: str = "cpu") -> dict[str, Tensor]:
    """A buffer for each value that outlives a step, at its most rows."""
    most = program.max_rows, program.max_out_rows
    kept = [value for value in program.values if value.home == "persistent"]
    return {
        value.id: torch.zeros(resolve(value.shape, *most), dtype=buffer_dtype(value.dtype, dtype), device=device)
        for value in kept
    }
