"""A program as text: one line a node, stable, made to be compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import cast

from ddtreec.graph.layer_graph import LayerGraph
from ddtreec.ops.base import Op, TensorType
from ddtreec.ops.fused import Fused


def dump(graph: LayerGraph, placements: Mapping[str, str] | None = None) -> str:
    """`id  kind(fields)  inputs -> outputs: types`, one node a line, in order, after the program's name and inputs.

    `placements` (value to 'R', 'P', 'S1') are shown behind the types where they are not 'R'. Parts of a fused node
    stand below it, indented.
    """
    where = placements or {}
    lines = [f"program {graph.name}"]
    lines += [f"input {name}: {kind}" for name, kind in graph.inputs.items()]
    for node in graph:
        lines.append(_line("", node.id, node.op, node.inputs, node.outputs, graph.types, where))
        if isinstance(node.op, Fused):
            known = node.op.types(tuple(graph.types[v] for v in node.inputs))
            lines += [_line("    ", p.id, p.op, p.inputs, p.outputs, known, where) for p in node.op.parts]
    lines.append(f"output {', '.join(graph.outputs)}")
    return "\n".join(lines) + "\n"


def _line(
    indent: str,
    name: str,
    op: Op,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    types: Mapping[str, TensorType],
    where: Mapping[str, str],
) -> str:
    given = ", ".join(f"{v}: {types[v]}" + (f" {where[v]}" if where.get(v, "R") != "R" else "") for v in outputs)
    return f"{indent}{name}  {_head(op)}  {', '.join(inputs)} -> {given}"


def _head(op: Op) -> str:
    if isinstance(op, Fused):
        return op.launch
    shown = [
        f"{f.name}={_value(getattr(op, f.name))}"
        for f in dataclasses.fields(op)
        if f.name not in ("question", "weight", "bias", "gate_up", "down")
    ]
    held = [f"{'x'.join(map(str, w.shape))}{' int4' if w.packing == 'int4' else ''}" for w in op.weights()]
    return f"{op.kind}({', '.join(shown)})" + (f" [{', '.join(held)}]" if held else "")


def _value(value: object) -> str:
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        between = "|" if items and isinstance(items[0], tuple) else "x"
        return between.join(map(_value, items)) if items else "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
