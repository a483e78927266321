"""What is worth knowing of a machine before anything is compiled for it."""

from __future__ import annotations

from collections.abc import Iterator

from ddtreec.core.units import format_bytes
from ddtreec_runtime.doctor.facts import Finding, Machine

NO_DEVICE = "no CUDA device: the CPU backend is all there is here"

BAD_NCCL: dict[str, tuple[str, str]] = {
    "2.26.2": ("sm_120", "all-reduces of 512 KiB and more end in an illegal memory access on RTX PRO 6000 cards"),
}
"""Version to (the arch where it was seen, what happens). Source: github.com/NVIDIA/nccl/issues/2418."""


def advice(machine: Machine) -> tuple[Finding, ...]:
    """Everything strange, the worst first."""
    found = [*_software(machine), *_devices(machine), *_links(machine)]
    return tuple(sorted(found, key=lambda finding: ("fatal", "slow", "harmless").index(finding.level)))


def bad_nccl(machine: Machine) -> Finding | None:
    """The finding where this NCCL is known to fail, on these devices or on others."""
    if machine.nccl not in BAD_NCCL:
        return None
    arch, what = BAD_NCCL[machine.nccl]
    hit = len(machine.gpus) > 1 and any(gpu.arch == arch for gpu in machine.gpus)
    fix = "install another NCCL, e.g. pip install --upgrade nvidia-nccl-cu12"
    return Finding("fatal" if hit else "harmless", "known-bad NCCL", f"{machine.nccl}: {what}", fix=fix)


def _software(machine: Machine) -> Iterator[Finding]:
    if not machine.torch:
        yield Finding("fatal", "torch", "not installed, and `ddtreec run` needs it", fix="pip install torch")
    if not machine.gpus:
        yield Finding("harmless", "CUDA", NO_DEVICE)
    bad = bad_nccl(machine)
    if bad is not None:
        yield bad


def _devices(machine: Machine) -> Iterator[Finding]:
    kinds = sorted({f"{gpu.name} ({gpu.arch})" for gpu in machine.gpus})
    if len(kinds) > 1:
        fix = "choose devices of one kind, e.g. with CUDA_VISIBLE_DEVICES"
        yield Finding("slow", "devices of several kinds", "; ".join(kinds), fix=fix)
    for holder in machine.holders:
        here = f"{format_bytes(holder.bytes)} of GPU {holder.gpu} by pid {holder.pid} ({holder.name})"
        yield Finding("harmless", "memory is held", here, fix="end that process if the memory is needed")


def _links(machine: Machine) -> Iterator[Finding]:
    for gpu in machine.gpus:
        now, most = gpu.pcie.partition(" ")[2], gpu.pcie_max.partition(" ")[2]
        if now and most and int(now[1:]) < int(most[1:]):
            here = f"GPU {gpu.index} has {now} of {most} lanes"
            yield Finding("slow", "narrow PCIe link", here, fix="seat the card again, or use another slot or riser")
    if len(machine.gpus) < 2:
        return
    blocked = blocked_pairs(machine, len(machine.gpus))
    if blocked:
        fix = "see the IOMMU and ACS lines; `nvidia-smi topo -p2p r` shows the reason of each pair"
        yield Finding("slow", "no peer access", blocked, fix=fix)
    if any(kind.startswith("DMA") for kind in machine.iommu.kinds):
        here = f"translating ({', '.join(machine.iommu.kinds)}): peer transfers over PCIe are slow there, or hang"
        fix = "boot with iommu=pt, or turn the IOMMU off in the BIOS"
        yield Finding("slow", "IOMMU", here, fix=fix)
    if machine.iommu.acs_redirect:
        here = f"{machine.iommu.acs_redirect} PCIe bridges send peer requests up to the root complex"
        yield Finding("slow", "ACS", here, fix="turn ACS off in the BIOS")


def blocked_pairs(machine: Machine, count: int) -> str:
    """The pairs among the first `count` GPUs that do not reach each other, in words; empty where all do."""
    rows = [row[:count] for row in machine.peer[:count]]
    bad = [(i, j, word) for i, row in enumerate(rows) for j, word in enumerate(row) if i < j and word not in ("", "OK")]
    if not bad:
        return ""
    shown = ", ".join(f"{i}-{j} {word}" for i, j, word in bad[:6])
    return f"{len(bad)} of {count * (count - 1) // 2} pairs: {shown}{', ..' if len(bad) > 6 else ''}"
