"""Everything the ranks hold, in the order of ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ddtreec.artifacts.plan import Mesh
from ddtreec.ops.base import At, Cost, Op, Param, Strategy, TensorType, need


@dataclass(frozen=True, slots=True)
class AllGather(Op):
    """x.. (cut along `axis`) -> y.., the slices of all `ranks` ranks joined along `axis`, on every rank.

    Usually one; fuse makes one meeting of the ranks of gathers that are ready together.
    """

    kind: ClassVar[str] = "all_gather"
    ARITY: ClassVar[tuple[int, int]] = (-1, -1)
    axis: int
    ranks: int

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return tuple(self._joined(x) for x in ins)

    def _joined(self, x: TensorType) -> TensorType:
        need(
            x.dtype in ("compute", "float32") and len(x.shape) > self.axis > 0,
            lambda: f"'x' is {x}, which has no axis {self.axis}",
        )
        joined = int(x.shape[self.axis]) * self.ranks
        return replace(x, shape=(*x.shape[: self.axis], joined, *x.shape[self.axis + 1 :]))

    def params(self) -> dict[str, Param]:
        return {"axis": self.axis}

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        return (Strategy((f"S{self.axis}",) * len(ins), ("R",) * len(ins), self),)

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        return Cost(activation_bytes=self.traffic(ins, at))
