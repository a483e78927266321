"""NVRTC: binaries and what they take, refusals with numbers, hand-edited kernels, and what happens without NVRTC."""

from __future__ import annotations

import importlib
import json
from functools import cache
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from click.testing import CliRunner

from ddtreec import driver
from ddtreec.artifacts import kernels as kernel_file
from ddtreec.artifacts.kernels import KernelTable, Resources
from ddtreec.cli.main import main
from ddtreec.core.errors import BundleError, Problem, VerifyError
from ddtreec.emit.cuda import table as tables
from ddtreec.spec.load import load_engine
from ddtreec.toolchain import binaries, nvrtc
from ddtreec.toolchain.bundle import read_manifest
from ddtreec.toolchain.inspect import read_bundle

TINY = "tiny-k2-h200-x1"
KINDS = ("rms_norm", "tap")
LIMIT = 227 * 1024

try:
    nvrtc.version()
    REASON = ""
except BundleError as error:
    REASON = str(error)

compiling = pytest.mark.skipif(bool(REASON), reason=REASON)


@cache
def small() -> tuple[KernelTable, dict[str, str]]:
    """The row kernels of the tiny engine: quick to compile."""
    return tables.kernel_table(driver.planned(load_engine(TINY)), KINDS)


def edited(**texts: str) -> tuple[KernelTable, dict[str, str], str]:
    """The table, its sources and the path of its first kernel, with parts of that kernel replaced."""
    table, sources = small()
    path = kernel_file.source_path(table.kernels[0].name)
    text = sources[path]
    for old, new in texts.items():
        assert old in text
        text = text.replace(old, new)
    return table, {**sources, path: text}, path


def problem_of(caught: pytest.ExceptionInfo[BundleError]) -> Problem:
    (problem,) = caught.value.problems
    return problem


@compiling
@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
def test_every_entry_point_is_there_with_what_it_takes(arch: str) -> None:
    table, sources = small()
    table = msgspec.structs.replace(table, arch=arch)
    seen: list[tuple[int, int, str]] = []
    built, cubins = binaries.build(table, sources, LIMIT, progress=lambda *at: seen.append(at))
    assert sorted(cubins) == [f"bin/{kernel.name}.{arch}.cubin" for kernel in table.kernels]
    assert all(data[:4] == b"\x7fELF" for data in cubins.values())
    wanted = {f"{k.name}:{v.function}" for k in table.kernels for s in k.stages for v in s.variants}
    assert set(built.resources) == wanted and built.compiler.startswith("NVRTC 13.")
    norm = next(taken for name, taken in built.resources.items() if name.startswith("rms_norm"))
    assert 0 < norm.registers < 256 and norm.shared == 128 and norm.spills == 0
    assert [at[0] for at in seen] == [*range(len(table.kernels)), len(table.kernels)]
    assert binaries.build(table, sources, LIMIT) == (built, cubins), "the same twice"


def test_the_report_of_the_assembler() -> None:
    log = (
        "ptxas info    : 24 bytes gmem\n"
        "ptxas info    : Compiling entry function 'copy_m8' for 'sm_90'\n"
        "ptxas         .     96 bytes stack frame, 60 bytes spill stores, 40 bytes spill loads\n"
        "ptxas info    : Used 128 registers, used 1 barriers, 2048 bytes smem\n"
        "ptxas info    : Compiling entry function 'copy_m128' for 'sm_90'\n"
        "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 26 registers, used 0 barriers\n"
    )
    assert nvrtc.resources(log) == {"copy_m8": Resources(128, 2048, 100), "copy_m128": Resources(26, 0, 0)}
    with pytest.raises(BundleError, match=r"B032.*report of copy_m8 cannot be read"):
        nvrtc.resources(log.replace("Used 128", "Uses 128"))


