"""Public bug reports about bundles and machines (numbers 14 and 26 to 34, and 19), as golden text.

The machines are recorded ones: `nvidia-smi` is a script that prints the text of a folder in tests/data/machines.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddtreec import driver
from ddtreec.spec.load import load_engine
from ddtreec.toolchain.bundle import write_bundle
from ddtreec_runtime.doctor import probe
from tests.messages.golden import ROOT, compare, session
from tests.runtime.engines import K26, bundle

A = K26 / "a-flat-8e"
BIG = "kimi-k2.6-rtx-pro-6000-x8-pcie"
MACHINES = ROOT / "tests" / "data" / "machines"
IDS = "--prompt-ids 5,6,7 --max-new-tokens 4"
MISMATCH = r"^bundle |^(fatal|slow|harmless): (?!CUDA$)|^  (bundle|machine|fix) |^no mismatch"
TIMES = ((r"prefill [\d.]+ s", "prefill <s>"), (r"[\d.]+ tokens/s", "<n> tokens/s"), (str(A), "WEIGHTS"))

NAMES = (
    "14-memory-held-by-another", "19-prompt-longer-than-the-context", "26-sm120-bundle-on-h200", "26-run-without-cuda",
    "26-four-cards-of-eight", "27-another-tool-version", "28-bundle-of-another-format", "29-moved-bundle",
    "31-bundle-of-the-future", "33-renamed-and-read-only", "34-no-compiler-in-sight",
)  # fmt: skip


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of the main engine, which wants eight sm_120 cards."""
    return without_binaries(BIG, (), tmp_path_factory.mktemp("big") / "bundle")


def without_binaries(engine: str | Path, overrides: tuple[str, ...], out: Path) -> Path:
    """A bundle whose kernels were not compiled, which would take a minute and is not looked at here."""
    loaded = load_engine(engine, overrides)
    files = driver.build_files(loaded, "src")
    return write_bundle(out, files, driver.manifest_of(loaded, files))


