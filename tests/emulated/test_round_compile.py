"""Which kernels a plan's rounds have, and their binaries at the sizes of large models: no byte of spills."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ddtreec import driver
from ddtreec.artifacts.kernels import StateArray
from ddtreec.artifacts.plan import Plan
from ddtreec.core.errors import SpecError
from ddtreec.emit.cuda import round_ends, round_pick, round_tree
from ddtreec.emit.cuda.base import Device, KernelDraft
from ddtreec.emit.cuda.round import round_kernels
from ddtreec.emit.cuda.round_state import Operands, Sizes, round_state, values_of_programs
from ddtreec.emit.cuda.source import header_sources, kernel_source
from ddtreec.emit.cuda.state import known_arrays
from ddtreec.plan.assemble import assemble
from ddtreec.spec.load import load_engine

nvrtc = pytest.importorskip("ddtreec.toolchain.nvrtc")
pytest.importorskip("cuda.bindings.nvrtc")
PAGES, PAGE, WIDTH, LAYERS = 513, 16, 576, 61


def drafts(block: int, nodes: int, logit: str) -> list[KernelDraft]:
    """All kernels of a round of Kimi K2.6, eight slots, with blocks and trees of this size."""
    sizes = Sizes(block, nodes, 163840, logit, logit, 43008)
    step = [
        *(StateArray(name, "int32", ("rows",)) for name in ("positions", "out_index")),
        *(StateArray(name, "int32", ("slots",)) for name in ("committed", "valid")),
        StateArray("masks", "uint32", ("rows", 4)),
        StateArray("pages", "int32", ("slots", PAGES)),
        StateArray("latent", "bfloat16", (LAYERS, 8 * PAGES * PAGE, WIDTH)),
    ]
    arrays = Operands(round_state(sizes) | values_of_programs(sizes) | {array.name: array for array in step})
    return [
        round_tree.begin_draft(sizes, 163838, arrays),
        round_tree.begin_plain(arrays),
        round_tree.top_tokens(sizes),
        round_tree.build_tree(sizes, arrays),
        *round_pick.kernels(sizes, arrays),
        round_ends.walk(sizes, (163585, 163586), arrays),
        round_ends.compact(sizes, PAGES, PAGE, arrays),
        round_ends.gather_features(sizes, arrays),
    ]


@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
@pytest.mark.parametrize(("block", "nodes", "logit"), [(8, 8, "float"), (32, 127, "ddt::bf16")])
def test_nothing_is_spilt(block: int, nodes: int, logit: str, arch: str) -> None:
    for draft in drafts(block, nodes, logit):
        text = kernel_source(draft)
        headers = header_sources([text])
        for function, used in nvrtc.compile_source(draft.name, text, headers, arch).resources.items():
            assert used.spills == 0, (draft.name, function)


def kinds(plan: Plan) -> list[str]:
    """Kernels of a plan's rounds, in order, after every array they name was found."""
    draft = round_kernels(plan, Device("sm_90", 132, 1 << 17), {})
    known = {array.name for array in draft.arrays} | set(known_arrays(plan))
    for kernel in draft.kernels:
        for stage in kernel.stages:
            assert {p.arg.removeprefix("state:") for p in stage.params if p.arg.startswith("state:")} <= known
    return [kernel.name.partition("__")[0] for kernel in draft.kernels]


def test_the_kernels_of_a_plan() -> None:
    plan = assemble(driver.planned(load_engine("tiny-k2-h200-x1")))
    ends = ["begin_plain", "pick_greedy", "pick", "walk"]
    assert kinds(plan) == ["begin_draft", "top_tokens", "build_tree", *ends, "compact", "gather_features"]
    assert kinds(replace(plan, drafter=None)) == ends


def test_a_block_without_kernel_is_refused() -> None:
    plan = assemble(driver.planned(load_engine("tiny-k2-h200-x1")))
    assert plan.drafter is not None
    with pytest.raises(SpecError, match=r"S066.*blocks of 33 tokens, CUDA kernels take 32"):
        kinds(replace(plan, drafter=replace(plan.drafter, block=33)))