def test_spills_and_shared_memory_are_told_with_kernel_entry_point_and_numbers() -> None:
    table, _ = small()
    kernel = table.kernels[0]
    (variant,) = kernel.stages[0].variants
    function = variant.function
    assert binaries.problems_of(kernel, {function: Resources(255, LIMIT, 0)}, LIMIT) == []
    spill, shared = binaries.problems_of(kernel, {function: Resources(255, LIMIT + 1, 16)}, LIMIT)
    assert spill.code == shared.code == "B032" and spill.help and shared.help
    for text in (spill.message, shared.message):
        assert kernel.name in text and function in text
    assert "16 bytes" in spill.message and "255 registers" in spill.message
    assert f"{LIMIT + 1} bytes static and 0 bytes dynamic" in shared.message and "227.0 KiB" in shared.message
    stage = msgspec.structs.replace(kernel.stages[0], variants=(msgspec.structs.replace(variant, shared=1024),))
    kernel = msgspec.structs.replace(kernel, stages=(stage,))
    assert binaries.problems_of(kernel, {function: Resources(8, LIMIT - 1024, 0)}, LIMIT) == []
    (both,) = binaries.problems_of(kernel, {function: Resources(8, LIMIT - 1023, 0)}, LIMIT)
    assert "1024 bytes dynamic" in both.message


@compiling
def test_a_kernel_that_spills_is_refused() -> None:
    body = (
        "int v[256];\n#pragma unroll\n"
        "  for (int i = 0; i < 256; ++i) v[i] = threadIdx.x * i ^ *(const volatile int*)w;\n"
        "#pragma unroll\n"
        "  for (int i = 255; i >= 0; --i) ((volatile int*)y)[i * blockDim.x] = v[i] + v[(i * 7) % 256];\n"
    )
    table, sources, path = edited(**{"ddt::rms_norm<": body + "  ddt::rms_norm<"})
    with pytest.raises(BundleError, match=r"B032.*spilled \(\d+ registers a thread\)"):
        binaries.build(table, sources, LIMIT, (path,))


@compiling
def test_a_kernel_that_does_not_compile_names_file_and_line() -> None:
    table, sources, path = edited(**{"ddt::rms_norm<": "ddt::no_norm<"})
    with pytest.raises(BundleError) as caught:
        binaries.build(table, sources, LIMIT, (path,))
    problem = problem_of(caught)
    line = 1 + sources[path][: sources[path].index("no_norm")].count("\n")
    assert problem.code == "B031" and f"{Path(path).name}({line})" in problem.message and "no_norm" in problem.message


@compiling
def test_a_lost_entry_point_is_the_editor_s_fault_or_ours() -> None:
    table, sources, path = edited(**{"\nrms_norm_m128(": "\nmy_norm("})
    with pytest.raises(BundleError) as caught:
        binaries.build(table, sources, LIMIT, (path,))
    assert problem_of(caught).code == "B033" and "rms_norm_m128" in problem_of(caught).help
    with pytest.raises(VerifyError, match="no entry point 'rms_norm_m128'"):
        binaries.build(table, sources, LIMIT)


@compiling
def test_an_arch_that_nvrtc_does_not_know() -> None:
    table, sources = small()
    with pytest.raises(BundleError, match=r"(?s)B031.*sm_999.*this NVRTC does not know sm_999"):
        binaries.build(msgspec.structs.replace(table, arch="sm_999"), sources, LIMIT)


