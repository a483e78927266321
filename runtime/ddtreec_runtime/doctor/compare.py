"""A bundle against a machine, before any weight is touched: what is fatal, slow or harmless, and the way out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ddtreec import __version__
from ddtreec.core.units import format_bytes, parse_bytes
from ddtreec_runtime.bundle import checked
from ddtreec_runtime.doctor.advice import NO_DEVICE, bad_nccl, blocked_pairs
from ddtreec_runtime.doctor.facts import Finding, Gpu, Machine

SPEC = "spec.json"


@dataclass(frozen=True, slots=True)
class Offer:
    """A topology that an engine could be compiled for."""

    backend: str
    devices: int
    arch: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a bundle was compiled for. Bytes of one rank."""

    engine: str
    tool: str
    backend: str
    topology: str
    ranks: int
    memory: int
    context: int
    device: str = ""
    arch: str = ""
    shared_memory: int = 0


def wanted(bundle: Path) -> Wanted:
    """What the bundle asks for. Every file is checked first: raises BundleError B020 .. B025."""
    manifest, plan, contents = checked(bundle)
    device = msgspec.json.decode(contents[SPEC])["topology"]["device"] if SPEC in contents else {}
    shared = device.get("shared_memory")
    return Wanted(
        engine=manifest.engine,
        tool=manifest.tool,
        backend=plan.backend,
        topology=plan.topology,
        ranks=plan.mesh.ranks,
        memory=sum(row.bytes for row in plan.memory),
        context=plan.limits.context,
        device=device.get("name", ""),
        arch=device.get("arch") or "",
        shared_memory=parse_bytes(shared) if shared else 0,
    )


def compare(bundle: Wanted, machine: Machine, offers: Mapping[str, Offer]) -> tuple[Finding, ...]:
    """Every mismatch, the worst first; none where the bundle was made for a machine like this. `offers`: the
    topologies by name that a way out may name."""
    found = [*_tool(bundle)]
    found += _on_cpu(bundle, machine) if bundle.backend == "cpu" else _on_cuda(bundle, machine, offers)
    return tuple(sorted(found, key=lambda finding: ("fatal", "slow", "harmless").index(finding.level)))


def recompile(bundle: Wanted, *sets: str) -> str:
    """The command that makes the bundle anew."""
    return " ".join(["ddtreec compile", bundle.engine, *(f"--set {text}" for text in sets)])


def _tool(bundle: Wanted) -> Iterator[Finding]:
    if bundle.tool != __version__:
        here = f"ddtreec {__version__}, which reads the same format"
        yield Finding("harmless", "version", here, f"ddtreec {bundle.tool}", recompile(bundle))


def _on_cpu(bundle: Wanted, machine: Machine) -> Iterator[Finding]:
    need = bundle.memory * bundle.ranks
    asked = f"{format_bytes(need)} for {bundle.ranks} rank{'s' * (bundle.ranks > 1)}"
    if machine.memory and need > machine.memory:
        fix = recompile(bundle, f"limits.context={_smaller(bundle.context)}")
        yield Finding("fatal", "memory", f"{format_bytes(machine.memory)} of RAM", asked, fix)
    elif machine.memory and need > machine.free:
        here = f"{format_bytes(machine.free)} free of {format_bytes(machine.memory)}"
        yield Finding("slow", "memory", here, asked, "end other programs: the rest would be swapped")
    if machine.cores and machine.cores < bundle.ranks:
        fix = recompile(bundle, "topology=cpu")
        yield Finding("slow", "cores", f"{machine.cores} cores", f"{bundle.ranks} ranks, a core each at least", fix)


