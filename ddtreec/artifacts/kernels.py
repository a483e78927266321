"""kernels.json: the CUDA kernels of a bundle, how each is launched, and which device arrays they share.

Written by `ddtreec.emit.cuda`, read by the CUDA backend of the runtime. A *kernel* serves one call of the step program
(or one step of the round) and is one source file; it consists of *stages*, each one launch. A stage has a *variant* for
every row count that wants another body; the smallest that serves the rows of a step is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from ddtreec.artifacts.plan import Call, Struct, Value

KERNELS = "kernels.json"
KERNELS_FORMAT = 1

KERNEL_FOLDER, HEADER_FOLDER, BINARY_FOLDER = "src/kernels", "src/cuh", "bin"
"""Folders of a bundle."""


def source_path(kernel: str) -> str:
    """Where the source of a kernel lies in a bundle."""
    return f"{KERNEL_FOLDER}/{kernel}.cu"


def binary_path(kernel: str, arch: str) -> str:
    """Where the cubin of a kernel lies in a bundle."""
    return f"{BINARY_FOLDER}/{kernel}.{arch}.cubin"


SCRATCH_ALIGN = 256
"""Bytes: where scratch arrays of a kernel begin."""

SYMBOLS = ("rows", "out_rows", "slots", "group")
"""What a step may know only when it runs: rows of the step, rows the head is asked for, sequences (slots) in the step,
and rows of one slot. rows == slots * group; row `slot * group + i` is the slot's i-th."""


class Dim(Struct, frozen=True):
    """ceil(times * product of the symbols `by` / per)."""

    times: int = 1
    by: tuple[str, ...] = ()
    per: int = 1

    def value(self, symbols: Mapping[str, int]) -> int:
        """The number for a step. `symbols`: at least those of `by`."""
        return -(-self.times * math.prod(symbols[name] for name in self.by) // self.per)


class Variant(Struct, frozen=True):
    """One entry point: serves steps of at most `rows` rows (of the symbol the stage counts)."""

    rows: int
    function: str
    grid: tuple[Dim, Dim, Dim]
    threads: int
    shared: int = 0
    """Dynamic shared memory of a block in bytes."""


class Stage(Struct, frozen=True):
    """One launch. `args` in the order of the entry point's parameters:

    't:I' pointer to the I-th tensor of the call (outs, ins, weights in this order); 'scratch:NAME' pointer into the
    scratch of the kernel; 'state:NAME' pointer to a shared array (`StateArray`) or cache; 'int:SYMBOL' int32 of the
    step; 'param:NAME' int32 parameter of the call. `early`: fetches weights before the predecessor has ended, so it is
    launched with programmatic stream serialization (every stage waits with griddepcontrol.wait before it touches what
    others write). `count`: the symbol that picks the variant.
    """

    name: str
    variants: tuple[Variant, ...]
    args: tuple[str, ...]
    early: bool = True
    count: str = "rows"


class Scratch(Struct, frozen=True):
    """Bytes that stages of one kernel hand to each other; nothing outlives the kernel."""

    name: str
    bytes: Dim


class Reference(Struct, frozen=True):
    """What the kernel means: the same work as basic ops, `values` being those inside and at its border. `tensors`: the
    value or weight behind 't:0', 't:1', ..."""

    tensors: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    calls: tuple[Call, ...] = ()


class Resources(Struct, frozen=True):
    """What the compiler reports of one entry point."""

    registers: int
    shared: int
    """Static shared memory in bytes."""
    spills: int
    """Bytes of spill stores and loads."""


class Kernel(Struct, frozen=True):
    """One source file `src/kernels/<name>.cu` and its binary `bin/<name>.<arch>.cubin`."""

    name: str
    stages: tuple[Stage, ...]
    scratch: tuple[Scratch, ...] = ()
    layouts: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """How weights must lie in memory, by the index of their tensor ('4': 'int4_tiles'); 'plain' where none is named."""
    reference: Reference = Reference()
    alike: bool = True
    """Whether a row's bits are the same whatever other rows its step has. Attention, which cuts its keys by how many
    there are, promises less: the same bits for the same step."""


class StateArray(Struct, frozen=True):
    """A device array that kernels of several calls share, allocated once at its largest, all zeros at first. `shape`:
    ints or symbols."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


class KernelTable(Struct, frozen=True):
    """All of it. `programs`: by step program the kernel of every call in order, '' for a collective. `round`: kernels
    of the round that are no calls of a program. `largest`: most rows, out_rows, slots and group of any step.
    `compiler` and `resources` (by '<kernel>:<function>') are filled in when the binaries are made."""

    format: int
    arch: str
    kernels: tuple[Kernel, ...]
    programs: dict[str, tuple[str, ...]]
    round: tuple[str, ...] = ()
    state: tuple[StateArray, ...] = ()
    largest: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    compiler: str = ""
    resources: dict[str, Resources] = msgspec.field(default_factory=dict[str, Resources])


def places(kernel: Kernel, largest: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Offset of each scratch array of a kernel in bytes, and how many bytes they take, at the largest step."""
    offsets: dict[str, int] = {}
    top = 0
    for scratch in kernel.scratch:
        offsets[scratch.name] = top
        top += -(-scratch.bytes.value(largest) // SCRATCH_ALIGN) * SCRATCH_ALIGN
    return offsets, top


def scratch_bytes(table: KernelTable) -> int:
    """Bytes of scratch that the neediest kernel takes."""
    return max((places(kernel, table.largest)[1] for kernel in table.kernels), default=0)


def encode(table: KernelTable) -> bytes:
    """Indented, stable JSON."""
    return msgspec.json.format(msgspec.json.encode(table), indent=1) + b"\n"


def decode(data: bytes) -> KernelTable:
    """Raises msgspec.ValidationError or DecodeError for anything else."""
    return msgspec.json.decode(data, type=KernelTable)
