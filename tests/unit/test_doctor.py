"""What machines print, to facts, to advice, to text: recorded machines, no GPU."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from ddtreec.cli.main import main
from ddtreec.core.errors import CheckpointError
from ddtreec_runtime.doctor import disk, parse, probe
from ddtreec_runtime.doctor.advice import NO_DEVICE, advice
from ddtreec_runtime.doctor.compare import Offer, Wanted, compare
from ddtreec_runtime.doctor.facts import Disk, Finding, Gpu, Holder, Iommu, Machine
from ddtreec_runtime.doctor.text import text

MACHINES = Path(__file__).resolve().parents[1] / "data" / "machines"
GIB = 2**30
PLAIN = Machine(tool="1", python="3.11", system="Linux", cores=8, memory=64 * GIB, free=60 * GIB, torch="2.6")
CARD = Gpu(0, "NVIDIA RTX PRO 6000 Blackwell", "sm_120", 96 * GIB, 95 * GIB, 99 * 1024, "CUDA driver")
BUNDLE = Wanted("e", "0.1.0", "cuda", "t", 2, 80 * GIB, 4096, CARD.name, "sm_120", 99 * 1024)
OFFERS = {"cpu": Offer("cpu", 1, ""), "two": Offer("cuda", 2, "sm_120"), "one": Offer("cuda", 1, "sm_120"),
          "old": Offer("cuda", 2, "sm_90")}  # fmt: skip


@pytest.fixture(autouse=True)
def same_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddtreec_runtime.doctor.compare.__version__", BUNDLE.tool)


def read(machine: str, name: str) -> str:
    return (MACHINES / machine / name).read_text()


def cards(count: int, **changes: Any) -> Machine:
    gpus = tuple(msgspec.structs.replace(CARD, index=i, **changes) for i in range(count))
    return msgspec.structs.replace(PLAIN, gpus=gpus)


# ---- parsers ----


def test_gpus_of_eight_h200() -> None:
    found = parse.gpus(read("h200-x8", "query.csv"))
    assert [gpu.index for gpu in found] == list(range(8))
    assert found[3] == Gpu(3, "NVIDIA H200", "sm_90", 143771 * 2**20, 60123 * 2**20, 227 * 1024, "known of this arch",
                           0, "0000:4e:00.0", "gen5 x16", "gen5 x16")  # fmt: skip
    assert parse.driver(read("h200-x8", "query.csv")) == "570.148.08"
    assert parse.cuda(read("h200-x8", "smi.txt")) == "12.8"
    index = {gpu.bus: gpu.index for gpu in found}
    assert parse.holders(read("h200-x8", "apps.csv"), index) == (Holder(3, 4321, "/usr/bin/python3", 83640 * 2**20),)


@pytest.mark.parametrize(
    "text",
    ["", "No devices were found\n", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
     "0, NVIDIA H200, 9.0\n", "x, NVIDIA, 9.0, 1, 1, b, 1, 1, 1, 1, 5\n"],
)  # fmt: skip
def test_no_gpus_in_other_text(text: str) -> None:
    assert parse.gpus(text) == ()
    assert parse.driver(text) in ("", "5")
    assert parse.peers(text, 2) == ()


def test_fields_without_an_answer_are_empty() -> None:
    (gpu,) = parse.gpus("0, NVIDIA GB10, [N/A], [N/A], [Not Supported], 0000000F:01:00.0, [N/A], 16, 5, 16, 580.1\n")
    assert gpu == Gpu(0, "NVIDIA GB10", bus="000f:01:00.0", pcie_max="gen5 x16")


def test_the_peer_matrix_with_and_without_escapes() -> None:
    found = parse.peers(read("rtx-pro-6000-x4-blocked", "p2p.txt"), 4)
    assert found == (("", "OK", "CNS", "CNS"), ("OK", "", "CNS", "CNS"), ("CNS", "CNS", "", "OK"),
                     ("CNS", "CNS", "OK", ""))  # fmt: skip
    assert parse.peers("\tGPU0\tGPU1\nGPU0\tX\tTNS\nGPU1\tTNS\tX\n", 2) == (("", "TNS"), ("TNS", ""))
    assert parse.peers(read("rtx-pro-6000-x4-blocked", "p2p.txt"), 8) == ()


def test_cpu_and_memory() -> None:
    assert parse.cpu(read("rtx-pro-6000-x4-blocked", "cpuinfo")) == "2 x AMD EPYC 9354 32-Core Processor"
    assert parse.cpu("") == ""
    total, free = parse.memory(read("rtx-pro-6000-x4-blocked", "meminfo"))
    assert (total, free) == (790000000 * 1024, 700000000 * 1024)
    assert parse.memory("") == (0, 0)


@pytest.mark.parametrize(
    ("limit", "used", "want"),
    [("max\n", "5", (100, 60)), ("", "", (100, 60)), ("80", "30", (80, 50)), ("80", "10", (80, 60)),
     ("80", "90", (80, 0)), ("200", "10", (100, 60)), ("80", "", (80, 60))],
)  # fmt: skip
def test_memory_in_a_container(limit: str, used: str, want: tuple[int, int]) -> None:
    assert parse.limited(100, 60, limit, used) == want


def test_iommu_hints() -> None:
    found = parse.iommu(read("rtx-pro-6000-x4-blocked", "cmdline"), ["DMA-FQ\n", "DMA-FQ\n", "identity\n"],
                        read("rtx-pro-6000-x4-blocked", "lspci.txt"))  # fmt: skip
    assert found == Iommu(("amd_iommu=on", "pcie_acs_override=downstream,multifunction"), 3, ("DMA-FQ", "identity"), 2)
    assert parse.iommu("ro quiet iommu=pt", [], None) == Iommu(("iommu=pt",), 0, (), None)
    assert parse.iommu("", [], "no capabilities shown without root") == Iommu()


@pytest.mark.parametrize(("number", "want"), [(22602, "2.26.2"), (22703, "2.27.3"), (2708, "2.7.8"), (21805, "2.18.5")])
def test_nccl_versions(number: int, want: str) -> None:
    assert parse.nccl(number) == want


# ---- advice ----


def whats(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(finding.level, finding.what) for finding in findings]


def test_a_machine_without_a_gpu() -> None:
    found = advice(PLAIN)
    assert whats(found) == [("harmless", "CUDA")]
    assert found[0].here == NO_DEVICE
    assert "CPU backend is all there is" in text(PLAIN, found)


def test_a_sound_machine_has_no_findings() -> None:
    assert advice(cards(2)) == ()


@pytest.mark.parametrize(
    ("machine", "want"),
    [
        (msgspec.structs.replace(PLAIN, torch=""), ("fatal", "torch")),
        (msgspec.structs.replace(cards(2), nccl="2.26.2"), ("fatal", "known-bad NCCL")),
        (msgspec.structs.replace(cards(1), nccl="2.26.2"), ("harmless", "known-bad NCCL")),
        (cards(1, pcie="gen1 x8", pcie_max="gen5 x16"), ("slow", "narrow PCIe link")),
        (msgspec.structs.replace(cards(2), peer=(("", "CNS"), ("CNS", ""))), ("slow", "no peer access")),
        (msgspec.structs.replace(cards(2), iommu=Iommu((), 40, ("DMA-FQ",))), ("slow", "IOMMU")),
        (msgspec.structs.replace(cards(2), iommu=Iommu((), 40, ("identity",), 3)), ("slow", "ACS")),
        (msgspec.structs.replace(cards(1), holders=(Holder(0, 7, "x", GIB),)), ("harmless", "memory is held")),
        (msgspec.structs.replace(PLAIN, gpus=(CARD, Gpu(1, "NVIDIA H200", "sm_90"))),
         ("slow", "devices of several kinds")),
    ],
)  # fmt: skip
def test_what_is_strange_is_said_with_a_way_out(machine: Machine, want: tuple[str, str]) -> None:
    found = advice(machine)
    assert want in whats(found)
    assert all(finding.fix or finding.what == "CUDA" for finding in found)


def test_an_idle_link_is_not_a_narrow_one() -> None:
    assert advice(cards(2, pcie="gen1 x16", pcie_max="gen5 x16")) == ()


def test_iommu_is_no_matter_with_one_device() -> None:
    machine = msgspec.structs.replace(cards(1), iommu=Iommu((), 40, ("DMA-FQ",), 3))
    assert advice(machine) == ()


# ---- a bundle against a machine ----


def test_the_machine_it_was_made_for() -> None:
    assert compare(replace(BUNDLE, ranks=1), cards(1), OFFERS) == ()
    assert compare(replace(BUNDLE, ranks=1, arch="sm_120"), cards(1, arch="sm_121"), OFFERS) == ()
    # Nothing but what this runtime does not do yet.
    assert whats(compare(BUNDLE, cards(2), OFFERS)) == [("fatal", "ranks")]


@pytest.mark.parametrize(
    ("changes", "machine", "want", "fix"),
    [
        ({}, PLAIN, ("fatal", "backend"), "ddtreec compile e --set topology=cpu"),
        ({}, cards(1), ("fatal", "devices"), "add devices, or choose a smaller engine"),
        ({"memory": 40 * GIB}, cards(1), ("fatal", "devices"), "ddtreec compile e --set topology=one"),
        ({"arch": "sm_90"}, cards(2), ("fatal", "arch"), "ddtreec compile e --set topology=two"),
        ({"arch": "sm_121"}, cards(2), ("fatal", "arch"), "ddtreec compile e --set topology=two"),
        ({"arch": "sm_90"}, cards(3, arch="sm_103"), ("fatal", "arch"), "write a topology of 3 x sm_103"),
        ({"memory": 97 * GIB}, cards(2), ("fatal", "memory"), "limits.context=2048"),
        ({}, cards(2, free=GIB), ("fatal", "memory"), "free it, or"),
        ({"shared_memory": 227 * 1024}, cards(2), ("fatal", "shared memory of a block"),
         "topology.device.shared_memory=99KiB"),
        ({"device": "NVIDIA RTX 5090"}, cards(2), ("harmless", "device"), "topology of this machine"),
        ({}, msgspec.structs.replace(cards(2), peer=(("", "NS"), ("NS", ""))), ("slow", "peer access"), "doctor"),
        ({}, msgspec.structs.replace(cards(2), nccl="2.26.2"), ("fatal", "known-bad NCCL"), "NCCL"),
        ({}, cards(2), ("fatal", "ranks"), "--rank 0 --synthetic"),
        ({"tool": "9.9"}, cards(2), ("harmless", "version"), "ddtreec compile e"),
        ({"backend": "cpu", "memory": 40 * GIB}, PLAIN, ("fatal", "memory"), "limits.context=2048"),
        ({"backend": "cpu", "memory": 31 * GIB}, PLAIN, ("slow", "memory"), "swapped"),
        ({"backend": "cpu", "memory": GIB, "ranks": 16}, PLAIN, ("slow", "cores"), "topology=cpu"),
    ],
)  # fmt: skip
def test_each_mismatch_has_its_class_and_a_way_out(
    changes: dict[str, Any], machine: Machine, want: tuple[str, str], fix: str
) -> None:
    found = compare(replace(BUNDLE, **changes), machine, OFFERS)
    finding = next((f for f in found if (f.level, f.what) == want), None)
    assert finding is not None, found
    assert fix in finding.fix
    assert finding.here and (finding.wanted or finding.what == "known-bad NCCL")
    assert [f.level for f in found] == sorted((f.level for f in found), key=("fatal", "slow", "harmless").index)


def test_more_devices_than_it_wants_are_no_matter() -> None:
    spare = (*cards(2).gpus, Gpu(2, "NVIDIA H200", "sm_90", GIB, 0))
    assert compare(replace(BUNDLE, ranks=1), msgspec.structs.replace(PLAIN, gpus=spare), OFFERS) == ()


# ---- this machine, through the probes ----


@dataclass
class Nvml(ModuleType):
    """A stand-in for nvidia-ml-py: two cards that do not reach each other."""

    broken: str = ""
    closed: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__("pynvml")
        self.NVMLError = type("NVMLError", (Exception,), {})
        self.NVML_P2P_CAPS_INDEX_READ, self.NVML_P2P_STATUS_OK = 0, 0

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlInit": None, "nvmlDeviceGetCount": 2, "nvmlSystemGetCudaDriverVersion_v2": 12080,
            "nvmlSystemGetDriverVersion": "570.1", "nvmlDeviceGetCudaComputeCapability": (12, 0),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=96 * GIB, free=90 * GIB), "nvmlDeviceGetName": b"NVIDIA X",
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId="00000000:01:00.0"), "nvmlDeviceGetP2PStatus": 1,
            "nvmlDeviceGetCurrPcieLinkGeneration": 5, "nvmlDeviceGetCurrPcieLinkWidth": 16,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5, "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=0, usedGpuMemory=None)],
        }  # fmt: skip

        def call(*arguments: object) -> Any:
            if name == self.broken:
                raise self.NVMLError(name)
            if name == "nvmlShutdown":
                self.closed.append(True)
            return arguments[0] if name == "nvmlDeviceGetHandleByIndex" else answers.get(name)

        return call


def test_what_nvml_says(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    found = probe.by_nvml()
    assert found is not None
    assert (found.source, found.driver, found.cuda) == ("NVML", "570.1", "12.8")
    assert [(g.name, g.arch, g.memory, g.free, g.pcie) for g in found.gpus] == [
        ("NVIDIA X", "sm_120", 96 * GIB, 90 * GIB, "gen5 x16")
    ] * 2
    assert found.peer == (("", "NS1"), ("NS1", ""))
    assert [h.bytes for h in found.holders] == [0, 0]
    assert nvml.closed == [True]


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetMemoryInfo"])
def test_a_broken_nvml_is_as_none(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(broken))
    assert probe.by_nvml() is None


def test_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No command, no library, no /proc: still a machine."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(probe, "by_nvml", lambda: None)
    monkeypatch.setattr(probe, "by_driver", dict)
    monkeypatch.setattr(probe, "_read", lambda path: "")
    found = probe.machine()
    assert (found.gpus, found.driver, found.memory, found.cpu) == ((), "", 0, "")
    assert NO_DEVICE in text(found, advice(found))


def test_a_command_that_hangs_or_fails_is_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "TIMEOUT_S", 0.2)
    assert probe._run("sleep", "5") == ""
    assert probe._run("false") == ""
    assert probe._run("no-such-program-here") == ""


def test_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"x" * 3_000_000)
    (tmp_path / "b.safetensors").write_bytes(b"x" * 1_000_000)
    (tmp_path / "config.json").write_bytes(b"{}")
    found = disk.measure(tmp_path)
    assert (found.files, found.bytes, found.sample) == (2, 4_000_000, 4_000_000)
    assert found.rate > 0
    monkeypatch.setattr(disk, "SAMPLE_BYTES", 1_500_000)
    assert disk.measure(tmp_path).sample == 1_500_000
    monkeypatch.setattr(disk, "SAMPLE_SECONDS", 0.0)
    monkeypatch.setattr(disk, "CHUNK", 1000)
    assert disk.measure(tmp_path).sample == 1000


@pytest.mark.parametrize("make", ["absent", "empty", "file"])
def test_a_weights_folder_that_is_none(tmp_path: Path, make: str) -> None:
    path = tmp_path / make
    if make == "empty":
        path.mkdir()
    elif make == "file":
        path.write_text("x")
    with pytest.raises(CheckpointError, match="K041") as caught:
        disk.measure(path)
    assert "--weights" in caught.value.render()


def test_the_text_of_a_whole_machine() -> None:
    gpus = parse.gpus(read("rtx-pro-6000-x4-blocked", "query.csv"))[:2]
    machine = Machine(
        tool="0.1.0", python="3.11.7", system="Linux 6.8 x86_64", cpu="2 x EPYC", cores=64, memory=754 * GIB,
        free=700 * GIB, numa=("0: cores 0-31", "1: cores 32-63"), torch="2.6.0", driver="580.95.05", cuda="13.0",
        nccl="2.26.2", source="nvidia-smi", gpus=gpus, peer=(("", "CNS"), ("OK", "")), holders=(),
        iommu=Iommu(("amd_iommu=on",), 84, ("DMA-FQ",), 2), disks=(Disk("/w", 64, 595 * 10**9, 256 * 10**6, 0.1),),
    )  # fmt: skip
    assert text(machine, advice(machine)) == (MACHINES / "doctor.txt").read_text()


def test_the_command_says_all_of_it_as_json(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(b"x" * 1000)
    result = CliRunner().invoke(main, ["doctor", "--json", "--weights", str(tmp_path)])
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert (data["schema"], data["ok"], data["bundle"], data["mismatches"]) == ("ddtreec.doctor/1", True, None, [])
    assert data["machine"]["cores"] >= 1 and data["machine"]["disks"][0]["bytes"] == 1000
    assert {"level", "what", "here"} <= set(data["findings"][0]) if data["findings"] else True


def test_doctor_of_no_bundle() -> None:
    result = CliRunner().invoke(main, ["doctor", "--bundle", "nowhere"])
    assert result.exit_code == 5
    assert result.stderr.startswith("error[B020]")
