"""Loading: extends, overrides, places across files, and the resolved spec."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddtreec.core.digest import of_data
from ddtreec.core.errors import SpecError
from ddtreec.core.paths import display
from ddtreec.spec.find import read_spec
from ddtreec.spec.load import load_engine, load_spec

ENGINE = """\
extends: tiny-k2-cpu
name: mine
limits:
  context: 512
"""


def _write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, "utf-8")
    return folder


def test_maps_merge_deeply_and_places_know_their_file(tmp_path: Path) -> None:
    _write(tmp_path, engine=ENGINE)
    loaded = load_engine(tmp_path / "engine.yaml")
    assert (loaded.engine.name, loaded.engine.limits.context, loaded.engine.limits.chunk) == ("mine", 512, 64)
    assert str(loaded.loc("engine", ("limits", "context"))) == f"{tmp_path}/engine.yaml:4:12"
    assert loaded.loc("engine", ("limits", "chunk")).file.endswith("specs/engines/tiny-k2-cpu.yaml")
    assert str(loaded.loc("engine", ("limits",), key=True)) == f"{tmp_path}/engine.yaml:3:1"


def test_lists_are_replaced_and_null_deletes(tmp_path: Path) -> None:
    _write(
        tmp_path,
        base="a: [1, 2]\nb: {x: 1, y: 2}\nc: 3\n",
        over="extends: ./base.yaml\na: [9]\nb: {x: null}\nc: null\n",
    )
    document = read_spec("tree", tmp_path / "over.yaml")
    assert document.data == {"a": (9,), "b": {"y": 2}}
    assert ("c",) not in document.sources.values
    assert ("a", 1) not in document.sources.values


def test_several_bases_in_order(tmp_path: Path) -> None:
    _write(tmp_path, one="a: 1\nb: 1\n", two="b: 2\nc: 2\n", over="extends: [./one.yaml, ./two.yaml]\nc: 3\n")
    assert read_spec("tree", tmp_path / "over.yaml").data == {"a": 1, "b": 2, "c": 3}


def test_a_chain_of_three_files_keeps_places(tmp_path: Path) -> None:
    _write(
        tmp_path,
        a="kind: tree\nversion: 1\nname: a\nmode: chain\nbudget: 3\n",
        b="extends: ./a.yaml\nname: b\n",
        c="extends: ./b.yaml\nbudgt: 4\n",
    )
    with pytest.raises(SpecError) as caught:
        load_spec("tree", tmp_path / "c.yaml")
    problem = caught.value.problems[0]
    assert (problem.code, str(problem.loc), problem.help) == (
        "S010",
        f"{tmp_path}/c.yaml:2:1",
        "did you mean `budget`?",
    )


def test_references_are_relative_to_the_file_that_writes_them(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    tree = "kind: tree\nversion: 1\nname: mine\nmode: ddtree\nbudget: 5\n"
    _write(tmp_path, tree=tree, engine="extends: tiny-k2-cpu\ntree: ./tree.yaml\n")
    _write(tmp_path / "deep", engine="extends: ../engine.yaml\n")
    assert load_engine(tmp_path / "deep" / "engine.yaml").tree.budget == 5  # type: ignore[union-attr]


def test_overrides_are_typed_and_applied_last() -> None:
    loaded = load_engine(
        "tiny-k2-cpu",
        [
            "tree.budget=8",
            "limits.context=512",
            "quant.roles.experts.product=exact",
            "model.blocks.attention.ops.q_norm.eps=1e-6",
            "model.blocks.attention.ops.12.weight=kv.{layer}",
            "topology=cpu-x2",
            "layout.experts=ep2xtp1",
            "name=1e5",
        ],
    )
    assert loaded.tree is not None
    assert loaded.tree.budget == 8
    assert loaded.engine.limits.context == 512
    assert loaded.quant.roles["experts"].product == "exact"
    attention = {op.id: op for op in loaded.model.blocks["attention"].ops}
    assert attention["q_norm"].fields["eps"] == 1e-6
    assert loaded.topology.devices == 2
    assert loaded.engine.layout.experts == "ep2xtp1"
    assert loaded.engine.name == "1e5", "the schema says string, so it stays one"
    assert str(loaded.loc("tree", ("budget",))) == "--set tree.budget=8"
    assert loaded.overrides[0] == "tree.budget=8"


def test_a_later_override_wins_and_goes_into_a_replaced_spec() -> None:
    loaded = load_engine("tiny-k2-cpu", ["tree.budget=3", "tree=ddtree-64", "tree.budget=5"])
    assert loaded.tree is not None
    assert (loaded.tree.name, loaded.tree.budget) == ("ddtree-64", 5)


def test_removing_the_drafter_turns_speculation_off() -> None:
    loaded = load_engine("tiny-k2-cpu", ["drafter=null"])
    assert (loaded.drafter, loaded.tree) == (None, None)
    assert set(loaded.resolved()) == {"engine", "model", "quant", "topology"}


def test_null_in_an_op_is_a_value() -> None:
    loaded = load_engine("tiny-k2-cpu", ["model.blocks.moe.ops.router.bias=null"])
    router = next(op for op in loaded.model.blocks["moe"].ops if op.id == "router")
    assert router.fields["bias"] is None


def test_a_list_and_a_mapping_as_a_value() -> None:
    loaded = load_engine("tiny-k2-cpu", ["model.tokens.eos=[1, 2]", "quant.roles={experts: {packing: dense}}"])
    assert loaded.model.tokens.eos == (1, 2)
    assert loaded.quant.roles["experts"].packing == "dense"


def test_the_resolved_spec_is_stable_and_free_of_places(tmp_path: Path) -> None:
    first = load_engine("tiny-k2-cpu").resolved()
    assert of_data(first) == of_data(load_engine("tiny-k2-cpu").resolved())
    text = json.dumps(first)
    assert str(Path.cwd()) not in text
    assert first["engine"]["tree"] == "ddtree-16"
    assert first["engine"]["layout"]["attention"] == "auto", "defaults are filled in"
    op = first["model"]["blocks"]["attention"]["ops"][1]
    assert list(op)[:4] == ["id", "op", "in", "out"]
    assert op["weight"] == "model.layers.{layer}.self_attn.q_a_proj.weight"


def test_the_resolved_spec_does_not_depend_on_how_it_was_written(tmp_path: Path) -> None:
    _write(tmp_path, engine="extends: tiny-k2-cpu\nlimits: {context: 512}\n")
    written = load_engine(tmp_path / "engine.yaml").resolved()
    assert written == load_engine("tiny-k2-cpu", ["limits.context=512"]).resolved()


def test_every_place_of_the_engine_can_be_asked_for() -> None:
    loaded = load_engine("tiny-k2-cpu")
    place = loaded.place("model", ("blocks", "attention", "ops", 2, "eps"))
    line = Path(place.loc.file).read_text().splitlines()[place.loc.line - 1]
    assert line == place.text
    assert line[place.loc.col - 1 :].startswith("1.0e-05")
    assert loaded.loc("engine", ("layout", "attention")).line == 2, "a default stands nowhere: the mapping is named"


def test_files_are_shown_relative_to_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert display(tmp_path / "a" / "b.yaml") == "a/b.yaml"
    assert display(Path("/elsewhere/b.yaml")) == "/elsewhere/b.yaml"
