"""`ddtreec verify`: every kernel of a bundle on the GPU of this machine, held against its parts in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ddtreec.artifacts.kernels import Kernel, KernelTable
from ddtreec_runtime.backends.cuda.check import TOLERANCE, Result, check_kernel
from ddtreec_runtime.backends.cuda.device import check_arch, load_kernels, open_driver, read_table
from ddtreec_runtime.backends.cuda.driver import Driver, Launch
from ddtreec_runtime.backends.cuda.layouts import LAYOUTS
from ddtreec_runtime.bundle import open_bundle


class GpuLauncher:
    """Runs the launches of a check on the GPU; see `check.Launcher`."""

    device = "cuda"

    def __init__(self, driver: Driver, functions: Mapping[tuple[str, str], Any]):
        self._driver = driver
        self._functions = functions

    def functions(self, kernel: Kernel) -> Mapping[tuple[str, str], Any]:
        """Its entry points by (kernel, function)."""
        return {key: found for key, found in self._functions.items() if key[0] == kernel.name}

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A tensor of 0xff bytes."""
        size = prod(shape) * dtype.itemsize
        room = torch.full((max(16, -(-size // 16) * 16),), 0xFF, dtype=torch.uint8, device="cuda")
        return room[:size].view(dtype).view(*shape)

    def launch_of(self, *args: Any) -> Launch:
        """See `Driver.launch_of`."""
        return self._driver.launch_of(*args)

    def run(self, launches: Sequence[Launch], again: bool) -> None:
        """Runs them to their end."""
        self._driver.run(launches)
        self._driver.wait()


@dataclass(frozen=True, slots=True)
class Verdict:
    """One kernel. `error`: its worst relative error of a row over all steps; `faults`: what is wrong, once each;
    `alike`: whether a row's bits were compared across numbers of rows too, or from run to run only (`Kernel.alike`)."""

    kernel: str
    program: str
    steps: int
    rows: tuple[int, ...]
    error: float
    faults: tuple[str, ...]
    alike: bool

    @property
    def ok(self) -> bool:
        """Whether every step was right."""
        return not self.faults


def verify_bundle(path: Path, told: Callable[[int, int, str], None] | None = None) -> Iterator[Verdict]:
    """A verdict on every kernel that serves a call of a program. Raises BundleError as `Engine.load`."""
    bundle = open_bundle(path)
    driver, table = open_driver(bundle), read_table(bundle)
    check_arch(table, torch.cuda.get_device_capability(), torch.cuda.get_device_name(), path)
    with driver.ordered(), torch.inference_mode():
        launcher = GpuLauncher(driver, load_kernels(bundle, table, driver).functions)
        kernels = checked_kernels(table)
        for number, kernel in enumerate(kernels):
            if told is not None:
                told(number, len(kernels), kernel.name)
            yield verdict(kernel, check_kernel(launcher, bundle.plan, table, kernel, LAYOUTS))
        if told is not None:
            told(len(kernels), len(kernels), "")


def checked_kernels(table: KernelTable) -> list[Kernel]:
    """Kernels that have parts to be held against; those of the round have none."""
    return [kernel for kernel in table.kernels if kernel.reference.calls]


def verdict(kernel: Kernel, results: Sequence[Result]) -> Verdict:
    """All steps of one kernel as one line."""
    faults = dict.fromkeys(f"{fault} ({one.rows} rows)" for one in results for fault in one.faults)
    rows = tuple(sorted({one.rows for one in results}))
    worst = max(one.error for one in results)
    return Verdict(kernel.name, results[0].program, len(results), rows, worst, tuple(faults), kernel.alike)


__all__ = ["TOLERANCE", "Verdict", "verify_bundle"]
