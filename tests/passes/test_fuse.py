"""fuse: what becomes one launch, and faults its verifier must see. Results are compared in the properties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from ddtreec.artifacts.plan import Shard
from ddtreec.core.errors import VerifyError
from ddtreec.graph.layer_graph import LayerGraph, Node
from ddtreec.graph.printer import dump
from ddtreec.ops.add import Add
from ddtreec.ops.base import At, Cost, TensorType
from ddtreec.ops.fused import Fused, Part
from ddtreec.ops.linear import Linear
from ddtreec.ops.rms_norm import RmsNorm
from ddtreec.ops.split import Split
from ddtreec.passes import fuse as fusing
from ddtreec.passes.absorb import absorb
from ddtreec.passes.expand import expand
from ddtreec.passes.fuse import PATTERNS, Word, fuse
from ddtreec.passes.fuse_verify import verify
from ddtreec.passes.merge import merge
from ddtreec.passes.programs import Programs, caches
from ddtreec.passes.shard import shard
from ddtreec.passes.verify import verify as verify_general
from ddtreec.spec.schema import LayoutSpec
from tests.passes.small import FLAT, INT4, TARGET, Price, engine
from tests.passes.test_shard import ALL_CUT

WHOLE = expand(engine(experts=INT4)).mapped(absorb)
CUT = shard(WHOLE, 2, ALL_CUT, Price()).programs
BEFORE = CUT.graphs["target"]
AFTER = fuse(BEFORE)


def launches(graph: LayerGraph, start: str) -> list[str]:
    """Node ids of a layer, with the parts of the fused ones behind."""
    result = []
    for node in graph:
        if node.id.startswith(start):
            parts = [p.id.removeprefix(start) for p in node.op.parts] if isinstance(node.op, Fused) else []
            result.append(node.id.removeprefix(start) + (f": {', '.join(parts)}" if parts else ""))
    return result


# ---- launches -----------------------------------------------------------------------------------------------------


def test_launches_of_an_moe_layer() -> None:
    assert launches(AFTER, "L01.") == [
        "attention.add_norm_linear: L00.mlp.residual, attention.norm, attention.q_a_kv_a",
        "attention.q_a_kv_a.split",
        "attention.q_a_kv_a.all_gather",
        "attention.q_b_absorb_rope: attention.q_norm, attention.q_b, attention.q_split, attention.q_rope, "
        "attention.mla.q_absorb",
        "attention.kv_split",
        "attention.kv_norm_rope_append: attention.kv_norm, attention.k_rope, attention.append",
        "attention.latent_attention_v_up: attention.mla.attend, attention.mla.v_up",
        "attention.o_proj",
        "attention.o_proj.all_reduce",
        "moe.add_norm_router: attention.residual, moe.norm, moe.router",
        "moe.experts_shared: moe.experts, moe.shared_gate_shared_up, moe.shared_gate_shared_up.split, moe.shared_act, "
        "moe.shared_down, moe.sum",
        "moe.sum.all_reduce",
    ]


def test_launches_without_a_query_latent() -> None:
    """The query is split by heads, so it is no view of a merged product; the norm has two readers and stays alone."""
    graph = fuse(expand(engine(FLAT, None)).mapped(absorb).graphs["target"])
    assert launches(graph, "L01.attention") == [
        ".add_norm: L00.moe.residual, .norm",
        ".q_absorb_rope: .q, .q_split, .q_rope, .mla.q_absorb",
        ".kv_a",
        ".kv_split",
        ".kv_norm_rope_append: .kv_norm, .k_rope, .append",
        ".latent_attention_v_up: .mla.attend, .mla.v_up",
        ".o_proj",
    ]


def test_launches_of_the_drafter() -> None:
    block, context = fuse(CUT.graphs["draft_block"]), fuse(CUT.graphs["draft_context"])
    assert launches(block, "D00.attention_full") == [
        ".norm_linear: .norm, .q_proj_k_proj_v_proj",
        ".q_proj_k_proj_v_proj.split",
        ".q_rope.norm_rope: .q_norm, .q_rope",
        ".k_rope.norm_rope: .k_norm, .k_rope",
        ".attend",
        ".o_proj",
        ".o_proj.all_reduce",
    ]
    assert launches(context, "D01") == [
        ".context_w5.k_proj_v_proj",
        ".context_w5.k_proj_v_proj.split",
        ".context_w5.norm_rope_append: .context_w5.k_norm, .context_w5.k_rope, .context_w5.append",
    ]


def test_every_pattern_is_used_by_a_shipped_shape() -> None:
    engines = (engine(experts=INT4), engine(FLAT, None), engine(replace(TARGET, dense=3), None))
    graphs = [fuse(g) for e in engines for g in expand(e).mapped(absorb).graphs.values()]
    used = {node.op.launch for graph in graphs for node in graph if isinstance(node.op, Fused)}
    assert used == {launch for launch, _ in PATTERNS}


def test_pattern_words() -> None:
    assert Word.of("<rope!") == Word("rope", "<", True)
    assert Word.of("&linear!") == Word("linear", "&", True)
    assert Word.of("add") == Word("add", "", False)


def test_residuals_and_features_survive() -> None:
    assert AFTER.layer_outputs == BEFORE.layer_outputs and AFTER.outputs == BEFORE.outputs
    assert all(v in AFTER.types for v in AFTER.layer_outputs)
    assert caches(CUT.mapped(fuse)) == caches(CUT)


def test_bytes_and_flops_are_those_of_the_parts_but_activations_shrink() -> None:
    def total(graph: LayerGraph) -> Cost:
        at, found = At(4, 4, 64, 2), Cost()
        for node in graph:
            found += node.op.cost(tuple(graph.types[v] for v in node.inputs), at)
        return found

    one, other = total(BEFORE), total(AFTER)
    assert other.weight_bytes == pytest.approx(one.weight_bytes) and other.cache_bytes == one.cache_bytes
    assert other.flops == pytest.approx(one.flops) and other.activation_bytes < one.activation_bytes


def test_text_of_a_fused_node() -> None:
    text = dump(AFTER).splitlines()
    at = next(i for i, line in enumerate(text) if line.startswith("L01.moe.add_norm_router"))
    assert text[at : at + 4] == [
        "L01.moe.add_norm_router  add_norm_router  L00.mlp.y, L01.attention.attn -> "
        "L01.attention.y: compute[rows, 24], L01.moe.h: compute[rows, 24], "
        "L01.moe.ids: int64[rows, 3], L01.moe.w: float32[rows, 3]",
        "    L01.attention.residual  add()  L00.mlp.y, L01.attention.attn -> L01.attention.y: compute[rows, 24]",
        "    L01.moe.norm  rms_norm(dim=24, eps=1e-05) [24]  L01.attention.y -> L01.moe.h: compute[rows, 24]",
        "    L01.moe.router  router(dim=24, experts=8, top_k=3, groups=1, top_groups=1, score=sigmoid, normalize=True, "
        "scale=2.5) [8x24, 8]  L01.moe.h -> L01.moe.ids: int64[rows, 3], L01.moe.w: float32[rows, 3]",
    ]


# ---- merged linears -----------------------------------------------------------------------------------------------


def test_merged_weights_hold_the_parts_in_order() -> None:
    node = next(n for n in merge(BEFORE) if n.id == "L01.attention.q_a_kv_a")
    (weight,) = node.op.weights()
    assert weight.id == "L01.attention.q_a_kv_a" and weight.shape == (12, 24) and weight.bytes == 12 * 24 * 2
    assert [p.tensor.rsplit(".", 2)[-2] for p in weight.parts] == ["q_a_proj", "kv_a_proj_with_mqa"]
    assert {p.shard for p in weight.parts} == {Shard(0, 2)}


def test_linears_cut_in_different_ways_are_not_merged() -> None:
    """Only what is stored and cut alike: a program where q_a is cut and kv_a is not keeps them apart."""
    mixed = list(WHOLE.graphs["target"].nodes)
    other = shard(WHOLE, 2, LayoutSpec(a_proj="gather"), Price()).programs.graphs["target"]
    cut = {n.id: n for n in other}
    index = next(i for i, n in enumerate(mixed) if n.id == "L00.attention.q_a")
    mixed[index : index + 1] = [cut["L00.attention.q_a"], cut["L00.attention.q_a.all_gather"]]
    ids = [n.id for n in merge(WHOLE.graphs["target"].replaced(mixed))]
    assert "L00.attention.q_a" in ids and "L00.attention.kv_a" in ids and "L01.attention.q_a_kv_a" in ids


def test_outputs_that_outlive_the_program_are_not_merged() -> None:
    graph = WHOLE.graphs["target"]
    ids = [n.id for n in merge(graph.replaced(graph.nodes, outputs=(*graph.outputs, "L00.mlp.g")))]
    assert "L00.mlp.gate" in ids and "L00.mlp.gate_up" not in ids


def test_rows_cut_linears_are_not_merged() -> None:
    """Two row-cut products of one value would be two partial sums; none is made from them."""
    x = TensorType(("rows", 4))
    down = next(n.op for n in BEFORE if n.id == "L00.mlp.down")
    assert isinstance(down, Linear) and down.weight.parts[0].shard == Shard(1, 2)
    small = replace(down, inputs=(4,))
    nodes = [Node(f"L00.b.{n}", small, ("x",), (f"L00.b.{n}v",)) for n in "cd"]
    graph = LayerGraph(
        "target", {"x": x}, (*nodes, Node("L00.b.add", Add(), ("L00.b.cv", "L00.b.dv"), ("L00.b.e",))), ("L00.b.e",)
    )
    assert merge(graph) is graph


# ---- groups that would wait for each other ------------------------------------------------------------------------


def test_launches_that_would_wait_for_each_other_are_dissolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch of the first and the last node of a chain would wait for its own middle: it must not be made, however
    the patterns are written."""
    x = TensorType(("rows", 24))
    norm = next(n.op for n in BEFORE if isinstance(n.op, RmsNorm) and n.op.dim == 24)
    nodes = (
        Node("L00.a.add", Add(), ("x", "x"), ("L00.a.s",)),
        Node("L00.a.norm", norm, ("L00.a.s",), ("L00.a.h",)),
        Node("L00.a.sum", Add(), ("L00.a.s", "L00.a.h"), ("L00.a.y",)),
        Node("L00.a.last", norm, ("L00.a.y",), ("L00.a.z",)),
    )
    graph = LayerGraph("target", {"x": x}, nodes, ("L00.a.z",))
    monkeypatch.setattr(fusing, "PATTERNS", (("adds", "add add"), ("norm_linear", "rms_norm linear")))
    assert fuse(graph).nodes == graph.nodes
    monkeypatch.setattr(fusing, "PATTERNS", (("adds", "add add"), ("add_norm", "add rms_norm")))
    assert launches(fuse(graph), "L00.a") == [".add", ".norm", ".sum", ".last"]
    monkeypatch.setattr(fusing, "PATTERNS", (("add_norm", "add rms_norm"),))
    assert launches(fuse(graph), "L00.a") == [".norm.add_norm: .add, .norm", ".last.add_norm: .sum, .last"]


