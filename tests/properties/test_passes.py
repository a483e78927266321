"""Every pass keeps what a model computes, on random small models, layouts and rank counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ddtreec.artifacts.plan import Mesh
from ddtreec.core.errors import FitError
from ddtreec.passes import absorb, fuse_verify, shard_verify
from ddtreec.passes.expand import expand
from ddtreec.passes.fuse import fuse
from ddtreec.passes.shard import Sharded, shard
from ddtreec.passes.verify import verify
from ddtreec.spec.facts import DrafterFacts, RouterFacts, TargetFacts
from ddtreec.spec.schema import LayoutSpec
from tests.passes.reference import Checkpoint, Inputs, assert_same, results
from tests.passes.small import DRAFTER, INT4, TARGET, Price, SmallEngine, engine

ONE = Mesh(1, 1, 1)
SLOW = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a failing model is small as it is
)


@st.composite
def routers(draw: st.DrawFn) -> RouterFacts:
    groups = draw(st.sampled_from([1, 1, 2]))
    experts = draw(st.sampled_from([4, 6, 8, 12]))
    top_groups = draw(st.integers(1, groups))
    top_k = draw(st.integers(1, min(4, experts // groups * top_groups)))
    return RouterFacts(
        experts=experts,
        top_k=top_k,
        groups=groups,
        top_groups=top_groups,
        inter=draw(st.sampled_from([4, 8, 12, 24])),
        shared=draw(st.integers(0, 2)),
        score=draw(st.sampled_from(["sigmoid", "softmax"])),
        normalize=draw(st.booleans()),
        scale=draw(st.sampled_from([1.0, 2.5])),
        bias=draw(st.booleans()),
    )


@st.composite
def targets(draw: st.DrawFn) -> TargetFacts:
    layers = draw(st.integers(1, 3))
    return replace(
        TARGET,
        hidden=draw(st.sampled_from([8, 12, 24])),
        vocab=draw(st.sampled_from([12, 17, 36])),
        layers=layers,
        dense=draw(st.integers(0, layers)),
        heads=draw(st.sampled_from([1, 2, 3, 4, 6])),
        q_lora=draw(st.sampled_from([None, 6, 8, 12])),
        kv_lora=draw(st.sampled_from([4, 8, 12])),
        nope=draw(st.sampled_from([2, 3, 4])),
        rope=draw(st.sampled_from([2, 4])),
        v=draw(st.sampled_from([2, 3, 4])),
        inter=draw(st.sampled_from([6, 8, 24])),
        router=draw(routers()),
        rope_layout=draw(st.sampled_from(["interleaved", "half"])),
        yarn=draw(st.sampled_from([None, TARGET.yarn])),
    )


@st.composite
def drafters(draw: st.DrawFn, target: TargetFacts) -> DrafterFacts:
    kv_heads = draw(st.sampled_from([1, 2, 3, 4]))
    taps = draw(st.lists(st.integers(0, target.layers - 1), min_size=1, max_size=3, unique=True))
    variants = st.sampled_from([(None, False), (None, True), (3, False), (5, True)])
    return replace(
        DRAFTER,
        hidden=target.hidden,
        vocab=target.vocab,
        heads=kv_heads * draw(st.sampled_from([1, 2])),
        kv_heads=kv_heads,
        head_dim=draw(st.sampled_from([2, 4, 6])),
        inter=draw(st.sampled_from([6, 8, 24])),
        layers=tuple(draw(st.lists(variants, min_size=1, max_size=2))),
        mask_token=target.vocab - 1,
        taps=tuple(taps),
        target_layers=target.layers,
        target_hidden=target.hidden,
    )


@st.composite
def engines(draw: st.DrawFn) -> SmallEngine:
    target = draw(targets())
    drafter = draw(drafters(target)) if draw(st.booleans()) else None
    packable = target.hidden % 4 == 0 and target.router is not None and target.router.inter % 4 == 0
    return engine(target, drafter, **({"experts": INT4} if packable and draw(st.booleans()) else {}))


@st.composite
def step_inputs(draw: st.DrawFn, vocab: int, block: int) -> Inputs:
    token = st.integers(0, vocab - 1)
    nodes = draw(st.integers(1, 5))
    parents = (-1, *(draw(st.integers(0, i - 1)) for i in range(1, nodes)))

    def tokens(count: int) -> torch.Tensor:
        return torch.tensor([draw(token) for _ in range(count)], dtype=torch.int32)

    return Inputs(tokens(draw(st.integers(1, 6))), tokens(nodes), parents, tokens(block))


@st.composite
def layouts(draw: st.DrawFn, ranks: int) -> LayoutSpec:
    meshes = [f"ep{n}xtp{ranks // n}" for n in range(1, ranks + 1) if ranks % n == 0]
    return LayoutSpec(
        attention=draw(st.sampled_from(["auto", "tp", "replicated"])),
        a_proj=draw(st.sampled_from(["auto", "gather", "replicated"])),
        mlp=draw(st.sampled_from(["auto", "tp", "replicated"])),
        experts=draw(st.sampled_from(["auto", "replicated", *meshes])),
        vocab=draw(st.sampled_from(["auto", "parallel", "replicated"])),
        drafter=draw(st.sampled_from(["auto", "tp", "replicated"])),
    )


@SLOW
@given(data=st.data())
def test_every_pass_keeps_the_results(data: st.DataObject) -> None:
    small = data.draw(engines())
    ranks = data.draw(st.integers(1, 4))
    inputs = data.draw(step_inputs(small.model.dims["vocab"], small.drafter.block_size if small.drafter else 2))
    checkpoint = Checkpoint(data.draw(st.integers(0, 99)))

    expanded = expand(small)
    verify("expand", expanded)
    wanted = results(expanded, ONE, checkpoint, inputs)

    absorbed = expanded.mapped(absorb.absorb)
    verify("absorb", absorbed, expanded)
    for name, graph in absorbed.graphs.items():
        absorb.verify(expanded.graphs[name], graph)
    assert_same(results(absorbed, ONE, checkpoint, inputs), wanted, "absorb")

    cut = _sharded(absorbed, ranks, data.draw(layouts(ranks)), data.draw(st.sampled_from([0.0, 1e-9, 1e-6])))
    verify("shard", cut.programs, absorbed)
    shard_verify.verify(absorbed, cut.programs, cut.mesh)
    assert_same(results(cut.programs, cut.mesh, checkpoint, inputs), wanted, f"shard {cut.layout}")

    fused = cut.programs.mapped(fuse)
    verify("fuse", fused, cut.programs)
    for name, graph in fused.graphs.items():
        fuse_verify.verify(cut.programs.graphs[name], graph)
    assert_same(results(fused, cut.mesh, checkpoint, inputs), wanted, f"fuse {cut.layout}")


def _sharded(programs, ranks: int, layout: LayoutSpec, link: float) -> Sharded:
    """By the pins where they can be kept; by price alone where they cannot."""
    try:
        return shard(programs, ranks, layout, Price(link))
    except FitError:
        return shard(programs, ranks, LayoutSpec(), Price(link))


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("experts", ["ep{n}xtp1", "ep1xtp{n}", "replicated"])
def test_everything_cut_agrees_with_one_rank(ranks: int, experts: str) -> None:
    """All pins at once on a model where all of them can be kept, so that no draw can miss them."""
    target = replace(TARGET, heads=8, hidden=32, vocab=64, inter=32, kv_lora=16, q_lora=16, nope=12)
    drafter = replace(DRAFTER, hidden=32, target_hidden=32, vocab=64, heads=8, kv_heads=4, inter=32)
    absorbed = expand(engine(target, drafter)).mapped(absorb.absorb)
    layout = LayoutSpec(
        attention="tp", a_proj="gather", mlp="tp", experts=experts.format(n=ranks), vocab="parallel", drafter="tp"
    )
    cut = shard(absorbed, ranks, layout, Price())
    assert cut.layout == layout.model_dump()
    inputs = Inputs(
        torch.tensor([3, 1, 4, 1, 5]), torch.tensor([9, 2, 6, 5]), (-1, 0, 0, 1), torch.tensor([5, 35, 35, 35])
    )
    checkpoint = Checkpoint(7)
    wanted = results(absorbed, ONE, checkpoint, inputs)
    fused = cut.programs.mapped(fuse)
    assert_same(results(fused, cut.mesh, checkpoint, inputs), wanted, str(cut.layout))
    assert float(wanted["tree"].abs().max()) > 0.1
