"""`verify` and `bench --synthetic` on a machine without a GPU, and what a GPU's bundle says there."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner

from ddtreec import driver
from ddtreec.cli.main import main
from ddtreec.core.errors import BundleError, Problem
from ddtreec.spec.load import load_engine
from ddtreec.toolchain import bundle as bundles
from ddtreec_runtime import Engine
from ddtreec_runtime.backends.cuda import engine as cuda_engine
from ddtreec_runtime.backends.cuda import rank_bench
from ddtreec_runtime.backends.cuda.driver import Driver
from ddtreec_runtime.bundle import open_bundle
from ddtreec_runtime.checks import blind_torch
from tests.cuda_host.emulated import PAIR
from tests.cuda_host.test_driver import Api

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


@pytest.fixture(scope="module")
def gpu_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle for one H200, without the binaries that nothing here would come to."""
    out = tmp_path_factory.mktemp("bundles") / "h200"
    loaded = load_engine("tiny-k2-h200-x1", ())
    files = driver.build_files(loaded, to="src")
    return bundles.write_bundle(out, files, driver.manifest_of(loaded, files))


@pytest.fixture(scope="module")
def cpu_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundles") / "cpu"
    driver.compile_engine("tiny-k2-cpu", out=out)
    return out


def said(*args: str) -> str:
    """stderr of a command that must leave with 5."""
    done = CliRunner().invoke(main, args)
    assert done.exit_code == 5, done.output
    return done.stderr


def test_no_gpu(gpu_bundle: Path) -> None:
    for args in (("verify", str(gpu_bundle)), ("bench", str(gpu_bundle), "--synthetic", "--rows", "1,8")):
        text = said(*args)
        assert "B027" in text and "this machine has no CUDA device" in text and "on a machine with the GPU" in text
        assert "topology=cpu" not in text  # a bundle for the CPU would be refused next
    with pytest.raises(BundleError, match="B027"):
        Engine.load(gpu_bundle, PAIR / "target")
    with pytest.raises(BundleError, match="B027"):
        Engine.load(gpu_bundle, PAIR / "target", device="cuda")


def test_a_torch_that_cannot_use_the_gpu(tmp_path: Path) -> None:
    (tmp_path / "version").write_text("NVRM version: 580.159.04")
    if torch.version.cuda is None:
        assert "is built without CUDA" in blind_torch(tmp_path / "version")
    assert blind_torch(tmp_path / "none") == ""


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch says that there is an H200, and the driver's bindings seem to be here."""
    for name, value in (
        ("is_available", True),
        ("init", None),
        ("Stream", SimpleNamespace(cuda_stream=7)),
        ("get_device_name", "NVIDIA H200"),
        ("get_device_capability", (9, 0)),
        ("mem_get_info", (139 << 30, 140 << 30)),
        ("stream", nullcontext()),
    ):
        monkeypatch.setattr(torch.cuda, name, lambda *args, value=value: value)
    monkeypatch.setattr(cuda_engine, "open_driver", lambda bundle: Driver(Api(), torch.cuda.Stream()))


def refused(bundle: Path) -> str:
    """What `run` says on stderr: one error, without a traceback or a bug of ours."""
    text = said("run", str(bundle), "--weights", str(PAIR / "target"), "--prompt-ids", "1,2")
    assert text.count("error[") == 1 and "Traceback" not in text and "help: " in text, text
    return text


def test_no_bindings(gpu_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    text = refused(gpu_bundle)
    assert "B043" in text and "bindings of the CUDA driver cannot be imported" in text
    assert "pip install 'ddtreec[cuda]'" in text


def test_another_gpu(h200: None, gpu_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (12, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA RTX PRO 6000")
    text = refused(gpu_bundle)
    assert "B042" in text and "kernels are for sm_90, this machine's NVIDIA RTX PRO 6000 is sm_120" in text


def test_no_room(h200: None, gpu_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 GiB free. And more.")

    monkeypatch.setattr(cuda_engine, "load_kernels", lambda *args: None)
    monkeypatch.setattr(cuda_engine, "load_weights", full)
    text = refused(gpu_bundle)
    assert "B041" in text and "CUDA out of memory\n" in text and "--set limits.context=N" in text
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 20, 140 << 30))
    text = refused(gpu_bundle)
    assert "B041" in text and "NVIDIA H200 has 1.0 MiB free" in text and "--set limits.context=N" in text


def test_more_than_one_gpu(h200: None, tmp_path: Path) -> None:
    loaded = load_engine("tiny-k2-h200-x1", ("topology=h200-x8", "layout.vocab=parallel", "layout.attention=tp"))
    files = driver.build_files(loaded, to="src")
    text = refused(bundles.write_bundle(tmp_path / "x8", files, driver.manifest_of(loaded, files)))
    assert "B045" in text and "the bundle is for 8 ranks" in text and "bench BUNDLE --rank 0 --synthetic" in text


def test_a_bundle_of_the_cpu(cpu_bundle: Path) -> None:
    assert "the bundle is for cpu (cpu), not for cuda" in said("verify", str(cpu_bundle))
    assert "--set topology=h200-x1" in said("bench", str(cpu_bundle), "--synthetic")
    with pytest.raises(BundleError, match="not for cuda"):
        Engine.load(cpu_bundle, PAIR / "target", device="cuda")


def test_a_bundle_for_a_gpu_is_not_for_the_cpu(gpu_bundle: Path) -> None:
    with pytest.raises(BundleError, match=r"the bundle is for cuda \(h200-x1\), not for cpu"):
        Engine.load(gpu_bundle, PAIR / "target", device="cpu")


def test_synthetic_needs_a_bundle() -> None:
    done = CliRunner().invoke(main, ["bench", "--synthetic"])
    assert done.exit_code == 2 and "M001" in done.stderr
    for rows in ("1,x", "0", "8,8"):
        done = CliRunner().invoke(main, ["bench", "b", "--synthetic", "--rows", rows])
        assert done.exit_code == 2 and "M002" in done.stderr and f"--rows '{rows}'" in done.stderr


@pytest.mark.parametrize(("options", "context"), [((), 1920), (("--context", "7"), 7)])
def test_the_context_is_what_the_bundle_has_room_for(
    gpu_bundle: Path, options: tuple[str, ...], context: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shipped engine takes 2048 tokens and steps of 128 rows; 8192 would be refused without having been asked."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    asked: list[int] = []

    def measured(path: Path, rank: int, rows: tuple[int, ...], context: int, progress: object) -> None:
        asked.append(context)
        rank_bench.check_asked(open_bundle(path).plan, rank, rows, context, path)
        raise BundleError(Problem("B027", "far enough"))

    monkeypatch.setattr(rank_bench, "measure_rank", measured)
    assert "far enough" in said("bench", str(gpu_bundle), "--synthetic", *options)
    assert asked == [context]
