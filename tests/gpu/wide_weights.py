"""Random weights of one rank twice: laid out as its kernels read them, and as numbers of a float32 reference.

Every expert is drawn on its own. INT4 experts of the reference stay packed and become numbers one at a time: the 384 of
one layer of Kimi K2.6 would take 68 GB in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Weight
from ddtreec_runtime.backends.cuda.layouts import LAYOUTS
from ddtreec_runtime.backends.cuda.weights import PLAIN, device_dtype
from ddtreec_runtime.weights.int4 import PER_WORD, dequantize

NIBBLE = 4.6
"""Root mean square of q in [-8, 7]."""

AT_ONCE = 8
"""Experts that are laid out at a time."""


@dataclass(frozen=True, slots=True)
class PackedExperts:
    """[experts, rows, cols] for the CPU kernel of experts, which asks for one matrix at a time.

    words int32 [experts, rows, cols / 8], scales bfloat16 [experts, rows, cols / group]. `turned`: rows and cols
    exchanged.
    """

    words: Tensor
    scales: Tensor
    product: Literal["exact", "bf16"]
    turned: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """As of a tensor."""
        experts, rows, words = self.words.shape
        return (experts, words * PER_WORD, rows) if self.turned else (experts, rows, words * PER_WORD)

    def transpose(self, first: int, second: int) -> PackedExperts:
        """Rows and cols exchanged, the only axes that can be."""
        assert {first, second} == {1, 2}
        return replace(self, turned=not self.turned)

    def unbind(self) -> PackedExperts:
        """A sequence of matrices, which it is already."""
        return self

    def __getitem__(self, expert: int) -> Tensor:
        dense = dequantize(self.words[expert], self.scales[expert], torch.float32, self.product)
        return dense.t() if self.turned else dense


def random_weights(
    weights: Sequence[Weight], layouts: Mapping[str, str], device: str, seed: int
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """By id: (what kernels read, what the reference reads: float32 tensors and `PackedExperts`).

    Matrices keep the size of what they are given, and tokens are embedded at the size of a normed row, so that what a
    layer adds does not hide in which token a row began with.

    Half of the INT4 scales are negative. The mean of q is -1/2, and with scales of one sign all matrices would share
    one direction, equal numbers, which each makes root(cols) / 9.2 times as large as it makes others: nine times at
    7168. A second layer of experts would give that direction and little else, and a row's error there would hang on
    one number that rounding left in its mean.
    """
    draw = torch.Generator(device).manual_seed(seed)
    laid: dict[str, Tensor] = {}
    exact: dict[str, Any] = {}
    for weight in weights:
        layout = layouts.get(weight.id, PLAIN)
        if weight.packing == "int4":
            laid[weight.id], exact[weight.id] = _packed(weight, layout, device, draw)
        else:
            laid[weight.id], exact[weight.id] = _dense(weight, layout, device, draw)
    return laid, exact


def _dense(weight: Weight, layout: str, device: str, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    numbers = torch.empty(weight.shape, dtype=torch.float32, device=device).normal_(generator=draw)
    if len(weight.shape) == 1:
        norm = weight.role == "norm" or "norm" in weight.id
        numbers = 1.0 + 0.1 * numbers if norm else 0.02 * numbers
    elif not weight.id.startswith("embed"):
        numbers *= weight.shape[-1] ** -0.5
    rounded = numbers.to(torch.bfloat16)
    laid = rounded.to(device_dtype(weight)) if layout == PLAIN else LAYOUTS[layout].dense(rounded)
    return laid, rounded.float()


def _packed(weight: Weight, layout: str, device: str, draw: torch.Generator) -> tuple[Tensor, PackedExperts]:
    experts, rows, cols = weight.shape
    words = torch.empty(experts, rows, cols // PER_WORD, dtype=torch.int32, device=device)
    words.random_(-(2**31), 2**31 - 1, generator=draw)
    scales = torch.empty(experts, rows, cols // weight.group, device=device).uniform_(0.5, 1.5, generator=draw)
    sign = torch.randint(0, 2, scales.shape, generator=draw, device=device) * 2 - 1
    scales = (scales * sign * (cols**-0.5 / NIBBLE)).to(torch.bfloat16)
    first = LAYOUTS[layout].packed(words[:1], scales[:1])
    laid = torch.empty(experts, *first.shape[1:], dtype=first.dtype, device=device)
    for begin in range(0, experts, AT_ONCE):
        part = slice(begin, begin + AT_ONCE)
        laid[part] = LAYOUTS[layout].packed(words[part], scales[part])
    return laid, PackedExperts(words, scales, weight.product)
