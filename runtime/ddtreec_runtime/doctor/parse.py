"""Text that machines print, to facts. Pure functions: no file is opened and no command run here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ddtreec_runtime.doctor.facts import Gpu, Holder, Iommu

MIB = 1024 * 1024

GPU_FIELDS = (
    "index", "name", "compute_cap", "memory.total", "memory.free", "pci.bus_id", "pcie.link.gen.current",
    "pcie.link.width.current", "pcie.link.gen.max", "pcie.link.width.max", "driver_version",
)  # fmt: skip
"""What nvidia-smi is asked for, in the order `gpus` reads it."""

SHARED_KIB = {
    "sm_70": 96, "sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_87": 163, "sm_89": 99, "sm_90": 227, "sm_100": 227,
    "sm_103": 227, "sm_110": 227, "sm_120": 99, "sm_121": 99,
}  # fmt: skip
"""Opt-in shared memory of one block by arch: CUDA programming guide, table of technical specifications."""

IOMMU_OPTION = re.compile(r"(intel_iommu|amd_iommu|iommu(\.\w+)?|pcie_acs_override)=|pci=\S*(acs|noats)")


def gpus(text: str) -> tuple[Gpu, ...]:
    """Rows of `nvidia-smi --query-gpu=GPU_FIELDS --format=csv,noheader,nounits`. Fields it has no answer for (`[N/A]`)
    are left empty; rows of another length are skipped."""
    found: list[Gpu] = []
    for row in _rows(text):
        if len(row) != len(GPU_FIELDS) or not row[0].isdigit():
            continue
        arch = f"sm_{row[2].replace('.', '')}" if re.fullmatch(r"\d+\.\d", row[2]) else ""
        limit = SHARED_KIB.get(arch, 0) * 1024
        found.append(
            Gpu(
                index=int(row[0]),
                name=row[1],
                arch=arch,
                memory=_number(row[3]) * MIB,
                free=_number(row[4]) * MIB,
                shared_memory=limit,
                shared_memory_source="known of this arch" if limit else "",
                bus=bus(row[5]),
                pcie=_link(row[6], row[7]),
                pcie_max=_link(row[8], row[9]),
            )
        )
    return tuple(found)


def driver(text: str) -> str:
    """The driver's version in the same rows."""
    return next((row[-1] for row in _rows(text) if len(row) == len(GPU_FIELDS) and row[-1][:1].isdigit()), "")


def cuda(text: str) -> str:
    """The newest CUDA that the driver serves, in the head of plain `nvidia-smi`."""
    match = re.search(r"CUDA (?:UMD )?Version\s*:\s*(\d+\.\d+)", text)
    return match[1] if match else ""


def holders(text: str, index_of: Mapping[str, int]) -> tuple[Holder, ...]:
    """Rows of `nvidia-smi --query-compute-apps=gpu_bus_id,pid,name,used_memory --format=csv,noheader,nounits`."""
    rows = [row for row in _rows(text) if len(row) == 4 and row[1].isdigit() and bus(row[0]) in index_of]
    return tuple(Holder(index_of[bus(r[0])], int(r[1]), r[2], _number(r[3]) * MIB) for r in rows)


def peers(text: str, count: int) -> tuple[tuple[str, ...], ...]:
    """The matrix of `nvidia-smi topo -p2p r`: 'OK', or why not ('CNS' chipset not supported, 'GNS' GPU not supported,
    'TNS' topology not supported, 'NS' not supported, 'DR' disabled by a registry key). Empty for other text."""
    found: list[tuple[str, ...]] = []
    for line in _plain(text).splitlines():
        words = line.split()
        if words and re.fullmatch(r"GPU\d+", words[0]) and len(words) == count + 1 and not words[1].startswith("GPU"):
            found.append(tuple("" if word == "X" else word for word in words[1:]))
    return tuple(found) if len(found) == count else ()


def bus(text: str) -> str:
    """A PCI address as /sys spells it: '00000000:C1:00.0' is '0000:c1:00.0'."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain[-4:]}:{rest}" if rest else text.strip().lower()


def cpu(text: str) -> str:
    """The model in /proc/cpuinfo, with the number of sockets where there are several."""
    fields = [line.partition(":") for line in text.splitlines()]
    names = [value.strip() for key, _, value in fields if key.strip() in ("model name", "Model")]
    sockets = {value.strip() for key, _, value in fields if key.strip() == "physical id"}
    name = names[0] if names else ""
    return f"{len(sockets)} x {name}" if name and len(sockets) > 1 else name


def memory(text: str) -> tuple[int, int]:
    """Total and available bytes in /proc/meminfo."""
    values = {m[1]: int(m[2]) * 1024 for m in re.finditer(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}
    return values.get("MemTotal", 0), values.get("MemAvailable", values.get("MemFree", 0))


def limited(total: int, free: int, limit: str, used: str) -> tuple[int, int]:
    """Total and free bytes under a container's limit (the text of memory.max and memory.current)."""
    if not limit.strip().isdigit() or int(limit) >= total:
        return total, free
    most, held = int(limit), int(used) if used.strip().isdigit() else 0
    return most, min(free, max(most - held, 0))


def iommu(cmdline: str, kinds: Sequence[str], lspci: str | None) -> Iommu:
    """Hints from the kernel command line, one type a group of /sys/kernel/iommu_groups, and `lspci -vvv` (None where
    it did not run)."""
    options = tuple(word for word in cmdline.split() if IOMMU_OPTION.match(word))
    redirect: int | None = None
    if lspci is not None and "ACSCtl:" in lspci:
        redirect = len(re.findall(r"ACSCtl:.*ReqRedir\+", lspci))
    return Iommu(options, len(kinds), tuple(sorted({kind.strip() for kind in kinds if kind.strip()})), redirect)


def nccl(number: int) -> str:
    """The version in words of what ncclGetVersion gives: 22602 is 2.26.2, and 2708 is 2.7.8."""
    if number < 10000:
        return f"{number // 1000}.{number // 100 % 10}.{number % 100}"
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _rows(text: str) -> list[list[str]]:
    return [[field.strip() for field in line.split(",")] for line in text.splitlines() if line.strip()]


def _number(text: str) -> int:
    return int(float(text)) if re.fullmatch(r"\d+(\.\d+)?", text) else 0


def _link(generation: str, width: str) -> str:
    return f"gen{generation} x{width}" if generation.isdigit() and width.isdigit() else ""


def _plain(text: str) -> str:
    """Without the escapes that `nvidia-smi topo` underlines its head with."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
