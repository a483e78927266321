"""shard: pins and prices, refusals, and faults its verifier must see. Results are compared in the properties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from ddtreec.artifacts.plan import Mesh, Shard, Weight
from ddtreec.core.errors import FitError, VerifyError
from ddtreec.graph.layer_graph import Node
from ddtreec.graph.printer import dump
from ddtreec.ops.base import Op
from ddtreec.passes.absorb import absorb
from ddtreec.passes.expand import expand
from ddtreec.passes.programs import Programs, all_weights, caches
from ddtreec.passes.shard import Sharded, mesh_of, shard
from ddtreec.passes.shard_verify import verify
from ddtreec.spec.schema import LayoutSpec
from tests.passes.small import INT4, TARGET, Price, engine

SMALL = engine(experts=INT4)
WHOLE = expand(SMALL).mapped(absorb)
ALL_CUT = LayoutSpec(attention="tp", a_proj="gather", mlp="tp", experts="ep2xtp1", vocab="parallel", drafter="tp")


def cut(layout: LayoutSpec = ALL_CUT, ranks: int = 2, link: float = 1e-6, **more: Any) -> Sharded:
    return shard(WHOLE, ranks, layout, Price(link), where=SMALL.problem, **more)


def block(done: Sharded, program: str, start: str) -> list[str]:
    text = dump(done.programs.graphs[program], done.placements[program])
    return [
        line.split("  ", 1)[0] + " -> " + line.rsplit("-> ", 1)[1]
        for line in text.splitlines()
        if line.startswith(start)
    ]


# ---- layouts ------------------------------------------------------------------------------------------------------


def test_attention_cut_by_heads() -> None:
    assert block(cut(), "target", "L01.attention") == [
        "L01.attention.norm -> L01.attention.h: compute[rows, 24]",
        "L01.attention.q_a -> L01.attention.qa.part: compute[rows, 6] S1",
        "L01.attention.q_a.all_gather -> L01.attention.qa: compute[rows, 12]",
        "L01.attention.q_norm -> L01.attention.qn: compute[rows, 12]",
        "L01.attention.q_b -> L01.attention.q: compute[rows, 2, 8] S1",
        "L01.attention.q_split -> "
        "L01.attention.q_nope: compute[rows, 2, 4] S1, L01.attention.q_pe: compute[rows, 2, 4] S1",
        "L01.attention.q_rope -> L01.attention.q_rot: compute[rows, 2, 4] S1",
        "L01.attention.kv_a -> L01.attention.kva.part: compute[rows, 6] S1",
        "L01.attention.kv_a.all_gather -> L01.attention.kva: compute[rows, 12]",
        "L01.attention.kv_split -> L01.attention.latent: compute[rows, 8], L01.attention.k_pe: compute[rows, 4]",
        "L01.attention.kv_norm -> L01.attention.c: compute[rows, 8]",
        "L01.attention.k_rope -> L01.attention.k_rot: compute[rows, 4]",
        "L01.attention.append -> L01.attention.cache: token[]",
        "L01.attention.mla.q_absorb -> L01.attention.o.q_c: compute[rows, 2, 8] S1",
        "L01.attention.mla.attend -> L01.attention.o.o_c: compute[rows, 2, 8] S1",
        "L01.attention.mla.v_up -> L01.attention.o: compute[rows, 2, 4] S1",
        "L01.attention.o_proj -> L01.attention.attn.part: compute[rows, 24] P",
        "L01.attention.o_proj.all_reduce -> L01.attention.attn: compute[rows, 24]",
        "L01.attention.residual -> L01.attention.y: compute[rows, 24]",
    ]


def test_partial_sums_of_experts_are_added_before_one_all_reduce() -> None:
    collectives = [n.id for n in cut().programs.graphs["target"] if n.id.startswith("L01.moe") and "all_" in n.id]
    assert collectives == ["L01.moe.sum.all_reduce"]


def test_vocabulary() -> None:
    graph = cut().programs.graphs["target"]
    embed, head = graph.nodes[0], graph.producer["logits"]
    assert embed.op.params() == {"first_per": 18, "coord": "rank"} and graph.nodes[1].op.kind == "all_reduce"
    assert head.op.kind == "all_gather" and str(graph.types["logits"]) == "float32[out_rows, 36]"


@pytest.mark.parametrize(
    ("experts", "shape", "params"),
    [
        ("ep2xtp1", (4, 24, 24), {"first_per": 4, "coord": "ep"}),
        ("ep1xtp2", (8, 12, 24), {"first_per": 0, "coord": "rank"}),
        ("replicated", (8, 24, 24), {"first_per": 0, "coord": "rank"}),
    ],
)
def test_experts(experts: str, shape: tuple[int, ...], params: dict[str, object]) -> None:
    target = expand(
        engine(replace(TARGET, router=replace(TARGET.router, inter=12)), None)
    ).graphs  # dense: any cut of inter
    done = shard(Programs(target, {}).mapped(absorb), 2, LayoutSpec(experts=experts), Price())
    op = next(n.op for n in done.programs.graphs["target"] if n.op.kind == "experts")
    assert op.weights()[0].shape == shape and op.params() == params
    assert done.mesh == mesh_of({"experts": experts}, 2)


def test_the_mesh_of_two_axes() -> None:
    done = shard(WHOLE, 4, LayoutSpec(experts="ep4xtp1"), Price())
    assert (done.mesh.ep, done.mesh.tp) == (4, 1)
    wide = expand(engine(replace(TARGET, router=replace(TARGET.router, inter=24)), None, experts=INT4)).mapped(absorb)
    done = shard(wide, 4, LayoutSpec(experts="ep2xtp2"), Price())
    down = next(n.op for n in done.programs.graphs["target"] if n.op.kind == "experts").weights()[1]
    assert (
        down.shape == (4, 24, 12)
        and down.parts[0].shard == Shard(1, 2, "tp")
        and down.expert_shard == Shard(0, 2, "ep")
    )


def test_drafter_heads_and_caches_follow_one_answer() -> None:
    done = cut()
    assert [c.heads for c in caches(done.programs) if c.kind == "context"] == [1, 1]
    whole = cut(ALL_CUT.model_copy(update={"drafter": "replicated"}))
    assert [c.heads for c in caches(whole.programs) if c.kind == "context"] == [2, 2]
    assert [c.width for c in caches(done.programs) if c.kind == "latent"] == [12, 12, 12]


def test_price_decides_and_pins_win() -> None:
    """Free links: everything is cut. Links that cost a second: nothing is, unless pinned."""
    free = cut(LayoutSpec(), link=0.0)
    assert free.layout["attention"] == "tp" and free.layout["mlp"] == "tp" and free.layout["drafter"] == "tp"
    dear = cut(LayoutSpec(), link=1.0)
    assert set(dear.layout.values()) == {"replicated"}
    assert dear.programs.graphs["target"].nodes == WHOLE.graphs["target"].nodes
    pinned = cut(LayoutSpec(attention="tp"), link=1.0)
    assert pinned.layout == {**dear.layout, "attention": "tp"}
    decision = {d.question: d for d in pinned.decisions}["attention"]
    assert decision.pinned and decision.seconds["tp"] > decision.seconds["replicated"]


def test_decisions_name_the_fastest() -> None:
    for decision in cut(LayoutSpec()).decisions:
        assert decision.seconds[decision.answer] == min(decision.seconds.values()) and not decision.pinned


def test_what_does_not_fit_is_cut_even_if_slower() -> None:
    dear = cut(LayoutSpec(), link=1.0)
    room = dear.weight_bytes * 3 // 4
    tight = cut(LayoutSpec(), link=1.0, fits=lambda size: size <= room)
    assert tight.weight_bytes <= room and "replicated" in tight.layout.values()
    held = sum(w.bytes for w in all_weights(tight.programs))
    assert held == tight.weight_bytes
    nothing = cut(LayoutSpec(), link=1.0, fits=lambda size: False)
    assert nothing.weight_bytes == cut(ALL_CUT).weight_bytes


def test_nothing_divides_and_auto_replicates() -> None:
    odd = engine(replace(TARGET, heads=5, vocab=37, hidden=25, inter=25, q_lora=11, kv_lora=7), None)
    done = shard(expand(odd).mapped(absorb), 2, LayoutSpec(experts="replicated"), Price(0.0))
    assert set(done.layout.values()) == {"replicated"}


def test_repeated_blocks_are_cut_alike() -> None:
    graph = cut().programs.graphs["target"]
    one, two = ([(n.id[4:], n.op.kind) for n in graph if n.id.startswith(p)] for p in ("L01.", "L02.moe"))
    assert [x for x in one if x[0].startswith("moe")] == two


# ---- refusals -----------------------------------------------------------------------------------------------------

REFUSALS = [
    (
        {"attention": "tp"},
        3,
        "layout attention: tp cannot be done on 3 ranks",
        "its 4 outputs do not divide by 3 ranks",
    ),
    ({"experts": "ep3xtp1"}, 3, "layout experts: ep3xtp1", "8 experts do not divide by ep 3"),
    (
        {"experts": "ep1xtp2"},
        2,
        "layout experts: ep1xtp2",
        "the expert width 12 does not divide in INT4 groups of 4 by tp 2",
    ),
    ({"experts": "ep2xtp2"}, 2, "layout experts: ep2xtp2", "ep 2 x tp 2 makes 4 ranks, the topology has 2"),
    ({"experts": "ep2xtp1"}, 1, "layout experts: ep2xtp1", "ep 2 x tp 1 makes 2 ranks, the topology has 1"),
    ({"vocab": "parallel"}, 5, "layout vocab: parallel", "a vocabulary of 36 does not divide by 5 ranks"),
    ({"drafter": "tp"}, 4, "layout drafter: tp", "2 outputs do not divide by 4 ranks"),
    ({"a_proj": "gather"}, 5, "layout a_proj: gather", "its 12 outputs do not divide by 5 ranks"),
    ({"mlp": "tp"}, 5, "layout mlp: tp", "its 24 outputs do not divide by 5 ranks"),
]


@pytest.mark.parametrize(("pins", "ranks", "message", "reason"), REFUSALS)
def test_pins_that_cannot_be_kept(pins: dict[str, str], ranks: int, message: str, reason: str) -> None:
    with pytest.raises(FitError) as caught:
        shard(WHOLE, ranks, LayoutSpec(**pins), Price(), where=SMALL.problem)  # type: ignore[arg-type]
    (problem,) = caught.value.problems
    (question,) = pins
    text = problem.render()
    assert text.startswith(f"error[S040]: {message}") and f"--> engine:layout.{question}" in text
    assert reason in problem.note
    assert any(place in problem.note for place in ("(model:blocks", "(drafter:blocks", "the topology has"))
    assert problem.help.startswith(f"{question} can be auto, replicated")


def test_all_refusals_at_once() -> None:
    with pytest.raises(FitError) as caught:
        shard(WHOLE, 5, LayoutSpec(attention="tp", mlp="tp", vocab="parallel"), Price(), where=SMALL.problem)
    assert len(caught.value.problems) == 3


# ---- verifier -----------------------------------------------------------------------------------------------------


def broken(change: Callable[[list[Node]], list[Node]], layout: LayoutSpec = ALL_CUT) -> tuple[Programs, Mesh]:
    done = cut(layout)
    graph = done.programs.graphs["target"]
    return Programs({**done.programs.graphs, "target": graph.replaced(change(list(graph.nodes)))}, {}), done.mesh


def at(nodes: list[Node], name: str) -> int:
    return next(i for i, n in enumerate(nodes) if n.id == name)


def without(name: str) -> Callable[[list[Node]], list[Node]]:
    """Drop a collective: its readers read what it read."""

    def change(nodes: list[Node]) -> list[Node]:
        gone = nodes.pop(at(nodes, name))
        names = dict(zip(gone.outputs, gone.inputs, strict=True))
        return [replace(n, inputs=tuple(names.get(v, v) for v in n.inputs)) for n in nodes]

    return change


def reweighted(
    name: str, change: Callable[[Weight], Weight], field: str = "weight"
) -> Callable[[list[Node]], list[Node]]:
    def edit(nodes: list[Node]) -> list[Node]:
        index = at(nodes, name)
        op: Op = nodes[index].op
        nodes[index] = replace(nodes[index], op=replace(op, **{field: change(getattr(op, field))}))
        return nodes

    return edit


def shards(shard: Shard | None) -> Callable[[Weight], Weight]:
    return lambda w: msgspec.structs.replace(w, parts=tuple(msgspec.structs.replace(p, shard=shard) for p in w.parts))


FAULTS: dict[str, tuple[Callable[[list[Node]], list[Node]], str]] = {
    "partial sum reaches a norm": (without("L00.attention.o_proj.all_reduce"), "gets"),
    "partial sum reaches the end": (without("L01.moe.sum.all_reduce"), "gets"),
    "summed twice": (
        lambda nodes: [
            *nodes[: at(nodes, "L01.moe.router")],
            replace(nodes[1], id="extra", inputs=("L01.moe.h",), outputs=("L01.moe.h2",)),
            *(
                replace(n, inputs=tuple("L01.moe.h2" if v == "L01.moe.h" else v for v in n.inputs))
                if n.id.startswith("L01.moe")
                else n
                for n in nodes[at(nodes, "L01.moe.router") :]
            ),
        ],
        "gets 'R'",
    ),
    "every rank the same slice": (reweighted("L01.moe.shared_gate", shards(None)), "is none of the ways"),
    "wrong axis": (reweighted("L01.attention.o_proj", shards(Shard(0, 2, "rank"))), "is none of the ways"),
    "ranks of the wrong kind": (reweighted("L00.mlp.gate", shards(Shard(0, 2, "tp"))), "is none of the ways"),
    "dropped": (lambda nodes: [*nodes[:-2], replace(nodes[-2], outputs=("logits",))], r"placed|outlives"),
    "renamed": (
        lambda nodes: [
            replace(n, id="L01.moe.other") if n.id == "L01.moe.act" or n.id == "L01.moe.shared_act" else n
            for n in nodes
        ],
        "comes from nowhere",
    ),
    "another value": (
        lambda nodes: [
            replace(n, inputs=("L01.attention.y", "L01.attention.y")) if n.id == "L01.moe.residual" else n
            for n in nodes
        ],
        "other values",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_verifier_rejects(name: str) -> None:
    change, words = FAULTS[name]
    programs, mesh = broken(change)
    with pytest.raises(VerifyError, match=words):
        verify(WHOLE, programs, mesh)


def test_slices_that_reach_a_norm_make_no_graph() -> None:
    with pytest.raises(ValueError, match="a last axis of 12 is expected"):
        broken(without("L01.attention.q_a.all_gather"))


def test_verifier_accepts_what_shard_makes() -> None:
    for layout in (ALL_CUT, LayoutSpec()):
        done = cut(layout)
        verify(WHOLE, done.programs, done.mesh)


def fake(op: Op, **weights: Weight) -> Op:
    return replace(op, **weights)  # type: ignore[arg-type]


def test_verifier_sees_weights_that_do_not_tile() -> None:
    """Even if an op's own strategies were wrong: slices are counted over the ranks."""
    from ddtreec.passes.shard_verify import verify_tiling

    done = cut()
    (local,) = (n.op.weights()[0] for n in done.programs.graphs["target"] if n.id == "L00.mlp.gate")
    (whole,) = (n.op.weights()[0] for n in WHOLE.graphs["target"] if n.id == "L00.mlp.gate")
    verify_tiling("n", local, whole, done.mesh)
    wrong = {
        "which 2 ranks hold 1": shards(Shard(0, 2, "tp")),  # ep 2 x tp 1: both ranks have tp index 0
        "do not divide": shards(Shard(0, 5, "rank")),
        "elements": lambda w: msgspec.structs.replace(w, shape=(24, 24)),
        "bytes": lambda w: msgspec.structs.replace(w, bytes=w.bytes + 1),
        "viewed in another way": lambda w: msgspec.structs.replace(
            w, parts=(msgspec.structs.replace(w.parts[0], tensor="x"),)
        ),
    }
    for words, change in wrong.items():
        with pytest.raises(VerifyError, match=words):
            verify_tiling("n", change(local), whole, done.mesh)
    down = next(n.op.weights()[1] for n in WHOLE.graphs["target"] if n.op.kind == "experts")
    through = msgspec.structs.replace(shards(Shard(1, 2, "rank"))(down), shape=(8, 24, 6), bytes=down.bytes // 2)
    with pytest.raises(VerifyError, match="a run of 6 cuts INT4 groups of 4"):
        verify_tiling("n", through, down, done.mesh)


def test_verifier_sees_a_mesh_that_is_none() -> None:
    with pytest.raises(VerifyError, match="is not 2 ranks"):
        verify(WHOLE, cut().programs, Mesh(2, 2, 2))
