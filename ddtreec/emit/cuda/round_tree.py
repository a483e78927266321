"""Kernels that begin the steps of a round: the drafter's block, its best tokens, the tree, or one plain row a slot."""

from __future__ import annotations

from ddtreec.artifacts.kernels import Dim, Scratch
from ddtreec.artifacts.plan import Plan
from ddtreec.emit.cuda.base import MOST_ROWS, ONE, Entry, KernelDraft, Param, StageDraft
from ddtreec.emit.cuda.round_state import CHUNK, SLOTS, WARP, Operands, Sizes, label, whole

TOP_THREADS, TREE_THREADS = 256, 128
"""kTopThreads of cuh/top_tokens.cuh, kTreeThreads of cuh/tree.cuh."""

STEP = ("tokens", "positions", "committed", "valid")
TREE = ("nodes", "parents", "ranks", "scores")


def kernels(plan: Plan, sizes: Sizes, arrays: Operands) -> tuple[KernelDraft, ...]:
    """begin_plain, and with a drafter begin_draft, top_tokens and build_tree."""
    plain = begin_plain(arrays)
    if plan.drafter is None:
        return (plain,)
    return begin_draft(sizes, plan.drafter.mask_token, arrays), top_tokens(sizes), build_tree(sizes, arrays), plain


def begin_draft(sizes: Sizes, mask_token: int, arrays: Operands) -> KernelDraft:
    """The rows of the drafter's block."""
    stage = StageDraft(
        name="begin_draft",
        body="begin_draft",
        include="tree.cuh",
        constants={"kBlock": sizes.block, "kMaskToken": mask_token},
        params=(*arrays.reads("status", "length", "anchor"), *arrays.writes(*STEP, "out_index")),
        entries=(Entry(MOST_ROWS, (SLOTS, ONE, ONE), WARP),),
    )
    name = f"begin_draft__b{sizes.block}_m{mask_token}"
    return KernelDraft(
        name, f"A draft block of {sizes.block} rows for every slot: its anchor, then mask tokens", (stage,)
    )


def begin_plain(arrays: Operands) -> KernelDraft:
    """One row a slot."""
    stage = StageDraft(
        name="begin_plain",
        body="begin_plain",
        include="tree.cuh",
        constants={},
        params=(
            *arrays.reads("status", "length", "anchor"),
            *arrays.writes(*STEP, "masks", "out_index", *TREE),
            whole("slots"),
        ),
        entries=(Entry(MOST_ROWS, (ONE, ONE, ONE), MOST_ROWS),),
    )
    return KernelDraft("begin_plain", "One row for every slot: its anchor", (stage,))


def top_tokens(sizes: Sizes) -> KernelDraft:
    """The best tokens of every draft row."""
    chunks = -(-sizes.vocab // CHUNK)
    rows = Dim(sizes.block - 1, ("slots",))
    constants = {
        "kVocab": sizes.vocab,
        "kTop": sizes.top,
        "kChunk": CHUNK,
        "kChunks": chunks,
        "Logit": sizes.draft_logit,
    }
    scratch = (
        Param("ddt::u64*", "best", "scratch:best"),
        Param("float2*", "mass", "scratch:mass"),
    )
    chunk = StageDraft(
        name="chunk_top",
        body="chunk_top",
        include="top_tokens.cuh",
        constants=constants,
        params=(Param(f"const {sizes.draft_logit}*", "logits", "state:draft_logits"), *scratch),
        entries=(Entry(MOST_ROWS, (Dim(chunks), rows, ONE), TOP_THREADS),),
    )
    row = StageDraft(
        name="row_top",
        body="row_top",
        include="top_tokens.cuh",
        constants=constants,
        params=(
            Param("const ddt::u64*", "best", "scratch:best"),
            Param("const float2*", "mass", "scratch:mass"),
            Param("float*", "top_logprobs", "state:top_logprobs"),
            Param("int*", "top_tokens", "state:top_tokens"),
        ),
        entries=(Entry(MOST_ROWS, (rows, ONE, ONE), TOP_THREADS),),
    )
    lists = (sizes.block - 1) * chunks
    return KernelDraft(
        f"top_tokens__v{sizes.vocab}_k{sizes.top}_b{sizes.block}_{label(sizes.draft_logit)}",
        f"The best {sizes.top} of {sizes.vocab} tokens of every draft row, with log-probs",
        (chunk, row),
        (
            Scratch("best", Dim(lists * sizes.top * 8, ("slots",))),
            Scratch("mass", Dim(lists * 8, ("slots",))),
        ),
    )


def build_tree(sizes: Sizes, arrays: Operands) -> KernelDraft:
    """The best tree of every slot and the target's step for it."""
    rows, nodes = sizes.block - 1, sizes.nodes
    stage = StageDraft(
        name="build_tree",
        body="build_tree",
        include="tree.cuh",
        constants={
            "kRows": rows,
            "kTop": sizes.top,
            "kNodes": nodes,
            "kLevels": min(rows, nodes),
            "kRankBits": sizes.top.bit_length(),
        },
        params=(
            *arrays.reads("top_logprobs", "top_tokens", "round_cost", "status", "mode", "budget", "limit", "produced"),
            *arrays.reads("room", "length", "anchor"),
            *arrays.writes(*STEP, "masks", "out_index", *TREE, "broken_drafts"),
            whole("group"),
        ),
        entries=(Entry(MOST_ROWS, (SLOTS, ONE, ONE), TREE_THREADS),),
    )
    name = f"build_tree__n{nodes}_l{rows}_k{sizes.top}"
    return KernelDraft(name, f"The best tree of up to {nodes} nodes over {rows} draft rows of every slot", (stage,))
