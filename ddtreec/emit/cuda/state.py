"""The device arrays that kernels of several calls share: 'state:NAME' in the args of a stage."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ddtreec.artifacts.kernels import Kernel, StateArray
from ddtreec.artifacts.plan import Plan
from ddtreec.core.errors import VerifyError
from ddtreec.passes.fit import Room, context_tokens

PREFIX = "state:"

TICKETS = "tickets"
"""Zeros that blocks of one launch count each other with; zero again when the launch has ended."""


def context_layers(plan: Plan, room: Room) -> tuple[tuple[int, int], ...]:
    """By drafter layer: (offset in elements into the array 'context', tokens of one slot). A layer is
    [slots][tokens][2][kv_heads][head_dim], layers lie one after the other."""
    found: list[tuple[int, int]] = []
    offset = 0
    for cache in plan.caches:
        if cache.kind == "context":
            tokens = context_tokens(cache, room)
            found.append((offset, tokens))
            offset += plan.limits.sequences * tokens * 2 * cache.heads * cache.head_dim
    return tuple(found)


def room_of(plan: Plan) -> Room:
    """What sets the size of the caches, as the memory pass has it."""
    limits, block = plan.limits, plan.drafter.block if plan.drafter else 0
    rows = plan.tree.budget + 1
    return Room(limits.context, limits.sequences, limits.page, rows, block, max(limits.chunk, block))


def known_arrays(plan: Plan) -> dict[str, StateArray]:
    """All arrays that calls of a program can name. `rope_*` hold amplitude * (cos, sin) by position and pair."""
    room = room_of(plan)
    arrays = [
        StateArray("positions", "int32", ("rows",)),
        StateArray("committed", "int32", ("slots",)),
        StateArray("valid", "int32", ("slots",)),
        StateArray("masks", "uint32", ("rows", 4)),
        StateArray("pages", "int32", ("slots", room.pages)),
        StateArray("out_index", "int32", ("out_rows",)),
    ]
    for name, rope in plan.ropes.items():
        shape = (room.pages * room.page, rope.dim // 2, 2)
        arrays.append(StateArray(f"rope_{name.replace('.', '_')}", "float32", shape))
    latent = [cache for cache in plan.caches if cache.kind == "latent"]
    if latent:
        tokens = room.sequences * room.pages * room.page
        arrays.append(StateArray("latent", "bfloat16", (len(latent), tokens, latent[0].width)))
    context = [cache for cache in plan.caches if cache.kind == "context"]
    if context:
        elements = sum(context_tokens(cache, room) * 2 * cache.heads * cache.head_dim for cache in context)
        arrays.append(StateArray("context", "bfloat16", (room.sequences * elements,)))
    return {array.name: array for array in arrays}


def most_blocks(kernels: Iterable[Kernel], largest: Mapping[str, int]) -> int:
    """Blocks of the largest launch that takes tickets, 1 where none does."""
    grids = (
        variant.grid
        for kernel in kernels
        for stage in kernel.stages
        if PREFIX + TICKETS in stage.args
        for variant in stage.variants
    )
    return max((math.prod(dim.value(largest) for dim in grid) for grid in grids), default=1)


def state_arrays(
    plan: Plan, kernels: Sequence[Kernel], largest: Mapping[str, int], more: Iterable[StateArray] = ()
) -> tuple[StateArray, ...]:
    """The arrays that these kernels name, by name. `largest`: of each symbol; `more`: arrays of the round. Raises
    VerifyError for an unknown one."""
    tickets = StateArray(TICKETS, "int32", (most_blocks(kernels, largest),))
    known = known_arrays(plan) | {array.name: array for array in (tickets, *more)}
    wanted: dict[str, str] = {}
    for kernel in kernels:
        for stage in kernel.stages:
            wanted |= {arg.removeprefix(PREFIX): kernel.name for arg in stage.args if arg.startswith(PREFIX)}
    for name, kernel in wanted.items():
        if name not in known:
            raise VerifyError("emit", kernel, f"there is no state array '{name}'")
    return tuple(known[name] for name in sorted(wanted))
