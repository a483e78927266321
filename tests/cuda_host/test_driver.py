"""Calls of the CUDA driver through a stand-in: what is passed, and what a failure says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ddtreec.artifacts.kernels import Kernel, KernelTable, binary_path
from ddtreec.core.errors import BundleError
from ddtreec_runtime.backends.cuda.device import check_arch, check_room, load_kernels, read_table
from ddtreec_runtime.backends.cuda.driver import Driver

SUCCESS, NOT_READY, OUT_OF_MEMORY, ILLEGAL = 0, 600, 2, 700
NAMES = {2: b"CUDA_ERROR_OUT_OF_MEMORY", 700: b"CUDA_ERROR_ILLEGAL_ADDRESS", 209: b"CUDA_ERROR_NO_BINARY_FOR_GPU"}


class Api:
    """cuda.bindings.driver as far as `Driver` uses it; `results`: what a call gives instead of success."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=SUCCESS, CUDA_ERROR_NOT_READY=NOT_READY)
    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION=6)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)

    def __init__(self, **results: int):
        self.results = results
        self.calls: list[tuple[Any, ...]] = []

    def CUstream(self, handle: int) -> str:
        return f"<stream {handle}>"

    def CUlaunchAttribute(self) -> Any:
        return SimpleNamespace(id=0, value=SimpleNamespace())

    def CUlaunchConfig(self) -> Any:
        return SimpleNamespace(attrs=[], numAttrs=0)

    def cuGetErrorName(self, result: int) -> tuple[int, bytes]:
        return SUCCESS, NAMES.get(result, b"CUDA_ERROR_OTHER")

    def cuGetErrorString(self, result: int) -> tuple[int, bytes]:
        return SUCCESS, b"as the driver says it"

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*args: Any) -> tuple[Any, ...]:
            self.calls.append((name, *args))
            return self.results.get(name, SUCCESS), f"<{name}>"

        def query(*args: Any) -> tuple[Any, ...]:
            return call(*args)[:1]

        return query if name in ("cuStreamQuery", "cuLaunchKernelEx", "cuGraphLaunch") else call


def made(**results: int) -> tuple[Driver, Api]:
    api = Api(**results)
    return Driver(api, SimpleNamespace(cuda_stream=7)), api


def test_a_launch_carries_grid_block_and_arguments() -> None:
    driver, api = made()
    plain = driver.launch_of("k:f", "<f>", (3, 2, 1), 64, 100, False, [1 << 40, 5])
    early = driver.launch_of("k:g", "<g>", (1, 1, 1), 32, 0, True, [])
    assert plain.words.tolist() == [1 << 40, 5]
    assert plain.pointers.tolist() == [plain.words.ctypes.data, plain.words.ctypes.data + 8]
    config = plain.config
    assert (config.gridDimX, config.gridDimY, config.gridDimZ, config.blockDimX) == (3, 2, 1, 64)
    assert (config.sharedMemBytes, config.hStream, config.numAttrs) == (100, "<stream 7>", 0)
    assert early.config.numAttrs == 1 and early.config.attrs[0].value.programmaticStreamSerializationAllowed == 1
    driver.run([plain, early])
    assert [call[:3] for call in api.calls] == [
        ("cuLaunchKernelEx", plain.config, "<f>"),
        ("cuLaunchKernelEx", early.config, "<g>"),
    ]


def test_shared_memory_is_asked_for_and_kernels_are_loaded_at_once() -> None:
    driver, api = made()
    driver.function("<module>", "f", 0)
    driver.function("<module>", "g", 96 * 1024)
    names = [call[0] for call in api.calls]
    assert names == ["cuModuleGetFunction", "cuFuncLoad", "cuModuleGetFunction", "cuFuncSetAttribute", "cuFuncLoad"]
    assert api.calls[3][1:] == ("<cuModuleGetFunction>", 8, 96 * 1024)


def test_a_capture_gives_a_graph_and_ends_when_something_fails() -> None:
    driver, api = made()
    launch = driver.launch_of("k:f", "<f>", (1, 1, 1), 32, 0, True, [])
    assert driver.capture(lambda: driver.launch(launch), "the round") == "<cuGraphInstantiate>"
    names = [call[0] for call in api.calls]
    assert names == [
        "cuStreamBeginCapture", "cuLaunchKernelEx", "cuStreamEndCapture", "cuGraphInstantiate", "cuGraphDestroy"
    ]  # fmt: skip
    api.calls.clear()
    api.results["cuLaunchKernelEx"] = ILLEGAL
    with pytest.raises(BundleError, match=r"cuLaunchKernelEx failed: CUDA_ERROR_ILLEGAL_ADDRESS \(700\)"):
        driver.capture(lambda: driver.launch(launch), "the round")
    assert [call[0] for call in api.calls[-2:]] == ["cuStreamEndCapture", "cuGraphDestroy"]
    api.results = {"cuGraphInstantiate": OUT_OF_MEMORY}
    with pytest.raises(BundleError, match="B041"):
        driver.capture(lambda: driver.launch(launch), "the round")
    assert api.calls[-1] == ("cuGraphDestroy", "<cuStreamEndCapture>")


