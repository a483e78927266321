"""What `compile` and `plan` say when they cannot: one clear message, its exit code, nothing written, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIG = "kimi-k2.6-rtx-pro-6000-x8-pcie"


def ddtreec(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ddtreec.cli.main", *arguments], cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["compile"], 2, ["Missing argument 'ENGINE'"]),
        (["compile", "tiny-k2-cpu", "--to", "cubin"], 2, ["'cubin' is not one of", "bundle"]),
        (["compile", "tiny-k2-cup"], 2, ["tiny-k2-cup", "did you mean `tiny-k2-cpu`?"]),
        (["compile", "nowhere/engine.yaml"], 2, ["engine.yaml", "does not exist"]),
        (["compile", "tiny-k2-cpu", "--set", "limits.contxt=9"], 2, ["contxt", "context"]),
        (["plan", "tiny-k2-cpu", "--set", "tree.budget=0"], 2, ["budget"]),
        (["plan", BIG, "--set", "topology=rtx-pro-6000-x4-pcie"], 3, ["F001", "too much", "without any context"]),
        (["plan", BIG, "--set", "limits.context=262144", "--set", "limits.sequences=8"], 3,
         ["F001", "too much", "the largest context that fits is", "fewer than 8 sequences: --set limits.sequences="]),
        (["plan", BIG, "--set", "topology.devices=5", "--set", "layout.attention=tp"], 2, ["5", "64"]),
        (["compile", "tiny-k2-cpu", "-o", "a-file"], 5, ["B010", "a file, not a folder", "a-file"]),
        (["compile", "tiny-k2-cpu", "-o", "mine"], 5, ["B011", "not empty", "-o"]),
        (["compile", "tiny-k2-cpu", "-o", "a-file/below"], 5, ["B010", "a-file"]),
        (["compile", "tiny-k2-cpu", "-o", "/proc/nothing/here"], 5, ["B0", "/proc"]),
        (["compile", "tiny-k2-cpu", "-o", "x" * 300], 5, ["B014", "too long"]),
    ],
)  # fmt: skip
def test_one_clear_message(tmp_path: Path, arguments: list[str], code: int, words: list[str]) -> None:
    (tmp_path / "a-file").write_text("text")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    run = ddtreec(*arguments, cwd=tmp_path)
    assert run.returncode == code, run.stderr
    assert run.stdout == ""
    assert "Traceback" not in run.stderr
    for word in words:
        assert word in run.stderr, run.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a-file", "mine"]
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_the_context_it_proposes_fits_and_one_page_more_does_not(tmp_path: Path) -> None:
    run = ddtreec("plan", BIG, "--set", "limits.context=262144", "--set", "limits.sequences=8", cwd=tmp_path)
    proposed = int(run.stderr.split("fits is ")[1].split(":")[0])
    for context, code in ((proposed, 0), (proposed + 1, 3)):
        again = ddtreec("plan", BIG, "--set", f"limits.context={context}", "--set", "limits.sequences=8", cwd=tmp_path)
        assert again.returncode == code, again.stderr


def test_ctrl_c_leaves_130_and_no_half_bundle(tmp_path: Path) -> None:
    seen = set()
    for delay in (0.3, 0.6, 0.9, 1.2):
        process = subprocess.Popen(
            [sys.executable, "-m", "ddtreec.cli.main", "compile", BIG, "-o", "out"], cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        seen.add(process.returncode)
        if (tmp_path / "out").exists():
            assert (tmp_path / "out" / "manifest.json").exists()
        assert not list(tmp_path.glob(".out.tmp-*")), "an interrupted run cleans up behind itself"
        if process.returncode == 130:
            assert "Traceback" not in errors, errors
    assert seen & {130, -signal.SIGINT}, f"no run was interrupted: {seen}"


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    command = f"{sys.executable} -m ddtreec.cli.main plan {BIG} --json | head -c 1; exit ${{PIPESTATUS[0]}}"
    run = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "{", "")


def test_a_bug_of_ours_says_so(tmp_path: Path) -> None:
    code = (
        "from ddtreec.passes import stages; from ddtreec.core.errors import VerifyError\n"
        "def broken(state): raise VerifyError('shard', 'L00.mlp', 'planted')\n"
        "import ddtreec.driver as d\n"
        "d.PIPELINE = (d.Pass('shard', broken, None, None),)\n"
        "from ddtreec.cli.main import main; main(['plan', 'tiny-k2-cpu'])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert run.returncode == 70
    assert (
        "V001" in run.stderr and "L00.mlp" in run.stderr and "report it" in run.stderr and "Traceback" not in run.stderr
    )
