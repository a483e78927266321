"""The emulator as a place where the checker runs kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from ddtreec.artifacts.kernels import Kernel
from ddtreec_runtime.backends.cuda.driver import Launch, addresses
from tests.emulated.emulator import BACKWARD, FORWARD, Library, Memory, library

CUH = "src/cuh/"


class Emulated:
    """Kernels from their sources, `sources` by path in the bundle."""

    device = "cpu"

    def __init__(self, sources: Mapping[str, str]):
        self.sources = dict(sources)
        self._headers = {path.removeprefix(CUH): text for path, text in sources.items() if path.startswith(CUH)}
        self._memory = Memory()

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """See `check_weights.Allocator`."""
        return self._memory.tensor(shape, dtype)

    def functions(self, kernel: Kernel) -> dict[tuple[str, str], Library]:
        """The compiled source for every entry point."""
        found = library(self.sources[f"src/kernels/{kernel.name}.cu"], self._headers)
        return {(kernel.name, variant.function): found for stage in kernel.stages for variant in stage.variants}

    def launch_of(
        self,
        label: str,
        function: Library,
        grid: tuple[int, int, int],
        threads: int,
        shared: int,
        early: bool,
        words: Sequence[int],
    ) -> Launch:
        """See `launches.Maker`."""
        block = np.array(words, dtype=np.uint64)
        return Launch(label, function, grid, threads, shared, early, block, addresses(block))

    def run(self, launches: Sequence[Launch], again: bool) -> None:
        """One after the other; `again` in the opposite order of threads and blocks."""
        for launch in launches:
            function = launch.label.rpartition(":")[2]
            words, flags = launch.words.tolist(), BACKWARD if again else FORWARD
            launch.function.launch(function, launch.grid, launch.threads, launch.shared, words, flags)
