"""Asks this machine. Every question has a limit of time and may go unanswered; nothing is changed and no GPU memory is
taken (no CUDA context is made)."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ddtreec import __version__
from ddtreec_runtime.doctor import parse
from ddtreec_runtime.doctor.facts import Disk, Gpu, Holder, Iommu, Machine

TIMEOUT_S = 10
NCCL_WHEELS = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")

SMS, SHARED_OPTIN = 16, 97
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT and _MAX_SHARED_MEMORY_PER_BLOCK_OPTIN of the CUDA driver API."""


@dataclass
class Cuda:
    """What was learnt of the devices."""

    source: str = ""
    driver: str = ""
    cuda: str = ""
    gpus: tuple[Gpu, ...] = ()
    peer: tuple[tuple[str, ...], ...] = ()
    holders: tuple[Holder, ...] = field(default=())


def machine(disks: tuple[Disk, ...] = ()) -> Machine:
    """This machine."""
    seen = by_nvml() or by_smi() or Cuda()
    limits = by_driver()
    total, free = parse.memory(_read("/proc/meminfo"))
    group = "/sys/fs/cgroup/memory."
    total, free = parse.limited(total, free, _read(f"{group}max"), _read(f"{group}current"))
    return Machine(
        tool=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=parse.cpu(_read("/proc/cpuinfo")),
        cores=_cores(),
        memory=total,
        free=free,
        numa=_numa(),
        torch=_version("torch"),
        driver=seen.driver,
        cuda=seen.cuda,
        nccl=_nccl(),
        source=seen.source,
        gpus=tuple(_completed(gpu, limits) for gpu in seen.gpus),
        peer=seen.peer,
        holders=seen.holders,
        iommu=_iommu(),
        disks=disks,
    )


def by_smi() -> Cuda | None:
    """What nvidia-smi says; None where there is none, or no device answers."""
    if shutil.which("nvidia-smi") is None:
        return None
    form = "--format=csv,noheader,nounits"
    rows = _run("nvidia-smi", f"--query-gpu={','.join(parse.GPU_FIELDS)}", form)
    gpus = parse.gpus(rows)
    if not gpus:
        return None
    index = {gpu.bus: gpu.index for gpu in gpus}
    apps = _run("nvidia-smi", "--query-compute-apps=gpu_bus_id,pid,name,used_memory", form)
    peer = parse.peers(_run("nvidia-smi", "topo", "-p2p", "r"), len(gpus)) if len(gpus) > 1 else ()
    return Cuda(
        "nvidia-smi", parse.driver(rows), parse.cuda(_run("nvidia-smi")), gpus, peer, parse.holders(apps, index)
    )


def by_nvml() -> Cuda | None:
    """What NVML says through nvidia-ml-py; None without the package, the library, or a device."""
    try:
        import pynvml  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    nvml: Any = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        number = nvml.nvmlSystemGetCudaDriverVersion_v2()
        gpus = tuple(_nvml_gpu(nvml, i, handle) for i, handle in enumerate(handles))
        peer = tuple(tuple("" if a is b else _nvml_peer(nvml, a, b) for b in handles) for a in handles)
        held = tuple(holder for i, handle in enumerate(handles) for holder in _nvml_holders(nvml, i, handle))
        version = f"{number // 1000}.{number % 1000 // 10}"
        name = _text(nvml.nvmlSystemGetDriverVersion())
        return Cuda("NVML", name, version, gpus, peer if len(gpus) > 1 else (), held) if gpus else None
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _nvml_gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    arch = f"sm_{major}{minor}"
    limit = parse.SHARED_KIB.get(arch, 0) * 1024

    def link(generation: str, width: str) -> str:
        with contextlib.suppress(nvml.NVMLError):
            return f"gen{getattr(nvml, generation)(handle)} x{getattr(nvml, width)(handle)}"
        return ""

    return Gpu(
        index=index,
        name=_text(nvml.nvmlDeviceGetName(handle)),
        arch=arch,
        memory=memory.total,
        free=memory.free,
        shared_memory=limit,
        shared_memory_source="known of this arch" if limit else "",
        bus=parse.bus(_text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
        pcie=link("nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth"),
        pcie_max=link("nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkWidth"),
    )


def _nvml_peer(nvml: Any, one: Any, other: Any) -> str:
    try:
        status = nvml.nvmlDeviceGetP2PStatus(one, other, nvml.NVML_P2P_CAPS_INDEX_READ)
    except nvml.NVMLError:
        return "?"
    return "OK" if status == nvml.NVML_P2P_STATUS_OK else f"NS{status}"


def _nvml_holders(nvml: Any, index: int, handle: Any) -> list[Holder]:
    found: list[Holder] = []
    with contextlib.suppress(nvml.NVMLError):
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
            name = _read(f"/proc/{process.pid}/comm").strip()
            found.append(Holder(index, process.pid, name, process.usedGpuMemory or 0))
    return found


def by_driver() -> dict[str, tuple[int, int]]:
    """PCI address to (shared memory of a block, SMs) from libcuda; empty without it. Makes no context."""
    try:
        lib = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {}
    count = ctypes.c_int()
    if lib.cuInit(0) or lib.cuDeviceGetCount(ctypes.byref(count)):
        return {}
    found: dict[str, tuple[int, int]] = {}
    for number in range(count.value):
        device, value, address = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(32)
        if lib.cuDeviceGet(ctypes.byref(device), number) or lib.cuDeviceGetPCIBusId(address, 32, device):
            continue
        limits = [
            0 if lib.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) else value.value
            for attribute in (SHARED_OPTIN, SMS)
        ]
        found[parse.bus(address.value.decode())] = (limits[0], limits[1])
    return found


def _completed(gpu: Gpu, limits: dict[str, tuple[int, int]]) -> Gpu:
    shared, sms = limits.get(gpu.bus, (0, 0))
    numa = _read(f"/sys/bus/pci/devices/{gpu.bus}/numa_node").strip()
    known = {"shared_memory": shared, "shared_memory_source": "CUDA driver"} if shared else {}
    return msgspec.structs.replace(gpu, sms=sms, numa=int(numa) if numa.isdigit() else None, **known)


def _iommu() -> Iommu:
    groups = Path("/sys/kernel/iommu_groups")
    kinds = [_read(str(path / "type")) for path in sorted(groups.glob("[0-9]*"))]
    lspci = _run("lspci", "-vvv") if shutil.which("lspci") else None
    return parse.iommu(_read("/proc/cmdline"), kinds, lspci)


def _numa() -> tuple[str, ...]:
    nodes = sorted(Path("/sys/devices/system/node").glob("node[0-9]*"), key=lambda path: int(path.name[4:]))
    return tuple(f"{path.name[4:]}: cores {_read(str(path / 'cpulist')).strip()}" for path in nodes)


def _cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 0


def _nccl() -> str:
    """The NCCL that torch would load, or else the system's."""
    for wheel in NCCL_WHEELS:
        if found := _version(wheel):
            return found
    try:
        number = ctypes.c_int()
        ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(number))
        return parse.nccl(number.value)
    except (OSError, AttributeError):
        return ""


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _text(data: str | bytes) -> str:
    return data.decode() if isinstance(data, bytes) else data


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _run(*command: str) -> str:
    """What a command prints; nothing where it fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""