@pytest.fixture
def here(big: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with copies of a small bundle for the CPU and of the main one."""
    shutil.copytree(bundle(A), tmp_path / "small")
    shutil.copytree(big, tmp_path / "big")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def machine(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has the GPUs of a recorded one, and memory and cores enough for anything."""
    texts = MACHINES / name
    script = folder / "nvidia-smi"
    script.write_text(
        "#!/bin/sh\ncase \"$*\" in\n"
        f"  *query-gpu*) cat '{texts}/query.csv';;\n  *query-compute*) cat '{texts}/apps.csv';;\n"
        f"  *p2p*) cat '{texts}/p2p.txt';;\n  *) cat '{texts}/smi.txt';;\nesac\n"
    )  # fmt: skip
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(probe, "by_nvml", lambda: None)
    monkeypatch.setattr(probe, "by_driver", dict)


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_memory_that_another_process_holds(
    here: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine would fit an idle machine; the process that is in the way is named, not only the lack."""
    machine("h200-x8", here, monkeypatch)
    out = ("topology=h200-x1", "topology.devices=8", "topology.link={kind: x, all_reduce_us: [[1KiB, 9]], "
           "all_gather_us: [[1KiB, 9]], source: x}", "limits.context=131072")  # fmt: skip
    without_binaries(BIG, out, here / "h200")
    compare(request, NAMES[0], session("doctor --bundle h200", MISMATCH))


def test_a_prompt_longer_than_the_context(here: Path, request: pytest.FixtureRequest) -> None:
    ids = ",".join(["7"] * 5000)
    text = session(f"run small --weights {A} --prompt-ids {ids} --max-new-tokens 4", hide=[(ids, "IDS"), *TIMES])
    compare(request, NAMES[1], text)


def test_an_sm120_bundle_on_h200(here: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    machine("h200-x8", here, monkeypatch)
    compare(request, NAMES[2], session("doctor --bundle big", MISMATCH))


def test_a_cuda_bundle_without_cuda(here: Path, request: pytest.FixtureRequest) -> None:
    text = session(f"run big --weights {A} {IDS}", hide=[*TIMES, ("this runtime has no CUDA backend", "<no CUDA>"),
                                                         ("this machine has no CUDA device", "<no CUDA>")])  # fmt: skip
    compare(request, NAMES[3], text)


def test_four_cards_of_eight(here: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    machine("rtx-pro-6000-x4-blocked", here, monkeypatch)
    compare(request, NAMES[4], session("doctor --bundle big", MISMATCH))


def test_another_tool_version_is_harmless(here: Path, request: pytest.FixtureRequest) -> None:
    edit(here / "small" / "manifest.json", tool="0.0.9")
    compare(request, NAMES[5], session("doctor --bundle small", MISMATCH))


@pytest.mark.parametrize(("name", "number"), [(NAMES[6], 0), (NAMES[8], 7)])
def test_a_bundle_of_another_format(here: Path, request: pytest.FixtureRequest, name: str, number: int) -> None:
    edit(here / "small" / "manifest.json", format=number)
    compare(request, name, session(f"run small --weights {A} {IDS}", hide=TIMES))
    assert "exit code 5" in session("doctor --bundle small")


def test_a_moved_bundle_is_whole(here: Path, request: pytest.FixtureRequest) -> None:
    (here / "small").rename(here / "moved elsewhere")
    compare(request, NAMES[7], session("doctor --bundle 'moved elsewhere'", MISMATCH))
    said = session(f"run 'moved elsewhere' --weights {A} {IDS}", hide=TIMES)
    assert said.endswith("exit code 0\n")


def test_a_bundle_holds_no_paths_and_runs_read_only(here: Path, request: pytest.FixtureRequest) -> None:
    """Bundles made in two folders are the same bytes, and name neither folder."""
    for path in sorted((here / "small").rglob("*")):
        if path.is_file():
            text = path.read_text()
            assert not any(word in text for word in (str(ROOT), "/tmp", str(Path.home()), str(here))), path
        path.chmod(0o555 if path.is_dir() else 0o444)
    (here / "small").rename(here / "b")
    before = {path: path.stat().st_mtime_ns for path in (here / "b").rglob("*")}
    compare(request, NAMES[9], session(f"run b --weights {A} {IDS}", hide=TIMES))
    assert {path: path.stat().st_mtime_ns for path in (here / "b").rglob("*")} == before
    for name in ("one", "two"):
        (here / name).mkdir()
        os.chdir(here / name)
        driver.compile_engine("tiny-k2-cpu", (), "bundle", Path(name))
    files = [{p.relative_to(here / n / n): p.read_bytes() for p in (here / n / n).rglob("*") if p.is_file()}
             for n in ("one", "two")]  # fmt: skip
    assert files[0] == files[1]


def test_running_asks_for_no_compiler(here: Path, request: pytest.FixtureRequest) -> None:
    """With nothing in PATH a fresh process still runs the bundle: neither nvcc, nor ninja, nor a shell is needed."""
    command = [sys.executable, "-m", "ddtreec.cli.main", "run", "small", "--weights", str(A), *IDS.split()]
    env = {"PATH": "/nowhere", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'runtime'}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    compare(request, NAMES[10], f"$ PATH=/nowhere ddtreec run small --weights WEIGHTS {IDS}\n{done.stdout}")


def test_an_edited_template_is_seen_whatever_its_time(tmp_path: Path) -> None:
    """Number 32: what is compiled depends on what is written in a template, not on when."""
    for name in ("ddtreec", "templates", "specs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "templates" / "step" / "step.py.j2"
    times = path.stat()
    command = [sys.executable, "-m", "ddtreec.cli.main", "compile", "tiny-k2-cpu", "--to", "src"]

    def compiled() -> str:
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    before = compiled()
    path.write_text(path.read_text() + "# edited\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert compiled() == before + "# edited\n"
