"""What an op is: its types, its weights, the ways it can be split over ranks, and what it costs.

An op is a frozen dataclass that knows nothing of the graph around it. The meaning of every basic op is its torch
kernel of the same name in the CPU backend; `lower` names that kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ddtreec.artifacts.plan import Mesh, Weight

Dim = int | str
Param = int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class TensorType:
    """`shape[0]` is 'rows' (rows of the step) or 'out_rows' (rows the head is asked for); the rest are ints per rank.

    dtype: 'compute', 'float32' (float32 or wider), 'int32', 'int64', or 'token' for a value without data that only
    orders a cache write before its readers.
    """

    shape: tuple[Dim, ...]
    dtype: str = "compute"

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class At:
    """The point at which a cost is asked for."""

    rows: int
    out_rows: int
    context: int
    itemsize: int
    """Bytes of one 'compute' element."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one launch moves and computes on one rank. Bytes read of weights and cache, bytes of activations, FLOPs."""

    weight_bytes: float = 0.0
    cache_bytes: float = 0.0
    activation_bytes: float = 0.0
    flops: float = 0.0

    @property
    def bytes(self) -> float:
        """All bytes moved."""
        return self.weight_bytes + self.cache_bytes + self.activation_bytes

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.weight_bytes + other.weight_bytes,
            self.cache_bytes + other.cache_bytes,
            self.activation_bytes + other.activation_bytes,
            self.flops + other.flops,
        )


REPLICATED, PARTIAL = "R", "P"
"""Placements of a value: every rank holds all of it ('R'); ranks hold addends ('P'); axis n is cut ('S1', 'S2'..)."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to run an op on a mesh: the placements it takes and gives, and the op that one rank runs.

    `question` and `answer` name the layout choice it stands for ('attention', 'tp'), empty where nothing is chosen.
    """

    ins: tuple[str, ...]
    outs: tuple[str, ...]
    op: Op
    question: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Op:
    """Base of all ops."""

    kind: ClassVar[str] = ""

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        """Types of the outputs. Raises ValueError with the reason when the inputs do not fit."""
        raise NotImplementedError

    def weights(self) -> tuple[Weight, ...]:
        """The weights in the order the kernel takes them, as one rank holds them."""
        return ()

    def params(self) -> dict[str, Param]:
        """Keyword parameters of the kernel."""
        return {}

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        """All legal ways to run on `mesh`; the replicated one is always among them."""
        raise NotImplementedError

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        """What one launch moves and computes on one rank."""
        raise NotImplementedError
