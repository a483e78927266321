"""Random weights for checks: as a kernel wants them on the device, and in float64 for the reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ddtreec.artifacts.kernels import Kernel
from ddtreec.artifacts.plan import Call, Weight
from ddtreec_runtime.backends.cuda.weights import device_dtype
from ddtreec_runtime.weights.int4 import PER_WORD, dequantize

PLAIN = "plain"


class Layout(Protocol):
    """How a weight lies on the device."""

    def dense(self, weight: Tensor) -> Tensor:
        """Of a bfloat16 weight."""
        ...

    def packed(self, words: Tensor, scales: Tensor) -> Tensor:
        """Of one matrix of INT4 words int32 [rows, cols / 8] and scales bfloat16 [rows, cols / group]."""
        ...


class Allocator(Protocol):
    """Makes tensors on the device, filled with 0xff bytes (NaN, -1)."""

    device: str
    """Where kernels and their reference run, as torch spells it."""

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Contiguous, its first element at a multiple of 16 bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Made:
    """A weight twice: on the device in its layout, and in float64. Of experts and of an embedding the latter holds
    those of the pool alone, in the pool's order."""

    device: Tensor
    exact: Tensor


def make_weights(
    kernel: Kernel,
    call: Call,
    records: Mapping[str, Weight],
    layouts: Mapping[str, Layout],
    pool: Tensor,
    memory: Allocator,
    draw: torch.Generator,
) -> dict[str, Made]:
    """The weights that a kernel reads, by id. `call`: the one that its reference is of; `pool`: the local experts, or
    rows of an embedding, that hold numbers; others hold NaN. `draw`: of the device, where all is made."""
    pooled = pooled_weights(kernel)
    norms = {name for call in kernel.reference.calls if call.kernel == "rms_norm" for name in call.weights}
    found: dict[str, Made] = {}
    first = len(call.outs) + len(call.ins)
    with torch.device(memory.device):
        for index, name in enumerate(kernel.reference.tensors[first:], first):
            layout = kernel.layouts.get(str(index), PLAIN)
            if name in pooled:
                found[name] = _pooled(records[name], layout, layouts, pool, memory, draw)
            else:
                found[name] = _whole(records[name], layout, layouts, name in norms, memory, draw)
    return found


def pooled_weights(kernel: Kernel) -> frozenset[str]:
    """Weights of which a step reads only what ids or tokens name."""
    kinds = ("embedding", "experts")
    return frozenset(name for call in kernel.reference.calls if call.kernel in kinds for name in call.weights)


def _pooled(
    record: Weight,
    layout: str,
    layouts: Mapping[str, Layout],
    pool: Tensor,
    memory: Allocator,
    draw: torch.Generator,
) -> Made:
    each = [_matrix(record, layout, layouts, record.shape[1:], draw) for _ in pool]
    first = each[0][0]
    device = memory.tensor((record.shape[0], *first.shape), first.dtype)
    for place, (laid, _) in zip(pool.tolist(), each, strict=True):
        device[place] = laid
    return Made(device, torch.stack([exact for _, exact in each]))


def _whole(
    record: Weight,
    layout: str,
    layouts: Mapping[str, Layout],
    norm: bool,
    memory: Allocator,
    draw: torch.Generator,
) -> Made:
    shape = record.shape
    if len(shape) == 1:
        vector = 0.1 * torch.randn(shape, generator=draw) + (1.0 if norm else 0.0)
        laid, exact = _typed(record, vector)
    else:
        laid, exact = _matrix(record, layout, layouts, shape, draw)
    return Made(memory.tensor(tuple(laid.shape), laid.dtype).copy_(laid), exact)


def _matrix(
    record: Weight, layout: str, layouts: Mapping[str, Layout], shape: tuple[int, ...], draw: torch.Generator
) -> tuple[Tensor, Tensor]:
    """(in its layout, in float64): numbers of such a size that a product keeps that of its inputs."""
    size = 1 / math.sqrt(shape[-1])
    if record.packing == "int4":
        words = torch.randint(-(2**31), 2**31, (*shape[:-1], shape[-1] // PER_WORD), generator=draw)
        scales = (0.5 + torch.rand(*shape[:-1], shape[-1] // record.group, generator=draw)) * (size / 4.6)
        words, scales = words.to(torch.int32), scales.to(torch.bfloat16)
        exact = dequantize(words, scales, torch.float64, record.product)
        if layout != PLAIN:
            return layouts[layout].packed(words, scales), exact
        laid = exact.to(torch.bfloat16)
        return laid, laid.double()
    laid, exact = _typed(record, size * torch.randn(shape, generator=draw))
    return (laid if layout == PLAIN else layouts[layout].dense(laid)), exact


def _typed(record: Weight, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """As a checkpoint holds them: bfloat16 numbers, in float32 where no less will do."""
    rounded = numbers.to(torch.bfloat16)
    laid = rounded.to(device_dtype(record))
    return laid, rounded.double()
