"""What the graph passes hand from one to the next: the programs of an engine, and what can be read off them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ddtreec.artifacts.plan import Cache, Rope, Weight
from ddtreec.core.errors import VerifyError
from ddtreec.graph.layer_graph import LayerGraph
from ddtreec.ops.base import Op, TensorType
from ddtreec.ops.context_append import ContextAppend
from ddtreec.ops.fused import Fused
from ddtreec.ops.latent_append import LatentAppend


@dataclass(frozen=True)
class Programs:
    """`graphs`: 'target', and with a drafter 'draft_context' and 'draft_block'. `ropes`: tables by name; those of the
    drafter begin with 'draft.'."""

    graphs: Mapping[str, LayerGraph]
    ropes: Mapping[str, Rope]

    def mapped(self, change: Callable[[LayerGraph], LayerGraph]) -> Programs:
        """Every graph changed by `change`."""
        return replace(self, graphs={name: change(graph) for name, graph in self.graphs.items()})


def caches(programs: Programs) -> tuple[Cache, ...]:
    """What one rank keeps per token: the latent caches by layer, then the context caches by layer. The parameter
    `layer` of a call counts within a kind."""
    found: dict[tuple[str, int], Cache] = {}
    for graph in programs.graphs.values():
        for node in graph:
            if isinstance(node.op, Fused):
                types = node.op.types(tuple(graph.types[v] for v in node.inputs))
                for part in node.op.parts:
                    _note(found, part.id, part.op, tuple(types[v] for v in part.inputs))
            else:
                _note(found, node.id, node.op, tuple(graph.types[v] for v in node.inputs))
    return tuple(found[key] for key in sorted(found, key=lambda k: (k[0] != "latent", k[1])))


def _note(found: dict[tuple[str, int], Cache], node: str, op: Op, ins: tuple[TensorType, ...]) -> None:
    owner = node.split(".")[0]
    if isinstance(op, LatentAppend):
        found["latent", op.layer] = Cache(owner, "latent", sum(t.tail[0] for t in ins))
    elif isinstance(op, ContextAppend):
        width = 2 * op.heads * op.head_dim
        found["context", op.layer] = Cache(owner, "context", width, op.heads, op.head_dim, op.window)


def all_weights(programs: Programs) -> tuple[Weight, ...]:
    """Every weight of every program once, in order of first use. Raises VerifyError where one id names two."""
    found: dict[str, Weight] = {}
    for graph in programs.graphs.values():
        for node in graph:
            for weight in node.op.weights():
                if found.setdefault(weight.id, weight) != weight:
                    raise VerifyError("lower", node.id, f"weight '{weight.id}' is held in two ways")
    return tuple(found.values())


def block_of(node: str) -> str:
    """The block at its layer that a node belongs to: 'L03.moe' of 'L03.moe.experts', 'head' of 'head.norm'."""
    words = node.split(".")
    inside = words[0] == "draft" or (words[0][:1] in "LD" and words[0][1:].isdigit())
    return ".".join(words[: 2 if inside else 1])
