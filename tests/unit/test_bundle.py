"""The bundle writer: all or nothing under the name, whatever happens, and clear words when it cannot."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddtreec.artifacts import manifest as manifest_file
from ddtreec.core.digest import of_bytes
from ddtreec.core.errors import BundleError
from ddtreec.toolchain import bundle

FILES = {"plan.json": b"{}\n", "graph/01-expand.txt": b"nodes\n", "step.py": b"def target(k, w, b, state): ...\n"}
ROOT = Path(__file__).resolve().parents[2]


def manifest_of(files: dict[str, bytes]) -> manifest_file.Manifest:
    return bundle.make_manifest(
        files, engine="e", tool="0", backend="cpu", topology="cpu", spec=b"spec", overrides=("a.b=1",)
    )


def write(out: Path, files: dict[str, bytes] | None = None) -> Path:
    files = FILES if files is None else files
    return bundle.write_bundle(out, files, manifest_of(files))


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_manifest_names_every_file(tmp_path: Path) -> None:
    out = write(tmp_path / "deep" / "engine")
    manifest = bundle.read_manifest(out)
    assert manifest.files == {path: of_bytes(data) for path, data in FILES.items()}
    assert {k: v for k, v in content(out).items() if k != "manifest.json"} == FILES
    assert manifest.overrides == ("a.b=1",) and manifest.spec_digest == of_bytes(b"spec")


def test_twice_is_byte_identical(tmp_path: Path) -> None:
    assert content(write(tmp_path / "one")) == content(write(tmp_path / "two"))


def test_replaces_an_old_bundle_and_leaves_nothing_behind(tmp_path: Path) -> None:
    write(tmp_path / "engine", {"old.txt": b"old"})
    out = write(tmp_path / "engine")
    assert not (out / "old.txt").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["engine"]


def test_replaces_without_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "_exchange", lambda one, other: False)
    write(tmp_path / "engine", {"old.txt": b"old"})
    write(tmp_path / "engine")
    assert [p.name for p in tmp_path.iterdir()] == ["engine"]
    assert "old.txt" not in content(tmp_path / "engine")


def test_a_bundle_moved_aside_by_a_killed_run_comes_back(tmp_path: Path) -> None:
    old = write(tmp_path / "engine", {"old.txt": b"old"})
    old.rename(tmp_path / ".engine.tmp-999999999-abcd-old")
    bundle._remove_stale(tmp_path / "engine")
    assert content(tmp_path / "engine")["old.txt"] == b"old"


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    assert (write(tmp_path / "engine") / "plan.json").exists()


def test_a_foreign_folder_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(BundleError, match=r"B011.*not empty") as caught:
        write(tmp_path / "mine")
    assert "-o" in caught.value.render()
    assert content(tmp_path / "mine") == {"thesis.txt": b"years of work"}


def test_the_working_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exchanging it would leave the person's shell in a folder that is gone."""
    out = write(tmp_path / "engine")
    for here in (out, out / "graph"):
        monkeypatch.chdir(here)
        with pytest.raises(BundleError, match=r"B010.*working folder"):
            write(Path(os.path.relpath(out)))
    monkeypatch.chdir(tmp_path)
    write(out)


def test_a_working_folder_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(BundleError, match="B015"):
        write(Path("engine"))
    assert write(tmp_path / "engine").is_dir()


def test_a_file_or_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path)
    for name, what in (("file", "a file"), ("link", "a link"), ("file/below", "a part of the output path is a file")):
        with pytest.raises(BundleError, match=what):
            write(tmp_path / name)


@pytest.mark.parametrize(
    ("number", "words"), [(28, "disk is full"), (13, "no permission"), (30, "no permission"), (5, "cannot write")]
)
def test_failures_while_writing_are_told_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    write(tmp_path / "engine", {"old.txt": b"old"})

    def fail(path: Path, data: bytes) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(bundle, "_write_file", fail)
    with pytest.raises(BundleError, match=words):
        write(tmp_path / "engine")
    assert [p.name for p in tmp_path.iterdir()] == ["engine"]
    assert content(tmp_path / "engine")["old.txt"] == b"old"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(BundleError, match="no permission"):
        write(tmp_path / "locked" / "engine")


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    """A real one: a file size limit of the process gives the same kind of failure in the middle of a write."""
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "from ddtreec.toolchain import bundle; from ddtreec.core.errors import BundleError\n"
        "try: bundle.write_folder(Path(sys.argv[1]), {'big': b'x' * 100_000})\n"
        "except BundleError as error: print(error.render()); sys.exit(error.exit_code)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "engine")], capture_output=True, text=True, cwd=ROOT
    )
    assert run.returncode == 5 and "error[B015]" in run.stdout, run.stderr
    assert list(tmp_path.iterdir()) == []


LOOP = """
import sys; from pathlib import Path
from tests.unit import test_bundle as t
turn = 0
print("ready", flush=True)
while True:
    t.write(Path(sys.argv[1]), {f"f{i}.txt": str(turn).encode() * 50 for i in range(12)})
    turn += 1
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "Ctrl-C"])
def test_killed_at_any_point_leaves_a_whole_bundle(tmp_path: Path, how: signal.Signals) -> None:
    """Writers that rewrite one bundle are killed at random moments: what stands under the name is always whole."""
    out = tmp_path / "engine"
    dice = random.Random(7)
    seen = set()
    for _ in range(6):
        writer = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(out)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        time.sleep(dice.uniform(0.02, 0.25))
        writer.send_signal(how)
        writer.wait(10)
        writer.stdout.close()
        if out.exists():
            manifest = bundle.read_manifest(out)
            assert {p: of_bytes(d) for p, d in content(out).items() if p != "manifest.json"} == manifest.files
            assert len({d for p, d in content(out).items() if p != "manifest.json"}) == 1
            seen.add((out / "f0.txt").read_bytes())
    assert seen, "no writer got as far as one bundle"
    write(out)
    assert [p.name for p in tmp_path.iterdir()] == ["engine"], "what the killed ones left is cleaned up"
