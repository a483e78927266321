"""Groups nodes into launches, after merging sibling linears (`merge`).

Runs on the sharded programs. Afterwards a launch is one node: a fused one keeps its parts in order. Collectives stay
alone, since every rank meets there. Values and what they hold do not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ddtreec.graph.layer_graph import LayerGraph, Node
from ddtreec.graph.order import loops, topological
from ddtreec.ops.fused import Fused, Part
from ddtreec.passes.merge import merge
from ddtreec.passes.programs import block_of

PATTERNS: tuple[tuple[str, str], ...] = (
    ("add_norm_router", "add rms_norm router"),
    ("q_b_absorb_rope", "rms_norm! linear! split! rope q_absorb"),
    ("q_absorb_rope", "linear! split! rope q_absorb"),
    ("kv_norm_rope_append", "rms_norm! latent_append <rope!"),
    ("latent_attention_v_up", "latent_attention! v_up"),
    ("experts_shared", "experts! &linear! split! swiglu! linear! add"),
    ("take_norm_linear", "take_rows! rms_norm! linear"),
    ("add_norm_linear", "add rms_norm! linear"),
    ("norm_linear", "rms_norm! linear"),
    ("add_norm", "add rms_norm"),
    ("swiglu_linear", "swiglu! linear"),
    ("norm_rope_append", "rms_norm! rope! context_append"),
    ("norm_rope", "rms_norm! rope"),
)
"""Launches by name, the first that matches wins. Each word is a kind of op that reads what the nodes before it give;
with `&` one that reads what they read, with `<` one that gives what they read. With `!` all its readers are in the
launch."""

LAUNCHES_OF: Mapping[str, int] = {
    "add_norm_router": 3,
    "q_b_absorb_rope": 3,
    "latent_attention_v_up": 3,
    "q_absorb_rope": 2,
    "experts_shared": 2,
    "take_norm_linear": 2,
    "add_norm_linear": 2,
    "norm_linear": 2,
    "swiglu_linear": 2,
    "router": 2,
    "experts": 2,
    "latent_attention": 2,
    "block_attention": 2,
    "split": 0,
}
"""Launches on a GPU of a pattern, or of an op that stands alone, where they are not one: the stages of its kernel
(`emit/cuda`), told here so that steps can be priced without making kernels."""

Unit = tuple[int, ...]
"""What stays together: (position of a node,), or (position of the first node, number) of a group."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a pattern."""

    kind: str
    link: str
    inner: bool

    @classmethod
    def of(cls, text: str) -> Word:
        """`<rope!` to (rope, '<', inner)."""
        link = text[0] if text[0] in "&<" else ""
        return cls(text.strip("&<!"), link, text.endswith("!"))


def fuse(graph: LayerGraph) -> LayerGraph:
    """The program in launches."""
    graph = merge(graph)
    position = {node.id: i for i, node in enumerate(graph)}
    groups: list[tuple[str, list[Node]]] = []
    taken: set[str] = set()
    by_kind: dict[str, list[Node]] = {}
    for node in graph:
        by_kind.setdefault(node.op.kind, []).append(node)
    for launch, text in PATTERNS:
        words = tuple(Word.of(w) for w in text.split())
        for node in by_kind.get(words[0].kind, ()):
            group = _match(graph, node, words, taken, position)
            if group is not None:
                groups.append((launch, group))
                taken.update(member.id for member in group)
    return graph.replaced(_ordered(graph, groups, position))


def _match(
    graph: LayerGraph, start: Node, words: Sequence[Word], taken: set[str], position: Mapping[str, int]
) -> list[Node] | None:
    """The nodes of a launch that begins with `start`, in graph order; None if the words do not fit."""
    if start.id in taken:
        return None
    group = [start]
    for word in words[1:]:
        near = [n for n in _near(graph, group, word.link) if n.op.kind == word.kind and n.id not in taken]
        near = [n for n in near if n not in group]
        if not near:
            return None
        group.append(min(near, key=lambda n: position[n.id]))
    inside = {node.id for node in group}
    for node, word in zip(group, words, strict=True):
        if word.inner and any(_leaves(graph, v, inside) for v in node.outputs):
            return None
    return sorted(group, key=lambda n: position[n.id])


def _near(graph: LayerGraph, group: Iterable[Node], link: str) -> Iterable[Node]:
    for node in group:
        if link == "<":
            yield from (graph.producer[v] for v in node.inputs if v in graph.producer)
        else:
            for value in node.inputs if link == "&" else node.outputs:
                yield from graph.readers(value)


def _leaves(graph: LayerGraph, value: str, inside: set[str]) -> bool:
    """Whether a value outlives the program or is read outside a launch."""
    kept = value in graph.outputs or value in graph.layer_outputs
    return kept or any(reader.id not in inside for reader in graph.readers(value))


def _ordered(graph: LayerGraph, groups: Sequence[tuple[str, list[Node]]], position: Mapping[str, int]) -> list[Node]:
    """All nodes, the launches as one, in a topological order close to the old one. Launches that would wait for each
    other (a path leaves a launch and comes back) are dissolved."""
    unit: dict[str, Unit] = {node.id: (position[node.id],) for node in graph}
    for index, (_, group) in enumerate(groups):
        unit.update(dict.fromkeys((node.id for node in group), (position[group[0].id], index)))
    order = topological(edges := _quotient(graph, unit))
    if len(order) < len(edges):
        for loop in loops(edges):
            unit.update({node.id: (position[node.id],) for node in graph if unit[node.id] in loop})
        order = topological(_quotient(graph, unit))
    names = _names([groups[u[1]] for u in set(unit.values()) if len(u) > 1])
    result: list[Node] = []
    for key in order:
        if len(key) == 1:
            result.append(graph.nodes[key[0]])
        else:
            launch, group = groups[key[1]]
            result.append(_fused(graph, names[group[0].id], launch, group))
    return result


def _quotient(graph: LayerGraph, unit: Mapping[str, Unit]) -> dict[Unit, set[Unit]]:
    """Each unit to those that read what it makes."""
    quotient: dict[Unit, set[Unit]] = {unit[node.id]: set() for node in graph}
    for node in graph:
        for value in node.inputs:
            if value in graph.producer and unit[graph.producer[value].id] != unit[node.id]:
                quotient[unit[graph.producer[value].id]].add(unit[node.id])
    return quotient


def _names(groups: Iterable[tuple[str, list[Node]]]) -> dict[str, str]:
    """Ids of the fused nodes by the id of their first part: 'L03.moe.add_norm_router', and where a block has two of
    a launch the id of the last part stands in front instead of the block."""
    wanted = [(group, f"{block_of(group[-1].id)}.{launch}", launch) for launch, group in groups]
    often = Counter(name for _, name, _ in wanted)
    return {g[0].id: name if often[name] == 1 else f"{g[-1].id}.{launch}" for g, name, launch in wanted}


def _fused(graph: LayerGraph, name: str, launch: str, group: Sequence[Node]) -> Node:
    inside = {node.id for node in group}
    made = {v for node in group for v in node.outputs}
    inputs = tuple(dict.fromkeys(v for node in group for v in node.inputs if v not in made))
    outputs = tuple(v for node in group for v in node.outputs if _leaves(graph, v, inside))
    parts = tuple(Part(node.id, node.op, node.inputs, node.outputs) for node in group)
    return Node(name, Fused(launch, parts, inputs, outputs), inputs, outputs, group[-1].loc)
