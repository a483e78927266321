"""The rows the head is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ddtreec.artifacts.plan import Mesh
from ddtreec.ops.base import At, Cost, Op, Strategy, TensorType, need
from ddtreec.ops.fields import Field
from ddtreec.ops.place import Place


@dataclass(frozen=True, slots=True)
class TakeRows(Op):
    """x [rows, ..] -> y [out_rows, ..], the rows the step state names."""

    kind: ClassVar[str] = "take_rows"
    SPEC: ClassVar[Mapping[str, Field] | None] = {}

    @classmethod
    def build(cls, fields: Mapping[str, Any], place: Place) -> TakeRows:
        return cls()

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        (x,) = ins
        need(
            x.dtype == "compute" and x.shape[:1] == ("rows",), lambda: f"'x' is {x}, but rows of the step are expected"
        )
        return (replace(x, shape=("out_rows", *x.shape[1:])),)

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        return self.alike(ins, mesh, "S1", "P")

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        return Cost(activation_bytes=2.0 * at.nbytes(self.infer(ins)[0]))
