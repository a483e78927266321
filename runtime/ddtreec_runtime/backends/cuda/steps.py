"""Step programs on the device: the launches of a step by its shape, worked out once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Call, Mesh, Program
from ddtreec_runtime.backends.cuda.arrays import DeviceArrays
from ddtreec_runtime.backends.cuda.driver import Launch
from ddtreec_runtime.backends.cuda.launches import Binder
from ddtreec_runtime.program import Homes, StepFunction, namespace, views
from ddtreec_runtime.ranks import drive

Collective = Callable[..., None]
"""Called as (outs of all ranks, ins of all ranks, **params), as the CPU's are."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows of a step: `slots` sequences with `group` rows each; `out_rows` of them go through the head."""

    slots: int
    group: int
    out_rows: int

    @property
    def rows(self) -> int:
        """Rows in all."""
        return self.slots * self.group

    @property
    def symbols(self) -> dict[str, int]:
        """The numbers that grids and arguments are made of."""
        return {"rows": self.rows, "out_rows": self.out_rows, "slots": self.slots, "group": self.group}


@dataclass(frozen=True, slots=True)
class Rank:
    """What a step function asks of the state: which slices of cut weights this rank holds."""

    mesh: Mesh
    number: int = 0

    def first(self, coord: str, per: int) -> int:
        """See `StepState.first`."""
        return self.mesh.coord(coord, self.number) * per


class DeviceProgram:
    """One step program of one rank, bound to its buffers."""

    def __init__(
        self,
        program: Program,
        function: StepFunction,
        binder: Binder,
        weights: Mapping[str, Tensor],
        homes: Homes,
        arrays: DeviceArrays,
        rank: Rank,
        collectives: Mapping[str, Collective] | None = None,
    ):
        self.program = program
        self.homes = homes
        self._function = function
        self._binder = binder
        self._weights = namespace(weights)
        self._arrays = arrays
        self._rank = rank
        self._collectives = dict(collectives or {})
        self._bound: dict[Shape, list[Launch]] = {}

    def at(self, homes: Homes) -> DeviceProgram:
        """The same program on other buffers."""
        made = copy(self)
        made.homes, made._bound = homes, {}
        return made

    @property
    def kernel_calls(self) -> list[Call]:
        """The calls that are kernels, in order."""
        return [call for call in self.program.calls if not call.collective]

    def launches(self, shape: Shape) -> list[Launch]:
        """All launches of a step in order. Raises ValueError for more rows than the program takes."""
        if shape not in self._bound:
            self._bound[shape] = [launch for call in self.by_call(shape) for launch in call]
        return self._bound[shape]

    def by_call(self, shape: Shape) -> list[list[Launch]]:
        """The launches of a step, those of each of `kernel_calls` apart."""
        return self.bind(shape, namespace(self.values(shape)))

    def bind(self, shape: Shape, buffers: SimpleNamespace) -> list[list[Launch]]:
        """`by_call` on buffers of the caller's choice."""
        found: list[list[Launch]] = []
        kernels = self._binder.recorder(found, shape.symbols, self._arrays)
        vars(kernels).update(self._collectives)
        drive([self._function(kernels, self._weights, buffers, self._rank)], kernels)
        return found

    def values(self, shape: Shape) -> dict[str, Tensor]:
        """Every value of a step by id, as views of the buffers. Raises ValueError for more rows than there is room."""
        program = self.program
        if shape.rows > program.max_rows or shape.out_rows > program.max_out_rows:
            raise ValueError(
                f"{program.name} takes {program.max_rows} rows and {program.max_out_rows} out rows, "
                f"not {shape.rows} and {shape.out_rows}"
            )
        return views(self.program, self.homes, shape.rows, shape.out_rows, torch.bfloat16)
