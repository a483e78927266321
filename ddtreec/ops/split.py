"""Views of one value: no data moves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ddtreec.artifacts.plan import Mesh
from ddtreec.ops.base import At, Cost, Op, Strategy, TensorType, need
from ddtreec.ops.fields import Field, Sizes
from ddtreec.ops.place import Place


@dataclass(frozen=True, slots=True)
class Split(Op):
    """x [.., sum(sizes)] -> one view [.., size] a size, of the last axis in order.

    With `shapes` (what merged linears give) x is [rows, n] and view i is [rows, *shapes[i]].
    """

    kind: ClassVar[str] = "split"
    SPEC: ClassVar[Mapping[str, Field] | None] = {"sizes": Sizes()}
    ARITY: ClassVar[tuple[int, int]] = (1, -1)
    sizes: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def build(cls, fields: Mapping[str, Any], place: Place) -> Split:
        return cls(fields["sizes"])

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        (x,) = ins
        rows = x.shape[:1]
        need(
            x.dtype == "compute" and len(x.shape) > 1 and x.shape[-1] == sum(self.sizes),
            lambda: f"'x' is {x}, but a last axis of {' + '.join(map(str, self.sizes))} is expected",
        )
        if self.shapes:
            need(
                len(x.shape) == 2 and self.sizes == tuple(map(math.prod, self.shapes)),
                lambda: f"{x} is not {self.shapes}",
            )
            return tuple(TensorType((*rows, *shape)) for shape in self.shapes)
        return tuple(TensorType((*x.shape[:-1], size)) for size in self.sizes)

    def starts(self) -> tuple[int, ...]:
        """First column of each view."""
        return tuple(sum(self.sizes[:i]) for i in range(len(self.sizes)))

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        return self.alike(ins, mesh, "S1") if len(ins[0].shape) > 2 else self.alike(ins, mesh)

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        return Cost()
