"""The CUDA runtime on a machine without a GPU: its launches run on the emulator, in the memory of the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ddtreec import driver as compiler
from ddtreec.artifacts import kernels as kernels_file
from ddtreec.artifacts import plan as plan_file
from ddtreec.artifacts.kernels import KERNELS, source_path
from ddtreec.artifacts.manifest import PLAN, STEP
from ddtreec.spec.load import load_engine
from ddtreec_runtime.backends.cuda.driver import Launch, addresses
from ddtreec_runtime.backends.cuda.machine import Loaded
from ddtreec_runtime.bundle import Bundle
from ddtreec_runtime.program import load_steps
from tests.emulated.emulator import FORWARD, Library, library


class EmulatedDriver:
    """The face of `Driver`. A stream is work that is done at once; a graph is the list of what was put into it."""

    def __init__(self, flags: int = FORWARD) -> None:
        self.waits = 0
        self.flags = flags
        self.launched: list[str] = []
        """Labels of all launches so far."""
        self._recording: list[Launch] | None = None

    def ordered(self) -> AbstractContextManager[object]:
        return nullcontext()

    def launch_of(
        self,
        label: str,
        function: tuple[Library, str],
        grid: tuple[int, int, int],
        threads: int,
        shared: int,
        early: bool,
        words: Sequence[int],
    ) -> Launch:
        block = np.array(words, dtype=np.uint64)
        return Launch(label, function, grid, threads, shared, early, block, addresses(block))

    def launch(self, launch: Launch) -> None:
        if self._recording is not None:
            self._recording.append(launch)
            return
        self.launched.append(launch.label)
        found, name = launch.function
        found.launch(name, launch.grid, launch.threads, launch.shared, launch.words.tolist(), flags=self.flags)

    def run(self, launches: Sequence[Launch]) -> None:
        for launch in launches:
            self.launch(launch)

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
def sources(engine: str, overrides: tuple[str, ...] = ()) -> tuple[Bundle, Loaded]:
    """A compiled engine without binaries: what `open_bundle` gives of it, and its kernels as host code."""
    files = compiler.build_files(load_engine(engine, overrides), to="src")
    plan = plan_file.decode(files[PLAN])
    table = kernels_file.decode(files[KERNELS])
    bundle = Bundle(Path("nowhere"), None, plan, load_steps(files[STEP], STEP))  # type: ignore[arg-type]
    functions = {
        (kernel.name, variant.function): (library(files[source_path(kernel.name)].decode()), variant.function)
        for kernel in table.kernels
        for stage in kernel.stages
        for variant in stage.variants
    }
    return bundle, Loaded(table, functions)
