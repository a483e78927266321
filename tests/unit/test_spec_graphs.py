"""Any facts give a spec that reads back, validates, and says those facts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtreec.core.paths import staged_folder
from ddtreec.spec.cross import layer_count
from ddtreec.spec.drafter_graph import drafter_text
from ddtreec.spec.facts import DrafterFacts, RouterFacts, TargetFacts, YarnFacts
from ddtreec.spec.graphs import model_text, rope_lines
from ddtreec.spec.load import load_engine
from ddtreec.spec.reader import MAX_SHOWN, read_value
from ddtreec.spec.text import WIDTH

SMALL = st.integers(1, 64)
REAL = st.floats(1e-12, 1e6, allow_nan=False)
YARNS = st.none() | st.builds(YarnFacts, REAL, SMALL, REAL, REAL, st.floats(-2, 2), st.floats(-2, 2))

ENGINE = """\
kind: engine
version: 1
name: x
model: ./model.yaml
quant: bf16
drafter: ./drafter.yaml
tree: ./tree.yaml
topology: cpu
dtype: float32
limits: {context: 64, chunk: 1, page: 1}
"""
TREE = "kind: tree\nversion: 1\nname: t\nmode: chain\nbudget: 1\n"


@st.composite
def targets(draw: st.DrawFn) -> TargetFacts:
    """Targets with and without query latent, experts, shared experts and groups."""
    layers = draw(st.integers(2, 6))
    router = draw(
        st.none()
        | st.builds(
            RouterFacts,
            experts=SMALL,
            top_k=SMALL,
            groups=SMALL,
            top_groups=SMALL,
            inter=SMALL,
            shared=st.integers(0, 3),
            score=st.sampled_from(["sigmoid", "softmax"]),
            normalize=st.booleans(),
            scale=REAL,
            bias=st.booleans(),
        )
    )
    return TargetFacts(
        name=draw(st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)),
        hidden=draw(SMALL),
        vocab=64,
        layers=layers,
        dense=layers if router is None else draw(st.integers(0, layers)),
        heads=draw(SMALL),
        q_lora=draw(st.none() | SMALL),
        kv_lora=draw(SMALL),
        nope=draw(SMALL),
        rope=draw(SMALL),
        v=draw(SMALL),
        inter=draw(SMALL),
        router=router,
        eps=draw(REAL),
        latent_eps=draw(REAL),
        positions=draw(st.integers(64, 10**6)),
        eos=tuple(draw(st.lists(st.integers(0, 62), min_size=1, max_size=3))),
        bos=draw(st.none() | st.integers(0, 62)),
        pad=draw(st.none() | st.integers(0, 62)),
        theta=draw(REAL),
        yarn=draw(YARNS),
        rope_layout=draw(st.sampled_from(["interleaved", "half"])),
        prefix=draw(st.sampled_from(["", "language_model.", "no", "1"])),
        skip=tuple(draw(st.lists(st.sampled_from(["vision_tower.", "on", "a, b", "x: y"]), max_size=3))),
    )


@st.composite
def drafters(draw: st.DrawFn, target: TargetFacts) -> DrafterFacts:
    """Drafters of `target` with every mix of windows and causality."""
    return DrafterFacts(
        name="d",
        hidden=draw(SMALL),
        vocab=64,
        heads=draw(SMALL),
        kv_heads=draw(SMALL),
        head_dim=draw(SMALL),
        inter=draw(SMALL),
        layers=tuple(draw(st.lists(st.tuples(st.none() | SMALL, st.booleans()), min_size=1, max_size=5))),
        eps=draw(REAL),
        theta=draw(REAL),
        block_size=draw(st.integers(2, 16)),
        mask_token=63,
        taps=tuple(draw(st.sets(st.integers(0, target.layers - 1), min_size=1))),
        target_layers=target.layers,
        target_hidden=target.hidden,
        yarn=draw(YARNS),
        amplitude=draw(st.none() | REAL),
        own_embedding=draw(st.booleans()),
        own_head=draw(st.booleans()),
    )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_facts_read_back(data: st.DataObject) -> None:
    target = data.draw(targets())
    drafter = data.draw(drafters(target))
    texts = {
        "engine": ENGINE,
        "tree": TREE,
        "model": model_text(target, ["A comment."]),
        "drafter": drafter_text(drafter),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            assert max(map(len, text.splitlines())) <= MAX_SHOWN, "longer lines are not repeated in messages"
            (Path(folder) / f"{name}.yaml").write_text(text, "utf-8")
        loaded = load_engine(Path(folder) / "engine.yaml")
    assert loaded.warnings == (), [w.message for w in loaded.warnings]
    model, draft = loaded.model, loaded.drafter
    assert draft is not None
    assert (model.name, model.positions, model.tokens.eos) == (target.name, target.positions, target.eos)
    assert (model.tokens.bos, model.tokens.pad) == (target.bos, target.pad)
    assert (model.checkpoint.prefix, model.checkpoint.skip) == (target.prefix, target.skip)
    assert layer_count(model.stack) == target.layers
    assert (model.ropes["rope"].theta, model.ropes["rope"].layout) == (target.theta, target.rope_layout)
    for yarn, facts in ((model.ropes["rope"].yarn, target.yarn), (draft.ropes["rope"].yarn, drafter.yarn)):
        assert (yarn is None) == (facts is None)
        if yarn is not None and facts is not None:
            assert yarn.factor == facts.factor
            assert yarn.mscale_all_dim == facts.mscale_all_dim
    attention = {op.id: op.fields for op in model.blocks["attention"].ops}
    assert attention["norm"]["eps"] == target.eps
    assert attention["kv_norm"]["eps"] == target.latent_eps
    assert ("q_a" in attention) == (target.q_lora is not None)
    assert draft.taps == drafter.taps
    windows = [
        (op.fields["window"], op.fields["causal"])
        for item in draft.draft
        for _ in range(item.repeat or 0)
        for op in draft.blocks[item.blocks[0]].ops
        if op.op == "block_attention"
    ]
    assert windows == list(drafter.layers)
    assert layer_count(draft.context) == len(drafter.layers)


def test_a_folder_appears_at_once_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(RuntimeError), staged_folder(out) as stage:
        (stage / "half").write_text("x")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    for content in ("first", "second"):
        with staged_folder(out) as stage:
            (stage / content).write_text("x")
        assert [p.name for p in out.iterdir()] == [content]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_yarn_of_many_digits_is_a_line_a_field() -> None:
    """1.537e-160 and its like made one line longer than messages repeat."""
    short = rope_lines("rope", "rope", "interleaved", 50000.0, YarnFacts(64.0, 4096), None)
    assert short[-1].startswith("    yarn: {factor: 64.0, ")
    yarn = YarnFacts(1.5375851776916534, 1, 5.960464477539063e-08, 5.960464477539063e-08, 3.2e-15, 2.4352064861e-160)
    long = rope_lines("rope", "rope", "interleaved", 50000.0, yarn, None)
    assert max(map(len, long)) <= WIDTH and long[-1] == "      mscale_all_dim: 2.4352064861e-160"
    read, _ = read_value("\n".join(long), "ropes")
    assert read["rope"]["yarn"]["beta_fast"] == yarn.beta_fast  # type: ignore[index,call-overload]
