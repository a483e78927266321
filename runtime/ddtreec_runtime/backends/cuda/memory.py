"""What the plan said that a rank holds, beside what is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ddtreec_runtime.backends.cuda.device import RESERVED
from ddtreec_runtime.backends.cuda.machine import KNOWN, Machine

CACHES = {"latent": "KV cache", "context": "drafter context cache"}
"""Purposes of the memory table by the array that serves them; all other arrays are TREE."""
TREE, SCRATCH, INPUTS = "tree scratch", "kernel scratch", "inputs of programs"


@dataclass(frozen=True, slots=True)
class Holding:
    """Bytes of one purpose, as planned and as allocated. A purpose that the plan does not name is planned as 0."""

    purpose: str
    planned: int
    held: int


def holdings(machine: Machine) -> list[Holding]:
    """Every purpose of the plan and of the machine; what the device itself keeps is left out, and so are the drafter's
    purposes where no drafter is loaded."""
    planned = {row.purpose: row.bytes for row in machine.plan.memory if row.purpose != RESERVED}
    if not machine.drafting:
        planned = {purpose: size for purpose, size in planned.items() if "draft" not in purpose}
    held = dict.fromkeys(planned, 0)
    for purpose, size in _allocated(machine):
        held[purpose] = held.get(purpose, 0) + size
    return [Holding(purpose, planned.get(purpose, 0), size) for purpose, size in held.items()]


def _allocated(machine: Machine) -> list[tuple[str, int]]:
    """Every allocation once: a tensor that two weights share counts for the first."""
    found: list[tuple[str, int]] = []
    seen: set[int] = set()

    def count(purpose: str, tensor: Tensor) -> None:
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            found.append((purpose, tensor.numel() * tensor.element_size()))

    for weight in machine.plan.weights:
        if weight.id in machine.weights:
            prefix = "drafter " if weight.store == "drafter" else ""
            count(f"{prefix}weights: {weight.role}", machine.weights[weight.id])
    for program, kept in machine.kept.items():
        for value, tensor in kept.items():
            count(f"buffer: {program}.{value}", tensor)
    lent = {name for names in KNOWN.values() for name in names.values()} | {"ring"}
    for name, tensor in machine.arrays.tensors.items():
        if name not in lent:
            count(CACHES.get(name, TREE), tensor)
    for inputs in machine.inputs.values():
        for tensor in inputs.values():
            count(INPUTS, tensor)
    count("arena", machine.arena)
    count(SCRATCH, machine.scratch)
    return found
