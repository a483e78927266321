"""Kernels that note their launches: a step function is run once a step shape, a step is then a list of launches.

Everything a launch needs is worked out here: which variant serves the rows, the grid, and the words of its argument
block. Nothing of it changes from step to step, so a list can be captured into a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Protocol

from ddtreec.artifacts.kernels import Kernel, KernelTable, Stage, Variant, places
from ddtreec.core.errors import VerifyError
from ddtreec_runtime.backends.cuda.driver import Launch

Param = int | float | str | bool | None


class Tensor(Protocol):
    """What binding needs of an operand; torch tensors have it, on any device."""

    def data_ptr(self) -> int:
        """Address of the first element."""
        ...


class Maker(Protocol):
    """Makes launches; the driver is the real one."""

    def launch_of(
        self,
        label: str,
        function: Any,
        grid: tuple[int, int, int],
        threads: int,
        shared: int,
        early: bool,
        words: Sequence[int],
    ) -> Launch:
        """See `Driver.launch_of`."""
        ...


class Arrays(Protocol):
    """Where the shared arrays of a step lie."""

    def pointer(self, name: str) -> int:
        """Address of `state:NAME`."""
        ...


class Binder:
    """Turns calls of kernels into launches.

    functions: entry points by (kernel, function). scratch: address of `scratch_bytes(table)` bytes that all kernels
    share, since none of them leaves anything behind.
    """

    def __init__(self, table: KernelTable, maker: Maker, functions: Mapping[tuple[str, str], Any], scratch: int):
        self.table = table
        self.kernels = {kernel.name: kernel for kernel in table.kernels}
        self._maker = maker
        self._functions = functions
        self._scratch = scratch
        self._places = {kernel.name: places(kernel, table.largest)[0] for kernel in table.kernels}

    def recorder(self, calls: list[list[Launch]], symbols: Mapping[str, int], arrays: Arrays) -> SimpleNamespace:
        """The `k` of a step function: every kernel by name, appending its launches to `calls`."""

        def noting(kernel: Kernel) -> Callable[..., None]:
            def note(state: object, *tensors: Tensor, **params: Param) -> None:
                calls.append(self.bind(kernel.name, tensors, params, symbols, arrays))

            return note

        return SimpleNamespace(**{name: noting(kernel) for name, kernel in self.kernels.items()})

    def bind(
        self,
        name: str,
        tensors: Sequence[Tensor],
        params: Mapping[str, Param],
        symbols: Mapping[str, int],
        arrays: Arrays,
    ) -> list[Launch]:
        """The launches of one kernel, one a stage; none for a stage that counts something of which there is none.

        Raises VerifyError where operands, parameters or the size of the step are not what the kernel was made for.
        """
        kernel = self._kernel(name)
        made: list[Launch] = []
        for stage in kernel.stages:
            if symbols[stage.count] == 0:
                continue
            variant = chosen(kernel, stage, symbols)
            x, y, z = (dim.value(symbols) for dim in variant.grid)
            words = [self._word(kernel, arg, tensors, params, symbols, arrays) for arg in stage.args]
            function = self._functions[name, variant.function]
            label = f"{name}:{variant.function}"
            made.append(
                self._maker.launch_of(label, function, (x, y, z), variant.threads, variant.shared, stage.early, words)
            )
        return made

    def _kernel(self, name: str) -> Kernel:
        if name not in self.kernels:
            raise VerifyError("emit", name, "kernels.json has no kernel of this name")
        return self.kernels[name]

    def _word(
        self,
        kernel: Kernel,
        arg: str,
        tensors: Sequence[Tensor],
        params: Mapping[str, Param],
        symbols: Mapping[str, int],
        arrays: Arrays,
    ) -> int:
        kind, _, name = arg.partition(":")
        if kind == "t" and int(name) < len(tensors):
            return tensors[int(name)].data_ptr()
        if kind == "scratch":
            return self._scratch + self._places[kernel.name][name]
        if kind == "state":
            return arrays.pointer(name)
        if kind == "int":
            return symbols[name]
        if kind == "param" and name in params:
            return int32(kernel.name, name, params[name])
        raise VerifyError("emit", kernel.name, f"nothing is known of the argument '{arg}'")


def chosen(kernel: Kernel, stage: Stage, symbols: Mapping[str, int]) -> Variant:
    """The smallest variant of a stage that serves the step. Raises VerifyError where none does."""
    count = symbols[stage.count]
    fitting = [variant for variant in stage.variants if variant.rows >= count]
    if not fitting:
        raise VerifyError("emit", kernel.name, f"stage '{stage.name}' has no variant for {count} {stage.count}")
    return min(fitting, key=lambda variant: variant.rows)


def int32(kernel: str, name: str, value: Param) -> int:
    """A parameter as the low half of a word. Raises VerifyError for what is no int32."""
    if isinstance(value, bool) or (isinstance(value, int) and -(2**31) <= value < 2**31):
        return int(value) & 0xFFFFFFFF
    raise VerifyError("emit", kernel, f"parameter '{name}' is {value!r}, no int32")
