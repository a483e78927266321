"""A machine and its findings as text to read, and to paste into a report."""

from __future__ import annotations

from collections.abc import Sequence

from ddtreec.core.units import format_bytes
from ddtreec_runtime.doctor.facts import Disk, Finding, Gpu, Iommu, Machine

WIDTH = 9


def text(machine: Machine, findings: Sequence[Finding]) -> str:
    """Facts, a line each, then what is worth knowing."""
    rows = [
        ("ddtreec", f"{machine.tool}, Python {machine.python}, torch {machine.torch or 'not installed'}"),
        ("system", machine.system),
        ("cpu", f"{machine.cpu or 'unknown'}, {machine.cores} cores"),
        ("memory", f"{format_bytes(machine.memory)}, {format_bytes(machine.free)} free"),
        *[("numa", node) for node in machine.numa],
    ]
    if machine.driver:
        rows.append(("driver", f"{machine.driver}, CUDA {machine.cuda or 'unknown'} (told by {machine.source})"))
    rows.append(("nccl", machine.nccl or "not found"))
    rows += [(f"gpu {gpu.index}", _gpu(gpu)) for gpu in machine.gpus]
    rows += [("peer", line) for line in _peer(machine.peer)]
    rows += [("iommu", _iommu(machine.iommu)), *(("disk", _disk(disk)) for disk in machine.disks)]
    lines = [f"{name:{WIDTH}}{value}" for name, value in rows]
    return "\n".join([*lines, *told(findings)]) + "\n"


def told(findings: Sequence[Finding]) -> list[str]:
    """Each finding in two or three lines."""
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{finding.level}: {finding.what}")
        if finding.wanted:
            lines.append(f"  bundle   {finding.wanted}")
            lines.append(f"  machine  {finding.here}")
        else:
            lines.append(f"  {finding.here}")
        if finding.fix:
            lines.append(f"  fix      {finding.fix}" if finding.wanted else f"  fix: {finding.fix}")
    return lines


def _gpu(gpu: Gpu) -> str:
    shared = format_bytes(gpu.shared_memory) if gpu.shared_memory else "unknown"
    parts = [
        gpu.name,
        gpu.arch or "arch unknown",
        f"{format_bytes(gpu.memory)}, {format_bytes(gpu.free)} free",
        f"shared memory of a block {shared}" + (f" ({gpu.shared_memory_source})" if gpu.shared_memory else ""),
    ]
    parts += [f"{gpu.sms} SMs"] if gpu.sms else []
    parts += [f"PCIe {gpu.pcie or '?'}, at most {gpu.pcie_max or '?'}"] if gpu.pcie or gpu.pcie_max else []
    parts += [f"NUMA {gpu.numa}"] if gpu.numa is not None else []
    return ", ".join([*parts, gpu.bus] if gpu.bus else parts)


def _peer(matrix: tuple[tuple[str, ...], ...]) -> list[str]:
    if not matrix:
        return []
    width = max(len(word) for row in matrix for word in (*row, "GPU0")) + 1
    head = " " * width + "".join(f"{f'GPU{i}':<{width}}" for i in range(len(matrix)))
    rows = [f"{f'GPU{i}':<{width}}" + "".join(f"{word or '-':<{width}}" for word in r) for i, r in enumerate(matrix)]
    return [line.rstrip() for line in [head, *rows]]


def _iommu(iommu: Iommu) -> str:
    options = " ".join(iommu.options) or "no kernel option"
    groups = f"{iommu.groups} groups ({', '.join(iommu.kinds) or 'type unknown'})" if iommu.groups else "no groups: off"
    acs = (
        "unknown (needs lspci as root)" if iommu.acs_redirect is None else f"redirects at {iommu.acs_redirect} bridges"
    )
    return f"{options}; {groups}; ACS {acs}"


def _disk(disk: Disk) -> str:
    seconds = disk.bytes / disk.rate if disk.rate else 0.0
    whole = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    return (
        f"{disk.folder}: {disk.files} files, {disk.bytes / 1e9:.2f} GB; {disk.sample / 1e6:.0f} MB read in "
        f"{disk.seconds:.2f} s, {disk.rate / 1e9:.2f} GB/s: all of it in {whole}"
    )
