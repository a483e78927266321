"""Runs CUDA kernel sources on the CPU: compiled by g++ as host C++, launched through ctypes.

What it tells from a GPU: nothing about time, and sums of a matrix product are taken in another order. What it sees that
a GPU hides: reads behind or before a tensor, wrong alignment, shared memory that is read before it was written, copies
that are read before they were waited for, barriers that not all threads reach.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import torch

HOST = Path(__file__).parent / "host"
BODIES = Path(__file__).parents[2] / "templates" / "cuh"
FLAGS = (
    *("-O1", "-std=c++17", "-fPIC", "-fno-gnu-unique", "-fvisibility=hidden", "-ftrivial-auto-var-init=pattern"),
    *("-ffp-contract=off", "-fno-exceptions", "-fno-rtti", "-fno-extern-tls-init"),
    *("-fsanitize=alignment,bounds", "-fno-sanitize-recover=all"),
    *("-Wall", "-Wno-unknown-pragmas", "-Wno-unused-function", "-Wno-psabi", "-Wno-unused-variable"),
)
PAGE = mmap.PAGESIZE
MOST_ARGUMENTS = 24

MOST_FILLED = 64 << 20
"""Bytes of a tensor up to which it is filled: larger ones are mostly not touched, which costs no memory."""

EARLY_COPIES, THREADS_BACKWARDS, BLOCKS_BACKWARDS = 1, 2, 4
"""Freedoms that hardware has: when an asynchronous copy arrives, and in which order threads and blocks run."""
FORWARD, BACKWARD = 0, EARLY_COPIES | THREADS_BACKWARDS | BLOCKS_BACKWARDS
"""Two launches that a correct kernel cannot tell apart."""


class EmulatorError(Exception):
    """The source does not compile, or the launch did what a GPU would punish or hang on."""


class _Launch(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_void_p),
        ("dynamic_shared", ctypes.c_void_p),
        ("arguments", ctypes.POINTER(ctypes.c_uint64)),
        ("argument_count", ctypes.c_int32),
        ("grid", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32),
        ("shared", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("seconds", ctypes.c_uint32),
    ]


def missing() -> str:
    """Why kernels cannot be run on this machine; empty where they can."""
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        return "the emulator switches fibers with x86-64 code for Linux"
    return "" if shutil.which("g++") else "no g++"


class Library:
    """The entry points of one compiled kernel source."""

    def __init__(self, path: Path):
        self._launch = _runtime().emulated_launch
        self._library = ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)

    def launch(
        self,
        function: str,
        grid: Sequence[int],
        threads: int,
        shared: int,
        args: Sequence[int],
        flags: int = FORWARD,
        seconds: int = 120,
    ) -> None:
        """Runs one launch to its end. `args`: addresses and int32s in order of the entry point's parameters.

        `shared`: bytes of dynamic shared memory; `flags`: see `FORWARD`, `BACKWARD`; `seconds` of CPU time it may take.
        Raises EmulatorError with what went wrong in which block and thread.
        """
        if len(args) > MOST_ARGUMENTS:
            raise EmulatorError(f"{function}: {len(args)} arguments, the emulator passes at most {MOST_ARGUMENTS}")
        if not 0 < threads <= 1024 or not 0 <= shared <= 99 * 1024:
            raise EmulatorError(f"{function}: {threads} threads and {shared} bytes of shared memory in a block")
        dynamic = self._library.emulated_dynamic_shared
        dynamic.restype = ctypes.c_void_p
        slots = (ctypes.c_uint64 * max(1, len(args)))(*(a % (1 << 64) for a in args))
        kernel = ctypes.cast(getattr(self._library, function), ctypes.c_void_p)
        size = (ctypes.c_uint32 * 3)(*grid)
        record = _Launch(kernel, dynamic(), slots, len(args), size, threads, shared, flags, seconds)
        report = self._launch(ctypes.byref(record))
        if report:
            raise EmulatorError(f"{function}: {report.decode()}")


def library(source: str, headers: Mapping[str, str] | None = None) -> Library:
    """The kernel source (text of a rendered .cu file) compiled; kept by digest in the temporary folder.

    `headers`: bodies by name ('rows.cuh') instead of those in templates/cuh; device.cuh is always the host's.
    """
    bodies = {name: text.encode() for name, text in headers.items()} if headers else _bodies()
    bodies["device.cuh"] = (HOST / "device.cuh").read_bytes()
    prelude = (HOST / "cuda.h").read_bytes()
    text = source.encode()
    # Only headers that are reached count, so that work on one body does not compile all others again.
    used = _reached(text, bodies)
    digest = _digest(" ".join(FLAGS).encode(), prelude, text, *(bodies[name] for name in sorted(used)))
    target = _cache() / f"{digest}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=_cache()) as folder:
            root = Path(folder)
            (root / "cuh").mkdir()
            for name in used:
                (root / "cuh" / name).write_bytes(bodies[name])
            (root / "kernel.cu").write_bytes(text)
            (root / "cuda.h").write_bytes(prelude)
            _compile(("-x", "c++", "-include", "cuda.h", "-I.", "-Icuh", *FLAGS, "-c", "kernel.cu"), root)
            _compile(("-shared", "kernel.o", "-o", "kernel.so"), root)
            (root / "kernel.so").replace(target)
    return _loaded(target)


@cache
def _loaded(target: Path) -> Library:
    return Library(target)


def _bodies() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(BODIES.glob("*.cuh"))}


def _reached(text: bytes, bodies: dict[str, bytes]) -> set[str]:
    """Names of the bodies that a source includes, those of bodies included."""
    found: set[str] = set()
    open_texts = [text]
    while open_texts:
        included = open_texts.pop()
        for name, body in bodies.items():
            named = f'"{name}"'.encode() in included or f'"cuh/{name}"'.encode() in included
            if named and name not in found:
                found.add(name)
                open_texts.append(body)
    return found


def _compile(args: Sequence[str], folder: Path) -> None:
    done = subprocess.run(["g++", *args], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise EmulatorError(f"g++ {args[-1]}:\n{done.stderr[:4000]}")


def _digest(*texts: bytes) -> str:
    total = hashlib.sha256()
    for text in texts:
        total.update(hashlib.sha256(text).digest())
    return total.hexdigest()[:24]


@cache
def _cache() -> Path:
    folder = Path(tempfile.gettempdir()) / f"ddtreec-emulated-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@cache
def _runtime() -> ctypes.CDLL:
    """emulator.cc, whose symbols the kernels' libraries find."""
    source = (HOST / "emulator.cc").read_bytes()
    flags = ("-O3", "-std=c++17", "-fPIC", "-shared", "-fno-exceptions", "-ffp-contract=off", "-Wall")
    target = _cache() / f"runtime-{_digest(source, ' '.join(flags).encode())}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=_cache()) as folder:
            _compile((*flags, str(HOST / "emulator.cc"), "-o", "runtime.so"), Path(folder))
            (Path(folder) / "runtime.so").replace(target)
    loaded = ctypes.CDLL(str(target), mode=os.RTLD_GLOBAL | os.RTLD_NOW)
    loaded.emulated_launch.restype = ctypes.c_char_p
    return loaded


class Memory:
    """Tensors that end where a forbidden page begins, so that a read behind them is an error; before them lies NaN."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def tensor(self, shape: Sequence[int], dtype: torch.dtype, align: int = 16) -> torch.Tensor:
        """A tensor filled with 0xff bytes (NaN, -1), a very large one with zeros.

        Its first element lies at a multiple of `align` bytes.
        """
        count = 1
        for n in shape:
            count *= n
        size = -(-count * dtype.itemsize // align) * align
        room = -(-(size + PAGE) // PAGE) * PAGE
        area = mmap.mmap(-1, room + PAGE)
        whole = torch.frombuffer(area, dtype=torch.uint8)
        if room <= MOST_FILLED:
            whole[:room].fill_(0xFF)
        if self._libc.mprotect(whole.data_ptr() + room, PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
        return whole[room - size : room - size + count * dtype.itemsize].view(dtype).view(*shape)
