"""The CUDA driver API with its errors told: modules, launches, capture, graphs, and everything that waits.

torch owns the context and the memory; this file owns functions and graphs. All work of an engine goes through one
stream, so that order is what the code says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ddtreec.core.errors import BundleError, Problem

CALL_FAILED, OUT_OF_MEMORY, OTHER_DEVICE, NO_BINDINGS = "B040", "B041", "B042", "B043"

WAYS_OUT = {
    "CUDA_ERROR_OUT_OF_MEMORY": "close what else uses the GPU, or compile with a shorter context: "
    "--set limits.context=N",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "compile the engine for this machine's GPU: --set topology=NAME",
    "CUDA_ERROR_NO_DEVICE": "run `ddtreec doctor` to see what this machine has",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "run `ddtreec verify BUNDLE` to find the kernel, and report it",
    "CUDA_ERROR_LAUNCH_FAILED": "run `ddtreec verify BUNDLE` to find the kernel, and report it",
    "CUDA_ERROR_INVALID_IMAGE": "compile the engine again: ddtreec compile ENGINE.yaml -o DIR",
}


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch, ready to be made: entry point, grid, block, and its arguments.

    `label`: '<kernel>:<function>', for errors. `words`: uint64, one a parameter (int32 in the low half); `config`: what
    the driver made of the rest.
    """

    label: str
    function: Any
    grid: tuple[int, int, int]
    threads: int
    shared: int
    early: bool
    words: np.ndarray
    pointers: np.ndarray = field(repr=False)
    """uint64, the address of each word: the form the driver wants its parameters in."""
    config: Any = field(default=None, repr=False)


def addresses(words: np.ndarray) -> np.ndarray:
    """The address of each element of a contiguous uint64 array, which must stay alive."""
    return (words.ctypes.data + 8 * np.arange(len(words))).astype(np.uint64)


