"""RMSNorm over the last axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ddtreec.artifacts.plan import Mesh, Weight
from ddtreec.ops.base import Op, Param, Strategy, TensorType, need
from ddtreec.ops.fields import Field, Number, Size, Tensor
from ddtreec.ops.place import Place


@dataclass(frozen=True, slots=True)
class RmsNorm(Op):
    """x [.., dim] -> x / sqrt(mean(x^2) + eps) * w. Heads may be cut; the normalised axis never."""

    kind: ClassVar[str] = "rms_norm"
    SPEC: ClassVar[Mapping[str, Field] | None] = {"dim": Size(), "eps": Number(), "weight": Tensor()}
    dim: int
    eps: float
    weight: Weight

    @classmethod
    def build(cls, fields: Mapping[str, Any], place: Place) -> RmsNorm:
        dim = fields["dim"]
        return cls(dim, fields["eps"], place.weight("norm", {"weight": fields["weight"]}, (dim,)))

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        (x,) = ins
        need(
            x.dtype == "compute" and len(x.shape) > 1 and x.shape[-1] == self.dim,
            lambda: f"'x' is {x}, but a last axis of {self.dim} is expected",
        )
        return (x,)

    def weights(self) -> tuple[Weight, ...]:
        return (self.weight,)

    def params(self) -> dict[str, Param]:
        return {"eps": self.eps}

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        return self.alike(ins, mesh, "S1") if len(ins[0].shape) > 2 else self.alike(ins, mesh)
