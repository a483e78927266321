"""Kernels that choose the target's token after every row."""

from __future__ import annotations

from ddtreec.artifacts.kernels import Dim, Scratch
from ddtreec.emit.cuda.base import MOST_ROWS, ONE, Constant, Entry, KernelDraft, Param, StageDraft
from ddtreec.emit.cuda.round_state import CHUNK, ROWS, WARP, Operands, Sizes, label, whole

PICK_THREADS, CUT_THREADS = 256, 512
"""kPickThreads and kCutThreads of cuh/pick.cuh."""

LAW = ("temperature", "top_p", "top_k")


def kernels(sizes: Sizes, arrays: Operands) -> tuple[KernelDraft, ...]:
    """pick_greedy for rounds of greedy slots only, pick for all others."""
    return pick_greedy(sizes, arrays), pick(sizes, arrays)


def scratch(kind: str, name: str) -> Param:
    """A parameter that points into the scratch."""
    return Param(kind, name, f"scratch:{name}")


def peaks(sizes: Sizes, arrays: Operands) -> StageDraft:
    """Best key of every chunk of every row."""
    return StageDraft(
        name="peaks",
        body="peaks",
        include="pick.cuh",
        constants=constants(sizes),
        params=(*arrays.reads("logits", "valid"), scratch("ddt::u64*", "best"), whole("group")),
        entries=(Entry(MOST_ROWS, (Dim(chunks(sizes)), ROWS, ONE), PICK_THREADS),),
    )


def chunks(sizes: Sizes) -> int:
    """Chunks of a row of logits."""
    return -(-sizes.vocab // CHUNK)


def constants(sizes: Sizes) -> dict[str, Constant]:
    """Constants of all stages."""
    return {"kVocab": sizes.vocab, "kChunk": CHUNK, "kChunks": chunks(sizes), "Logit": sizes.logit}


def pick_greedy(sizes: Sizes, arrays: Operands) -> KernelDraft:
    """The most probable token of every row."""
    best = StageDraft(
        name="best_token",
        body="best_token",
        include="pick.cuh",
        constants=constants(sizes),
        params=(
            scratch("const ddt::u64*", "best"),
            *arrays.reads("valid"),
            *arrays.writes("picks"),
            whole("group"),
            whole("rows"),
        ),
        entries=(Entry(MOST_ROWS, (Dim(1, ("rows",), PICK_THREADS // WARP), ONE, ONE), PICK_THREADS),),
    )
    return KernelDraft(
        f"pick_greedy__v{sizes.vocab}_{label(sizes.logit)}",
        f"The most probable of {sizes.vocab} tokens after every row",
        (peaks(sizes, arrays), best),
        (Scratch("best", Dim(chunks(sizes) * 8, ("rows",))),),
    )


def pick(sizes: Sizes, arrays: Operands) -> KernelDraft:
    """A draw for every row, or its most probable token where the temperature is 0."""
    chunk_grid, row_grid = (Dim(chunks(sizes)), ROWS, ONE), (ROWS, ONE, ONE)
    best = scratch("const ddt::u64*", "best")

    def mass(name: str, after_cut: bool) -> StageDraft:
        return StageDraft(
            name=name,
            body="mass",
            include="pick.cuh",
            constants=constants(sizes) | {"kAfterCut": after_cut},
            params=(
                *arrays.reads("logits", "valid", *LAW),
                best,
                scratch("const ddt::u64*", "least"),
                scratch("double*", "masses"),
                whole("group"),
            ),
            entries=(Entry(MOST_ROWS, chunk_grid, PICK_THREADS),),
        )

    cut = StageDraft(
        name="cut",
        body="cut",
        include="pick.cuh",
        constants=constants(sizes),
        params=(
            *arrays.reads("logits", "valid", *LAW),
            best,
            scratch("const double*", "masses"),
            scratch("ddt::u64*", "least"),
            whole("group"),
        ),
        entries=(Entry(MOST_ROWS, row_grid, CUT_THREADS),),
    )
    draw = StageDraft(
        name="draw",
        body="draw",
        include="pick.cuh",
        constants=constants(sizes),
        params=(
            *arrays.reads("logits", "valid", "positions", *LAW, "seed", "request"),
            best,
            scratch("const double*", "masses"),
            scratch("const ddt::u64*", "least"),
            *arrays.writes("picks"),
            whole("group"),
        ),
        entries=(Entry(MOST_ROWS, row_grid, PICK_THREADS),),
    )
    return KernelDraft(
        f"pick__v{sizes.vocab}_{label(sizes.logit)}",
        f"The token after every row, of {sizes.vocab}: drawn, or the most probable where the temperature is 0",
        (peaks(sizes, arrays), mass("mass", False), cut, mass("mass_kept", True), draw),
        (
            Scratch("best", Dim(chunks(sizes) * 8, ("rows",))),
            Scratch("masses", Dim(chunks(sizes) * 8, ("rows",))),
            Scratch("least", Dim(8, ("rows",))),
        ),
    )
