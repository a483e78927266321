"""Write keys and values of committed tokens into the drafter's cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ddtreec.artifacts.plan import Mesh
from ddtreec.ops.base import TOKEN, At, Cost, Op, Param, Strategy, TensorType, need_rows
from ddtreec.ops.fields import Field, Size
from ddtreec.ops.latent_append import in_layer
from ddtreec.ops.place import Place


@dataclass(frozen=True, slots=True)
class ContextAppend(Op):
    """k, v [rows, heads, head_dim] -> token. Row r goes to the slot of row r in context cache `layer`. `window` > 0:
    how many tokens back a reader may look."""

    kind: ClassVar[str] = "context_append"
    SPEC: ClassVar[Mapping[str, Field] | None] = {
        "heads": Size(),
        "head_dim": Size(),
        "window": Size(zero=True, nullable=True, optional=True, default=0),
    }
    ARITY: ClassVar[tuple[int, int]] = (2, 1)
    heads: int
    head_dim: int
    window: int
    layer: int
    question: str = ""

    @classmethod
    def build(cls, fields: Mapping[str, Any], place: Place) -> ContextAppend:
        return cls(**fields, layer=in_layer(cls.kind, place), question=place.question("drafter"))

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        for name, kind in zip(("k", "v"), ins, strict=True):
            need_rows(kind, (self.heads, self.head_dim), name)
        return (TOKEN,)

    def params(self) -> dict[str, Param]:
        return {"layer": self.layer}

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        whole = Strategy(("R", "R"), ("R",), self, self.question, "replicated" if self.question else "")
        if self.heads % mesh.ranks:
            return (whole,)
        local = replace(self, heads=self.heads // mesh.ranks)
        return (whole, Strategy(("S1", "S1"), ("R",), local, self.question, "tp" if self.question else ""))

    def why_not(self, answer: str, mesh: Mesh) -> str:
        if answer == "tp" and self.heads % mesh.ranks:
            return f"{self.heads} key/value heads do not divide by {mesh.ranks} ranks"
        return ""

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        return Cost(activation_bytes=2.0 * self.traffic(ins, at))
