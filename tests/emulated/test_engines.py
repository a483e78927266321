"""Every kernel that serves a call of an engine, on the emulator against its parts: shapes, slots, lengths, masks."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from ddtreec import driver
from ddtreec.artifacts.kernels import Kernel
from ddtreec.emit.cuda.table import kernel_table
from ddtreec.plan.assemble import assemble
from ddtreec.spec.init import Request, init
from ddtreec.spec.load import load_engine
from ddtreec_runtime.backends.cuda.check import Result, check_kernel
from ddtreec_runtime.backends.cuda.layouts import LAYOUTS
from tests.emulated.emulator import missing
from tests.emulated.launcher import Emulated
from tests.emulated.single import Built
from tests.runtime.engines import CHECKPOINTS, K26, random_drafter, scratch

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

TINY = "tiny-k2-h200-x1"
LARGE = {
    "kimi-k2.6-rtx-pro-6000-x8-pcie": ("experts", "take_norm_linear", "linear__w896x43008", "add_norm_linear__w4608"),
    "deepseek-v3-rtx-pro-6000-x8-pcie": ("experts", "take_norm_linear", "add_norm_linear__w4608"),
    "moonlight-16b-a3b-h200-x1": ("experts", "take_norm_linear", "embedding"),
}
"""Engines of real size, and beginnings of names of kernels that take many seconds there."""

WIDTHS = {"a-flat-8e": (128, 512), "b-real-heads": (96, 448), "c-vl-nested-int4": (128, 512),
          "d-vl-nested-bf16": (128, 512)}  # fmt: skip
"""Hidden size and vocabulary of the golden checkpoints."""

SHORT = ("limits.context=256",)
"""Caches of the right layout and few pages."""


@cache
def built(ref: str) -> Built:
    """An engine's plan, table and sources: a shipped one or, by its name, a golden checkpoint's with a drafter."""
    if ref in CHECKPOINTS:
        folder = Path(tempfile.mkdtemp(dir=scratch()))
        hidden, vocab = WIDTHS[ref]
        drafter = random_drafter(hidden, 3, vocab, vocab - 1, sliding=True)
        init(Request(K26 / ref, folder, drafter, "h200-x1", None))
        ref = str(folder / "engine.yaml")
    state = driver.planned(load_engine(ref, SHORT))
    return assemble(state), *kernel_table(state)


def kernels_of(ref: str) -> list[Kernel]:
    """Those that serve calls; kernels of the round have no parts."""
    _, table, _ = built(ref)
    serving = {name for names in table.programs.values() for name in names}
    return [kernel for kernel in table.kernels if kernel.name in serving]


def results_of(ref: str, kernels: Sequence[Kernel], counts: Sequence[int], lengths: Sequence[int]) -> list[Result]:
    plan, table, sources = built(ref)
    launcher = Emulated(sources)
    return [r for k in kernels for r in check_kernel(launcher, plan, table, k, LAYOUTS, counts, lengths)]


def wrong(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if result.faults]


def test_all_kernels_of_the_tiny_engine() -> None:
    kernels = kernels_of(TINY)
    assert len(kernels) > 20
    assert not wrong(results_of(TINY, kernels, (1, 2, 9, 17, 33), (83, 0, 16)))


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_all_kernels_of_golden_checkpoints(checkpoint: str) -> None:
    kernels = kernels_of(checkpoint)
    assert len(kernels) > 20
    assert not wrong(results_of(checkpoint, kernels, (1, 3, 9), (37, 0)))


@pytest.mark.parametrize("engine", LARGE)
def test_light_kernels_of_real_engines(engine: str) -> None:
    kernels = [kernel for kernel in kernels_of(engine) if not kernel.name.startswith(LARGE[engine])]
    assert len(kernels) > 5
    assert not wrong(results_of(engine, kernels, (1, 9), (37,)))


@pytest.mark.slow
@pytest.mark.parametrize("engine", LARGE)
def test_heavy_kernels_of_real_engines(engine: str) -> None:
    kernels = [kernel for kernel in kernels_of(engine) if kernel.name.startswith(LARGE[engine])]
    assert kernels
    assert not wrong(results_of(engine, kernels, (1, 9), (37,)))
