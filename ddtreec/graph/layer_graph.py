"""The layer graph: frozen typed nodes in order. `Node.inputs` is the truth, edges are derived.

One LayerGraph is one program ('target', 'draft_context', 'draft_block'). Values are named by their producer and are
written once (SSA). Walk order is the order of insertion, which is a topological order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ddtreec.core.errors import Loc
from ddtreec.ops.base import Op, TensorType


@dataclass(frozen=True, slots=True)
class Node:
    """One op at one place. `id` like 'L03.moe.experts'; values like 'L03.moe.h'. `loc` is the op in the spec."""

    id: str
    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    loc: Loc | None = None


@dataclass(frozen=True)
class LayerGraph:
    """A program: typed inputs, nodes in topological order, and the values that outlive the step.

    Raises ValueError at construction where a value is read before it is written, written twice or never, or has a type
    that its reader refuses.
    """

    name: str
    inputs: Mapping[str, TensorType]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    layer_outputs: tuple[str, ...] = ()
    """Residual value after each layer, by layer number (may be renamed by passes, never dropped)."""

    types: Mapping[str, TensorType] = field(init=False, repr=False, compare=False)
    producer: Mapping[str, Node] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        types: dict[str, TensorType] = dict(self.inputs)
        producer: dict[str, Node] = {}
        for node in self.nodes:
            for value in node.inputs:
                if value not in types:
                    raise ValueError(f"{node.id}: input '{value}' is not defined before it")
            try:
                outs = node.op.infer(tuple(types[v] for v in node.inputs))
            except ValueError as error:
                raise ValueError(f"{node.id}: {error}") from None
            if len(outs) != len(node.outputs):
                raise ValueError(f"{node.id}: {node.op.kind} gives {len(outs)} values, {len(node.outputs)} named")
            for value, kind in zip(node.outputs, outs, strict=True):
                if value in types:
                    raise ValueError(f"{node.id}: value '{value}' is written twice")
                types[value] = kind
                producer[value] = node
        missing = [v for v in (*self.outputs, *self.layer_outputs) if v not in types]
        if missing:
            raise ValueError(f"{self.name}: output '{missing[0]}' is never written")
        object.__setattr__(self, "types", types)
        object.__setattr__(self, "producer", producer)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    @cached_property
    def _readers(self) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                found.setdefault(value, []).append(node)
        return found

    def readers(self, value: str) -> tuple[Node, ...]:
        """Nodes that read `value`, in order."""
        return tuple(self._readers.get(value, ()))

    def replaced(self, nodes: Iterable[Node], **changes: Any) -> LayerGraph:
        """The same program with other nodes (and other fields, by name)."""
        return replace(self, nodes=tuple(nodes), **changes)
