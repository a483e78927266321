"""expand: names, tables, taps and shared weights of the programs, and the numbers of rope."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ddtreec.artifacts.plan import Cache
from ddtreec.core.errors import VerifyError
from ddtreec.graph.layer_graph import LayerGraph, Node
from ddtreec.ops.mla_attention import MlaAttention, softmax_scale
from ddtreec.ops.tap import Tap
from ddtreec.passes.expand import expand
from ddtreec.passes.programs import Programs, all_weights, block_of, caches
from ddtreec.passes.ropes import rope_table, yarn_range
from ddtreec.passes.verify import verify, verify_graph
from ddtreec.spec.load import load_engine
from ddtreec.spec.schema import RopeSpec, Yarn
from tests.passes.small import DRAFTER, INT4, TARGET, drafter_data, engine, engine_of, target_data

KIMI = Yarn(factor=64.0, original_positions=4096, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)


def test_names_of_nodes_values_and_weights() -> None:
    programs = expand(engine())
    assert list(programs.graphs) == ["target", "draft_context", "draft_block"]
    target = programs.graphs["target"]
    ids = [node.id for node in target]
    assert ids[0] == "embed.tokens" and ids[-1] == "head.lm_head"
    assert "L00.mlp.gate" in ids and "L02.moe.experts" in ids and "L01.mlp.gate" not in ids
    assert target.producer["L01.moe.ids"].id == "L01.moe.router"
    assert target.outputs == ("logits", "features.0", "features.1")
    assert target.layer_outputs == ("L00.mlp.y", "L01.moe.y", "L02.moe.y")
    weights = {w.id: w for w in all_weights(programs)}
    assert weights["L01.moe.experts.gate_up"].parts[1].tensor == "model.layers.1.mlp.experts.{expert}.up_proj.weight"
    assert weights["L01.moe.router.bias"].precision == "float32"
    block = programs.graphs["draft_block"]
    assert block.nodes[0].id == "draft.embed.tokens" and block.nodes[1].id == "D00.attention_full.norm"
    assert block_of("L03.moe.experts.all_reduce") == "L03.moe"
    assert (
        block_of("draft.head.norm") == "draft.head"
        and block_of("head.norm") == "head"
        and block_of("L00.tap") == "L00.tap"
    )


def test_taps_stand_after_their_layer_in_the_order_of_the_spec() -> None:
    target = expand(engine(drafter=replace(DRAFTER, taps=(2, 0)))).graphs["target"]
    taps = [(node.id, node.op.index, node.inputs) for node in target if isinstance(node.op, Tap)]
    assert taps == [("L00.tap", 1, ("L00.mlp.y",)), ("L02.tap", 0, ("L02.moe.y",))]
    assert str(target.types["features.0"]) == "compute[rows, 48]"
    assert not any(isinstance(node.op, Tap) for node in expand(engine(drafter=None)).graphs["target"])


def test_shared_weights_are_the_targets_and_equal_tensors_are_held_once() -> None:
    programs = expand(engine())
    block, context = programs.graphs["draft_block"], programs.graphs["draft_context"]
    assert block.nodes[0].op.weights()[0] == programs.graphs["target"].nodes[0].op.weights()[0]
    assert block.nodes[-1].op.weights()[0].id == "head.lm_head"
    assert block.nodes[-1].op.weights()[0].store == "target"
    theirs = {n.op.weights()[0].parts[0].tensor: n.op.weights()[0].id for n in context if n.op.weights()}
    ours = {n.op.weights()[0].parts[0].tensor: n.op.weights()[0].id for n in block if n.op.weights()}
    both = set(theirs) & set(ours)
    assert len(both) == 2 * 3  # k_proj, k_norm, v_proj of two layers
    assert all(theirs[name] == ours[name] for name in both)


def test_a_tied_head_is_the_embedding() -> None:
    weights = all_weights(expand(engine(replace(TARGET, tied=True), None)))
    assert [w.id for w in weights if w.role == "vocab"] == ["embed.tokens"]


def test_caches() -> None:
    assert caches(expand(engine())) == (
        Cache("L00", "latent", 12),
        Cache("L01", "latent", 12),
        Cache("L02", "latent", 12),
        Cache("D00", "context", 24, 2, 6, 0),
        Cache("D01", "context", 24, 2, 6, 5),
    )


def test_int4_bytes_count_nibbles_and_scales() -> None:
    weights = {w.id: w for w in all_weights(expand(engine(experts=INT4)))}
    gate_up = weights["L01.moe.experts.gate_up"]
    assert (gate_up.packing, gate_up.group, gate_up.shape) == ("int4", 4, (8, 24, 24))
    assert gate_up.bytes == 8 * 24 * 24 // 2 + 8 * 24 * 24 // 4 * 2
    assert weights["L01.moe.router"].bytes == 8 * 24 * 2 and weights["L01.moe.router.bias"].bytes == 8 * 4


def test_locations_point_at_the_op() -> None:
    target = expand(engine()).graphs["target"]
    assert str(target.producer["L02.moe.ids"].loc) == "model:blocks.moe.ops.1"


# ---- rope ---------------------------------------------------------------------------------------------------------


def test_yarn_of_kimi() -> None:
    """The ramp, its neighbours and the scale worked out by hand from the configuration of K2.6."""
    assert yarn_range(KIMI, 50000.0, 64) == (8, 20)
    assert yarn_range(KIMI.model_copy(update={"beta_fast": 1.0}), 50000.0, 64) == (19, 20)
    table = rope_table(RopeSpec(dim=64, layout="interleaved", theta=50000.0, yarn=KIMI), 64)
    plain = [50000.0 ** (-2 * i / 64) for i in range(32)]
    assert table.inv_freq[:9] == pytest.approx(plain[:9])
    assert table.inv_freq[20:] == pytest.approx([f / 64 for f in plain[20:]])
    assert table.inv_freq[14] == pytest.approx(plain[14] * (0.5 + 0.5 / 64))
    assert table.amplitude == 1.0
    assert softmax_scale(192, RopeSpec(dim=64, layout="interleaved", theta=50000.0, yarn=KIMI)) == pytest.approx(
        0.144680, abs=1e-6
    )


def test_amplitude() -> None:
    """The ratio of the two mscale terms, or what the spec pins; 1 without YaRN."""
    spec = RopeSpec(dim=8, layout="half", theta=1e4, yarn=KIMI.model_copy(update={"mscale_all_dim": 0.0}))
    assert rope_table(spec, 8).amplitude == pytest.approx(1 + 0.1 * math.log(64))
    assert rope_table(spec.model_copy(update={"amplitude": 1.25}), 8).amplitude == 1.25
    assert rope_table(RopeSpec(dim=8, layout="half", theta=1e4), 8).amplitude == 1.0


def test_softmax_scale_is_plain_without_yarn_and_can_be_pinned() -> None:
    data = target_data(replace(TARGET, yarn=None))
    mla = next(op for op in data["blocks"]["attention"]["ops"] if op["op"] == "mla_attention")
    for written, wanted in ((None, 8**-0.5), (0.3, 0.3)):
        if written is not None:
            mla["scale"] = written
        target = expand(engine_of(data)).graphs["target"]
        assert {n.op.scale for n in target if isinstance(n.op, MlaAttention)} == {wanted}


def test_drafter_tables_have_their_own_names() -> None:
    programs = expand(engine())
    assert sorted(programs.ropes) == ["draft.rope", "rope"]
    assert programs.ropes["draft.rope"].layout == "half"
    assert {n.op.params()["table"] for n in programs.graphs["draft_block"] if n.op.kind == "rope"} == {"draft.rope"}


# ---- shipped engines and the verifier -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["kimi-k2.6-rtx-pro-6000-x8-pcie", "deepseek-v3-rtx-pro-6000-x8-pcie", "moonlight-16b-a3b-h200-x1", "tiny-k2-cpu"],
)
def test_shipped_engines_expand(name: str) -> None:
    loaded = load_engine(name)
    programs = expand(loaded)
    verify("expand", programs)
    layers = sum(item.repeat or 0 for item in loaded.model.stack)
    assert len(programs.graphs["target"].layer_outputs) == layers
    assert sum(c.kind == "latent" for c in caches(programs)) == layers


def test_general_verifier_rejects_faults() -> None:
    graph = expand(engine()).graphs["target"]
    nodes = list(graph.nodes)

    def rejects(nodes: list[Node], words: str, **changes: object) -> None:
        broken = object.__new__(LayerGraph)
        broken.__dict__.update(graph.__dict__)
        broken.__dict__.pop("_readers", None)
        broken.__dict__.update(nodes=tuple(nodes), **changes)
        with pytest.raises(VerifyError, match=words):
            verify_graph("expand", broken)

    verify_graph("expand", graph)
    rejects(nodes[1:], "is not defined before it")
    rejects([*nodes, nodes[3]], "written twice")
    rejects([*nodes[:-1], replace(nodes[-1], id=nodes[3].id)], "two nodes have this id")
    rejects(nodes, "are not those of its ops", types={**graph.types, "logits": graph.types["tokens"]})
    unused = Node("L09.x", nodes[1].op, nodes[1].inputs, ("L09.y",))
    rejects([*nodes, unused], "'L09.y' is never read", types={**graph.types, "L09.y": graph.types["L00.attention.h"]})
    swapped = [*nodes]
    swapped[2], swapped[3] = swapped[3], swapped[2]
    rejects(swapped, "is not defined before it")


def test_general_verifier_compares_programs() -> None:
    before = expand(engine())
    target = before.graphs["target"]
    fewer = Programs(
        {**before.graphs, "target": target.replaced(target.nodes, layer_outputs=target.layer_outputs[1:])}, {}
    )
    with pytest.raises(VerifyError, match="3 layer outputs became 2"):
        verify("absorb", fewer, before)
    outputs = Programs({**before.graphs, "target": target.replaced(target.nodes, outputs=("logits", "features.0"))}, {})
    with pytest.raises(VerifyError, match=r"never read|outputs of the program changed"):
        verify("absorb", outputs, before)
    with pytest.raises(VerifyError, match="became"):
        verify("absorb", Programs({"target": target}, {}), before)


def test_a_drafter_with_its_own_head() -> None:
    programs = expand(engine_of(target_data(), drafter_data(replace(DRAFTER, own_head=True))))
    assert programs.graphs["draft_block"].nodes[-1].op.weights()[0].store == "drafter"
