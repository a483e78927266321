"""Write this step's latents into the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ddtreec.artifacts.plan import Mesh
from ddtreec.ops.base import TOKEN, At, Cost, Op, Param, Strategy, TensorType
from ddtreec.ops.fields import Fault, Field
from ddtreec.ops.place import Place


@dataclass(frozen=True, slots=True)
class LatentAppend(Op):
    """c [rows, kv_lora], k [rows, rope] -> token. Row r goes to the cache slot of row r in latent cache `layer`.

    The latent is replicated: every head reads all of it.
    """

    kind: ClassVar[str] = "latent_append"
    SPEC: ClassVar[Mapping[str, Field] | None] = {}
    ARITY: ClassVar[tuple[int, int]] = (2, 1)
    layer: int

    @classmethod
    def build(cls, fields: Mapping[str, Any], place: Place) -> LatentAppend:
        return cls(in_layer(cls.kind, place))

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        for name, kind in zip(("c", "k"), ins, strict=True):
            if kind.dtype != "compute" or len(kind.shape) != 2:
                raise ValueError(f"'{name}' is {kind}, but [rows, n] is expected")
        return (TOKEN,)

    def params(self) -> dict[str, Param]:
        return {"layer": self.layer}

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        return self.alike(ins, mesh)

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        return Cost(activation_bytes=2.0 * self.traffic(ins, at))


def in_layer(kind: str, place: Place) -> int:
    """The layer number, which is also the number of the cache. Raises Fault outside the layers."""
    if place.layer < 0:
        raise Fault(f"{kind} stands outside the layers, where there is no cache", help="use it in a repeated block")
    return place.layer
