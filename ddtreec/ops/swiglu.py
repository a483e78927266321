"""The gated activation of an MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ddtreec.artifacts.plan import Mesh
from ddtreec.ops.base import Op, Strategy, TensorType, need
from ddtreec.ops.fields import Field
from ddtreec.ops.place import Place


@dataclass(frozen=True, slots=True)
class Swiglu(Op):
    """gate, up -> silu(gate) * up, of one type."""

    kind: ClassVar[str] = "swiglu"
    SPEC: ClassVar[Mapping[str, Field] | None] = {}
    ARITY: ClassVar[tuple[int, int]] = (2, 1)

    @classmethod
    def build(cls, fields: Mapping[str, Any], place: Place) -> Swiglu:
        return cls()

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        gate, up = ins
        need(
            gate == up and gate.dtype == "compute",
            lambda: f"'gate' is {gate} and 'up' is {up}, but two of one type are expected",
        )
        return (gate,)

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        return self.alike(ins, mesh, "S1")
