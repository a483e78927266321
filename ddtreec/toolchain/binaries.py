"""From the sources of a bundle to its binaries: every kernel compiled, its needs held against the device."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from ddtreec.artifacts.kernels import HEADER_FOLDER, Kernel, KernelTable, Resources, binary_path, source_path
from ddtreec.core.errors import BundleError, Loc, Problem, VerifyError
from ddtreec.core.paths import display
from ddtreec.core.units import format_bytes
from ddtreec.toolchain.nvrtc import compile_source, version

Progress = Callable[[int, int, str], None]
"""Kernels done, kernels in all, the one at work."""


def with_overrides(sources: Mapping[str, str], folder: Path) -> tuple[dict[str, str], tuple[str, ...]]:
    """The sources with those replaced that `folder` has a file of the same name for, and the paths of these. Raises
    BundleError B033 for a file that replaces nothing, and where none can be read."""
    known = {Path(path).name: path for path in sources}
    edited: dict[str, str] = {}
    at = folder
    try:
        for at in sorted(path for path in folder.iterdir() if path.suffix in (".cu", ".cuh")):
            edited[at.name] = at.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BundleError(_override(at, "cannot be read: it is not UTF-8 text")) from None
    except OSError as error:
        raise BundleError(_override(at, f"cannot be read: {error.strerror or error}")) from None
    if not edited:
        raise BundleError(_override(folder, "holds no .cu and no .cuh file"))
    for name in edited:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise BundleError(_override(folder / name, "replaces no file of this engine", near[0] if near else ""))
    replaced = {known[name]: text for name, text in edited.items()}
    return {**sources, **replaced}, tuple(sorted(replaced))


def _override(path: Path, message: str, near: str = "") -> Problem:
    help = f"did you mean {near}?" if near else "take files of src/kernels and src/cuh that --to src -o DIR writes"
    return Problem("B033", f"--override {path.name}: {message}", Loc(display(path)), help=help)


def build(
    table: KernelTable,
    sources: Mapping[str, str],
    shared_limit: int,
    edited: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> tuple[KernelTable, dict[str, bytes]]:
    """The table with what each entry point takes, and the cubins by path in the bundle.

    `shared_limit`: bytes that the device gives a block. `edited`: sources that a person replaced. Kernels are compiled
    one after the other: NVRTC holds a lock while it compiles. Raises BundleError B030 to B033, and VerifyError where a
    kernel of ours lacks an entry point.
    """
    headers = {Path(path).name: text for path, text in sources.items() if path.startswith(HEADER_FOLDER)}
    found: dict[str, Resources] = {}
    binaries: dict[str, bytes] = {}
    problems: list[Problem] = []
    for number, kernel in enumerate(table.kernels):
        if progress is not None:
            progress(number, len(table.kernels), kernel.name)
        binary = compile_source(kernel.name, sources[source_path(kernel.name)], headers, table.arch)
        _check_entries(kernel, binary.resources, source_path(kernel.name) in edited)
        problems += problems_of(kernel, binary.resources, shared_limit)
        found |= {f"{kernel.name}:{function}": taken for function, taken in binary.resources.items()}
        binaries[binary_path(kernel.name, table.arch)] = binary.cubin
    if progress is not None:
        progress(len(table.kernels), len(table.kernels), "")
    if problems:
        raise BundleError(problems)
    return msgspec.structs.replace(table, compiler=f"NVRTC {version()}", resources=found), binaries


def _check_entries(kernel: Kernel, resources: Mapping[str, Resources], edited: bool) -> None:
    wanted = {variant.function for stage in kernel.stages for variant in stage.variants}
    missing = sorted(wanted - set(resources))
    if missing and not edited:
        raise VerifyError("emit", kernel.name, f"its source has no entry point '{missing[0]}'")
    if missing:
        message = f"--override {kernel.name}.cu: the edited kernel has no entry point '{missing[0]}'"
        help = f'keep extern "C" __global__ void {missing[0]}(...) with its parameters'
        raise BundleError(Problem("B033", message, help=help))


def problems_of(kernel: Kernel, resources: Mapping[str, Resources], shared_limit: int) -> list[Problem]:
    """Entry points that spill registers or need more shared memory than a block of the device has."""
    dynamic = {variant.function: variant.shared for stage in kernel.stages for variant in stage.variants}
    found: list[Problem] = []
    for function, taken in resources.items():
        where = f"kernel {kernel.name}, entry point {function}"
        total = taken.shared + dynamic.get(function, 0)
        if taken.spills:
            message = f"{where}: {taken.spills} bytes of registers are spilled ({taken.registers} registers a thread)"
            help = "a hand-edited kernel: use fewer registers or threads; else this is a bug of ours to report"
            found.append(Problem("B032", message, help=help))
        if total > shared_limit:
            parts = f"{taken.shared} bytes static and {total - taken.shared} bytes dynamic"
            message = f"{where}: a block needs {parts} of shared memory, the device gives {format_bytes(shared_limit)}"
            help = "a hand-edited kernel: use smaller tiles; else choose a topology with more shared memory a block"
            found.append(Problem("B032", message, help=help))
    return found
