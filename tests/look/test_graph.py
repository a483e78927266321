"""`ddtreec graph`: every format says the same graph, and its numbers are those of the plan."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ddtreec import driver
from ddtreec.plan.build_view import graph_view
from ddtreec.plan.view import GraphView, renamed
from ddtreec.spec.load import load_engine

from .commands import matches, run

ENGINE, BIG = "tiny-k2-cpu", "kimi-k2.6-rtx-pro-6000-x8-pcie"


@pytest.mark.parametrize("form", ["text", "mermaid", "dot"])
@pytest.mark.parametrize("layer", ["", "L03"])
def test_golden(form: str, layer: str) -> None:
    chosen = ["--layer", layer] if layer else []
    out = run("graph", ENGINE, "--format", form, "--program", "target", *chosen).stdout
    matches(f"graph{'-' + layer if layer else ''}.{form}", out)


@pytest.mark.parametrize("after", ["expand", "absorb", "shard", "fuse"])
def test_every_node_of_every_pass_is_in_the_view(after: str) -> None:
    state = driver.state_after(load_engine("tiny-k2-cpu-x2"), after)
    assert state.programs is not None
    for program in graph_view(state, after).programs:
        shown: set[str] = set()
        for run_ in program.runs:
            for layer in run_.names:
                shown |= {renamed(n.id, run_, layer) for n in run_.nodes if not n.layers or layer in n.layers}
        assert shown == {node.id for node in state.programs.graphs[program.name]}


def test_names_of_every_layer_are_those_of_the_graph() -> None:
    state = driver.state_after(load_engine(BIG), "fuse")
    assert state.programs is not None
    nodes = {node.id: node for graph in state.programs.graphs.values() for node in graph}
    checked = 0
    for program in graph_view(state, "fuse").programs:
        for run_ in program.runs:
            for layer in run_.names:
                for view in run_.nodes:
                    if view.layers:
                        continue
                    node = nodes[renamed(view.id, run_, layer)]
                    assert tuple(renamed(v.name, run_, layer) for v in view.inputs) == node.inputs
                    assert tuple(renamed(v.name, run_, layer) for v in view.outputs) == node.outputs
                    assert [w.bytes for w in view.weights] == [w.bytes for w in node.op.weights()]
                    checked += 1
    assert checked > 600


def test_the_61_layers_of_the_big_model_are_folded() -> None:
    target = graph_view(driver.state_after(load_engine(BIG), "fuse"), "fuse", ["target"]).programs[0]
    assert sum(len(r.names) for r in target.runs if r.names[0].startswith("L")) == 61
    assert max(len(r.names) for r in target.runs) >= 59
    (tap,) = [n for r in target.runs for n in r.nodes if n.kind == "tap"]
    assert tap.layers == ("L01", "L12", "L24", "L35", "L47", "L58")


def times(view: GraphView, program: str, rows: int) -> float:
    """Milliseconds of a program at a row count."""
    at = view.rows.index(rows)
    (found,) = [p for p in view.programs if p.name == program]
    return sum(n.predicted_us[at] * (len(n.layers) or len(r.names)) for r in found.runs for n in r.nodes) / 1e3


@pytest.mark.parametrize("engine", [ENGINE, BIG])
def test_the_times_of_the_nodes_add_up_to_the_steps_of_the_plan(engine: str) -> None:
    loaded = load_engine(engine)
    report, view = driver.plan(loaded), graph_view(driver.state_after(loaded, "fuse"), "fuse")
    compared = 0
    for step in report.steps:
        if step.program == "target" and step.rows in view.rows:
            assert times(view, "target", step.rows) == pytest.approx(step.predicted_ms, rel=1e-9)
            compared += 1
    assert compared >= 10
    at = [view.rows.index(rows) for rows in report.rows]
    mine = {n.id: n for p in view.programs for r in p.runs for n in r.nodes}
    for layer in report.layers:
        for kernel in layer.kernels:
            node = mine.get(f"{layer.layer}.{kernel.node}") or mine.get(kernel.node)
            if node is not None and not node.layers:
                assert tuple(node.predicted_us[i] for i in at) == pytest.approx(kernel.predicted_us)
                assert tuple(node.floor_us[i] for i in at) == pytest.approx(kernel.floor_us)


def test_lanes_hold_one_value_at_a_time() -> None:
    for program in graph_view(driver.state_after(load_engine(ENGINE), "fuse"), "fuse").programs:
        for run_ in program.runs:
            by_lane: dict[int, list[tuple[int, int]]] = {}
            for edge in run_.edges:
                assert edge.start < edge.stop or not edge.readers
                by_lane.setdefault(edge.lane, []).append((edge.start, edge.stop))
            for spans in by_lane.values():
                spans.sort()
                assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_drawings_name_only_boxes_they_have() -> None:
    for form, box, arrow in (
        ("mermaid", r"^\s+(?:subgraph )?(\w+)[\[(]", r"^\s+(\w+) -->(?:\|[^|]*\|)? (\w+)$"),
        ("dot", r"^\s+(?:subgraph cluster_)?(\w+) [\[{]", r"^\s+(\w+) -> (\w+)"),
    ):
        text = run("graph", ENGINE, "--format", form, "--layer", "L03").stdout
        boxes = set(re.findall(box, text, re.MULTILINE))
        arrows = re.findall(arrow, text, re.MULTILINE)
        assert len(arrows) > 20
        assert {end for pair in arrows for end in pair} <= boxes, form


def test_json_is_versioned() -> None:
    data = json.loads(run("graph", ENGINE, "--json").stdout)
    assert data["schema"] == "ddtreec.graph/1" and data["programs"][0]["name"] == "target"


def test_the_format_follows_the_name_of_the_file(tmp_path: Path) -> None:
    for name, begins in (("g.html", "<!doctype html>"), ("g.mmd", "%%"), ("g.dot", "digraph"), ("g.txt", "engine ")):
        result = run("graph", ENGINE, "-o", str(tmp_path / name))
        assert (tmp_path / name).read_text().startswith(begins) and "wrote" in result.stderr and not result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["graph", ENGINE, "--layer", "L9"], ["C002", "`L9`", "known: embed, L00"]),
        (["graph", "kimi-k2-rtx-pro-6000-x8-pcie", "--program", "draft_block"], ["C002", "names no drafter"]),
        (["graph", ENGINE, "-o", "no/such/folder/g.html"], ["C001", "make the folder first"]),
        (["graph", "tiny-k3-cpu"], ["S020", "did you mean `tiny-k2-cpu`"]),
        (["graph", ENGINE, "--after", "schedule"], ["Invalid value for '--after'"]),
    ],
)
def test_mistakes(arguments: list[str], words: list[str]) -> None:
    said = run(*arguments, code=2).stderr
    for word in words:
        assert word in said


def test_a_graph_needs_no_fit() -> None:
    out: Any = run(
        "graph", BIG, "--set", "limits.context=262144", "--set", "limits.sequences=64", "--program", "target"
    )
    assert "L01 .. L59 x59" in out.stdout
