"""Sum of what the ranks hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ddtreec.artifacts.plan import Mesh
from ddtreec.ops.base import At, Cost, Op, Strategy, TensorType, need


@dataclass(frozen=True, slots=True)
class AllReduce(Op):
    """x (a partial sum) -> y, the sum over all ranks, on every rank."""

    kind: ClassVar[str] = "all_reduce"

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        need(ins[0].dtype in ("compute", "float32"), lambda: f"'x' is {ins[0]}, which cannot be summed")
        return ins

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        return (Strategy(("P",), ("R",), self),)

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        return Cost(activation_bytes=self.traffic(ins, at))
