"""Rotary positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ddtreec.artifacts.plan import Mesh
from ddtreec.ops.base import Op, Param, Strategy, TensorType, need
from ddtreec.ops.fields import Fault, Field, Table
from ddtreec.ops.place import Place


@dataclass(frozen=True, slots=True)
class Rope(Op):
    """x [rows, (heads,) dim] -> x turned by the positions of the rows, with the plan's table `table`."""

    kind: ClassVar[str] = "rope"
    SPEC: ClassVar[Mapping[str, Field] | None] = {"table": Table()}
    table: str
    dim: int

    @classmethod
    def build(cls, fields: Mapping[str, Any], place: Place) -> Rope:
        dim = place.ropes[fields["table"]].dim
        if not isinstance(dim, int):
            raise Fault(f"the dim of this table, '{dim}', is undefined", "table")
        return cls(place.table(fields["table"]), dim)

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        (x,) = ins
        need(
            x.dtype == "compute" and len(x.shape) in (2, 3) and x.shape[-1] == self.dim,
            lambda: f"'x' is {x}, but rope table '{self.table}' turns a last axis of {self.dim}",
        )
        return (x,)

    def params(self) -> dict[str, Param]:
        return {"table": self.table}

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        return self.alike(ins, mesh, "S1") if len(ins[0].shape) > 2 else self.alike(ins, mesh)