@pytest.mark.parametrize("fault", [ModuleNotFoundError("No module named 'cuda'"), RuntimeError("no libnvrtc.so.13")])
def test_without_nvrtc_a_person_learns_what_to_install(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ModuleType:
        raise fault

    monkeypatch.setattr(importlib, "import_module", missing)
    table, sources = small()
    with pytest.raises(BundleError) as caught:
        binaries.build(table, sources, LIMIT)
    problem = problem_of(caught)
    assert problem.code == "B030" and str(fault) in problem.message
    assert "pip install 'ddtreec[cuda]'" in problem.help and "--to src" in problem.help


# ---- --override ---------------------------------------------------------------------------------------------------


def test_files_of_the_same_name_replace_kernels_and_headers(tmp_path: Path) -> None:
    table, sources = small()
    path = kernel_file.source_path(table.kernels[0].name)
    (tmp_path / Path(path).name).write_text("// mine\n")
    (tmp_path / "rows.cuh").write_text("// mine too\n")
    (tmp_path / "notes.txt").write_text("not read")
    found, taken = binaries.with_overrides(sources, tmp_path)
    assert taken == ("src/cuh/rows.cuh", path)
    assert found[path] == "// mine\n" and found["src/cuh/device.cuh"] == sources["src/cuh/device.cuh"]


def test_a_file_that_replaces_nothing(tmp_path: Path) -> None:
    table, sources = small()
    (tmp_path / f"{table.kernels[0].name[:-1]}.cu").write_text("")
    with pytest.raises(BundleError) as caught:
        binaries.with_overrides(sources, tmp_path)
    assert problem_of(caught).code == "B033" and f"did you mean {table.kernels[0].name}.cu?" in problem_of(caught).help


def test_a_folder_without_kernels_and_one_that_is_not_there(tmp_path: Path) -> None:
    _, sources = small()
    with pytest.raises(BundleError, match=r"B033.*holds no \.cu"):
        binaries.with_overrides(sources, tmp_path)
    with pytest.raises(BundleError, match=r"B033.*cannot be read: No such file"):
        binaries.with_overrides(sources, tmp_path / "missing")
    (tmp_path / "rows.cuh").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(BundleError, match=r"B033.*rows\.cuh: cannot be read: it is not UTF-8 text"):
        binaries.with_overrides(sources, tmp_path)
    (tmp_path / "rows.cuh").unlink()
    (tmp_path / "rows.cuh").mkdir()
    with pytest.raises(BundleError, match=r"B033.*rows\.cuh: cannot be read: Is a directory"):
        binaries.with_overrides(sources, tmp_path)


@pytest.mark.parametrize(("engine", "to"), [("tiny-k2-cpu", "bundle"), (TINY, "plan")])
def test_where_there_is_nothing_to_override(engine: str, to: str, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="B033"):
        driver.compile_engine(engine, to=driver.stage(to), out=tmp_path / "o", override=tmp_path)
    assert not (tmp_path / "o").exists()


@compiling
def test_a_bundle_with_an_edited_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: the manifest and `inspect` name the file, the bundle holds it, its binary is another."""
    whole = tables.kernel_table
    monkeypatch.setattr(tables, "kernel_table", lambda state: whole(state, KINDS))
    plain = driver.compile_engine(TINY, out=tmp_path / "plain").files
    path = next(path for path in plain if "kernels/rms_norm" in path)
    edits = tmp_path / "edits"
    edits.mkdir()
    text = plain[path].decode().replace("__launch_bounds__(32, 1)", "__launch_bounds__(32, 2)")
    assert text != plain[path].decode()
    (edits / Path(path).name).write_text(text)
    done = driver.compile_engine(TINY, out=tmp_path / "edited", override=edits)
    assert done.out is not None and (done.out / path).read_text() == text
    assert read_manifest(done.out).edited == (path,) and read_manifest(tmp_path / "plain").edited == ()
    assert {p for p in plain if plain[p] != done.files[p]} <= {path, next(p for p in plain if "bin/rms_norm" in p)}
    found = read_bundle(done.out)
    assert found.whole and found.kernels is not None and len(found.kernels.resources) == 2
    shown = CliRunner().invoke(main, ["inspect", str(done.out)], prog_name="ddtreec").stdout
    assert f"edited by hand: {path}" in shown and "kernels for sm_90 by NVRTC 13." in shown
    assert "launches of a step, collectives not counted: target 3, draft_context 1, draft_block 0" in shown
    data = json.loads(CliRunner().invoke(main, ["inspect", str(done.out), "--json"], prog_name="ddtreec").stdout)
    assert [k["calls"] for k in data["kernels"]] == [{"draft_context": 1}, {"target": 3}]
    (entry,) = data["kernels"][0]["stages"][0]["entries"]
    taken = found.kernels.resources[f"{data['kernels'][0]['name']}:{entry['function']}"]
    assert (entry["registers"], entry["shared"], entry["spills"]) == (taken.registers, taken.shared, 0)
    line = next(line for line in shown.splitlines() if line.strip().startswith(entry["function"]))
    assert line.split() == [str(entry[k]) for k in ("function", "rows", "threads", "registers", "shared", "spills")]
    assert {p["name"]: p["launches"] for p in data["programs"]} == {"target": 3, "draft_context": 1, "draft_block": 0}
