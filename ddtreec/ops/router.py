"""The choice of experts for every row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ddtreec.artifacts.plan import Mesh, Weight
from ddtreec.ops.base import At, Cost, Op, Param, Strategy, TensorType, need_rows
from ddtreec.ops.fields import Fault, Field, Flag, Number, Size, Tensor, Word
from ddtreec.ops.place import ROLES, Place

BIAS_BYTES = 4
"""The correction bias is stored and used in float32."""


@dataclass(frozen=True, slots=True)
class Router(Op):
    """x [rows, dim] -> ids [rows, top_k] int64, w [rows, top_k] float32.

    s = score(W x) in float32 or wider; the top_k largest of s + bias are chosen, among the `top_groups` best of
    `groups` groups; their weights are s (not s + bias), normalised to 1 if `normalize`, times `scale`.
    Replicated: every rank must make the same choice.
    """

    kind: ClassVar[str] = "router"
    SPEC: ClassVar[Mapping[str, Field] | None] = {
        "role": Word(words=ROLES),
        "dim": Size(),
        "experts": Size(),
        "top_k": Size(),
        "groups": Size(optional=True, default=1),
        "top_groups": Size(optional=True, default=1),
        "score": Word(words=("sigmoid", "softmax")),
        "normalize": Flag(),
        "scale": Number(),
        "weight": Tensor(),
        "bias": Tensor(nullable=True, optional=True),
    }
    ARITY: ClassVar[tuple[int, int]] = (1, 2)
    dim: int
    experts: int
    top_k: int
    groups: int
    top_groups: int
    score: str
    normalize: bool
    scale: float
    weight: Weight
    bias: Weight | None

    @classmethod
    def build(cls, fields: Mapping[str, Any], place: Place) -> Router:
        f = dict(fields)
        role, experts, groups, top_groups = f.pop("role"), f["experts"], f["groups"], f["top_groups"]
        if experts % groups:
            raise Fault(f"{experts} experts do not divide into {groups} groups", "groups")
        if top_groups > groups:
            raise Fault(f"{top_groups} of {groups} groups cannot be chosen", "top_groups")
        if f["top_k"] > experts // groups * top_groups:
            chosen = experts // groups * top_groups
            raise Fault(f"{f['top_k']} experts are to be chosen from {chosen}", "top_k", help=f"at most {chosen}")
        weight = place.weight(role, {"weight": f.pop("weight")}, (experts, f["dim"]), precision="float32")
        bias = f.pop("bias")
        if bias is not None:
            bias = place.weight(
                role, {"bias": bias}, (experts,), suffix=".bias", precision="float32", element=BIAS_BYTES
            )
        return cls(**f, weight=weight, bias=bias)

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        need_rows(ins[0], (self.dim,), "x")
        shape = (ins[0].shape[0], self.top_k)
        return TensorType(shape, "int64"), TensorType(shape, "float32")

    def weights(self) -> tuple[Weight, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    def params(self) -> dict[str, Param]:
        return {n: getattr(self, n) for n in ("top_k", "groups", "top_groups", "score", "normalize", "scale")}

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        return self.alike(ins, mesh)

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        read = float(sum(w.bytes for w in self.weights()))
        return Cost(read, 0.0, self.traffic(ins, at), 2.0 * at.elements(ins[0]) * self.experts)
