"""What kernels need of memory besides what the passes counted: known only once they are emitted."""

from __future__ import annotations

import math

import msgspec

from ddtreec.artifacts.kernels import KernelTable, StateArray, scratch_bytes
from ddtreec.artifacts.plan import MemoryRow, Plan
from ddtreec.passes.fit import TREE_SCRATCH

KERNEL_SCRATCH = "kernel scratch"

ITEMSIZE = {"bfloat16": 2, "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "float64": 8}

COUNTED = frozenset({"latent", "context", "logits", "draft_logits", "features", "ring"})
"""Caches and buffers that have rows of their own, and the ring, which lies in the host's memory."""


def with_kernel_memory(plan: Plan, table: KernelTable) -> Plan:
    """The plan with a row for the scratch that all kernels share, and the arrays of a step and its tree as they are."""
    step = sum(array_bytes(array, table) for array in table.state if array.name not in COUNTED)
    rows = [row for row in plan.memory if row.purpose != TREE_SCRATCH]
    last = next((n for n, row in enumerate(rows) if row.purpose.startswith("reserved")), len(rows))
    rows[last:last] = [MemoryRow(TREE_SCRATCH, step), MemoryRow(KERNEL_SCRATCH, scratch_bytes(table))]
    return msgspec.structs.replace(plan, memory=tuple(rows))


def array_bytes(array: StateArray, table: KernelTable) -> int:
    """Bytes of a state array at its largest."""
    return ITEMSIZE[array.dtype] * math.prod(table.largest[n] if isinstance(n, str) else n for n in array.shape)
