"""Kernels that end a round: the walk, the accepted latents, the drafter's next context."""

from __future__ import annotations

from collections.abc import Sequence

from ddtreec.artifacts.kernels import Dim
from ddtreec.artifacts.plan import Plan
from ddtreec.artifacts.record import RING
from ddtreec.emit.cuda.base import MOST_ROWS, ONE, Entry, KernelDraft, StageDraft
from ddtreec.emit.cuda.round_state import SLOTS, WARP, Operands, Sizes, whole
from ddtreec.emit.cuda.state import room_of

PIECES = 4
"""Pieces of a row of features that one thread copies."""

TYPES = {16: "uint4", 8: "uint2", 4: "ddt::u32", 2: "ddt::bf16"}


def kernels(plan: Plan, sizes: Sizes, arrays: Operands) -> tuple[KernelDraft, ...]:
    """walk, and with a drafter compact and gather_features."""
    found = walk(sizes, plan.model.eos, arrays)
    if not sizes.nodes:
        return (found,)
    return found, compact(sizes, room_of(plan).pages, plan.limits.page, arrays), gather_features(sizes, arrays)


def piece(width: int) -> int:
    """Bytes of the widest access that divides a row of `width` bfloat16."""
    return next(size for size in TYPES if 2 * width % size == 0)


def walk(sizes: Sizes, eos: Sequence[int], arrays: Operands) -> KernelDraft:
    """The accepted path, what it commits, and the record of the round."""
    stops = [str(token) for token in eos]
    record = sizes.record
    stage = StageDraft(
        name="walk",
        body="walk",
        include="walk.cuh",
        constants={
            "kBlock": sizes.block,
            "kNodes": sizes.nodes,
            "kRing": RING,
            "kRecord": record.words,
            "kCommitted": record.committed,
            "kAccepted": record.accepted,
            "kLists": record.lists,
            "kScores": record.scores,
            "Stops": f"ddt::Tokens<{', '.join(stops)}>",
        },
        params=(
            *arrays.reads("tokens", "nodes", "parents", "ranks", "scores", "picks", "temperature", "limit", "room"),
            *arrays.reads("heed_stops"),
            *arrays.writes("length", "anchor", "produced", "status", "rounds", "accepted", "accepted_count", "ring"),
            whole("group"),
        ),
        entries=(Entry(MOST_ROWS, (SLOTS, ONE, ONE), WARP),),
    )
    name = "_".join([f"walk__n{sizes.nodes}_b{sizes.block}", *(f"e{token}" for token in stops)])
    return KernelDraft(name, f"The accepted path of every slot in a tree of up to {sizes.nodes} nodes", (stage,))


def compact(sizes: Sizes, pages: int, page: int, arrays: Operands) -> KernelDraft:
    """Accepted latents to their place. `pages` of a slot, of `page` tokens each."""
    layers, tokens, width = (int(n) for n in arrays.arrays["latent"].shape)
    size = piece(width)
    stage = StageDraft(
        name="compact",
        body="compact",
        include="walk.cuh",
        constants={
            "kBlock": sizes.block,
            "kWidth": width,
            "kPage": page,
            "kPagesPerSlot": pages,
            "kTokens": tokens,
            "Piece": TYPES[size],
        },
        params=(
            *arrays.writes("latent"),
            *arrays.reads("pages", "committed", "accepted", "accepted_count"),
        ),
        entries=(Entry(MOST_ROWS, (Dim(layers), SLOTS, ONE), threads(2 * width // size)),),
    )
    name = f"compact__w{width}_l{layers}_b{sizes.block}_p{page}_s{pages}_t{tokens}"
    return KernelDraft(name, f"Accepted latents of {layers} layers to their place behind the committed ones", (stage,))


def gather_features(sizes: Sizes, arrays: Operands) -> KernelDraft:
    """The accepted rows of features for the drafter's context."""
    size = piece(sizes.features)
    columns = 2 * sizes.features // size
    count = min(256, threads(columns))
    stage = StageDraft(
        name="gather_features",
        body="gather_features",
        include="walk.cuh",
        constants={"kBlock": sizes.block, "kWidth": sizes.features, "kPieces": PIECES, "Piece": TYPES[size]},
        params=(
            *arrays.reads("features", "accepted", "accepted_count"),
            *arrays.writes("context_features", "positions"),
            *arrays.reads("committed"),
            *arrays.writes("valid"),
            whole("group"),
        ),
        entries=(Entry(MOST_ROWS, (Dim(sizes.block), SLOTS, Dim(-(-columns // (count * PIECES)))), count),),
    )
    name = f"gather_features__w{sizes.features}_b{sizes.block}"
    return KernelDraft(
        name, f"Features of the accepted rows, {sizes.features} each, for the drafter's context", (stage,)
    )


def threads(columns: int) -> int:
    """Whole warps for so many columns, at most 512 threads."""
    return min(512, -(-columns // WARP) * WARP)
