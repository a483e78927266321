"""The kernel table: sites from the plan, one kernel for equal text, sources, references, shared arrays, and step.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtreec import driver
from ddtreec.artifacts import kernels as kernel_file
from ddtreec.artifacts.kernels import Dim, KernelTable, StateArray
from ddtreec.artifacts.plan import Call, Program, Value
from ddtreec.core.errors import FitError, VerifyError
from ddtreec.emit import step
from ddtreec.emit.cuda import registry, source, table
from ddtreec.emit.cuda.base import (
    ONE,
    Device,
    Emitter,
    Entry,
    KernelDraft,
    Param,
    RoundDraft,
    Site,
    StageDraft,
)
from ddtreec.passes.state import State
from ddtreec.plan.assemble import assemble
from ddtreec.spec.load import load_engine

TINY, BIG = "tiny-k2-h200-x1", "kimi-k2.6-h200-x8"
ROWS = Dim(by=("rows",))


@cache
def planned(engine: str) -> State:
    return driver.planned(load_engine(engine))


def stage(name: str = "copy", args: tuple[str, ...] = ("t:1", "int:rows"), **changes: object) -> StageDraft:
    """A stage of one variant that takes nothing but the row count."""
    params = tuple(Param("int", f"p{i}", arg) for i, arg in enumerate(args))
    draft = StageDraft(name, "copy_rows", "rows.cuh", {"kWidth": 4}, params, (Entry(128, (ROWS, ONE, ONE), 32),))
    return replace(draft, **changes)  # type: ignore[arg-type]


def only(monkeypatch: pytest.MonkeyPatch, **emitters: Emitter) -> None:
    """A registry of these kinds alone."""
    monkeypatch.setattr(table, "LAUNCHES", emitters)


def sites_of(engine: str, kind: str) -> list[Site]:
    plan = assemble(planned(engine))
    device = table.device_of(planned(engine).loaded)
    found: list[Site] = []
    for program in plan.programs:
        make = table.site_maker(plan, program, device)
        found += [make(call) for call in program.calls if call.kernel == kind]
    return found


# ---- sites --------------------------------------------------------------------------------------------------------


def test_operands_are_numbered_and_views_have_the_stride_of_their_parent() -> None:
    site = next(s for s in sites_of(TINY, "q_b_absorb_rope") if s.call.node.startswith("L00"))
    assert [t.arg for t in (*site.outs, *site.ins, *site.weights)] == [f"t:{i}" for i in range(6)]
    q_rot, q_c = site.outs
    (q_a,) = site.ins
    assert (q_a.tail, q_a.stride, q_a.start) == ((128,), 272, 0), "columns of the merged q_a and kv_a"
    assert (q_rot.tail, q_rot.stride) == ((8, 16), 128) and (q_c.tail, q_c.stride) == ((8, 128), 1024)
    assert [w.tail for w in site.weights] == [(128,), (384, 128), (8, 32, 128)]
    assert site.device == Device("sm_90", 132, 227 * 1024)


def test_dtypes_of_operands() -> None:
    site = sites_of(TINY, "add_norm_router")[0]
    assert [t.dtype for t in site.outs] == ["compute", "compute", "int64", "float32"]
    assert [t.dtype for t in site.weights] == ["compute", "float32", "float32"]
    assert [t.dtype for t in sites_of(TINY, "take_norm_linear")[0].outs] == ["float32"], "logits"
    assert [t.dtype for t in sites_of(BIG, "take_norm_linear")[0].outs] == ["float32"], "logits of one rank"


def test_most_counts_all_sequences_of_a_step_up_to_128_rows() -> None:
    site = sites_of(TINY, "take_norm_linear")[0]
    assert site.most == {"rows": 128, "out_rows": 72, "slots": 8, "group": 128}, "8 trees of 9 rows, or a chunk"
    block = sites_of(TINY, "block_attention")[0]
    assert block.most == {"rows": 64, "out_rows": 64, "slots": 8, "group": 8}
    plan = assemble(driver.planned(load_engine(TINY, ["limits.sequences=100", "tree=ddtree-64"])))
    most = {p.name: (p.max_rows, p.max_out_rows) for p in plan.programs}
    assert most == {"target": (128, 65), "draft_context": (128, 0), "draft_block": (128, 128)}
    assert table.largest(plan)["slots"] == 100


def test_parameters_have_short_names_where_they_are_unique() -> None:
    site = sites_of(TINY, "q_b_absorb_rope")[0]
    assert dict(site.params) == {"eps": 1e-05, "table": "rope"}
    assert site.real("eps") == 1e-05 and site.word("table") == "rope"
    assert sites_of(TINY, "add_norm_router")[0].whole("groups") == 1


# ---- kernels of a table -------------------------------------------------------------------------------------------


def test_every_call_has_a_kernel_and_collectives_have_none() -> None:
    state = planned(BIG)
    found, _ = table.kernel_table(state)
    names = {kernel.name for kernel in found.kernels}
    for program in assemble(state).programs:
        for call, name in zip(program.calls, found.programs[program.name], strict=True):
            assert (name == "") == call.collective and (call.collective or name in names), call.node
    assert found.arch == "sm_90" and [k.name for k in found.kernels] == sorted(names)
    assert kernel_file.decode(kernel_file.encode(found)) == found


def test_an_unknown_launch_is_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    with pytest.raises(VerifyError, match=r"embed\.tokens: no CUDA kernel for the launch 'embedding'"):
        table.kernel_table(planned(TINY))
    found, sources = table.kernel_table(planned(TINY), kinds=())
    assert not found.kernels and not sources and set(found.programs["target"]) == {""}


def test_equal_names_are_equal_text(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = iter(range(1000))

    def same(site: Site) -> KernelDraft:
        return KernelDraft("add__x", "One text", (stage(),))

    def different(site: Site) -> KernelDraft:
        return KernelDraft("add__x", "One text", (stage(constants={"kLayer": next(layers)}),))

    only(monkeypatch, add=same, tap=same)
    found, sources = table.kernel_table(planned(TINY), kinds={"add", "tap"})
    assert [k.name for k in found.kernels] == ["add__x"]
    assert sorted(sources) == ["src/cuh/device.cuh", "src/cuh/rows.cuh", "src/kernels/add__x.cu"]
    assert found.programs["target"].count("add__x") == 4, "three taps and the last residual"
    only(monkeypatch, add=different, tap=different)
    with pytest.raises(VerifyError, match="two kernels are called 'add__x'"):
        table.kernel_table(planned(TINY), kinds={"add", "tap"})


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        (KernelDraft("a-b", "", (stage(),)), "entry points of 'a-b'"),
        (KernelDraft("ab", "", (stage(), stage())), "entry points of 'ab': copy_m128 copy_m128"),
        (KernelDraft("ab", "", (stage(entries=()),)), r"variants of stage 'copy' for \[\] rows"),
        (KernelDraft("ab", "", (stage(entries=(Entry(64, (ONE,) * 3, 32), Entry(8, (ONE,) * 3, 32))),)), r"\[64, 8\]"),
        (KernelDraft("ab", "", (stage(args=("state:nothing",)),)), "no state array 'nothing'"),
    ],
)
def test_drafts_that_cannot_be(draft: KernelDraft, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, add=lambda site: draft)
    with pytest.raises(VerifyError, match=reason):
        table.kernel_table(planned(TINY), kinds={"add"})


def test_too_much_shared_memory_names_kernel_function_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    big = stage(entries=(Entry(128, (ONE,) * 3, 32, shared=227 * 1024 + 1),))
    only(monkeypatch, add=lambda site: KernelDraft("add__x", "", (big,)))
    with pytest.raises(FitError) as caught:
        table.kernel_table(planned(TINY), kinds={"add"})
    (problem,) = caught.value.problems
    assert problem.code == "F002" and problem.loc is not None and "h200-x1.yaml" in problem.loc.file
    for word in ("copy_m128", "add__x", "232449", "NVIDIA H200", "232448"):
        assert word in problem.message, word
    assert "at least 228KiB" in problem.help


def test_the_reference_of_a_fused_launch_is_its_parts() -> None:
    found, _ = table.kernel_table(planned(TINY), kinds={"take_norm_linear", "rms_norm"})
    head = next(k for k in found.kernels if k.name.startswith("take_norm_linear")).reference
    assert [call.kernel for call in head.calls] == ["take_rows", "rms_norm", "linear"]
    assert head.tensors == ("logits", "L04.moe.y", "head.norm", "head.lm_head")
    values = {value.id: value for value in head.values}
    assert set(values) == {v for call in head.calls for v in (*call.ins, *call.outs)}
    assert values["logits"].shape == ("out_rows", 4096) and values["logits"].dtype == "float32"


def test_a_reference_holds_the_parents_of_views_before_them() -> None:
    found, _ = table.kernel_table(planned(TINY), kinds={"swiglu_linear"})
    for kernel in found.kernels:
        seen: set[str] = set()
        for value in kernel.reference.values:
            assert value.home != "alias" or value.parent in seen, value.id
            seen.add(value.id)
        assert set(kernel.reference.tensors[:3]) <= seen


def test_shared_arrays_are_those_that_kernels_name(monkeypatch: pytest.MonkeyPatch) -> None:
    args = ("state:pages", "state:latent", "state:rope_draft_rope", "state:tickets", "state:drafts")
    wide = stage(args=args, entries=(Entry(8, (Dim(3), Dim(5), ONE), 32), Entry(128, (Dim(7), ROWS, ONE), 32)))
    only(monkeypatch, add=lambda site: KernelDraft("add__x", "", (wide,)))
    monkeypatch.setattr(table, "ROUND", (lambda plan, device, most: RoundDraft((), (DRAFTS,)),))
    monkeypatch.setattr(table, "_program", only_add(table._program))
    found, _ = table.kernel_table(planned(TINY))
    room = -(-(2048 + 9 + 8) // 16)  # pages of a sequence: context, a tree, a block
    assert found.state == (
        DRAFTS,
        StateArray("latent", "bfloat16", (5, 8 * room * 16, 128 + 16)),
        StateArray("pages", "int32", ("slots", room)),
        StateArray("rope_draft_rope", "float32", (room * 16, 16, 2)),
        StateArray("tickets", "int32", (7 * 128,)),
    )


DRAFTS = StateArray("drafts", "int32", ("slots", 8))


def only_add(make: object) -> object:
    return lambda work, state, plan, program, kinds: make(work, state, plan, program, {"add"})  # type: ignore[operator]


def test_kernels_of_the_round_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = KernelDraft("walk__n9", "The walk", (stage("walk", args=("state:drafts",)),))
    monkeypatch.setattr(table, "ROUND", (lambda plan, device, most: RoundDraft((walk,), (DRAFTS,)),))
    monkeypatch.setattr(table, "_program", lambda *args: ())
    found, sources = table.kernel_table(planned(TINY))
    assert found.round == ("walk__n9",) and found.state == (DRAFTS,) and "src/kernels/walk__n9.cu" in sources


WORDS = st.lists(st.sampled_from(["n1", "n2", "k1", "k2", "p"]), max_size=4).map("_".join)


@given(st.sets(st.tuples(st.sampled_from(["a", "b_c"]), WORDS)))
def test_short_names_are_different_parts_of_whole_ones(drawn: set[tuple[str, str]]) -> None:
    names = {f"{kind}__{params}" if params else kind for kind, params in drawn}
    short = table.short_names(names)
    assert set(short) == names and len(set(short.values())) == len(names)
    for name, few in short.items():
        (kind, _, params), (same, _, kept) = name.partition("__"), few.partition("__")
        assert kind == same and kept.split("_")[0] == params.split("_")[0]
        rest = iter(params.split("_"))
        assert all(word in rest for word in kept.split("_")), "in order"


def test_a_lone_kernel_keeps_its_first_parameter() -> None:
    assert table.short_names(["a__n1_k2", "b", "c__n1_k2_s", "c__n1_k3_s"]) == {
        "a__n1_k2": "a__n1", "b": "b", "c__n1_k2_s": "c__n1_k2", "c__n1_k3_s": "c__n1_k3",
    }  # fmt: skip


# ---- sources ------------------------------------------------------------------------------------------------------

TWO = KernelDraft(
    "norm_copy__n64",
    "Normalises rows of 64 elements and copies what is asked for, in two launches that hand over through device memory",
    (
        stage("norm", constants={"kNorm": 64, "kEps": 1e-5, "kWide": True, "Element": "float"}),
        StageDraft(
            name="copy_rows",
            body="copy_rows",
            include="device.cuh",
            constants={"kStride": 64},
            params=tuple(Param("const ddt::bf16*", f"operand_{i}", f"t:{i}") for i in range(4)),
            entries=(
                Entry(8, (ONE, ONE, ONE), 128, blocks=4, constants={"kTile": 8}),
                Entry(128, (ONE, ONE, ONE), 256, constants={"kTile": 16}),
            ),
        ),
    ),
)

PRINTED = """\
// norm_copy__n64, printed from kernels/kernel.cu.j2.
// Normalises rows of 64 elements and copies what is asked for, in two launches that hand over
// through device memory
#include "device.cuh"
#include "rows.cuh"

