"""One launch that does the work of several nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from ddtreec.artifacts.plan import Mesh, Weight
from ddtreec.ops.base import At, Cost, Op, Param, Strategy, TensorType


@dataclass(frozen=True, slots=True)
class Part:
    """A node as it stands inside a fused op. `inputs` and `outputs` are values of the graph it came from."""

    id: str
    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fused(Op):
    """`parts` in order, as the launch `launch` (a noun such as 'norm_router'). `inputs` are the values the parts read
    from outside, `outputs` those that are read outside; both in the order of the node. The CPU runs the parts."""

    kind: ClassVar[str] = "fused"
    ARITY: ClassVar[tuple[int, int]] = (-1, -1)
    launch: str
    parts: tuple[Part, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def types(self, ins: tuple[TensorType, ...]) -> dict[str, TensorType]:
        """Types of all values inside and at the border. Raises ValueError where a part reads what is not there."""
        types = dict(zip(self.inputs, ins, strict=True))
        for part in self.parts:
            if not all(v in types for v in part.inputs):
                raise ValueError(f"part {part.id} reads a value that nothing before it gives")
            given = part.op.infer(tuple(types[v] for v in part.inputs))
            types.update(zip(part.outputs, given, strict=True))
        return types

    def infer(self, ins: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        types = self.types(ins)
        return tuple(types[v] for v in self.outputs)

    def weights(self) -> tuple[Weight, ...]:
        return tuple(w for part in self.parts for w in part.op.weights())

    def params(self) -> dict[str, Param]:
        """The parameters of all parts. Two of one name are told apart by the last word of their part's id
        ('q_norm_eps')."""
        often = Counter(name for part in self.parts for name in part.op.params())
        found: dict[str, Param] = {}
        for part in self.parts:
            word = part.id.rsplit(".", 1)[-1]
            found |= {name if often[name] == 1 else f"{word}_{name}": v for name, v in part.op.params().items()}
        return found

    def strategies(self, ins: tuple[TensorType, ...], mesh: Mesh) -> tuple[Strategy, ...]:
        return self.alike(ins, mesh)

    def cost(self, ins: tuple[TensorType, ...], at: At) -> Cost:
        """The parts' weights, cache and FLOPs; of the activations only those that leave or enter the launch."""
        types, total = self.types(ins), Cost()
        for part in self.parts:
            total += part.op.cost(tuple(types[v] for v in part.inputs), at)
        outside = sum(at.nbytes(types[v]) for v in (*self.inputs, *self.outputs))
        return Cost(total.weight_bytes, total.cache_bytes, float(outside), total.flops)
