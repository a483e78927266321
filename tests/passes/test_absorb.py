"""absorb: what becomes of mla_attention, and faults its verifier must see. Results are compared in the properties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from ddtreec.artifacts.plan import Weight
from ddtreec.core.errors import VerifyError
from ddtreec.graph.layer_graph import LayerGraph, Node
from ddtreec.graph.printer import dump
from ddtreec.ops.latent_attention import LatentAttention
from ddtreec.ops.v_up import VUp
from ddtreec.passes.absorb import absorb, verify
from ddtreec.passes.expand import expand
from tests.passes.small import FLAT, engine

BEFORE = expand(engine()).graphs["target"]
AFTER = absorb(BEFORE)


def lines(graph: LayerGraph, start: str) -> list[str]:
    return [line for line in dump(graph).splitlines() if line.startswith(start)]


def test_before_and_after() -> None:
    assert lines(BEFORE, "L01.attention.mla") == [
        "L01.attention.mla  mla_attention(heads=4, nope=4, rope=4, v=4, kv_lora=8, scale=0.458374, layer=1) [4x8x8]  "
        "L01.attention.q_nope, L01.attention.q_rot, L01.attention.cache -> L01.attention.o: compute[rows, 4, 4]"
    ]
    assert lines(AFTER, "L01.attention.mla") == [
        "L01.attention.mla.q_absorb  q_absorb(heads=4, nope=4, kv_lora=8) [4x4x8]  "
        "L01.attention.q_nope -> L01.attention.o.q_c: compute[rows, 4, 8]",
        "L01.attention.mla.attend  latent_attention(heads=4, kv_lora=8, rope=4, scale=0.458374, layer=1)  "
        "L01.attention.o.q_c, L01.attention.q_rot, L01.attention.cache -> L01.attention.o.o_c: compute[rows, 4, 8]",
        "L01.attention.mla.v_up  v_up(heads=4, v=4, kv_lora=8) [4x4x8]  "
        "L01.attention.o.o_c -> L01.attention.o: compute[rows, 4, 4]",
    ]
    verify(BEFORE, AFTER)


def test_bytes_are_kept() -> None:
    def held(graph: LayerGraph) -> int:
        return sum(w.bytes for node in graph for w in node.op.weights())

    assert held(BEFORE) == held(AFTER)


def test_programs_without_mla_are_left_alone() -> None:
    graph = expand(engine()).graphs["draft_block"]
    assert absorb(graph) is graph
    assert not any(n.op.kind == "mla_attention" for n in absorb(expand(engine(FLAT, None)).graphs["target"]))


def swap(index: int, change: Callable[[Node], Node]) -> LayerGraph:
    """AFTER with one node of layer 1 changed: 0 q_absorb, 1 attend, 2 v_up, 3 what follows."""
    at = next(i for i, n in enumerate(AFTER.nodes) if n.id == "L01.attention.mla.q_absorb") + index
    nodes = list(AFTER.nodes)
    nodes[at] = change(nodes[at])
    return AFTER.replaced(nodes)


def with_rows(start: int, stop: int) -> Callable[[Node], Node]:
    def change(node: Node) -> Node:
        (weight,) = node.op.weights()
        (part,) = weight.parts
        moved = msgspec.structs.replace(part, take=(part.take[0], (start, stop), part.take[2]))
        return replace(node, op=replace(node.op, weight=msgspec.structs.replace(weight, parts=(moved,))))  # type: ignore[call-arg]

    return change


def other_tensor(weight: Weight) -> Weight:
    part = msgspec.structs.replace(weight.parts[0], tensor="another")
    return msgspec.structs.replace(weight, parts=(part,))


FAULTS: dict[str, tuple[Callable[[], LayerGraph], str]] = {
    "left": (lambda: BEFORE, "has no"),
    "overlap": (lambda: swap(2, with_rows(3, 7)), "do not tile"),
    "same half twice": (lambda: swap(2, with_rows(0, 4)), "do not tile"),
    "another tensor": (
        lambda: swap(2, lambda n: replace(n, op=replace(n.op, weight=other_tensor(n.op.weights()[0])))),  # type: ignore[call-arg]
        "is not read from",
    ),
    "scale": (lambda: swap(1, lambda n: replace(n, op=replace(n.op, scale=1.0))), "another scale"),  # type: ignore[call-arg]
    "cache": (lambda: swap(1, lambda n: replace(n, op=replace(n.op, layer=0))), "another scale or in another cache"),  # type: ignore[call-arg]
    "other node": (lambda: swap(3, lambda n: replace(n, op=replace(n.op, question=""))), "was changed"),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("name", FAULTS)
def test_verifier_rejects(name: str) -> None:
    make, words = FAULTS[name]
    with pytest.raises(VerifyError, match=words):
        verify(BEFORE, make())


def test_verifier_rejects_other_wires() -> None:
    """The second layer attends to the queries of the first."""
    first = next(n for n in AFTER if n.id == "L00.attention.mla.q_absorb").outputs
    nodes = [
        replace(n, inputs=(*first, *n.inputs[1:])) if isinstance(n.op, LatentAttention) and n.op.layer == 1 else n
        for n in AFTER
    ]
    with pytest.raises(VerifyError, match="wired in another way"):
        verify(BEFORE, AFTER.replaced(nodes))
    assert any(isinstance(n.op, VUp) for n in nodes)
