"""Bundles and checkpoints of the GPU tests.

A machine that has the GPU but not what the compiler needs gets ready bundles in .gpu/payload/NAME/bundle; elsewhere
they are compiled into a folder of this process.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from ddtreec_runtime import Engine
from ddtreec_runtime.backends.cuda.engine import CudaEngine

ROOT = Path(__file__).resolve().parents[2]
READY = ROOT / ".gpu" / "payload"
GOLDENS = ROOT / "tests" / "data" / "k26"
PAIR = ROOT / "models" / "tiny-pair"
NAMES = ("a-flat-8e", "b-real-heads", "c-vl-nested-int4", "d-vl-nested-bf16")
RANK = "kimi-k2.6-h200-x8"
"""The engine of which one rank is measured."""


@cache
def scratch() -> Path:
    """A folder of this process, removed at its end."""
    folder = Path(tempfile.mkdtemp(prefix="ddtreec-gpu-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def bundle(name: str) -> Path:
    """The bundle of a golden checkpoint, of 'tiny' (ddtree-8), of 'tiny-cpu', the same pair for the CPU, or of RANK."""
    ready = READY / name / "bundle"
    if (ready / "manifest.json").exists():
        return ready
    from ddtreec import driver
    from ddtreec.spec.init import Request, init

    out = scratch() / name / "bundle"
    if name in NAMES:
        init(Request(GOLDENS / name, out.parent / "spec", None, "h200-x1", None))
        driver.compile_engine(out.parent / "spec" / "engine.yaml", ["dtype=bfloat16"], "bundle", out)
    else:
        engine = {"tiny": "tiny-k2-h200-x1", "tiny-cpu": "tiny-k2-cpu", RANK: RANK}[name]
        driver.compile_engine(engine, (), "bundle", out)
    return out


@cache
def golden_engine(name: str) -> CudaEngine:
    """A golden checkpoint on the GPU, without drafter."""
    return on_gpu(Engine.load(bundle(name), GOLDENS / name))


@cache
def pair_engine() -> CudaEngine:
    """The shipped pair on the GPU."""
    return on_gpu(Engine.load(bundle("tiny"), PAIR / "target", PAIR / "drafter"))


@cache
def cpu_engine() -> Engine:
    """The shipped pair on the CPU in float32: the reference."""
    return Engine.load(bundle("tiny-cpu"), PAIR / "target", PAIR / "drafter")


def on_gpu(engine: Engine) -> CudaEngine:
    """The engine, which must be one of a GPU."""
    assert isinstance(engine, CudaEngine)
    return engine
