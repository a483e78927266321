"""`ddtreec inspect` and `ddtreec diff`: bundles as they lie on disk, and two engines side by side."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from ddtreec import driver
from ddtreec.plan.holdings import holdings
from ddtreec.spec.load import load_engine
from ddtreec.toolchain.inspect import read_bundle

from .commands import matches, run


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundles") / "tiny"
    driver.compile_engine("tiny-k2-cpu-x2", ["tree.budget=8"], out=out)
    return out


@pytest.fixture
def copy(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "tiny"))


def test_golden(bundle: Path) -> None:
    lines = run("inspect", str(bundle)).stdout.splitlines()
    kept = [line for line in lines if "compiled by" not in line and not line.startswith("  graph/")]
    # sizes of generated files change with every template: not what this text is about
    sizeless = [re.sub(r"^(  \S+\.(?:json|py|txt) +)\d+ ", r"\1# ", line) for line in kept]
    matches("inspect.txt", "\n".join(sizeless) + "\n")


def test_the_shard_map_holds_all_bytes(bundle: Path) -> None:
    data = json.loads(run("inspect", str(bundle), "--json").stdout)
    plan = read_bundle(bundle).plan
    assert (
        data["schema"] == "ddtreec.inspect/1" and data["whole"] and data["manifest"]["overrides"] == ["tree.budget=8"]
    )
    for role in {w.role for w in plan.weights}:
        mine = sum(h["bytes"] for h in data["shards"] if h["role"] == role)
        assert abs(mine - sum(w.bytes for w in plan.weights if w.role == role)) <= len(plan.weights)


def test_layers_are_told_once() -> None:
    state = driver.planned(load_engine("kimi-k2.6-rtx-pro-6000-x8-pcie"))
    assert state.placed is not None
    rows = holdings(state.placed.weights, state.mesh)
    (gate,) = [h for h in rows if h.tensor.endswith("experts.{expert}.gate_proj.weight")]
    assert (gate.count, gate.packing, gate.cut) == (60, "int4 g32", "axis 0 in 8 over tp")
    assert len(rows) < 60
    told = {row.purpose: row.bytes for row in state.placed.table}
    assert sum(h.bytes for h in rows if h.role == "experts") == told["weights: experts"]


def test_states_of_files(copy: Path) -> None:
    (copy / "step.py").write_bytes((copy / "step.py").read_bytes() + b"# mine\n")
    (copy / "plan.txt").unlink()
    (copy / "notes.txt").write_text("hello")
    result = run("inspect", str(copy), "--json", code=5)
    states = {f["path"]: f["state"] for f in json.loads(result.stdout)["files"] if f["state"] != "ok"}
    assert states == {"step.py": "edited", "plan.txt": "missing", "notes.txt": "unlisted"}
    assert "3 of" in result.stderr


def test_what_is_no_bundle(copy: Path, tmp_path: Path) -> None:
    assert "B020" in run("inspect", str(tmp_path / "nothing"), code=5).stderr
    assert "no manifest.json" in run("inspect", str(tmp_path), code=5).stderr
    (copy / "plan.json").write_text("{")
    assert "B017" in run("inspect", str(copy), code=5).stderr
    (copy / "plan.json").unlink()
    assert "B017" in run("inspect", str(copy), code=5).stderr
    text = (copy / "manifest.json").read_text()
    (copy / "manifest.json").write_text(text.replace('"format": 1', '"format": 2'))
    assert "B022" in run("inspect", str(copy), code=5).stderr
    (copy / "manifest.json").write_text("<html>")
    assert "B016" in run("inspect", str(copy), code=5).stderr
    driver.compile_engine("tiny-k2-cpu", to="plan", out=tmp_path / "early")
    assert "early stage" in run("inspect", str(tmp_path / "early"), code=5).stderr


@pytest.mark.parametrize("name", ["manifest.json", "plan.json"])
def test_files_of_another_version_are_told_by_their_format(copy: Path, name: str) -> None:
    """They may have other fields, which is not what is wrong with them."""
    (copy / name).write_text('{"format": 7, "news": []}')
    said = run("inspect", str(copy), code=5).stderr
    assert "B022" in said and "has format 7, this ddtreec reads format 1" in said


def test_diff_golden() -> None:
    sets = ["--set-b", "tree.budget=8", "--set-b", "limits.context=512"]
    matches("diff-sets.txt", run("diff", "tiny-k2-cpu", "tiny-k2-cpu", *sets).stdout)


def test_diff_of_a_bundle_and_its_engine(bundle: Path) -> None:
    assert "no difference" in run("diff", str(bundle), "tiny-k2-cpu-x2", "--set-b", "tree.budget=8").stdout
    data = json.loads(run("diff", str(bundle), "tiny-k2-cpu-x2", "--json").stdout)
    assert data["schema"] == "ddtreec.diff/1"
    (change,) = data["changes"]
    assert change["path"] == "tree.budget" and (change["a"]["value"], change["b"]["value"]) == (8, 16)
    assert change["a"]["origin"].endswith("spec.json") and change["b"]["origin"].endswith("ddtree-16.yaml:6")


def test_the_effect_is_that_of_the_two_plans() -> None:
    data = json.loads(run("diff", "tiny-k2-cpu", "tiny-k2-cpu-x2", "--json").stdout)
    a, b = (driver.plan(load_engine(name)) for name in ("tiny-k2-cpu", "tiny-k2-cpu-x2"))
    told = {n["name"]: (n["a"], n["b"]) for n in data["effect"]["steps_ms"]}
    ours = {f"{s.program} {s.rows}": s.predicted_ms for s in a.steps}
    theirs = {f"{s.program} {s.rows}": s.predicted_ms for s in b.steps}
    assert told == {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]} and len(told) > 5
    (used,) = [n for n in data["effect"]["memory"] if n["name"] == "all of it"]
    assert used["a"] == sum(r.bytes for r in a.memory) and used["b"] == sum(r.bytes for r in b.memory)


def test_diff_where_a_side_does_not_fit() -> None:
    big = "kimi-k2.6-rtx-pro-6000-x8-pcie"
    out = run("diff", big, big, "--set-b", "topology=rtx-pro-6000-x4-pcie").stdout
    assert "topology.devices" in out and "no effect can be told: one rank needs" in out


def test_diff_mistakes(bundle: Path) -> None:
    assert "nothing can be set" in run("diff", str(bundle), "tiny-k2-cpu", "--set-a", "tree.budget=8", code=5).stderr
    assert "S020" in run("diff", "tiny-k2-cpu", "tiny-k3", code=2).stderr
    assert "S010" in run("diff", "tiny-k2-cpu", "tiny-k2-cpu", "--set-b", "tree.bugdet=8", code=2).stderr