class Driver:
    """Calls into `api` (cuda.bindings.driver), on the current context and one stream.

    `waits`: how often anything here blocked the host. A round must not raise it.
    """

    def __init__(self, api: Any, stream: Any):
        """`stream`: a torch stream; what torch does inside `ordered` goes there too."""
        self.api = api
        self.torch_stream = stream
        self.stream = api.CUstream(stream.cuda_stream)
        self.waits = 0
        self._success = api.CUresult.CUDA_SUCCESS
        self._serialized = api.CUlaunchAttribute()
        self._serialized.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        self._serialized.value.programmaticStreamSerializationAllowed = 1

    def ordered(self) -> AbstractContextManager[object]:
        """Inside, torch's own work is in order with the launches."""
        return torch.cuda.stream(self.torch_stream)

    def version(self) -> str:
        """The CUDA version that the driver speaks, such as '13.0'."""
        number = self._checked("cuDriverGetVersion", "")
        return f"{number // 1000}.{number % 1000 // 10}"

    # ---- modules ----

    def load(self, image: bytes, name: str) -> Any:
        """A module from a cubin. Raises BundleError B040 (B042 for another GPU's)."""
        return self._checked("cuModuleLoadData", name, image)

    def function(self, module: Any, name: str, shared: int) -> Any:
        """An entry point that may be launched with `shared` bytes of dynamic shared memory."""
        found = self._checked("cuModuleGetFunction", name, module, name.encode())
        if shared:  # static and dynamic together have 48 KiB without asking
            most = self.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._checked("cuFuncSetAttribute", f"{name}, {shared} bytes of shared memory", found, most, shared)
        self._checked("cuFuncLoad", name, found)  # now, not at its first launch, which may lie in a capture
        return found

    def unload(self, module: Any) -> None:
        """Frees a module."""
        self._checked("cuModuleUnload", "", module)

    # ---- launches ----

    def launch_of(
        self,
        label: str,
        function: Any,
        grid: tuple[int, int, int],
        threads: int,
        shared: int,
        early: bool,
        words: Sequence[int],
    ) -> Launch:
        """A launch with everything worked out. `early`: may start before its predecessor in the stream has ended."""
        block = np.array(words, dtype=np.uint64)
        config = self.api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = shared
        config.hStream = self.stream
        if early:
            config.attrs = [self._serialized]
            config.numAttrs = 1
        return Launch(label, function, grid, threads, shared, early, block, addresses(block), config)

    def launch(self, launch: Launch) -> None:
        """Puts one launch into the stream (or into the graph that is being captured)."""
        found = self.api.cuLaunchKernelEx(launch.config, launch.function, launch.pointers.ctypes.data, 0)
        if found[0] != self._success:
            self._fail(found[0], "cuLaunchKernelEx", launch.label)

    def run(self, launches: Sequence[Launch]) -> None:
        """All of them in order."""
        for launch in launches:
            self.launch(launch)

    # ---- graphs ----

    def capture(self, work: Callable[[], None], name: str) -> Any:
        """What `work` puts into the stream, as a graph ready for `replay`. Nothing of it runs now.

        Raises BundleError B040 where a call is not possible in a capture; the stream is usable afterwards.
        """
        relaxed = self.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._checked("cuStreamBeginCapture", name, self.stream, relaxed)
        try:
            work()
        except BaseException:
            result, *graph = self.api.cuStreamEndCapture(self.stream)  # the first error is the one to tell
            if result == self._success:
                self.api.cuGraphDestroy(*graph)
            raise
        graph = self._checked("cuStreamEndCapture", name, self.stream)
        try:
            return self._checked("cuGraphInstantiate", name, graph, 0)
        finally:
            self.api.cuGraphDestroy(graph)

    def replay(self, graph: Any) -> None:
        """Puts a captured graph into the stream."""
        found = self.api.cuGraphLaunch(graph, self.stream)
        if found[0] != self._success:
            self._fail(found[0], "cuGraphLaunch", "")

    def forget(self, graph: Any) -> None:
        """Frees a captured graph."""
        self._checked("cuGraphExecDestroy", "", graph)

    # ---- waiting ----

    def wait(self) -> None:
        """Blocks until everything in the stream has ended; an error of a kernel comes out here."""
        self.waits += 1
        self._checked("cuStreamSynchronize", "", self.stream)

    def idle(self) -> bool:
        """Whether everything in the stream has ended. Does not block; an error of a kernel comes out here too."""
        (found,) = self.api.cuStreamQuery(self.stream)
        if found == self._success:
            return True
        if found == self.api.CUresult.CUDA_ERROR_NOT_READY:
            return False
        return self._fail(found, "cuStreamQuery", "")

    # ---- errors ----

    def _checked(self, call: str, what: str, *args: Any) -> Any:
        result, *values = getattr(self.api, call)(*args)
        if result != self._success:
            self._fail(result, call, what)
        return values[0] if values else None

    def _fail(self, result: Any, call: str, what: str) -> Any:
        raise BundleError(problem(self.api, result, call, what))


def problem(api: Any, result: Any, call: str, what: str) -> Problem:
    """What a person is told of a call that failed: code, call, name, and a way out."""
    name = _text(api.cuGetErrorName(result)) or str(result)
    said = _text(api.cuGetErrorString(result))
    code = {"CUDA_ERROR_OUT_OF_MEMORY": OUT_OF_MEMORY, "CUDA_ERROR_NO_BINARY_FOR_GPU": OTHER_DEVICE}.get(
        name, CALL_FAILED
    )
    message = f"{call} failed: {name} ({int(result)}){f', {said}' if said else ''}"
    return Problem(
        code,
        message,
        note=f"at {what}" if what else "",
        help=WAYS_OUT.get(name, "run `ddtreec doctor`, then `ddtreec verify BUNDLE`; report it if both find nothing"),
    )


def _text(found: tuple[Any, ...]) -> str:
    value = found[1] if len(found) > 1 else None
    return value.decode() if isinstance(value, bytes) else ""
