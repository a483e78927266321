"""lower: homes of values and calls, for both backends."""

from __future__ import annotations

import pytest

from ddtreec.artifacts.plan import Call, Value
from ddtreec.core.errors import VerifyError
from ddtreec.graph.layer_graph import LayerGraph, Node
from ddtreec.ops.base import TensorType
from ddtreec.ops.split import Split
from ddtreec.passes.absorb import absorb
from ddtreec.passes.expand import expand
from ddtreec.passes.fuse import fuse
from ddtreec.passes.lower import lower, width
from ddtreec.passes.programs import Programs, all_weights
from ddtreec.passes.shard import shard
from tests.passes.small import INT4, Price, engine
from tests.passes.test_shard import ALL_CUT

PLAIN = expand(engine(experts=INT4)).mapped(absorb)
FUSED = shard(PLAIN, 2, ALL_CUT, Price()).programs.mapped(fuse)


def lowered(programs: Programs, name: str, backend: str = "cpu") -> tuple[dict[str, Value], dict[str, Call]]:
    values, calls = lower(programs.graphs[name], backend)
    return {v.id: v for v in values}, {f"{c.node} {c.kernel}": c for c in calls}


def test_homes() -> None:
    values, _ = lowered(PLAIN, "target")
    assert values["tokens"] == Value("tokens", ("rows",), "int32", "input")
    assert values["L00.attention.h"] == Value("L00.attention.h", ("rows", 24))
    assert values["L00.attention.cache"].home == "token"
    assert values["features"] == Value("features", ("rows", 48), "compute", "persistent")
    assert values["logits"] == Value("logits", ("out_rows", 36), "float32", "persistent")
    assert values["L01.moe.ids"].dtype == "int64" and values["L01.moe.w"].dtype == "float32"
    assert {v for v, k in values.items() if k.home == "persistent"} == {"features", "logits"}
    assert lowered(PLAIN, "draft_context")[0]["features"].home == "input"


def test_aliases_point_at_the_root() -> None:
    """q_a and kv_a are views of one product, and the halves of kv_a views of the same."""
    values, _ = lowered(PLAIN.mapped(fuse), "target")
    root = "L00.attention.q_a_kv_a"
    assert values["L00.attention.qa"] == Value("L00.attention.qa", ("rows", 12), home="alias", parent=root, start=0)
    assert (values["L00.attention.kva"].parent, values["L00.attention.kva"].start) == (root, 12)
    assert (values["L00.attention.latent"].parent, values["L00.attention.latent"].start) == (root, 12)
    assert (values["L00.attention.k_pe"].parent, values["L00.attention.k_pe"].start) == (root, 20)
    heads, _ = lowered(PLAIN.mapped(fuse), "draft_block")
    k, v = heads["D00.attention_full.k0"], heads["D00.attention_full.v"]
    assert (k.shape, k.start, v.start) == (("rows", 2, 6), 24, 36)
    assert width(k, heads[k.parent]) == 12
    for name, value in {**values, **heads}.items():
        if value.home == "alias":
            table = values if name in values else heads
            assert table[value.parent].home != "alias"


def test_a_view_of_a_reshaped_view_is_refused() -> None:
    x = TensorType(("rows", 12))
    nodes = (
        Node("a", Split((8, 4), ((2, 4), (4,))), ("x",), ("p", "q")),
        Node("b", Split((2, 2)), ("p",), ("r", "s")),
    )
    graph = LayerGraph("target", {"x": x}, nodes, ("q", "r", "s"))
    with pytest.raises(VerifyError, match="is a view of 'p', which is a reshaped view itself"):
        lower(graph, "cpu")


def test_calls() -> None:
    _, calls = lowered(FUSED, "target")
    assert calls["L01.moe.experts_shared experts"] == Call(
        node="L01.moe.experts_shared",
        kernel="experts",
        outs=("L01.moe.routed",),
        ins=("L01.moe.h", "L01.moe.ids", "L01.moe.w"),
        weights=("L01.moe.experts.gate_up", "L01.moe.experts.down"),
        params={"first_per": 4, "coord": "ep"},
    )
    append = calls["L01.attention.kv_norm_rope_append latent_append"]
    assert (append.outs, append.ins, append.params) == ((), ("L01.attention.c", "L01.attention.k_rot"), {"layer": 1})
    attend = calls["L01.attention.latent_attention_v_up latent_attention"]
    assert attend.ins == ("L01.attention.o.q_c", "L01.attention.q_rot")
    assert calls["L00.tap tap"].outs == ("features",) and calls["L00.tap tap"].params == {"index": 0}
    gather = calls["L01.attention.q_a_kv_a.all_gather all_gather"]
    assert gather.collective and gather.params == {"axis": 1}
    assert gather.outs == ("L01.attention.qa", "L01.attention.kva")
    assert not any(call.kernel in ("split", "fused") for call in calls.values())


def test_cuda_runs_a_launch_as_one_call_without_its_inner_values() -> None:
    values, calls = lowered(FUSED, "target", "cuda")
    call = calls["L01.moe.add_norm_router add_norm_router"]
    assert call.outs == ("L01.attention.y", "L01.moe.h", "L01.moe.ids", "L01.moe.w")
    assert call.weights == ("L01.moe.norm", "L01.moe.router", "L01.moe.router.bias")
    assert call.params["eps"] == 1e-5 and call.params["top_k"] == 3
    assert "L01.moe.routed" not in values and "L01.moe.routed" in lowered(FUSED, "target")[0]


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["target", "draft_context", "draft_block"])
def test_every_value_is_written_once_before_it_is_read(name: str, backend: str) -> None:
    """Taps excepted: they write columns of one buffer."""
    values, calls = lower(FUSED.graphs[name], backend)
    table = {v.id: v for v in values}
    assert len(table) == len(values)
    held = {w.id for w in all_weights(FUSED)}
    written = {v.id for v in values if v.home == "input"}
    for call in calls:
        for value in call.ins:
            assert (table[value].parent or value) in written, (call.node, value)
        for value in call.outs:
            assert value not in written or call.kernel == "tap"
            written.add(value)
        assert set(call.weights) <= held
        assert all(isinstance(v, int | float | str | bool | None) for v in call.params.values())
    assert {v.id for v in values if v.home in ("arena", "persistent")} <= written
