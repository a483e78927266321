"""Attention of the drafter's block to its context and itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ddtreec.artifacts.plan import Mesh
from ddtreec.ops.base import At, Cost, Op, Param, Strategy, TensorType, need_rows
from ddtreec.ops.fields import Fault, Field, Flag, Size
from ddtreec.ops.latent_append import in_layer
from ddtreec.ops.place import Place


@dataclass(frozen=True, slots=True)
class BlockAttention(Op):
    """q [rows, heads, head_dim], k, v [rows, kv_heads, head_dim] -> o [rows, heads, head_dim].

    Every row sees the tokens of context cache `layer` (the last `window` of them if window > 0) and the rows of the
    block: all of them, or with `causal` those up to itself. Scores are scaled by head_dim^-0.5.
    """

    kind: ClassVar[str] = "block_attention"
    SPEC: ClassVar[Mapping[str, Field] | None] = {
        "heads": Size(),
        "kv_heads": Size(),
        "head_dim": Size(),
        "window": Size(zero=True, nullable=True, optional=True, default=0),
        "causal": Flag(),
    }
    ARITY: ClassVar[tuple[int, int]] = (3, 1)
    heads: int
    kv_heads: int
    head_dim: int
    window: int
    causal: bool
    layer: int
    question: str = ""

    @classmethod
    def build(cls, fields: Mapping[str, Any], place: Place) -> BlockAttention:
        if fields["heads"] % fields["kv_heads"]:
            raise Fault(f"{fields['heads']} heads do not share {fields['kv_heads']} key/value heads evenly", "kv_heads")
        return cls(**fields, layer=in_layer(cls.kind, place), question=place.question("drafter"))

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        q, k, v = ins
        need_rows(q, (self.heads, self.head_dim), "q")
        need_rows(k, (self.kv_heads, self.head_dim), "k")
        need_rows(v, (self.kv_heads, self.head_dim), "v")
        return (q,)

    def params(self) -> dict[str, Param]:
        scale = self.head_dim**-0.5
        return {"layer": self.layer, "scale": scale, "window": self.window, "causal": self.causal}

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        whole = Strategy(("R",) * 3, ("R",), self, self.question, "replicated" if self.question else "")
        if self.heads % mesh.ranks or self.kv_heads % mesh.ranks:
            return (whole,)
        local = replace(self, heads=self.heads // mesh.ranks, kv_heads=self.kv_heads // mesh.ranks)
        return (whole, Strategy(("S1",) * 3, ("S1",), local, self.question, "tp" if self.question else ""))

    def why_not(self, answer: str, mesh: Mesh) -> str:
        if answer == "tp" and (self.heads % mesh.ranks or self.kv_heads % mesh.ranks):
            return f"{self.heads} heads and {self.kv_heads} key/value heads do not both divide by {mesh.ranks} ranks"
        return ""

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        context = min(at.context, self.window) if self.window else at.context
        cache = float(context * 2 * self.kv_heads * self.head_dim * at.itemsize)
        flops = 4.0 * at.rows * self.heads * (context + at.rows) * self.head_dim
        return Cost(0.0, cache, self.traffic(ins, at), flops)
