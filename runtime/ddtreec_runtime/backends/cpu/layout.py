"""How the CPU backend keeps float32 weights: with the inputs of a product as the outer axis of memory.

Products of few rows read a matrix once, and BLAS reads it faster along its outputs (up to twice as fast at one row).
Shapes stay those of the plan, [to, from]; only the order in memory changes. In float64 there is nothing to gain, and
in bfloat16 torch multiplies by rows of weights only.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Program

PRODUCTS = frozenset({"linear", "v_up", "experts"})
"""Kernels that multiply by their weights [.., to, from]."""


def lay_out(weights: Sequence[dict[str, Tensor]], programs: Sequence[Program]) -> None:
    """Turn, in place, the matrices that only products read; `weights[rank]` by id. Each tensor is copied once."""
    calls = [call for program in programs for call in program.calls]
    products = {w for call in calls if call.kernel in PRODUCTS for w in call.weights}
    products -= {w for call in calls if call.kernel not in PRODUCTS for w in call.weights}
    holders: dict[int, list[tuple[dict[str, Tensor], str]]] = {}
    read_otherwise = {id(tensor) for of_rank in weights for name, tensor in of_rank.items() if name not in products}
    for of_rank in weights:
        for name in products & of_rank.keys():
            if of_rank[name].dtype == torch.float32 and id(of_rank[name]) not in read_otherwise:
                holders.setdefault(id(of_rank[name]), []).append((of_rank, name))
    for shared in holders.values():
        turned = _turned(shared[0][0][shared[0][1]])
        for of_rank, name in shared:
            of_rank[name] = turned


def _turned(weight: Tensor) -> Tensor:
    return weight.transpose(-1, -2).contiguous().transpose(-1, -2)