struct Norm {
  static constexpr int kNorm = 64;
  static constexpr float kEps = 1e-05f;
  static constexpr bool kWide = true;
  using Element = float;
};

extern "C" __global__ void __launch_bounds__(32, 1)
norm_m128(int p0, int p1) {
  ddt::copy_rows<Norm>(p0, p1);
}

struct CopyRows {
  static constexpr int kStride = 64;
};

struct CopyRowsM8 : CopyRows {
  static constexpr int kTile = 8;
};

struct CopyRowsM128 : CopyRows {
  static constexpr int kTile = 16;
};

extern "C" __global__ void __launch_bounds__(128, 4)
copy_rows_m8(const ddt::bf16* operand_0, const ddt::bf16* operand_1, const ddt::bf16* operand_2,
             const ddt::bf16* operand_3) {
  ddt::copy_rows<CopyRowsM8>(operand_0, operand_1, operand_2, operand_3);
}

extern "C" __global__ void __launch_bounds__(256, 1)
copy_rows_m128(const ddt::bf16* operand_0, const ddt::bf16* operand_1, const ddt::bf16* operand_2,
               const ddt::bf16* operand_3) {
  ddt::copy_rows<CopyRowsM128>(operand_0, operand_1, operand_2, operand_3);
}
"""


def test_a_kernel_reads_as_if_written_by_hand() -> None:
    assert source.kernel_source(TWO) == PRINTED


def test_headers_come_with_those_that_they_include() -> None:
    found = source.header_sources(['#include "rows.cuh"\n'])
    assert list(found) == ["device.cuh", "rows.cuh"] and all("#pragma once" in text for text in found.values())


@pytest.mark.parametrize("engine", [TINY, BIG])
def test_printed_kernels_keep_to_the_page(engine: str) -> None:
    _, sources = table.kernel_table(planned(engine))
    for path, text in sources.items():
        if path.endswith(".cu"):
            assert max(map(len, text.splitlines())) <= source.WIDTH, path
            assert "\n\n\n" not in text and not re.search(r"[ \t]\n", text) and text.endswith("}\n"), path
            assert len(Path(path).name) <= 255, path


# ---- the step program ---------------------------------------------------------------------------------------------

CALLS = (
    Call("L03.append", "append", (), ("L03.x",), ("L03.norm",), {"eps": 1e-05, "layer": 3}),
    Call("L03.experts", "experts", ("L03.y",), ("L03.x",), (), {"first_per": 48, "coord": "ep", "scale": 2.0}),
    Call("L03.sum", "all_reduce", ("L03.z",), ("L03.y",), (), {}, True),
)
VALUES = tuple(Value(f"L03.{name}", ("rows", 16)) for name in "xyz")


def stepping(args: Mapping[str, tuple[str, ...]]) -> list[str]:
    drafts = [KernelDraft(f"{kind}__k", "", (stage(args=more),)) for kind, more in args.items()]
    kernels = KernelTable(1, "sm_90", tuple(d.kernel() for d in drafts), {"target": (*(f"{k}__k" for k in args), "")})
    return list(step.program_lines(Program("target", 8, 5, 64, VALUES, CALLS), kernels))


def test_the_step_program_names_kernels_and_passes_what_stages_ask_for() -> None:
    assert stepping({"append": ("t:0", "param:layer"), "experts": ("param:first", "t:0", "param:first")}) == [
        "# L03.append",
        "k.append__k(state, b.L03_x, w.L03_norm, layer=3)",
        "# L03.experts",
        'k.experts__k(state, b.L03_y, b.L03_x, first=state.first("ep", 48))',
        "# L03.sum",
        'yield ("all_reduce", (b.L03_z,), (b.L03_y,), {})',
    ]


def test_a_parameter_that_the_call_lacks_is_our_fault() -> None:
    with pytest.raises(VerifyError, match=r"'append__k' asks for 'first', the call has \['eps', 'layer'\]"):
        stepping({"append": ("param:first",), "experts": ()})


def test_the_registry_names_no_kind_twice_and_only_what_launches_are_called() -> None:
    from ddtreec.ops import KINDS
    from ddtreec.passes.fuse import PATTERNS

    assert set(registry.LAUNCHES) <= {*KINDS, *(name for name, _ in PATTERNS)}


def test_one_rank_of_many_has_the_kernels_of_all() -> None:
    """Several ranks run one text: what differs is a parameter."""
    found, _ = table.kernel_table(planned(BIG), kinds={"embedding"})
    asked = {arg for k in found.kernels for s in k.stages for arg in s.args if arg.startswith("param:")}
    assert asked == {"param:first"}
    plan = assemble(planned(BIG))
    lines = " ".join(line.strip() for line in step.program_lines(plan.programs[0], found))
    assert 'first=state.first("rank", 20480))' in lines