# ---- verifier -----------------------------------------------------------------------------------------------------


def at(graph: LayerGraph, name: str) -> int:
    return next(i for i, n in enumerate(graph.nodes) if n.id == name)


def with_fused(name: str, change: Callable[[Fused], Fused]) -> LayerGraph:
    nodes = list(AFTER.nodes)
    node = nodes[at(AFTER, name)]
    assert isinstance(node.op, Fused)
    op = change(node.op)
    nodes[at(AFTER, name)] = replace(node, op=op, inputs=op.inputs, outputs=op.outputs)
    return AFTER.replaced(nodes)


def part_changed(index: int, **fields: object) -> Callable[[Fused], Fused]:
    def change(op: Fused) -> Fused:
        parts = list(op.parts)
        parts[index] = replace(parts[index], **fields)  # type: ignore[arg-type]
        return replace(op, parts=tuple(parts))

    return change


def merged(**fields: object) -> LayerGraph:
    """The merged linear of layer 1 with other fields of its weight; parts=None puts them in the other order."""

    def change(op: Fused) -> Fused:
        linear = op.parts[2].op
        assert isinstance(linear, Linear)
        changes = {**fields, "parts": linear.weight.parts[::-1]} if "parts" in fields else fields
        weight = msgspec.structs.replace(linear.weight, **changes)
        return part_changed(2, op=replace(linear, weight=weight))(op)

    return with_fused("L01.attention.add_norm_linear", change)


