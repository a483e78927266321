"""A matrix product without bias."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ddtreec.artifacts.plan import Mesh, Weight
from ddtreec.ops.base import At, Cost, Op, Strategy, TensorType, need_rows
from ddtreec.ops.cuts import cut, divides
from ddtreec.ops.embedding import own_or_shared
from ddtreec.ops.fields import Field, Sizes, Tensor, Word
from ddtreec.ops.place import PLAIN_ROLES, Place


@dataclass(frozen=True, slots=True)
class Linear(Op):
    """x [rows, *inputs] -> y [rows, *outputs], weight [prod(outputs), prod(inputs)]. `result`: dtype of y; 'float32'
    for logits, whose best tokens would tie in bfloat16.

    Over ranks: replicated; by columns (the first of `outputs` is cut, y too); by rows (the first of `inputs` is cut,
    x too, y is a partial sum).
    """

    kind: ClassVar[str] = "linear"
    SPEC: ClassVar[Mapping[str, Field] | None] = {
        "role": Word(words=PLAIN_ROLES),
        "from": Sizes(),
        "to": Sizes(),
        "weight": Tensor(optional=True),
        "shared": Word(words=("target",), optional=True),
    }
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    weight: Weight
    question: str = ""
    result: str = "compute"

    @classmethod
    def build(cls, fields: Mapping[str, Any], place: Place) -> Linear:
        inputs, outputs = fields["from"], fields["to"]
        weight = own_or_shared(fields, place, "linear", (math.prod(outputs), math.prod(inputs)))
        return cls(inputs, outputs, weight, place.question(fields["role"]))

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        need_rows(ins[0], self.inputs, "x")
        return (TensorType((ins[0].shape[0], *self.outputs), self.result),)

    def weights(self) -> tuple[Weight, ...]:
        return (self.weight,)

    @property
    def by_columns(self) -> str:
        """The answer to its question that cuts the columns ('' if it has no question)."""
        return {"": "", "a_proj": "gather", "vocab": "parallel"}.get(self.question, "tp")

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        ranks = mesh.ranks
        if not self.question:
            return (Strategy(("R",), ("R",), self),)
        found = [Strategy(("R",), ("R",), self, self.question, "replicated")]
        if self._columns(ranks):
            outputs = (self.outputs[0] // ranks, *self.outputs[1:])
            local = replace(self, outputs=outputs, weight=cut(self.weight, 0, ranks))
            found.append(Strategy(("R",), ("S1",), local, self.question, self.by_columns))
        if self._rows(ranks):
            inputs = (self.inputs[0] // ranks, *self.inputs[1:])
            local = replace(self, inputs=inputs, weight=cut(self.weight, 1, ranks))
            found.append(Strategy(("S1",), ("P",), local, self.question, self.by_columns))
        return tuple(found)

    def _columns(self, ranks: int) -> bool:
        return divides(self.outputs[0], ranks)

    def _rows(self, ranks: int) -> bool:
        inner = math.prod(self.inputs[1:])
        whole = divides(self.inputs[0], ranks) and divides(self.inputs[0] * inner, ranks, self.weight.group)
        return whole and self.by_columns == "tp"

    def why_not(self, answer: str, mesh: Mesh) -> str:
        if answer != self.by_columns:
            return ""
        if not self._columns(mesh.ranks):
            return f"its {self.outputs[0]} outputs do not divide by {mesh.ranks} ranks"
        if answer == "tp" and not self._rows(mesh.ranks):
            group = f" in INT4 groups of {self.weight.group}" if self.weight.group else ""
            return f"its {math.prod(self.inputs)} inputs do not divide{group} by {mesh.ranks} ranks"
        return ""

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        flops = 2.0 * at.elements(ins[0]) * math.prod(self.outputs)
        return Cost(float(self.weight.bytes), 0.0, self.traffic(ins, at), flops)
