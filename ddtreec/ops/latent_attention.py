"""Absorbed MLA attention: all heads share one cached key, the latent and its rotated part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ddtreec.artifacts.plan import Mesh
from ddtreec.ops.base import At, Cost, Op, Param, Strategy, TensorType, need, need_rows


@dataclass(frozen=True, slots=True)
class LatentAttention(Op):
    """q_c [rows, heads, kv_lora], q_rot [rows, heads, rope], cache (token) -> o_c [rows, heads, kv_lora].

    score = scale * (q_c . c + q_rot . k_rot) over the visible rows of latent cache `layer`; o_c = sum p c.
    """

    kind: ClassVar[str] = "latent_attention"
    ARITY: ClassVar[tuple[int, int]] = (3, 1)
    heads: int
    kv_lora: int
    rope: int
    scale: float
    layer: int

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        q_c, q_rot, cache = ins
        need_rows(q_c, (self.heads, self.kv_lora), "q_c")
        need_rows(q_rot, (self.heads, self.rope), "q_rot")
        need(cache.dtype == "token", lambda: f"'cache' is {cache}, but what latent_append gives is expected")
        return (q_c,)

    def params(self) -> dict[str, Param]:
        return {"layer": self.layer, "scale": self.scale}

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        whole = Strategy(("R", "R", "R"), ("R",), self)
        if self.heads % mesh.ranks:
            return (whole,)
        return (whole, Strategy(("S1", "S1", "R"), ("S1",), replace(self, heads=self.heads // mesh.ranks)))

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        cache = float(at.context * (self.kv_lora + self.rope) * at.itemsize)
        flops = 2.0 * at.rows * self.heads * at.context * (2 * self.kv_lora + self.rope)
        return Cost(0.0, cache, self.traffic(ins, at), flops)
