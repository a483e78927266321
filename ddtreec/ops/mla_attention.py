"""Multi-head latent attention in its naive form: keys and values are made from the cached latents by kv_b."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ddtreec.artifacts.plan import Mesh, Weight
from ddtreec.ops.base import At, Cost, Op, Param, Strategy, TensorType, need, need_rows
from ddtreec.ops.cuts import cut, divides
from ddtreec.ops.fields import Field, Number, Size, Table, Tensor, Word
from ddtreec.ops.latent_append import in_layer
from ddtreec.ops.place import PLAIN_ROLES, Place
from ddtreec.spec.schema import RopeSpec


@dataclass(frozen=True, slots=True)
class MlaAttention(Op):
    """q_nope [rows, heads, nope], q_rot [rows, heads, rope], cache (token) -> o [rows, heads, v].

    score = scale * (q_nope . k_nope + q_rot . k_rot) over the visible rows of latent cache `layer`; weight kv_b is
    [heads, nope + v, kv_lora]. Expand makes it, absorb replaces it.
    """

    kind: ClassVar[str] = "mla_attention"
    SPEC: ClassVar[Mapping[str, Field] | None] = {
        "role": Word(words=PLAIN_ROLES),
        "heads": Size(),
        "nope": Size(),
        "rope": Size(),
        "v": Size(),
        "kv_lora": Size(),
        "table": Table(),
        "weight": Tensor(),
        "scale": Number(optional=True),
    }
    ARITY: ClassVar[tuple[int, int]] = (3, 1)
    heads: int
    nope: int
    rope: int
    v: int
    kv_lora: int
    scale: float
    layer: int
    weight: Weight
    question: str = ""

    @classmethod
    def build(cls, fields: Mapping[str, Any], place: Place) -> MlaAttention:
        heads, nope, rope, v, kv_lora = (fields[n] for n in ("heads", "nope", "rope", "v", "kv_lora"))
        weight = place.weight(fields["role"], {"weight": fields["weight"]}, (heads, nope + v, kv_lora))
        scale = fields["scale"] or softmax_scale(nope + rope, place.ropes[fields["table"]])
        layer = in_layer(cls.kind, place)
        return cls(heads, nope, rope, v, kv_lora, scale, layer, weight, place.question(fields["role"]))

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        q_nope, q_rot, cache = ins
        need_rows(q_nope, (self.heads, self.nope), "q_nope")
        need_rows(q_rot, (self.heads, self.rope), "q_rot")
        need(cache.dtype == "token", lambda: f"'cache' is {cache}, but what latent_append gives is expected")
        return (TensorType((q_nope.shape[0], self.heads, self.v)),)

    def weights(self) -> tuple[Weight, ...]:
        return (self.weight,)

    def params(self) -> dict[str, Param]:
        return {"layer": self.layer, "scale": self.scale}

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        return by_heads(self, mesh, ("S1", "S1", "R"))

    def why_not(self, answer: str, mesh: Mesh) -> str:
        return heads_why_not(self.heads, answer, mesh)

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        width = self.kv_lora + self.rope
        made = at.context * self.heads * self.kv_lora * (self.nope + self.v)
        attended = at.rows * self.heads * at.context * (self.nope + self.rope + self.v)
        cache = float(at.context * width * at.itemsize)
        return Cost(float(self.weight.bytes), cache, self.traffic(ins, at), 2.0 * (made + attended))


def softmax_scale(dim: int, table: RopeSpec) -> float:
    """dim^-0.5, times m^2 under YaRN with m = 0.1 * mscale_all_dim * ln(factor) + 1 (DeepSeek-V3)."""
    m = 1.0
    if table.yarn is not None and table.yarn.factor > 1:
        m = 0.1 * table.yarn.mscale_all_dim * math.log(table.yarn.factor) + 1.0
    return dim**-0.5 * m * m


def by_heads(op: Any, mesh: Mesh, ins: tuple[str, ...]) -> tuple[Strategy, ...]:
    """Replicated, or axis 0 of the weight and the heads cut over the ranks. `op` has heads, weight and question."""
    whole = Strategy(("R",) * len(ins), ("R",), op, op.question, "replicated" if op.question else "")
    if not divides(op.heads, mesh.ranks):
        return (whole,)
    local = replace(op, heads=op.heads // mesh.ranks, weight=cut(op.weight, 0, mesh.ranks))
    return (whole, Strategy(ins, ("S1",), local, op.question, "tp" if op.question else ""))


def heads_why_not(heads: int, answer: str, mesh: Mesh) -> str:
    """Why heads are not cut, as `Op.why_not`."""
    return f"{heads} heads do not divide by {mesh.ranks} ranks" if answer == "tp" and heads % mesh.ranks else ""