def test_failures_name_call_code_place_and_way_out() -> None:
    driver, _ = made(cuModuleLoadData=OUT_OF_MEMORY, cuStreamSynchronize=ILLEGAL, cuStreamQuery=ILLEGAL)
    with pytest.raises(BundleError, match="B041") as caught:
        driver.load(b"", "linear__n8")
    text = caught.value.render()
    assert "cuModuleLoadData failed: CUDA_ERROR_OUT_OF_MEMORY (2), as the driver says it" in text
    assert "note: at linear__n8" in text and "--set limits.context=N" in text
    assert caught.value.exit_code == 5
    for call in (driver.wait, driver.idle):
        with pytest.raises(BundleError, match=r"B040.*ILLEGAL_ADDRESS"):
            call()
    other, _ = made(cuModuleLoadData=209)
    with pytest.raises(BundleError, match="B042"):
        other.load(b"", "k")


def test_waiting_is_counted_and_asking_is_not() -> None:
    driver, api = made()
    assert driver.idle() and driver.waits == 0
    api.results["cuStreamQuery"] = NOT_READY
    assert not driver.idle()
    driver.wait()
    assert driver.waits == 1


@pytest.mark.parametrize(
    ("arch", "capability", "fits"),
    [
        ("sm_90", (9, 0), True), ("sm_120", (12, 0), True), ("sm_120", (12, 1), True), ("sm_90a", (9, 0), True),
        ("sm_120", (9, 0), False), ("sm_90", (12, 0), False), ("sm_121", (12, 0), False), ("sm_90a", (9, 1), False),
        ("sm_90", (8, 9), False),
    ],
)  # fmt: skip
def test_binaries_of_a_generation(arch: str, capability: tuple[int, int], fits: bool) -> None:
    table = KernelTable(1, arch, (), {})
    if fits:
        check_arch(table, capability, "NVIDIA GPU", Path("b"))
        return
    with pytest.raises(BundleError, match=f"kernels are for {arch}, this machine's NVIDIA GPU is sm_{capability[0]}"):
        check_arch(table, capability, "NVIDIA GPU", Path("b"))


def test_what_does_not_fit_is_said_before_weights_load() -> None:
    rows = [
        SimpleNamespace(purpose="weights", bytes=3 << 30),
        SimpleNamespace(purpose="reserved by the device", bytes=9),
    ]
    plan: Any = SimpleNamespace(memory=rows)
    check_room(plan, 3 << 30, "NVIDIA GPU", Path("b"))
    with pytest.raises(BundleError, match=r"B041.*one rank holds 3.0 GiB, NVIDIA GPU has 2.0 GiB free"):
        check_room(plan, 2 << 30, "NVIDIA GPU", Path("b"))


def test_a_kernel_table_that_cannot_be_read(tmp_path: Path) -> None:
    bundle: Any = SimpleNamespace(path=tmp_path)
    for text in (None, "no json", '{"format": 9, "arch": "sm_90", "kernels": [], "programs": {}}'):
        if text is not None:
            (tmp_path / "kernels.json").write_text(text)
        with pytest.raises(BundleError, match="B044"):
            read_table(bundle)
    (tmp_path / "kernels.json").write_text('{"format": 9, "chips": []}')  # a newer one has other fields
    with pytest.raises(BundleError, match="has format 9, this runtime reads format 1"):
        read_table(bundle)


def test_kernels_are_loaded_all_or_none(tmp_path: Path) -> None:
    """A binary that is missing leaves no module of the others behind."""
    table = KernelTable(1, "sm_90", tuple(Kernel(name, ()) for name in "abc"), {})
    (tmp_path / "bin").mkdir()
    for name in "ab":
        (tmp_path / binary_path(name, "sm_90")).write_bytes(name.encode())
    bundle: Any = SimpleNamespace(path=tmp_path)
    driver, api = made()
    with pytest.raises(BundleError, match="B023"):
        load_kernels(bundle, table, driver)
    assert [call[0] for call in api.calls] == ["cuModuleLoadData"] * 2 + ["cuModuleUnload"] * 2
    (tmp_path / binary_path("c", "sm_90")).write_bytes(b"c")
    api.calls.clear()
    assert len(load_kernels(bundle, table, driver).modules) == 3
    assert "cuModuleUnload" not in [call[0] for call in api.calls]
