"""What an op is: its types, its weights, the ways it can be split over ranks, and what it costs.

An op is a frozen dataclass that knows nothing of the graph around it. The meaning of every basic op is its torch
kernel of the same name in the CPU backend; `lower` names that kernel. `SPEC` says what a spec may write about an op of
this kind, `build` makes the op of it (see `ddtreec.ops.build`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ddtreec.artifacts.plan import Mesh, Weight

if TYPE_CHECKING:
    from ddtreec.ops.fields import Field
    from ddtreec.ops.place import Place

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

    @property
    def tail(self) -> tuple[int, ...]:
        """The axes after the first, which are always numbers."""
        return tuple(int(n) for n in self.shape[1:])


TOKEN = TensorType((), "token")
"""The type of a value that carries no data."""


@dataclass(frozen=True, slots=True)
class At:
    """The point at which a cost is asked for."""

    rows: int
    out_rows: int
    context: int
    itemsize: int
    """Bytes of one 'compute' element."""
    distinct: float | None = None
    """Experts that a layer reads, where they were counted; rows choose independently where not."""

    def elements(self, kind: TensorType) -> int:
        """Elements of a value of this type; 0 for a token."""
        if kind.dtype == "token":
            return 0
        known = {"rows": self.rows, "out_rows": self.out_rows}
        return math.prod(known[n] if isinstance(n, str) else n for n in kind.shape)

    def nbytes(self, kind: TensorType) -> int:
        """Bytes of a value of this type."""
        wide = max(4, self.itemsize)
        size = {"compute": self.itemsize, "float32": wide, "int32": 4, "int64": 8, "token": 0}[kind.dtype]
        return size * self.elements(kind)


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


REPLICATED, PARTIAL, CUT = "R", "P", "S1"
"""Placements of a value: every rank holds all of it ('R'); ranks hold addends ('P'); axis 1 is cut ('S1')."""


def placed(kind: TensorType, placement: str, ranks: int) -> TensorType:
    """What one rank holds of a value of this type under a placement. Raises ValueError where the cut axis does not
    divide by `ranks`."""
    if not placement.startswith("S"):
        return kind
    axis = int(placement[1:])
    size = kind.shape[axis]
    if not isinstance(size, int) or size % ranks:
        raise ValueError(f"{kind} does not divide by {ranks} along axis {axis}")
    return replace(kind, shape=(*kind.shape[:axis], size // ranks, *kind.shape[axis + 1 :]))


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
    SPEC: ClassVar[Mapping[str, Field] | None] = None
    """The fields a spec writes for this op; None for the ops that only passes make."""
    ARITY: ClassVar[tuple[int, int]] = (1, 1)
    """How many inputs and outputs; -1 means any number from one."""

    @classmethod
    def build(cls, fields: Mapping[str, Any], place: Place) -> Self:
        """The op from the read fields of a spec. Raises `fields.Fault` where they do not agree."""
        raise NotImplementedError

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
        """All legal ways to run on `mesh`, of whole (unsharded) inputs; the replicated one is always among them."""
        raise NotImplementedError

    def why_not(self, answer: str, mesh: Mesh) -> str:
        """What stands against this answer on `mesh`, for a message where no layout gives it; '' if nothing does."""
        return ""

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        """What one launch moves and computes on one rank. Default: weights, inputs and outputs once, no FLOPs."""
        return Cost(float(sum(w.bytes for w in self.weights())), 0.0, self.traffic(ins, at))

    def traffic(self, ins: tuple[TensorType, ...], at: At) -> float:
        """Bytes of inputs and outputs, each moved once."""
        return float(sum(at.nbytes(t) for t in (*ins, *self.infer(ins))))

    def alike(self, ins: tuple[TensorType, ...], mesh: Mesh, *axes: str) -> tuple[Strategy, ...]:
        """Strategies of an op without weights that treats every index of the cut axis alike: replicated, and each of
        `axes` for all inputs and outputs at once where every axis divides."""
        counts = len(ins), len(self.infer(ins))
        found = [Strategy((REPLICATED,) * counts[0], (REPLICATED,) * counts[1], self)]
        for axis in axes:
            if axis == PARTIAL or all(len(t.shape) > 1 and int(t.shape[1]) % mesh.ranks == 0 for t in ins):
                found.append(Strategy((axis,) * counts[0], (axis,) * counts[1], self))
        return tuple(found)


def need(condition: bool, reason: Callable[[], str]) -> None:
    """Raise ValueError unless `condition`: how `infer` refuses its inputs. `reason` is put in words only if needed."""
    if not condition:
        raise ValueError(reason())


def need_rows(kind: TensorType, tail: tuple[int, ...], name: str) -> None:
    """The input `name` must be compute values of `tail` behind a row axis."""
    if kind.dtype != "compute" or not kind.shape or kind.shape[1:] != tail:
        raise ValueError(f"'{name}' is {kind}, but {list(tail)} values a row are expected")
