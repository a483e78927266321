"""One rank of a bundle on one device: its kernels, its memory, and the step programs bound to both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ddtreec.artifacts.kernels import KernelTable, scratch_bytes
from ddtreec.artifacts.plan import Plan, Program
from ddtreec_runtime.backends.cpu.interpreter import resolve
from ddtreec_runtime.backends.cuda.arrays import DeviceArrays
from ddtreec_runtime.backends.cuda.driver import Driver
from ddtreec_runtime.backends.cuda.launches import Binder
from ddtreec_runtime.backends.cuda.steps import Collective, DeviceProgram, Rank
from ddtreec_runtime.bundle import Bundle
from ddtreec_runtime.program import Homes, kept_buffers
from ddtreec_runtime.state import buffer_dtype

KNOWN = {"target": {"logits": "logits", "features": "features"}, "draft_block": {"logits": "draft_logits"}}
"""Buffers of programs that kernels of the round read, by the name they know them under."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The kernels of a bundle, ready to be launched: the table and the entry points by (kernel, function)."""

    table: KernelTable
    functions: Mapping[tuple[str, str], Any]
    modules: tuple[Any, ...] = ()


class Machine:
    """Buffers and bound programs of one rank.

    weights: by id, as the kernels want them. `device`: where buffers are made. The drafter's programs are there when
    its weights are.
    """

    def __init__(
        self,
        bundle: Bundle,
        loaded: Loaded,
        driver: Driver,
        weights: Mapping[str, Tensor],
        device: torch.device | str,
        drafting: bool,
        rank: int = 0,
        collectives: Mapping[str, Collective] | None = None,
    ):
        self.bundle = bundle
        self.plan: Plan = bundle.plan
        self.table = loaded.table
        self.driver = driver
        self.rank = rank
        self._modules = loaded.modules
        self.device = device
        self.weights = dict(weights)
        self.arrays = DeviceArrays(loaded.table, bundle.plan, device)
        programs = {p.name: p for p in bundle.plan.programs if drafting or p.name == "target"}
        self.arena = torch.zeros(max(p.arena_bytes for p in programs.values()), dtype=torch.uint8, device=device)
        self.scratch = torch.zeros(max(1, scratch_bytes(loaded.table)), dtype=torch.uint8, device=device)
        self.binder = Binder(loaded.table, driver, loaded.functions, self.scratch.data_ptr())
        self.kept: dict[str, dict[str, Tensor]] = {}
        self.inputs: dict[str, dict[str, Tensor]] = {}
        self.programs: dict[str, DeviceProgram] = {}
        for name, program in programs.items():
            self.kept[name] = kept_buffers(program, torch.bfloat16, device)
            for value, known in KNOWN.get(name, {}).items():
                if value in self.kept[name]:
                    self.arrays.add(known, self.kept[name][value])
            self.inputs[name] = self._inputs(program)
            homes = Homes(self.inputs[name], self.arena, self.kept[name])
            function = getattr(bundle.steps, name)
            self.programs[name] = DeviceProgram(
                program,
                function,
                self.binder,
                self.weights,
                homes,
                self.arrays,
                Rank(self.plan.mesh, rank),
                collectives,
            )

    def _inputs(self, program: Program) -> dict[str, Tensor]:
        """A buffer for each value that the step is given; the shared array of its name where there is one, since the
        kernels of the round write `tokens`."""
        most = program.max_rows, program.max_out_rows
        found: dict[str, Tensor] = {}
        for value in program.values:
            if value.home != "input":
                continue
            if value.id in self.arrays:
                found[value.id] = self.arrays[value.id]
                continue
            kind = buffer_dtype(value.dtype, torch.bfloat16)
            found[value.id] = torch.zeros(resolve(value.shape, *most), dtype=kind, device=self.device)
        return found

    def ring(self, records: int, words: int) -> Tensor:
        """int32 [slots, records, words] in memory of the host that the device writes to, also known as `state:ring`."""
        shape = (self.table.largest["slots"], records, words)
        made = torch.zeros(shape, dtype=torch.int32)
        if torch.device(self.device).type == "cuda":
            made = made.pin_memory()
        self.arrays.add("ring", made)
        return made

    def close(self) -> None:
        """Unloads the kernels; nothing may be under way. Buffers go when nobody holds them."""
        for module in self._modules:
            self.driver.unload(module)

    @property
    def drafting(self) -> bool:
        """Whether the drafter's programs are bound."""
        return "draft_block" in self.programs