def _on_cuda(bundle: Wanted, machine: Machine, offers: Mapping[str, Offer]) -> Iterator[Finding]:
    devices = f"{bundle.ranks} x {bundle.device or 'CUDA device'}"
    if not machine.gpus:
        yield Finding("fatal", "backend", NO_DEVICE, f"cuda ({devices})", recompile(bundle, "topology=cpu"))
        return
    fix = _another(bundle, machine, offers)
    if len(machine.gpus) < bundle.ranks:
        yield Finding("fatal", "devices", f"{len(machine.gpus)} x {machine.gpus[0].name}", devices, fix)
    used = machine.gpus[: bundle.ranks]
    foreign = [gpu for gpu in used if bundle.arch and gpu.arch and not _runs(bundle.arch, gpu.arch)]
    if foreign:
        here = ", ".join(dict.fromkeys(f"{gpu.arch} ({gpu.name})" for gpu in foreign))
        yield Finding(
            "fatal", "arch", here, f"{bundle.arch} ({bundle.device}): kernels run on that generation alone", fix
        )
    else:
        yield from _same_arch(bundle, used)
    yield from _room(bundle, machine, used)
    if bundle.ranks > 1:
        one = "`ddtreec bench BUNDLE --rank 0 --synthetic` times one rank; compile for one device to run"
        yield Finding("fatal", "ranks", "this runtime runs one rank on one GPU", f"{bundle.ranks} ranks", one)
        blocked = blocked_pairs(machine, bundle.ranks)
        if blocked:
            fix = "`ddtreec doctor` without --bundle says what to check"
            yield Finding("slow", "peer access", f"missing for {blocked}", "every pair of devices", fix)
        if (bad := bad_nccl(machine)) is not None:
            yield bad


def _runs(made: str, here: str) -> bool:
    """Whether binaries for one arch run on another: the same, or a later member of its generation."""
    return made == here or (made[:-1] == here[:-1] and made[-1].isdigit() and made[-1] < here[-1])


def _same_arch(bundle: Wanted, used: tuple[Gpu, ...]) -> Iterator[Finding]:
    least = min((gpu.shared_memory for gpu in used if gpu.shared_memory), default=0)
    if least and bundle.shared_memory > least:
        asked = format_bytes(bundle.shared_memory)
        fix = recompile(bundle, f"topology.device.shared_memory={least // 1024}KiB")
        yield Finding("fatal", "shared memory of a block", format_bytes(least), asked, fix)
    others = sorted({gpu.name for gpu in used if bundle.device and not _alike(gpu.name, bundle.device)})
    if others:
        fix = "nothing, or write a topology of this machine for true predictions"
        yield Finding("harmless", "device", ", ".join(others), f"{bundle.device}: predicted times are for it", fix)


def _room(bundle: Wanted, machine: Machine, used: tuple[Gpu, ...]) -> Iterator[Finding]:
    asked = f"{format_bytes(bundle.memory)} a rank"
    smaller = recompile(bundle, f"limits.context={_smaller(bundle.context)}")
    for gpu in used:
        held = [h for h in machine.holders if h.gpu == gpu.index]
        whose = ", ".join(f"pid {h.pid} ({h.name}) {format_bytes(h.bytes)}" for h in held)
        if gpu.memory and gpu.memory < bundle.memory:
            yield Finding("fatal", "memory", f"GPU {gpu.index}: {format_bytes(gpu.memory)} in all", asked, smaller)
        elif gpu.free and gpu.free < bundle.memory:
            here = f"GPU {gpu.index}: {format_bytes(gpu.free)} free of {format_bytes(gpu.memory)}"
            here += f"; held by {whose}" if whose else ""
            fix = f"end {'these processes' if len(held) > 1 else 'that process'}" if held else "free it"
            yield Finding("fatal", "memory", here, asked, f"{fix}, or {smaller}")


def _another(bundle: Wanted, machine: Machine, offers: Mapping[str, Offer]) -> str:
    """The command for the largest shipped topology that this machine is and that holds the bundle's memory; else what
    to write, or that the machine is too small."""
    arch, count = machine.gpus[0].arch, len(machine.gpus)
    each, need = min(gpu.memory for gpu in machine.gpus), bundle.memory * bundle.ranks
    if each and need > count * each:
        have = f"{count} device{'s' * (count > 1)} here hold{'s' * (count == 1)} {format_bytes(count * each)}"
        return f"add devices, or choose a smaller engine: this one takes {format_bytes(need)} in all, {have}"
    able = [n for n, o in offers.items() if o.arch == arch and o.devices <= count and need <= o.devices * each]
    if able:
        return recompile(bundle, f"topology={max(able, key=lambda name: offers[name].devices)}")
    return f"write a topology of {count} x {arch or 'this device'}, then {recompile(bundle, 'topology=FILE.yaml')}"


def _smaller(context: int) -> int:
    return max(context // 2, 1)


def _alike(name: str, planned: str) -> bool:
    """Whether the driver's name is the planned one, whatever edition it says behind."""
    return planned.lower() in name.lower() or name.lower() in planned.lower()
