"""The CUDA runtime on a machine without a GPU: its launches run on the emulator, in the memory of the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

from ddtreec import driver as compiler
from ddtreec.artifacts import kernels as kernels_file
from ddtreec.artifacts import plan as plan_file
from ddtreec.artifacts.kernels import KERNELS, source_path
from ddtreec.artifacts.manifest import PLAN, STEP
from ddtreec.core.paths import data_folder
from ddtreec.spec.load import load_engine
from ddtreec_runtime.backends.cuda.driver import Launch
from ddtreec_runtime.backends.cuda.engine import CudaEngine
from ddtreec_runtime.backends.cuda.machine import Loaded, Machine
from ddtreec_runtime.backends.cuda.weights import layouts_of, load_weights
from ddtreec_runtime.bundle import Bundle
from ddtreec_runtime.program import load_steps
from ddtreec_runtime.text import Tokenizer
from ddtreec_runtime.weights import read_checkpoint
from tests.emulated.launcher import Emulated

PAIR = data_folder("models") / "tiny-pair"


class EmulatedDriver(Emulated):
    """The face of `Driver`. A stream is work that is done at once; a graph is the list of what was put into it."""

    def __init__(self, sources: dict[str, str], backward: bool = False) -> None:
        super().__init__(sources)
        self.waits = 0
        self.backward = backward
        self.launched: list[str] = []
        """Labels of all launches so far."""
        self._recording: list[Launch] | None = None

    def ordered(self) -> AbstractContextManager[object]:
        return nullcontext()

    def run(self, launches: Sequence[Launch], again: bool = False) -> None:
        if self._recording is not None:
            self._recording += launches
            return
        self.launched += [launch.label for launch in launches]
        super().run(launches, self.backward)

    def capture(self, work: Callable[[], None], name: str) -> list[Launch]:
        self._recording = []
        try:
            work()
            return self._recording
        finally:
            self._recording = None

    def replay(self, graph: list[Launch]) -> None:
        self.run(graph)

    def forget(self, graph: Any) -> None:
        pass

    def unload(self, module: Any) -> None:
        pass

    def wait(self) -> None:
        self.waits += 1

    def idle(self) -> bool:
        return True


@cache
def compiled(engine: str, overrides: tuple[str, ...] = ()) -> tuple[Bundle, Any, dict[str, str]]:
    """A compiled engine without binaries: its bundle as `open_bundle` gives it, the kernel table and the sources."""
    files = compiler.build_files(load_engine(engine, overrides), to="src")
    plan, table = plan_file.decode(files[PLAN]), kernels_file.decode(files[KERNELS])
    bundle = Bundle(Path("nowhere"), None, plan, load_steps(files[STEP], STEP))  # type: ignore[arg-type]
    sources = {source_path(k.name): files[source_path(k.name)].decode() for k in table.kernels}
    return bundle, table, sources


def loaded_kernels(
    engine: str, overrides: tuple[str, ...] = (), backward: bool = False
) -> tuple[Bundle, Loaded, EmulatedDriver]:
    """A compiled engine with its kernels as host code."""
    bundle, table, sources = compiled(engine, overrides)
    driver = EmulatedDriver(sources, backward)
    functions: dict[tuple[str, str], Any] = {}
    for kernel in table.kernels:
        functions |= driver.functions(kernel)
    return bundle, Loaded(table, functions), driver


def emulated(
    engine: str = "tiny-k2-h200-x1",
    overrides: tuple[str, ...] = (),
    target: Path = PAIR / "target",
    drafter: Path | None = PAIR / "drafter",
    backward: bool = False,
) -> CudaEngine:
    """An engine of this plan with these weights, on the emulator."""
    bundle, loaded, driver = loaded_kernels(engine, overrides, backward)
    table = loaded.table
    checkpoints = {"target": read_checkpoint(target)}
    if drafter is not None:
        checkpoints["drafter"] = read_checkpoint(drafter)
    needed = [weight for weight in bundle.plan.weights if weight.store in checkpoints]
    weights = load_weights(checkpoints, needed, layouts_of(bundle.plan, table), bundle.plan.mesh, 0, "cpu")
    machine = Machine(bundle, loaded, driver, weights, "cpu", drafter is not None)  # type: ignore[arg-type]
    return CudaEngine(machine, Tokenizer.from_dir(target))
