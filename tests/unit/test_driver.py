"""The compile as a whole: the same bytes twice, every stage, what it does not import, and how long it takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ddtreec import driver
from ddtreec.artifacts import plan as plan_file
from ddtreec.core.digest import of_bytes
from ddtreec.spec.load import load_engine
from ddtreec.toolchain.bundle import read_manifest

ROOT = Path(__file__).resolve().parents[2]
ENGINES = {
    "tiny-k2-cpu": "bundle",
    "tiny-k2-cpu-x2": "bundle",
    "tiny-k2-h200-x1": "src",
    "kimi-k2.6-rtx-pro-6000-x8-pcie": "src",
    "moonlight-16b-a3b-h200-x1": "src",
}
"""Engine to the stage that is compared; binaries are compared in test_binaries."""


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("engine", ENGINES)
def test_two_compiles_are_byte_identical_and_hold_nothing_of_this_machine(engine: str, tmp_path: Path) -> None:
    to = driver.stage(ENGINES[engine])
    driver.compile_engine(engine, to=to, out=tmp_path / "one" / "bundle")
    # Another process with another hash seed, so that the order of a set can never decide anything.
    code = (
        "from ddtreec import driver; from pathlib import Path; "
        f"driver.compile_engine({engine!r}, to={to!r}, out=Path('bundle'))"
    )
    env = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "4711", "TZ": "Asia/Tokyo", "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, check=True)
    one, two = content(tmp_path / "one" / "bundle"), content(tmp_path / "bundle")
    assert one == two
    for path, data in one.items():
        assert str(tmp_path).encode() not in data and str(ROOT).encode() not in data, path


def test_the_manifest_and_the_plan_agree_with_the_files(tmp_path: Path) -> None:
    done = driver.compile_engine("tiny-k2-cpu", ["tree.budget=5", "limits.context=300"], out=tmp_path / "b")
    assert done.out == tmp_path / "b"
    manifest = read_manifest(done.out)
    files = content(done.out)
    assert manifest.files == {path: of_bytes(data) for path, data in files.items() if path != "manifest.json"}
    assert manifest.overrides == ("tree.budget=5", "limits.context=300")
    plan = plan_file.decode(files["plan.json"])
    assert plan.tree.budget == 5 and plan.limits.context == 300
    assert plan.buckets == (1, 2, 3, 4, 5, 6, 64)
    assert json.loads(files["spec.json"])["tree"]["budget"] == 5


def test_every_weight_and_value_of_the_step_program_is_in_the_plan() -> None:
    files = driver.build_files(load_engine("tiny-k2-cpu-x2"))
    plan = plan_file.decode(files["plan.json"])
    weights = {w.id for w in plan.weights}
    for program in plan.programs:
        values = {v.id for v in program.values}
        assert {v.parent for v in program.values if v.home == "alias"} <= values
        for call in program.calls:
            assert set(call.weights) <= weights and {*call.ins, *call.outs} <= values, call.node
        assert len(program.layer_outputs) == {"target": 5, "draft_context": 0, "draft_block": 3}[program.name]
    assert any(call.collective for call in plan.programs[0].calls)


@pytest.mark.parametrize(
    ("to", "paths"),
    [
        ("spec", {"spec.json"}),
        ("graph", {"spec.json", "graph/01-expand.txt"}),
        ("plan", {"spec.json", "graph/01-expand.txt", "plan.json", "plan.txt"}),
        ("src", {"spec.json", "graph/01-expand.txt", "plan.json", "plan.txt", "step.py"}),
    ],
)
def test_stages_write_what_they_made_and_no_manifest(to: driver.Stage, paths: set[str], tmp_path: Path) -> None:
    driver.compile_engine("tiny-k2-cpu", to=to, out=tmp_path / "o")
    found = set(content(tmp_path / "o"))
    assert paths <= found and "stage.json" in found and "manifest.json" not in found
    assert {p for p in found if not p.startswith("graph/")} - {"stage.json"} == {p for p in paths if "/" not in p}
    driver.compile_engine("tiny-k2-cpu", out=tmp_path / "o")
    assert "manifest.json" in content(tmp_path / "o"), "a bundle may take the place of a stage"


def test_a_chain_never_holds_more_than_the_block(tmp_path: Path) -> None:
    plan = plan_file.decode(driver.build_files(load_engine("tiny-k2-cpu", ["tree=chain"]))["plan.json"])
    assert (plan.tree.mode, plan.tree.budget, plan.tree.depth) == ("chain", 7, 7)


def test_without_a_drafter_speculation_is_off() -> None:
    plan = plan_file.decode(driver.build_files(load_engine("tiny-k2-cpu", ["drafter=null", "tree=null"]))["plan.json"])
    assert plan.drafter is None and plan.tree.budget == 0 and plan.buckets == (1, 64)
    assert [p.name for p in plan.programs] == ["target"]


def test_cost_aware_trees_carry_a_table() -> None:
    files = driver.build_files(load_engine("tiny-k2-cpu", ["tree.cost_aware=true", "tree.budget=10"]))
    tree = plan_file.decode(files["plan.json"]).tree
    assert len(tree.verify_cost) == 11 and tree.draft_cost > 0
    assert tree.verify_cost[8] == tree.verify_cost[9] < tree.verify_cost[10], "9 and 10 rows share a bucket, 11 do not"
    assert list(tree.verify_cost) == sorted(tree.verify_cost)


def test_the_compiler_needs_neither_torch_nor_numpy(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'numpy', 'cupy', 'ddtreec_runtime'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "from ddtreec.cli.main import main\n"
        "main(['compile', 'tiny-k2-cpu-x2', '-o', 'out'], standalone_mode=False)\n"
        "main(['plan', 'tiny-k2-cpu-x2'], standalone_mode=False)\n"
        "main(['check', 'tiny-k2-cpu-x2'], standalone_mode=False)\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, check=True, capture_output=True
    )


@pytest.mark.parametrize(
    ("arguments", "limit"), [(["check"], 1.0), (["plan"], 3.0), (["compile", "--to", "src"], 20.0)]
)
def test_time_on_the_full_model(arguments: list[str], limit: float, tmp_path: Path) -> None:
    """CPU seconds of the whole process, best of three: they do not grow with what else the machine is doing."""
    code = (
        "import sys, time; from ddtreec.cli.main import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "print(time.process_time(), file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", code, *arguments, "kimi-k2.6-rtx-pro-6000-x8-pcie"]
    runs = [
        subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, check=True, capture_output=True, text=True)
        for _ in range(3)
    ]
    assert min(float(run.stderr.split()[-1]) for run in runs) < limit


def test_plan_writes_no_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ddtreec.cli.main", "plan", "tiny-k2-cpu", "--json"]
    env = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, text=True)
    report = json.loads(run.stdout)
    assert report["schema"] == "ddtreec.plan/1" and report["engine"] == "tiny-k2-cpu"
    assert sum(row["bytes"] for row in report["memory"]) + report["free_bytes"] == report["device_bytes"]
    assert list(tmp_path.iterdir()) == []


def test_the_report_of_a_cuda_plan_has_the_memory_of_its_kernels() -> None:
    files = driver.build_files(load_engine("tiny-k2-h200-x1"), "src")
    memory = plan_file.decode(files["plan.json"]).memory
    text = files["plan.txt"].decode()
    told = [line.rsplit(maxsplit=1)[1] for line in text.partition("purpose")[2].splitlines()[1 : len(memory) + 2]]
    assert told == [*(str(row.bytes) for row in memory), str(sum(row.bytes for row in memory))]
    assert "kernel scratch" in text
