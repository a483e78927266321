"""The sum of two values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ddtreec.artifacts.plan import Mesh
from ddtreec.ops.base import Op, Strategy, TensorType, need
from ddtreec.ops.fields import Field
from ddtreec.ops.place import Place


@dataclass(frozen=True, slots=True)
class Add(Op):
    """a, b -> a + b, of one type. The sum of two partial sums is a partial sum."""

    kind: ClassVar[str] = "add"
    SPEC: ClassVar[Mapping[str, Field] | None] = {}
    ARITY: ClassVar[tuple[int, int]] = (2, 1)

    @classmethod
    def build(cls, fields: Mapping[str, Any], place: Place) -> Add:
        return cls()

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        a, b = ins
        need(a == b and a.dtype == "compute", lambda: f"'a' is {a} and 'b' is {b}, but two of one type are expected")
        return (a,)

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        return self.alike(ins, mesh, "S1", "P")
