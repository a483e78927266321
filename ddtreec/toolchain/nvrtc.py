"""Compiles CUDA sources to cubins with NVRTC, and reads what its assembler reports. Needs no GPU and no toolkit.

The bindings come with `pip install 'ddtreec[cuda]'` and are imported here alone, when something is compiled.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ddtreec.artifacts.kernels import Resources
from ddtreec.core.errors import BundleError, Problem

STANDARD = "c++17"
INSTALL = "pip install 'ddtreec[cuda]'"

ENTRY = re.compile(r"Compiling entry function '(?P<function>\w+)'")
SPILLS = re.compile(r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
USED = re.compile(r"Used (?P<registers>\d+) registers")
SHARED = re.compile(r"(?P<shared>\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled source: the cubin, and what each entry point takes."""

    cubin: bytes
    resources: dict[str, Resources]


def nvrtc() -> ModuleType:
    """The bindings. Raises BundleError B030 where they or the library are not there."""
    try:
        bindings = importlib.import_module("cuda.bindings.nvrtc")
        bindings.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        message = f"NVRTC, which compiles the CUDA kernels, cannot be used: {reason}"
        help = f"{INSTALL}; or stop before the binaries: --to src"
        raise BundleError(Problem("B030", message, help=help)) from None
    return bindings


def version() -> str:
    """Of the compiler, such as '13.0'. Raises BundleError."""
    bindings = nvrtc()
    return ".".join(map(str, _ok(bindings, "version", bindings.nvrtcVersion())))


def compile_source(name: str, source: str, headers: Mapping[str, str], arch: str) -> Binary:
    """`source` as a cubin for `arch` ('sm_90'). `headers`: by the name that they are included by ('rows.cuh'). Raises
    BundleError B030 to B032."""
    bindings = nvrtc()
    names, texts = [name.encode() for name in headers], [text.encode() for text in headers.values()]
    created = bindings.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), len(names), texts, names)
    (program,) = _ok(bindings, name, created)
    try:
        options = [f"--gpu-architecture={arch}".encode(), f"--std={STANDARD}".encode(), b"--ptxas-options=-v"]
        (status,) = bindings.nvrtcCompileProgram(program, len(options), options)
        log = _text(bindings, name, program)
        if status != bindings.nvrtcResult.NVRTC_SUCCESS:
            raise BundleError(_refused(name, arch, log))
        (size,) = _ok(bindings, name, bindings.nvrtcGetCUBINSize(program))
        cubin = bytearray(size)
        _ok(bindings, name, bindings.nvrtcGetCUBIN(program, cubin))
    finally:
        bindings.nvrtcDestroyProgram(program)
    return Binary(bytes(cubin), resources(log))


def resources(log: str) -> dict[str, Resources]:
    """What the log of `--ptxas-options=-v` says of each entry point."""
    found: dict[str, Resources] = {}
    pieces = ENTRY.split(log)
    for function, text in zip(pieces[1::2], pieces[2::2], strict=True):
        spills, used, shared = SPILLS.search(text), USED.search(text), SHARED.search(text)
        if spills is None or used is None:
            raise BundleError(
                Problem("B032", f"the assembler's report of {function} cannot be read", note=text.strip())
            )
        found[function] = Resources(
            registers=int(used["registers"]),
            shared=int(shared["shared"]) if shared else 0,
            spills=int(spills["stores"]) + int(spills["loads"]),
        )
    return found


def _text(bindings: ModuleType, name: str, program: Any) -> str:
    (size,) = _ok(bindings, name, bindings.nvrtcGetProgramLogSize(program))
    log = bytearray(size)
    _ok(bindings, name, bindings.nvrtcGetProgramLog(program, log))
    return log.rstrip(b"\0").decode(errors="replace")


def _refused(name: str, arch: str, log: str) -> Problem:
    errors = [line for line in log.splitlines() if "error" in line] or log.splitlines()
    first = errors[0] if errors else "no reason given"
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    message = f"kernel {name} does not compile for {arch}: {first}{more}"
    help = "look at the source with --to src -o DIR; a hand-edited kernel stands in DIR of --override"
    if "--gpu-architecture" in first:
        help = f"this NVRTC does not know {arch}: correct device.arch of the topology, or a newer nvidia-cuda-nvrtc"
    return Problem("B031", message, help=help)


def _ok(bindings: ModuleType, name: str, result: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of a call of the bindings. Raises BundleError where it failed."""
    status, *values = result
    if status != bindings.nvrtcResult.NVRTC_SUCCESS:
        raise BundleError(Problem("B031", f"NVRTC failed on {name}: {status}", help="this is a fault of its install"))
    return tuple(values)
