"""The value side of absorbed MLA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ddtreec.artifacts.plan import Mesh, Weight
from ddtreec.ops.base import At, Cost, Op, Strategy, TensorType, need_rows
from ddtreec.ops.mla_attention import by_heads, heads_why_not


@dataclass(frozen=True, slots=True)
class VUp(Op):
    """o_c [rows, heads, kv_lora] -> o [rows, heads, v] = W_uv o_c; weight W_uv [heads, v, kv_lora]."""

    kind: ClassVar[str] = "v_up"
    heads: int
    v: int
    kv_lora: int
    weight: Weight
    question: str = ""

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        need_rows(ins[0], (self.heads, self.kv_lora), "o_c")
        return (TensorType((ins[0].shape[0], self.heads, self.v)),)

    def weights(self) -> tuple[Weight, ...]:
        return (self.weight,)

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        return by_heads(self, mesh, ("S1",))

    def why_not(self, answer: str, mesh: Mesh) -> str:
        return heads_why_not(self.heads, answer, mesh)

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        flops = 2.0 * at.elements(ins[0]) * self.v
        return Cost(float(self.weight.bytes), 0.0, self.traffic(ins, at), flops)
