"""The round's kernels at the sizes of large models: binaries for both generations, without a byte of spills."""

from __future__ import annotations

import pytest

from ddtreec.artifacts.kernels import StateArray
from ddtreec.emit.cuda import round_ends, round_pick, round_tree
from ddtreec.emit.cuda.base import KernelDraft
from ddtreec.emit.cuda.round_state import Operands, Sizes, round_state, values_of_programs
from ddtreec.emit.cuda.source import header_sources, kernel_source

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
