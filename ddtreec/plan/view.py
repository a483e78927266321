"""The graph for a reader: programs as runs of layers that are alike, each node with what it holds, moves and takes.

`ddtreec graph` renders it as text, Mermaid, DOT and a page; `build_view` makes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from ddtreec.passes.schedule import ROW_COUNTS
from ddtreec.passes.stages import COST_ROWS

GRAPH_SCHEMA = "ddtreec.graph/1"
ROWS = tuple(rows for rows in ROW_COUNTS if rows <= COST_ROWS)
"""Row counts at which nodes are priced."""

LAYER = re.compile(r"[LD]\d+")


class ValueView(msgspec.Struct, frozen=True):
    """A value: its type on one rank, and its placement ('R' whole, 'P' addends, 'S1' cut along axis 1)."""

    name: str
    type: str
    placement: str


class TensorView(msgspec.Struct, frozen=True):
    """One checkpoint tensor behind a weight. `cut` says in words what one rank holds of it."""

    tensor: str
    dims: tuple[int, ...]
    cut: str


class WeightView(msgspec.Struct, frozen=True):
    """One weight as one rank holds it."""

    id: str
    role: str
    shape: tuple[int, ...]
    packing: str
    bytes: int
    tensors: tuple[TensorView, ...]


class PartView(msgspec.Struct, frozen=True):
    """A node inside a fused launch."""

    id: str
    kind: str


class NodeView(msgspec.Struct, frozen=True):
    """One launch. Bytes and FLOPs of one rank and microseconds, each by row count as `GraphView.rows`.

    `layers`: where the node stands, if it is not in every layer of its run.
    """

    id: str
    kind: str
    component: str
    fields: dict[str, str]
    inputs: tuple[ValueView, ...]
    outputs: tuple[ValueView, ...]
    weights: tuple[WeightView, ...]
    parts: tuple[PartView, ...]
    loc: str
    weight_bytes: tuple[float, ...]
    cache_bytes: tuple[float, ...]
    activation_bytes: tuple[float, ...]
    flops: tuple[float, ...]
    floor_us: tuple[float, ...]
    predicted_us: tuple[float, ...]
    layers: tuple[str, ...] = ()


class Edge(msgspec.Struct, frozen=True):
    """A value inside a run: made by node number `start` (-1: from before), read by `readers`, up to `stop` (the number
    of nodes: it goes on). `lane`: its column in a drawing, no two values of a lane overlap."""

    value: str
    start: int
    stop: int
    readers: tuple[int, ...]
    lane: int


class Run(msgspec.Struct, frozen=True):
    """Consecutive layers that are alike (or one block outside the layers), told by the nodes of the first.

    `foreign`: names of other layers in the nodes of the first, to what stands there in the second; those of later
    layers count on from there."""

    names: tuple[str, ...]
    title: str
    nodes: tuple[NodeView, ...]
    edges: tuple[Edge, ...]
    foreign: dict[str, str]


class ProgramView(msgspec.Struct, frozen=True):
    """One program in order. `links`: (run, run, number of values) for each pair of runs where one feeds the other."""

    name: str
    inputs: tuple[ValueView, ...]
    outputs: tuple[str, ...]
    runs: tuple[Run, ...]
    links: tuple[tuple[int, int, int], ...]


class GraphView(msgspec.Struct, frozen=True):
    """All programs after one pass."""

    schema: str
    engine: str
    model: str
    topology: str
    ranks: int
    dtype: str
    after: str
    context: int
    rows: tuple[int, ...]
    programs: tuple[ProgramView, ...]


def encode(view: GraphView) -> bytes:
    """The view as JSON; floats keep six digits."""
    return msgspec.json.encode(rounded(msgspec.to_builtins(view)))


def rounded(value: object) -> object:
    """Plain data with every float at six digits."""
    if isinstance(value, float):
        short = float(f"{value:.6g}")
        return int(short) if short.is_integer() and abs(short) < 2**53 else short
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in cast("Sequence[object]", value)]
    return value


# ---- names --------------------------------------------------------------------------------------------------------


def group_of(node: str) -> str:
    """The layer of a node, or its block outside the layers: 'L03', 'head', 'draft.embed'."""
    words = node.split(".")
    return ".".join(words[: 2 if words[0] == "draft" else 1])


def renamed(name: str, run: Run, layer: str) -> str:
    """A name in the nodes of the first layer of a run as another `layer` of the run has it."""
    if layer == run.names[0] or layer not in run.names:
        return name
    if name in run.foreign:
        return _shifted(run.foreign[name], run.names.index(layer) - 1)
    owner = group_of(name)
    return layer + name.removeprefix(owner) if owner == run.names[0] else name


def _shifted(name: str, by: int) -> str:
    """'L01.moe.m' to 'L03.moe.m' for 2."""
    owner = group_of(name)
    if not LAYER.fullmatch(owner):
        return name
    return f"{owner[0]}{int(owner[1:]) + by:02d}{name.removeprefix(owner)}"


def title_of(names: Sequence[str]) -> str:
    """'L02 .. L59 x58', or the name of one."""
    return names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]} x{len(names)}"