def resplit() -> LayerGraph:
    nodes = list(AFTER.nodes)
    index = at(AFTER, "L01.attention.q_a_kv_a.split")
    nodes[index] = replace(nodes[index], outputs=nodes[index].outputs[::-1])
    return AFTER.replaced(nodes)


def regathered() -> LayerGraph:
    nodes = list(AFTER.nodes)
    index = at(AFTER, "L01.attention.q_a_kv_a.all_gather")
    nodes[index] = replace(nodes[index], inputs=nodes[index].inputs[::-1])
    return AFTER.replaced(nodes)


def with_collective() -> LayerGraph:
    nodes = list(AFTER.nodes)
    first, second = at(AFTER, "L01.attention.o_proj"), at(AFTER, "L01.attention.o_proj.all_reduce")
    pair = (nodes[first], nodes[second])
    parts = tuple(Part(n.id, n.op, n.inputs, n.outputs) for n in pair)
    op = Fused("linear_all_reduce", parts, pair[0].inputs, pair[1].outputs)
    nodes[first : second + 1] = [Node("L01.attention.o_proj_sum", op, op.inputs, op.outputs)]
    return AFTER.replaced(nodes)


FAULTS: dict[str, tuple[Callable[[], LayerGraph], str]] = {
    "a part is another op": (
        lambda: with_fused("L01.moe.add_norm_router", part_changed(1, op=replace(AFTER_NORM, eps=1.0))),
        "not the node it was",
    ),
    "a part reads another value": (
        lambda: with_fused("L01.moe.add_norm_router", part_changed(0, inputs=("L00.mlp.y", "L00.mlp.y"))),
        r"crosses its border|not the node",
    ),
    "a value leaves that is not read": (
        lambda: with_fused(
            "L01.attention.q_b_absorb_rope", lambda op: replace(op, outputs=(*op.outputs, "L01.attention.qn"))
        ),
        "crosses its border",
    ),
    "merged in another order": (lambda: merged(parts=None), "rows of its linears in order"),
    "merged into another size": (lambda: merged(bytes=7), "shape and bytes"),
    "merged with another rounding": (lambda: merged(product="bf16"), "does not store its rows"),
    "merged in another precision": (lambda: merged(precision="float32"), "does not store its rows"),
    "split in another order": (resplit, r"gives \d+ columns|rows of its linears"),
    "gathered crosswise": (regathered, "which no gather did"),
    "holds a collective": (with_collective, "holds a collective"),
}

