"""Rows of a table by token id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ddtreec.artifacts.plan import Mesh, Weight
from ddtreec.ops.base import At, Cost, Op, Param, Strategy, TensorType, need
from ddtreec.ops.cuts import cut, divides
from ddtreec.ops.fields import Fault, Field, Size, Tensor, Word
from ddtreec.ops.place import Place


@dataclass(frozen=True, slots=True)
class Embedding(Op):
    """tokens [rows] int32 -> x [rows, cols]. One rank holds `rows` of the table; other tokens give zeros there."""

    kind: ClassVar[str] = "embedding"
    SPEC: ClassVar[Mapping[str, Field] | None] = {
        "role": Word(words=("vocab",), optional=True, default="vocab"),
        "rows": Size(),
        "cols": Size(),
        "weight": Tensor(optional=True),
        "shared": Word(words=("target",), optional=True),
    }
    rows: int
    cols: int
    weight: Weight
    question: str = ""

    @classmethod
    def build(cls, fields: Mapping[str, Any], place: Place) -> Embedding:
        shape = (fields["rows"], fields["cols"])
        weight = own_or_shared(fields, place, "embedding", shape)
        return cls(*shape, weight, place.question(fields["role"]))

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        (tokens,) = ins
        need(
            tokens.dtype == "int32" and len(tokens.shape) == 1,
            lambda: f"'tokens' is {tokens}, but int32 ids are expected",
        )
        return (TensorType((tokens.shape[0], self.cols)),)

    def weights(self) -> tuple[Weight, ...]:
        return (self.weight,)

    def params(self) -> dict[str, Param]:
        return {"first_per": self.rows if self.weight.parts[0].shard else 0, "coord": "rank"}

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        whole = Strategy(("R",), ("R",), self, self.question, "replicated" if self.question else "")
        if not self.question or self.why_not("parallel", mesh):
            return (whole,)
        local = replace(self, rows=self.rows // mesh.ranks, weight=cut(self.weight, 0, mesh.ranks))
        return (whole, Strategy(("R",), ("P",), local, self.question, "parallel"))

    def why_not(self, answer: str, mesh: Mesh) -> str:
        if answer == "parallel" and not divides(self.rows, mesh.ranks):
            return f"a vocabulary of {self.rows} does not divide by {mesh.ranks} ranks"
        return ""

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        read = at.rows * self.weight.bytes / self.rows
        return Cost(read, 0.0, self.traffic(ins, at))


def own_or_shared(fields: Mapping[str, Any], place: Place, kind: str, shape: tuple[int, ...]) -> Weight:
    """The weight that the op names, or the target's. Raises Fault unless the spec gives exactly one that fits."""
    if (fields["weight"] is None) == (fields["shared"] is None):
        raise Fault("needs either a weight or 'shared: target'", help="write one of the two")
    if fields["shared"] is None:
        return place.weight(fields["role"], {"weight": fields["weight"]}, shape)
    if place.store == "target":
        raise Fault("only a drafter can share a weight of the target", "shared", help="name the weight")
    if place.shared is None:  # nothing is known of the target, and why is reported already
        return Weight("", fields["role"], "target", (), shape)
    weight = place.shared.get(kind)
    if weight is None:
        raise Fault(f"the target has no {kind} to share", "shared", help="name the weight of the drafter's own")
    if weight.shape != shape:
        raise Fault(
            f"the target's {kind} is {list(weight.shape)}, this op needs {list(shape)}",
            "shared",
            "the drafter's dims must be those of the target it was trained for",
        )
    return weight
