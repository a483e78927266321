"""One step of a case on the device: what it is given, what it left, and what it should not have touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ddtreec.artifacts.kernels import Kernel, KernelTable
from ddtreec.artifacts.plan import Value
from ddtreec_runtime.backends.cpu.interpreter import alias, resolve
from ddtreec_runtime.backends.cuda.arrays import ROPE, STORED, rope_table
from ddtreec_runtime.backends.cuda.check_cache import Places, places_of
from ddtreec_runtime.backends.cuda.check_case import Case, first_of, roots
from ddtreec_runtime.backends.cuda.check_weights import Allocator, Made
from ddtreec_runtime.backends.cuda.driver import Launch
from ddtreec_runtime.backends.cuda.launches import Binder, Maker, Param, places
from ddtreec_runtime.state import buffer_dtype

CACHE = "cache"
"""What a kernel wrote to its cache, beside its outputs."""

ELEMENT, SPREAD = 0.02, 0.05
"""An element may be off by this share of itself and this share of the row's root mean square."""

NOWHERE = 2**30
"""Position of a row that is padding: whoever uses it as an index is found out."""


class Launcher(Allocator, Maker, Protocol):
    """Where kernels run."""

    def functions(self, kernel: Kernel) -> Mapping[tuple[str, str], Any]:
        """Its entry points by (kernel, function)."""
        ...

    def run(self, launches: Sequence[Launch], again: bool) -> None:
        """Runs them to their end. `again`: the second of two runs; an order that is not promised may be another."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """Rows of a case that a step takes: the first `group` of the first len(valid) slots; `valid` of each are real."""

    group: int
    valid: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows of the step, padding included."""
        return self.group * len(self.valid)

    def real(self) -> Iterator[tuple[int, int, int]]:
        """(row of the step, slot, row of the slot) of every row that is no padding."""
        for slot, count in enumerate(self.valid):
            yield from ((slot * self.group + i, slot, i) for i in range(count))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run gave for real rows: by output (or `CACHE`), and by (slot, row of the slot)."""

    rows: dict[str, dict[tuple[int, int], Tensor]]
    faults: tuple[str, ...]

    def same(self, other: Outcome) -> bool:
        """Whether all rows that both have are equal bit for bit."""
        return all(
            torch.equal(_bits(row), _bits(other.rows[name][place]))
            for name, rows in self.rows.items()
            for place, row in rows.items()
            if place in other.rows[name]
        )

    def errors(self, case: Case) -> Iterator[float]:
        """Relative error of every row; infinite for a number that is none and for an integer that differs."""
        for row, exact in self._pairs(case):
            if exact.is_floating_point():
                off, size = (row.double() - exact).norm(), exact.norm()
                yield float((off / size if size else off).nan_to_num(nan=float("inf")))
            else:
                yield 0.0 if torch.equal(row.long(), exact.long()) else float("inf")

    def wild(self, case: Case) -> int:
        """Elements that are further off than rounding explains."""
        total = 0
        for row, exact in self._pairs(case):
            if exact.is_floating_point() and exact.numel():
                limit = ELEMENT * exact.abs() + SPREAD * exact.square().mean().sqrt()
                total += int((~((row.double() - exact).abs() <= limit)).sum())
        return total

    def _pairs(self, case: Case) -> Iterator[tuple[Tensor, Tensor]]:
        for name, rows in self.rows.items():
            for (slot, i), row in rows.items():
                exact = case.written[slot][i] if name == CACHE else case.expected[name][slot, i]
                written = ~exact.isnan() if exact.is_floating_point() else torch.ones_like(exact, dtype=torch.bool)
                yield row.reshape(exact.shape)[written], exact[written]


@dataclass(frozen=True, slots=True)
class Arrays:
    """Shared arrays of a step by name."""

    tensors: Mapping[str, Tensor]

    def pointer(self, name: str) -> int:
        """See `launches.Arrays`."""
        return self.tensors[name].data_ptr()


class Bench:
    """A step of a case, ready to be run. The same random pages and rows in every run."""

    def __init__(
        self,
        launcher: Launcher,
        table: KernelTable,
        case: Case,
        weights: Mapping[str, Made],
        step: Step,
        draw: torch.Generator,
    ):
        self.launcher, self.table, self.case, self.weights, self.step = launcher, table, case, weights, step
        self.kernel = case.kernel
        self.values = {value.id: value for value in case.kernel.reference.values}
        self.owners = roots(case.kernel, (*case.call.outs, *case.call.ins))
        real = list(step.real())
        out_rows = max(1, min(len(real), case.program.max_out_rows))
        order = torch.randperm(len(real), generator=draw)[:out_rows].sort().values.tolist()
        self.taken = [real[i] for i in order]
        self.symbols = {"rows": step.rows, "out_rows": out_rows, "slots": len(step.valid), "group": step.group}
        self.cache: Places | None = places_of(case, table, draw)
        self.state = {name: self._placed(tensor) for name, tensor in self._state().items()}

    def run(self, *, again: bool) -> Outcome:
        """Makes everything anew, launches, and gathers what was left."""
        launcher, kernel = self.launcher, self.kernel
        buffers = {name: self._buffer(value) for name, value in self.owners.items()}
        arrays = {name: self._placed(tensor) for name, tensor in self.state.items()}
        if self.cache:
            empty = launcher.tensor(self.cache.array, torch.bfloat16)
            arrays[self.cache.kind] = self.cache.filled(self.step.valid, empty)
        held = arrays[self.cache.kind].clone() if self.cache else None
        before = {name: tensor.cpu().clone() for name, tensor in buffers.items()}
        scratch = launcher.tensor((max(1, places(kernel, self.table.largest)[1]),), torch.uint8)
        binder = Binder(self.table, launcher, launcher.functions(kernel), scratch.data_ptr())
        border = (*self.case.call.outs, *self.case.call.ins)
        operands = [self._operand(name, buffers) for name in border]
        operands += [self.weights[name].device for name in self.case.call.weights]
        launcher.run(binder.bind(kernel.name, operands, self._params(), self.symbols, Arrays(arrays)), again)
        after = {name: tensor.cpu() for name, tensor in buffers.items()}
        rows = {name: self._real_rows(name, after) for name in self.case.call.outs}
        faults = list(self._foreign(before, after))
        for name, tensor in self.state.items():
            if not torch.equal(_octets(arrays[name]), _octets(tensor)):
                faults.append(f"left the array '{name}' other than it found it")
        if self.cache and held is not None:
            left = arrays[self.cache.kind]
            if self.case.written:
                new = [self.cache.rows(left, slot, count) for slot, count in enumerate(self.step.valid)]
                rows[CACHE] = {(slot, i): new[slot][i] for _, slot, i in self.step.real()}
            if self.cache.changed(held, left, self.step.valid if self.case.written else ()):
                faults.append(f"wrote to the {self.cache.kind} cache where it should not")
        return Outcome(rows, tuple(faults))

    # ---- operands ----

    def _shape(self, value: Value) -> tuple[int, ...]:
        return resolve(value.shape, self.symbols["rows"], self.symbols["out_rows"])

    def _buffer(self, value: Value) -> Tensor:
        """A value on the device: real rows of inputs hold numbers, all else NaN."""
        made = self.launcher.tensor(self._shape(value), buffer_dtype(value.dtype, torch.bfloat16))
        given = self.case.inputs.get(value.id)
        if given is not None:
            for slot, count in enumerate(self.step.valid):
                begin = slot * self.step.group
                made[begin : begin + count] = given[slot, :count].to(made.device)
        return made

    def _placed(self, tensor: Tensor) -> Tensor:
        """A copy on the device."""
        return self.launcher.tensor(tuple(tensor.shape), tensor.dtype).copy_(tensor)

    def _operand(self, name: str, buffers: Mapping[str, Tensor]) -> Tensor:
        value = self.values[name]
        owner = buffers[value.parent if value.home == "alias" else name]
        return owner.flatten(1)[:, value.start :] if value.start else owner

    def _view(self, name: str, buffers: Mapping[str, Tensor]) -> Tensor:
        value = self.values[name]
        if value.home != "alias":
            return buffers[name]
        return alias(buffers[value.parent], value.start, self._shape(value))

    def _real_rows(self, name: str, buffers: Mapping[str, Tensor]) -> dict[tuple[int, int], Tensor]:
        view = self._view(name, buffers)
        if self.values[name].shape[0] == "out_rows":
            return {(slot, i): view[at] for at, (_, slot, i) in enumerate(self.taken)}
        return {(slot, i): view[row] for row, slot, i in self.step.real()}

    def _params(self) -> dict[str, Param]:
        """Parameters of the call on this rank."""
        params: dict[str, Param] = dict(self.case.call.params)
        if "first_per" in params:
            params["first"] = first_of(self.case, self.case.call)
        if self.cache and "layer" in params:
            params["layer"] = self.cache.layer
        return params

    # ---- step state ----

    def _state(self) -> dict[str, Tensor]:
        """The shared arrays that the kernel names, but for the cache."""
        case, step = self.case, self.step
        slots = len(step.valid)
        positions = torch.full((step.rows,), NOWHERE, dtype=torch.int32)
        masks = torch.full((step.rows, 4), -1, dtype=torch.int32)
        for slot in range(slots):
            words = mask_words(case.visible(slot))
            for i in range(step.valid[slot]):
                positions[slot * step.group + i] = case.positions[slot, i]
                masks[slot * step.group + i] = words[i]
        found = {
            "positions": positions,
            "masks": masks,
            "committed": torch.tensor(case.committed[:slots], dtype=torch.int32),
            "valid": torch.tensor(step.valid, dtype=torch.int32),
            "out_index": torch.tensor([row for row, _, _ in self.taken] or [0], dtype=torch.int32),
        }
        if self.cache and self.cache.pages is not None:
            found["pages"] = self.cache.pages[:slots]
        shapes = {array.name: array.shape for array in self.table.state}
        for name, rope in case.plan.ropes.items():
            spelt = ROPE + name.replace(".", "_")
            if spelt in shapes:
                found[spelt] = torch.full([int(n) for n in shapes[spelt]], float("nan"))
                used = int(case.positions.max()) + 1
                found[spelt][:used] = rope_table(rope, used)
        args = {arg for stage in self.kernel.stages for arg in stage.args if arg.startswith("state:")}
        wanted = {arg.removeprefix("state:") for arg in args} - {self.cache.kind if self.cache else ""}
        for array in self.table.state:
            # Arrays that kernels keep among themselves begin as zeros.
            if array.name in wanted - found.keys():
                shape = [self.table.largest[n] if isinstance(n, str) else n for n in array.shape]
                found[array.name] = torch.zeros(shape, dtype=STORED[array.dtype])
        return {name: found[name] for name in wanted}

    # ---- what was left ----

    def _foreign(self, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Iterator[str]:
        """Buffers with a byte that is not the kernel's to write."""
        own = {name: torch.zeros(tensor.shape, dtype=torch.bool) for name, tensor in before.items()}
        for name in self.case.call.outs:
            exact = self.case.expected[name]
            columns = torch.ones(exact.shape[2:], dtype=torch.bool)
            if exact.is_floating_point():
                columns = ~exact.isnan().flatten(0, 1).all(0)
            self._view(name, own).logical_or_(columns)
        for name, mine in own.items():
            changed = (_octets(before[name]) != _octets(after[name])).any(-1)
            if (changed & ~mine).any():
                yield f"wrote to '{name}' where it should not"


def mask_words(visible: Tensor) -> Tensor:
    """bool [rows, rows] as int32 [rows, 4]: bit j of row i."""
    rows = visible.shape[0]
    bits = torch.zeros(rows, 128, dtype=torch.int64)
    bits[:, :rows] = visible
    words = (bits.view(rows, 4, 32) << torch.arange(32)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def _octets(tensor: Tensor) -> Tensor:
    """Bytes of every element, [..., itemsize]."""
    return tensor.contiguous().unsqueeze(-1).view(torch.uint8)
