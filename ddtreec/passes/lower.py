"""Turns a program into what the plan keeps of it: values with a home (without offsets) and kernel calls.

Runs after fuse. Splits become aliases, tokens become values without data, taps write the one `features` buffer. On the
CPU a fused node is its parts, elsewhere one launch. It places nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ddtreec.artifacts.plan import Call, Value
from ddtreec.core.errors import VerifyError
from ddtreec.graph.layer_graph import LayerGraph, Node
from ddtreec.ops.base import Op, TensorType
from ddtreec.ops.fused import Fused
from ddtreec.ops.split import Split
from ddtreec.ops.tap import Tap

COLLECTIVES = frozenset({"all_reduce", "all_gather"})
FEATURES = "features"


def lower(graph: LayerGraph, backend: str) -> tuple[tuple[Value, ...], tuple[Call, ...]]:
    """Values and calls of one program on one rank, both in order of first writing. `backend`: 'cpu' or 'cuda'."""
    work = _Lowering(graph)
    for name, kind in graph.inputs.items():
        work.values[name] = Value(name, kind.shape, kind.dtype, "input")
    for node in graph:
        for step in _steps(node, backend):
            work.step(node.id, step)
    return tuple(work.values.values()), tuple(work.calls)


@dataclass(frozen=True, slots=True)
class _Step:
    """One op to lower: a node, or one part of a fused node."""

    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def _steps(node: Node, backend: str) -> Iterator[_Step]:
    if isinstance(node.op, Fused) and backend == "cpu":
        yield from (_Step(p.op, p.inputs, p.outputs) for p in node.op.parts)
    else:
        yield _Step(node.op, node.inputs, node.outputs)


@dataclass
class _Lowering:
    graph: LayerGraph
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    calls: list[Call] = field(default_factory=list[Call])
    types: dict[str, TensorType] = field(default_factory=dict[str, TensorType])

    def __post_init__(self) -> None:
        self.types |= self.graph.inputs

    def step(self, node: str, step: _Step) -> None:
        kinds = step.op.infer(tuple(self.types[v] for v in step.inputs))
        self.types.update(zip(step.outputs, kinds, strict=True))
        if isinstance(step.op, Split):
            self._alias(step.op, step, kinds)
            return
        outs = tuple(self._define(step.op, v, t) for v, t in zip(step.outputs, kinds, strict=True))
        self.calls.append(
            Call(
                node=node,
                kernel=step.op.launch if isinstance(step.op, Fused) else step.op.kind,
                outs=tuple(v for v in outs if self.values[v].home != "token"),
                ins=tuple(v for v in step.inputs if self.values[v].home != "token"),
                weights=tuple(w.id for w in step.op.weights()),
                params=step.op.params(),
                collective=step.op.kind in COLLECTIVES,
            )
        )

    def _define(self, op: Op, name: str, kind: TensorType) -> str:
        if kind.dtype == "token":
            self.values[name] = Value(name, (), "compute", "token")
        elif isinstance(op, Tap):
            name = FEATURES
            self.values[name] = Value(name, kind.shape, kind.dtype, "persistent")
        else:
            home = "persistent" if name in self.graph.outputs else "arena"
            self.values[name] = Value(name, kind.shape, kind.dtype, home)
        return name

    def _alias(self, op: Split, step: _Step, kinds: Sequence[TensorType]) -> None:
        source = self.values[step.inputs[0]]
        root, offset = (source.parent, source.start) if source.home == "alias" else (source.id, 0)
        if source.home == "alias" and len(source.shape) != len(self.values[root].shape):
            raise VerifyError("lower", step.outputs[0], f"is a view of '{source.id}', which is a reshaped view itself")
        for name, kind, start in zip(step.outputs, kinds, op.starts(), strict=True):
            self.values[name] = Value(name, kind.shape, kind.dtype, "alias", parent=root, start=offset + start)


def width(value: Value, parent: Value) -> int:
    """Columns of its parent that an alias covers: its elements over the parent's leading axes."""
    return math.prod(int(n) for n in value.shape[len(parent.shape) - 1 :])