AFTER_NORM = next(n.op for n in BEFORE if n.id == "L01.moe.norm")


@pytest.mark.parametrize("name", FAULTS)
def test_verifier_rejects(name: str) -> None:
    make, words = FAULTS[name]
    broken = make()
    with pytest.raises(VerifyError, match=words):
        verify(BEFORE, broken)


def test_a_launch_that_lacks_a_part_makes_no_graph() -> None:
    with pytest.raises(ValueError, match="not defined"):
        with_fused("L01.moe.experts_shared", lambda op: replace(op, parts=op.parts[:-1], outputs=("L01.moe.routed",)))


def test_verifier_rejects_a_dropped_node_and_one_from_nowhere() -> None:
    smaller = CUT.graphs["draft_context"]
    with pytest.raises(VerifyError, match="was dropped"):
        verify(BEFORE, BEFORE.replaced(BEFORE.nodes[:-1], outputs=("features.0", "features.1")))
    extra = Node("extra", Split((12, 12)), ("draft.fuse.ctx",), ("a", "b"))
    with pytest.raises(VerifyError, match="comes from nowhere"):
        verify(smaller, smaller.replaced((*smaller.nodes, extra)))


def test_verifier_accepts_all_programs() -> None:
    after = CUT.mapped(fuse)
    verify_general("fuse", after, CUT)
    for name, graph in after.graphs.items():
        verify(CUT.graphs[name], graph)
    assert isinstance(after, Programs)
