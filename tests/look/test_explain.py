"""`ddtreec explain` of nodes, fields and ops, and the notes behind it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ddtreec import driver
from ddtreec.artifacts.plan import Mesh, Shard, Weight, WeightPart
from ddtreec.ops import SPEC_OPS
from ddtreec.plan.slices import experts_of, ranges
from ddtreec.spec.fields import all_fields, lookup
from ddtreec.spec.load import load_engine
from ddtreec.spec.notes import NOTES, SPEC
from ddtreec.spec.schema import CLASSES

from .commands import matches, run

BIG = "kimi-k2.6-rtx-pro-6000-x8-pcie"


@pytest.mark.parametrize(
    "node",
    ["L03.moe.experts", "L03.attention.q_a", "L03.moe.sum.all_reduce", "L03.moe.experts_shared", "L03.attention.mla"],
)
def test_golden_nodes(node: str) -> None:
    matches(f"explain-{node}.txt", run("explain", node, "tiny-k2-cpu-x2").stdout)


def test_the_times_are_those_of_the_plan() -> None:
    report = driver.plan(load_engine(BIG))
    (layer,) = [x for x in report.layers if "L03" in (x.layer, *x.same) and x.program == "target"]
    for kernel in layer.kernels:
        if kernel.kernels == ("tap",):
            continue
        told = json.loads(run("explain", f"L03.{kernel.node}", BIG, "--json").stdout)
        assert [n["rows"] for n in told["numbers"]] == list(report.rows)
        assert [n["predicted_us"] for n in told["numbers"]] == pytest.approx(kernel.predicted_us, rel=1e-5)
        assert [n["floor_us"] for n in told["numbers"]] == pytest.approx(kernel.floor_us, rel=1e-5)


def test_alternatives_mark_what_is_planned_and_the_layout_pin_changes_it() -> None:
    def taken(*pins: str) -> list[str]:
        told = json.loads(run("explain", "L03.moe.experts", BIG, "--json", *pins).stdout)
        return [a["answer"] for a in told["alternatives"] if a["taken"]]

    assert taken() == ["ep1xtp8"]
    assert taken("--set", "layout.experts=ep4xtp2") == ["ep4xtp2"]


def test_slices_tile_the_tensor() -> None:
    mesh = Mesh(8, 2, 4)
    part = WeightPart("t", (2048, 7168), shard=Shard(0, 4, "tp"))
    weight = Weight("w", "experts", "target", (part,), (1,), experts=192, expert_shard=Shard(0, 2, "ep"))
    held = {(experts_of(weight, mesh, rank), ranges(part, mesh, rank)) for rank in range(8)}
    assert len(held) == 8
    assert sum((e[1] - e[0]) * (r[0][1] - r[0][0]) for e, r in held if e) == 384 * 2048
    take = WeightPart("t", (8, 64, 128), ((0, 8), (32, 64), (0, 128)), Shard(0, 4, "tp"))
    assert [ranges(take, mesh, rank)[0] for rank in (0, 3, 4, 7)] == [(0, 2), (6, 8), (0, 2), (6, 8)]
    assert ranges(take, mesh, 5)[1:] == ((32, 64), (0, 128))


def test_a_node_of_two_programs_says_so() -> None:
    told = json.loads(run("explain", "L00.mlp.gate", "tiny-k2-cpu", "--json").stdout)
    assert told["program"] == "target" and told["schema"] == "ddtreec.explain/1"


# ---- fields -------------------------------------------------------------------------------------------------------


def test_every_field_has_a_note_and_every_note_a_field() -> None:
    fields = all_fields().values()
    used = {(f.model, f.name) for f in fields if f.name in NOTES.get(f.model, {})}
    assert {(f.model, f.name) for f in fields if f.name not in NOTES.get(f.model, {})} <= {
        (cls.__name__, name) for cls in CLASSES.values() for name in SPEC
    }
    assert {(model, name) for model, notes in NOTES.items() for name in notes} == used
    for facts in fields:
        assert facts.note.text.endswith(".") and facts.type != "a value"


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("tree.budget", ["tree.budget"]),
        ("budget", ["tree.budget"]),
        ("limits.context", ["engine.limits.context"]),
        ("engine.layout.experts", ["engine.layout.experts"]),
        ("model.blocks.attention.ops.norm.eps", ["model.blocks.ops"]),
        ("quant.roles.experts.group", ["quant.roles.group"]),
        ("model.dims.hidden", ["model.dims"]),
        ("topology.link.all_reduce_us.0.1", ["topology.link.all_reduce_us"]),
        ("source", ["drafter.expected_tau.source", "topology.device.source", "topology.link.source"]),
        ("limits.contxt", []),
        ("tree.budget.more", []),
        ("model.nothing", []),
    ],
)
def test_lookup(name: str, paths: list[str]) -> None:
    assert [facts.path for facts in lookup(name)] == paths


@pytest.mark.parametrize("facts", all_fields().values(), ids=lambda f: f.path)
def test_every_field_explains_itself(facts: Any) -> None:
    data = json.loads(run("explain", facts.path, "--json").stdout)
    assert data["what"] == "field" and data["meaning"] and data["type"]


def test_golden_fields_and_ops() -> None:
    matches("explain-tree.budget.txt", run("explain", "tree.budget").stdout)
    matches("explain-layout.experts.txt", run("explain", "layout.experts", "tiny-k2-cpu").stdout)
    matches("explain-linear.txt", run("explain", "linear").stdout)


def test_a_field_of_an_engine_says_its_value_and_origin() -> None:
    told = run("explain", "tree.budget", "tiny-k2-cpu", "--set", "tree.budget=9").stdout
    assert "tree.budget: 9   (--set tree.budget=9)" in told


@pytest.mark.parametrize("kind", SPEC_OPS)
def test_every_op_explains_itself(kind: str) -> None:
    data = json.loads(run("explain", kind, "--json").stdout)
    assert data["what"] == "op" and [f["name"] for f in data["fields"]] == list(SPEC_OPS[kind].SPEC or {})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["L03.moe.expert", "tiny-k2-cpu"], ["C002", "did you mean `L03.moe.experts`"]),
        (["limits.contxt"], ["C002", "did you mean `limits.context`"]),
        (["source"], ["C003", "topology.device.source, topology.link.source"]),
        (["xyzzy"], ["C002", "name its engine"]),
        (["xyzzy", "tiny-k2-cpu"], ["C002", "lists the nodes"]),
        (["L03.moe.experts", "tiny-k2"], ["S020"]),
    ],
)
def test_mistakes(arguments: list[str], words: list[str]) -> None:
    said = run("explain", *arguments, code=2).stderr
    for word in words:
        assert word in said
