"""Storage order of weights: the same tensors to every kernel, laid out so that matrix products read them in a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Program

TRANSPOSED = {"linear": (0,), "v_up": (0,), "experts": (0, 1)}
"""Kernels, and which of their weights they multiply from the right. A matrix [to, from] whose storage is [from, to]
took half to nine tenths of the time, measured with 1 to 16 rows of 128 and 256 inputs on two cores of an EPYC. That is
float32: float64 has nothing to gain, and in bfloat16 torch took 6 to 20 times as long."""


def prepare(programs: Iterable[Program], weights: Sequence[dict[str, Tensor]]) -> None:
    """Replace, in place, the float32 weights of every rank that TRANSPOSED names; shapes and values stay as they are.

    A weight that another kernel reads too (a tied embedding) keeps its order. Tensors shared by ranks stay shared.
    """
    wanted: set[str] = set()
    others: set[str] = set()
    for call in (call for program in programs for call in program.calls):
        for place, name in enumerate(call.weights):
            (wanted if place in TRANSPOSED.get(call.kernel, ()) else others).add(name)
    places: dict[int, list[tuple[dict[str, Tensor], str]]] = {}
    for of_rank in weights:
        for name in sorted((wanted - others) & of_rank.keys()):
            if of_rank[name].dtype == torch.float32:
                places.setdefault(id(of_rank[name]), []).append((of_rank, name))
    for shared in places.values():
        # The old tensor is free when its last holder has the new one: never more than one is held twice.
        of_rank, name = shared[0]
        turned = of_rank[name].transpose(-1, -2).contiguous().transpose(-1, -2)
        for of_rank, name in shared:
            of_rank[name] = turned
