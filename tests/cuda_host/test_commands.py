"""`verify` and `bench --synthetic` on a machine without a GPU, and what a GPU's bundle says there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from ddtreec import driver
from ddtreec.cli.main import main
from ddtreec.core.errors import BundleError
from ddtreec.spec.load import load_engine
from ddtreec.toolchain import bundle as bundles
from ddtreec_runtime import Engine
from tests.cuda_host.emulated import PAIR

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
        assert "B027" in text and "this machine has no CUDA device" in text and "--set topology=cpu" in text
    with pytest.raises(BundleError, match="B027"):
        Engine.load(gpu_bundle, PAIR / "target")
    with pytest.raises(BundleError, match="B027"):
        Engine.load(gpu_bundle, PAIR / "target", device="cuda")


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
