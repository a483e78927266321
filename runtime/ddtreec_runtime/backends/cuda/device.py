"""Finds the GPU, judges whether a bundle can run on it, and loads its kernels; all before weights are read."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch

from ddtreec.artifacts import kernels as kernels_file
from ddtreec.artifacts.formats import format_of
from ddtreec.artifacts.kernels import KERNELS, KERNELS_FORMAT, KernelTable, binary_path
from ddtreec.artifacts.plan import Plan
from ddtreec.core.errors import BundleError, Loc, Problem
from ddtreec.core.units import format_bytes
from ddtreec_runtime import checks
from ddtreec_runtime.backends.cuda.driver import NO_BINDINGS, OTHER_DEVICE, OUT_OF_MEMORY, Driver
from ddtreec_runtime.backends.cuda.machine import Loaded
from ddtreec_runtime.bundle import AGAIN, Bundle

MORE_ROOM = "close what else uses the GPU, or compile with a shorter context or fewer sequences: --set limits.context=N"

RESERVED = "reserved by the device"
"""The row of the memory table that the context and the libraries take; nothing of it is allocated by us."""


def open_driver(bundle: Bundle) -> Driver:
    """The driver on the current GPU, with a stream of its own. Raises BundleError: B027 no GPU, B043 no bindings."""
    checks.backend(bundle, "cuda")
    try:
        api = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise BundleError(
            Problem(
                NO_BINDINGS,
                f"the bindings of the CUDA driver cannot be imported: {error}",
                help="pip install 'ddtreec[cuda]'",
            )
        ) from None
    torch.cuda.init()
    return Driver(api, torch.cuda.Stream())


def read_table(bundle: Bundle) -> KernelTable:
    """kernels.json. Raises BundleError B044 where it is missing, damaged or of another format."""
    path = bundle.path / KERNELS
    try:
        data = path.read_bytes()
        found = format_of(data)
        if found not in (None, KERNELS_FORMAT):
            text = f"the kernel table has format {found}, this runtime reads format {KERNELS_FORMAT}"
            raise BundleError(Problem("B044", text, Loc(str(path)), help=AGAIN))
        return kernels_file.decode(data)
    except (OSError, msgspec.DecodeError) as error:
        raise BundleError(
            Problem("B044", f"the kernel table cannot be read: {error}", Loc(str(path)), help=AGAIN)
        ) from None


def check_arch(table: KernelTable, capability: tuple[int, int], name: str, path: Path) -> None:
    """Binaries run on the generation they were made for, and on later members of it. Raises BundleError B042."""
    found = re.fullmatch(r"sm_(\d+)(\d)([af]?)", table.arch)
    made = (int(found[1]), int(found[2])) if found else (0, 0)
    exact = bool(found and found[3] == "a")
    if made == capability or (not exact and made[0] == capability[0] and made[1] <= capability[1]):
        return
    raise BundleError(
        Problem(
            OTHER_DEVICE,
            f"the bundle's kernels are for {table.arch}, this machine's {name} is sm_{capability[0]}{capability[1]}",
            Loc(str(path)),
            help="compile the engine for a topology of this GPU: --set topology=NAME (`ddtreec doctor` names the GPU)",
        )
    )


def check_room(plan: Plan, free: int, name: str, path: Path) -> None:
    """Says that it will not fit before an hour of loading. Raises BundleError B041."""
    need = sum(row.bytes for row in plan.memory if row.purpose != RESERVED)
    if need <= free:
        return
    raise BundleError(
        Problem(
            OUT_OF_MEMORY,
            f"one rank holds {format_bytes(need)}, {name} has {format_bytes(free)} free",
            Loc(str(path)),
            help=MORE_ROOM,
        )
    )


@contextmanager
def telling_of_room(path: Path) -> Iterator[None]:
    """Turns torch's own error of memory, which comes where another program took what was free, into B041."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        said = str(error).split(". ")[0]
        raise BundleError(Problem(OUT_OF_MEMORY, said, Loc(str(path)), help=MORE_ROOM)) from None


def check_device(bundle: Bundle, table: KernelTable) -> None:
    """All of the above on the current GPU."""
    name = torch.cuda.get_device_name()
    check_arch(table, torch.cuda.get_device_capability(), name, bundle.path)
    check_room(bundle.plan, torch.cuda.mem_get_info()[0], name, bundle.path)


def load_kernels(bundle: Bundle, table: KernelTable, driver: Driver) -> Loaded:
    """Every kernel's binary loaded, every entry point found and given its shared memory; all of them or none."""
    functions: dict[tuple[str, str], Any] = {}
    modules: list[Any] = []
    with ExitStack() as undo:
        for kernel in table.kernels:
            module = driver.load(_binary(bundle.path / binary_path(kernel.name, table.arch)), kernel.name)
            modules.append(module)
            undo.callback(driver.unload, module)
            for stage in kernel.stages:
                for variant in stage.variants:
                    functions[kernel.name, variant.function] = driver.function(module, variant.function, variant.shared)
        undo.pop_all()  # all went well: they stay
    return Loaded(table, functions, tuple(modules))


def _binary(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        text = f"a kernel's binary is missing: {error.strerror}"
        raise BundleError(Problem("B023", text, Loc(str(path)), help=AGAIN)) from None
