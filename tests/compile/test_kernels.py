"""Every CUDA kernel of the reference engines through NVRTC: it compiles, spills nothing, and fits a block's memory.

No GPU is needed. A kernel is a test, so that a failure names it.
"""

from __future__ import annotations

from functools import cache

import pytest

from ddtreec import driver
from ddtreec.artifacts.kernels import Kernel, KernelTable, source_path
from ddtreec.core.errors import BundleError, FitError
from ddtreec.core.paths import data_folder
from ddtreec.emit.cuda.table import kernel_table
from ddtreec.spec.load import load_engine
from ddtreec.toolchain import binaries, nvrtc

ENGINES = {"tiny-k2-h200-x1": "sm_90", "kimi-k2.6-h200-x8": "sm_90", "kimi-k2.6-rtx-pro-6000-x8-pcie": "sm_120"}

SHIPPED = tuple(
    path.stem
    for path in sorted(data_folder("specs").glob("engines/*.yaml"))
    if load_engine(path.stem).topology.backend == "cuda"
)

try:
    nvrtc.version()
    REASON = ""
except BundleError as error:
    REASON = str(error)


@cache
def made(engine: str, *overrides: str) -> tuple[KernelTable, dict[str, str]]:
    return kernel_table(driver.planned(load_engine(engine, overrides)))


def kernels() -> list[tuple[str, str]]:
    return [(engine, kernel.name) for engine in ENGINES for kernel in made(engine)[0].kernels]


def one(table: KernelTable, name: str) -> Kernel:
    return next(kernel for kernel in table.kernels if kernel.name == name)


@pytest.mark.skipif(bool(REASON), reason=REASON)
@pytest.mark.parametrize(("engine", "name"), kernels())
def test_it_compiles_without_spills_and_fits(engine: str, name: str) -> None:
    assert made(engine)[0].arch == ENGINES[engine]
    check(engine, name)


@pytest.mark.slow
@pytest.mark.skipif(bool(REASON), reason=REASON)
@pytest.mark.parametrize("engine", sorted({*SHIPPED} - {*ENGINES}))
def test_the_other_shipped_engines_compile_too(engine: str) -> None:
    for kernel in made(engine)[0].kernels:
        check(engine, kernel.name)


def check(engine: str, name: str) -> None:
    """One kernel through NVRTC."""
    table, sources = made(engine)
    kernel = one(table, name)
    headers = {path.rpartition("/")[2]: text for path, text in sources.items() if path.endswith(".cuh")}
    built = nvrtc.compile_source(name, sources[source_path(name)], headers, table.arch)
    assert {v.function for stage in kernel.stages for v in stage.variants} == set(built.resources)
    limit = driver.shared_limit(load_engine(engine))
    assert [problem.message for problem in binaries.problems_of(kernel, built.resources, limit)] == []
    threads = {v.function: v.threads for stage in kernel.stages for v in stage.variants}
    assert all(taken.registers * threads[f] <= 65536 for f, taken in built.resources.items()), (
        "a block must be able to run"
    )


@pytest.mark.parametrize("engine", SHIPPED)
def test_variants_serve_every_step(engine: str) -> None:
    """The largest variant serves the most rows of any program that calls the kernel."""
    table, _ = made(engine)
    state = driver.planned(load_engine(engine))
    assert state.placed is not None
    for program in state.placed.programs:
        most = {"rows": program.max_rows, "out_rows": program.max_out_rows, "slots": table.largest["slots"]}
        for name in set(table.programs[program.name]) - {""}:
            for stage in one(table, name).stages:
                assert stage.variants[-1].rows >= most[stage.count], (program.name, name, stage.name)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", ["99KiB", "64KiB", "48KiB", "32KiB", "16KiB"])
def test_less_shared_memory_gives_other_tiles_or_a_refusal(engine: str, size: str) -> None:
    """Never a kernel that cannot be launched: what does not fit is refused with the size that would do."""
    limit = int(size.removesuffix("KiB")) * 1024
    try:
        table, _ = made(engine, f"topology.device.shared_memory={size}")
    except FitError as error:
        (problem,) = error.problems
        assert problem.code == "F002" and str(limit) in problem.message
        need = int(problem.help.partition("at least ")[2].partition("KiB")[0])
        assert need * 1024 > limit and size != "99KiB", "no shipped device has less"
        made(engine, f"topology.device.shared_memory={need}KiB")
    else:
        shared = [v.shared for kernel in table.kernels for stage in kernel.stages for v in stage.variants]
        assert max(shared) <= limit


def test_the_tiny_engine_fits_a_small_block() -> None:
    """Its smallest latents and heads need no more than half of what the kernels may take."""
    table, _ = made("tiny-k2-h200-x1", "topology.device.shared_memory=64KiB")
    assert max(v.shared for kernel in table.kernels for stage in kernel.stages for v in stage.variants) <= 64 * 1024
