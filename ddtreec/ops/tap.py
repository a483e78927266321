"""A target feature for the drafter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ddtreec.artifacts.plan import Mesh
from ddtreec.ops.base import At, Cost, Op, Param, Strategy, TensorType, need_rows


@dataclass(frozen=True, slots=True)
class Tap(Op):
    """x [rows, dim] -> columns [index * dim, (index + 1) * dim) of the persistent `features` [rows, taps * dim].

    All taps of a program give values of the one buffer; each writes its own columns only.
    """

    kind: ClassVar[str] = "tap"
    index: int
    taps: int
    dim: int

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        need_rows(ins[0], (self.dim,), "x")
        return (TensorType((ins[0].shape[0], self.taps * self.dim)),)

    def params(self) -> dict[str, Param]:
        return {"index": self.index}

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        return self.alike(ins, mesh)

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        return Cost(activation_bytes=2.0 * at.nbytes(ins[0]))
