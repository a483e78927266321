"""`ddtreec show` and `ddtreec schema`: the resolved specs with their origins, and JSON Schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddtreec.spec.find import FOLDERS, KINDS, shipped
from ddtreec.spec.load import load_engine
from ddtreec.spec.resolved import from_resolved, leaves

from .commands import ROOT, matches, run


def test_golden() -> None:
    sets = ["--set", "tree.budget=8", "--set", "limits.page=32"]
    kinds = ["--kind", "engine", "--kind", "tree", "--kind", "topology"]
    matches("show-origins.txt", run("show", "tiny-k2-cpu-x2", "--origins", *kinds, *sets).stdout)
    matches("show-files.txt", run("show", "tiny-k2-cpu-x2").stdout)


@pytest.mark.parametrize("engine", shipped("engine"))
def test_the_resolved_specs_read_back_as_the_same_engine(engine: str, tmp_path: Path) -> None:
    documents = run("show", engine, "--resolved", "--origins").stdout.split("---\n")
    kinds: dict[str, str] = {}
    for document in documents:
        data = yaml.safe_load(document)
        kinds[data["kind"]] = data["name"]
        (tmp_path / f"{data['kind']}.yaml").write_text(document, encoding="utf-8")
    text = (tmp_path / "engine.yaml").read_text(encoding="utf-8")
    for kind, name in kinds.items():
        if kind != "engine":
            text = text.replace(f"{kind}: {name}", f"{kind}: {kind}.yaml")
    (tmp_path / "engine.yaml").write_text(text, encoding="utf-8")
    again, first = load_engine(tmp_path / "engine.yaml").resolved(), load_engine(engine).resolved()
    assert again == first
    assert from_resolved(json.loads(json.dumps(first))).resolved() == first


def test_every_origin_points_at_the_line_that_has_the_key() -> None:
    checked = 0
    for leaf in leaves(load_engine(ROOT / "specs/engines/tiny-k2-cpu-x2.yaml")):
        file, _, line = leaf.origin.rpartition(":")
        if not file:
            assert leaf.origin == "default"
            continue
        text = (ROOT / file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
        above = (ROOT / file).read_text(encoding="utf-8").splitlines()[int(line) - 2]
        assert f"{leaf.path[-1]}:" in text or f"{leaf.path[-1]}:" in above, leaf
        checked += 1
    assert checked > 200


def test_json_and_a_mistake() -> None:
    data = json.loads(run("show", "tiny-k2-cpu", "--json", "--set", "tree.budget=8").stdout)
    assert data["schema"] == "ddtreec.show/1" and data["specs"]["tree"]["budget"] == 8
    assert data["origins"]["tree.budget"] == "--set tree.budget=8"
    assert "S013" in run("show", "tiny-k2-cpu", "--set", "tree.budget=500", code=2).stderr


# ---- schema -------------------------------------------------------------------------------------------------------


def schema(kind: str) -> dict[str, Any]:
    return json.loads(run("schema", kind).stdout)


@pytest.mark.parametrize("kind", KINDS)
def test_shipped_specs_are_valid_under_the_schema(kind: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    told = schema(kind)
    assert told["$schema"] == "https://json-schema.org/draft/2020-12/schema" and told["$id"] == f"urn:ddtreec:{kind}:1"
    jsonschema.Draft202012Validator.check_schema(told)
    validator = jsonschema.Draft202012Validator(told)
    files = sorted((ROOT / "specs" / FOLDERS[kind]).glob("*.yaml"))
    assert files
    for file in files:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert [error.message for error in validator.iter_errors(data)] == [], file


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("tree", ("budget",), 500),
        ("tree", ("bugdet",), 5),
        ("engine", ("limits", "contxt"), 5),
        ("model", ("blocks", "attention", "ops", 0, "op"), "rmsnorm"),
        ("model", ("blocks", "attention", "ops", 0, "epsilon"), 1.0),
        ("topology", ("devices",), "8"),
    ],
)
def test_the_schema_refuses_what_check_refuses(kind: Any, path: tuple[Any, ...], value: object) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    name = {"tree": "ddtree-16", "engine": "tiny-k2-cpu", "model": "tiny-k2", "topology": "cpu"}[kind]
    data = yaml.safe_load((ROOT / "specs" / FOLDERS[kind] / f"{name}.yaml").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema(kind))
    assert validator.is_valid(data)
    place: Any = data
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    assert not validator.is_valid(data)


def properties(told: Any) -> list[tuple[str, dict[str, Any]]]:
    """Every property in a schema, wherever it is."""
    found: list[tuple[str, dict[str, Any]]] = []
    if isinstance(told, dict):
        found += list(told.get("properties", {}).items()) if isinstance(told.get("properties"), dict) else []
        for value in told.values():
            found += properties(value)
    if isinstance(told, list):
        for value in told:
            found += properties(value)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_property_is_described(kind: str) -> None:
    told = properties(schema(kind))
    assert len(told) > 4
    described = {name for name, p in told if p.get("description")}
    assert [name for name, p in told if "const" not in p and name not in described] == []


def test_unknown_kinds_and_files(tmp_path: Path) -> None:
    assert "Invalid value" in run("schema", "modl", code=2).stderr
    run("schema", "tree", "-o", str(tmp_path / "tree.json"))
    assert json.loads((tmp_path / "tree.json").read_text())["title"] == "ddtreec tree spec"


def test_an_overlay_may_be_a_part_but_not_something_else() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(schema("engine"))
    assert validator.is_valid({"extends": "tiny-k2-cpu", "name": "mine", "limits": {"context": 512}, "tree": None})
    assert not validator.is_valid({"name": "mine", "limits": {"context": 512}})
    assert not validator.is_valid({"extends": "tiny-k2-cpu", "limits": {"contxt": 512}})
    assert not validator.is_valid({"extends": "tiny-k2-cpu", "limits": {"context": "512"}})
    assert not validator.is_valid({"extends": "tiny-k2-cpu", "limit": {"context": 512}})
