"""What `ddtreec doctor` knows of a machine. None and empty mean that nothing here could tell."""

from __future__ import annotations

from typing import Literal

from ddtreec.artifacts.plan import Struct

Level = Literal["fatal", "slow", "harmless"]
"""fatal: it will not run, or not right. slow: it runs, below what was predicted. harmless: worth knowing."""


class Gpu(Struct, frozen=True):
    """One CUDA device. Bytes; `pcie` and `pcie_max` like 'gen5 x16'; `shared_memory` is the opt-in limit of a block."""

    index: int
    name: str
    arch: str = ""
    memory: int = 0
    free: int = 0
    shared_memory: int = 0
    shared_memory_source: str = ""
    sms: int = 0
    bus: str = ""
    pcie: str = ""
    pcie_max: str = ""
    numa: int | None = None


class Holder(Struct, frozen=True):
    """A process that holds memory of a GPU."""

    gpu: int
    pid: int
    name: str
    bytes: int


class Iommu(Struct, frozen=True):
    """Hints on whether PCIe transfers between devices are sent through the IOMMU or up to the root complex.

    `options`: the parts of the kernel command line about it. `groups`: IOMMU groups, 0 where it is off. `kinds`: types
    of the groups, e.g. 'DMA-FQ' (translating) or 'identity' (passed through). `acs_redirect`: PCIe bridges that
    redirect peer requests upwards; None where lspci could not say.
    """

    options: tuple[str, ...] = ()
    groups: int = 0
    kinds: tuple[str, ...] = ()
    acs_redirect: int | None = None


class Disk(Struct, frozen=True):
    """Files of a weights folder and how fast they are read: `sample` bytes in `seconds`."""

    folder: str
    files: int
    bytes: int
    sample: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes a second; 0 where nothing was read."""
        return self.sample / self.seconds if self.seconds else 0.0


class Machine(Struct, frozen=True):
    """All of it. `peer[i][j]`: whether GPU i reaches the memory of GPU j ('OK', else the reason). `memory`: RAM this
    process may have, of a container where there is one. `source`: what told about the GPUs."""

    tool: str
    python: str
    system: str
    cpu: str = ""
    cores: int = 0
    memory: int = 0
    free: int = 0
    numa: tuple[str, ...] = ()
    torch: str = ""
    driver: str = ""
    cuda: str = ""
    nccl: str = ""
    source: str = ""
    gpus: tuple[Gpu, ...] = ()
    peer: tuple[tuple[str, ...], ...] = ()
    holders: tuple[Holder, ...] = ()
    iommu: Iommu = Iommu()
    disks: tuple[Disk, ...] = ()


class Finding(Struct, frozen=True):
    """One thing a person should know: what was wanted, what is here, and the way out. `wanted` is empty for advice on
    the machine alone."""

    level: Level
    what: str
    here: str
    wanted: str = ""
    fix: str = ""
