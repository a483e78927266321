"""Adds up what one rank holds, and says before anything is loaded whether it fits and what would.

Part of the memory pass: the arena comes from `memory`, weights and caches from the sharded graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddtreec.artifacts.plan import Cache, MemoryRow, Program, Weight
from ddtreec.core.errors import FitError, VerifyError
from ddtreec.core.units import format_bytes, parse_bytes
from ddtreec.passes.memory import ITEMSIZE, Sizes, held_bytes, persistent_bytes
from ddtreec.spec.load import LoadedEngine

DOES_NOT_FIT = "F001"

KV_CACHE, CONTEXT_CACHE, TREE_SCRATCH = "KV cache", "drafter context cache", "tree scratch"


@dataclass(frozen=True, slots=True)
class Room:
    """What sets the size of the caches: tokens of context, sequences, page, tree rows, drafter block, and the most rows
    one step of the drafter writes."""

    context: int
    sequences: int
    page: int
    tree_rows: int
    block: int
    step: int

    @property
    def pages(self) -> int:
        """KV pages of one sequence: its context, and what one round may write before it commits, a whole tree and a
        drafter block."""
        return -(-(self.context + self.tree_rows + self.block) // self.page)


def context_tokens(cache: Cache, room: Room) -> int:
    """Tokens of one sequence that a drafter layer has room for."""
    most = room.context + room.step
    return min(most, 2 * (cache.window + room.step)) if cache.window else most


def cache_bytes(caches: Sequence[Cache], room: Room, itemsize: int) -> dict[str, int]:
    """Bytes of one rank by kind of cache, all sequences.

    'latent': the latent row of MLA, in pages. 'context': keys and values of the drafter; a layer with a window keeps
    at most twice the window and a step, so that it moves its content once in a window.
    """
    found = {"latent": 0, "context": 0}
    for cache in caches:
        if cache.kind == "latent":
            found["latent"] += room.pages * room.page * cache.width
        else:
            found["context"] += context_tokens(cache, room) * 2 * cache.heads * cache.head_dim
    return {kind: size * itemsize * room.sequences for kind, size in found.items()}


def tree_scratch_bytes(room: Room) -> int:
    """Bytes of the tree of one step, all sequences: per node its token, position, parent, depth and target pick
    (int32), score (int64) and 128-bit ancestor mask; per drafter row the best `tree_rows` tokens with log-probs
    (int32 and float32)."""
    nodes = room.tree_rows * (5 * 4 + 8 + 16)
    candidates = room.block * room.tree_rows * (4 + 4)
    return room.sequences * (nodes + candidates)


def besides_weights(loaded: LoadedEngine, caches: Sequence[Cache], room: Room) -> int:
    """Bytes of one rank that weights cannot have, as far as they are known before the layout is: caches as if they
    were whole, and what the device keeps. Buffers are small beside them."""
    cached = sum(cache_bytes(caches, room, ITEMSIZE[loaded.engine.dtype]).values())
    return cached + parse_bytes(loaded.topology.device.reserved)


def unpacking(weights: Sequence[Weight], loaded: LoadedEngine) -> float:
    """How many times more bytes the backend holds of these weights than the checkpoint does."""
    backend, itemsize = loaded.topology.backend, ITEMSIZE[loaded.engine.dtype]
    return sum(held_bytes(w, backend, itemsize) for w in weights) / sum(w.bytes for w in weights)


def memory_table(
    loaded: LoadedEngine,
    weights: Sequence[Weight],
    caches: Sequence[Cache],
    programs: Sequence[Program],
    sizes: dict[str, Sizes],
    room: Room,
) -> tuple[MemoryRow, ...]:
    """Bytes of one rank by purpose, in the order a person asks: weights, caches, buffers, reserve."""
    itemsize = next(iter(sizes.values())).itemsize
    roles: dict[str, int] = {}
    for weight in weights:
        purpose = f"{'drafter ' if weight.store == 'drafter' else ''}weights: {weight.role}"
        roles[purpose] = roles.get(purpose, 0) + held_bytes(weight, loaded.topology.backend, itemsize)
    rows = sorted(roles.items(), key=lambda item: (item[0].startswith("drafter"), -item[1], item[0]))
    cached = cache_bytes(caches, room, itemsize)
    rows += [(name, cached[kind]) for kind, name in (("latent", KV_CACHE), ("context", CONTEXT_CACHE)) if cached[kind]]
    rows.append(("arena", max(program.arena_bytes for program in programs)))
    buffers: dict[str, int] = {}
    for program in programs:
        for name, size in persistent_bytes(program, sizes[program.name]).items():
            buffers[f"{program.name}.{name}"] = size
    rows += [(f"buffer: {name}", size) for name, size in buffers.items()]
    rows.append((TREE_SCRATCH, tree_scratch_bytes(room)))
    reserve = parse_bytes(loaded.topology.device.reserved)
    if reserve:
        rows.append(("reserved by the device", reserve))
    return tuple(MemoryRow(purpose, size) for purpose, size in rows)


def total(table: Sequence[MemoryRow]) -> int:
    """Bytes of all rows."""
    return sum(row.bytes for row in table)


def largest_context(
    table: Sequence[MemoryRow], caches: Sequence[Cache], room: Room, itemsize: int, memory: int, positions: int
) -> int:
    """Tokens of context that fit in `memory` bytes with everything else as in `table`, at most the `positions` of the
    model; 0 where none does."""
    left = memory - sum(row.bytes for row in table if row.purpose not in (KV_CACHE, CONTEXT_CACHE))

    def fits(context: int) -> bool:
        return sum(cache_bytes(caches, replace(room, context=context), itemsize).values()) <= left

    if not fits(1):
        return 0
    low, high = 1, positions + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def most_sequences(table: Sequence[MemoryRow], caches: Sequence[Cache], room: Room, itemsize: int, memory: int) -> int:
    """Sequences that fit in `memory` bytes with everything else as in `table`, fewer than `room` has; 0 where none."""
    left = memory - sum(row.bytes for row in table if row.purpose not in (KV_CACHE, CONTEXT_CACHE, TREE_SCRATCH))
    alone = replace(room, sequences=1)
    each = sum(cache_bytes(caches, alone, itemsize).values()) + tree_scratch_bytes(alone)
    return max(min(left // each, room.sequences - 1), 0) if each else 0


def check_fit(loaded: LoadedEngine, table: Sequence[MemoryRow], context: int, sequences: int = 0) -> int:
    """Bytes of one rank that stay free. Raises FitError saying by how much it does not fit, and what would: `context`
    is the largest that fits, `sequences` the most at the context asked for; 0 where none does."""
    memory = parse_bytes(loaded.topology.device.memory)
    need = total(table)
    if need <= memory:
        return memory - need
    biggest = sorted(table, key=lambda row: -row.bytes)[:4]
    limits = loaded.engine.limits
    if context:
        way_out = f"the largest context that fits is {context}: --set limits.context={context}"
        if sequences:
            way_out += f"; or fewer than {limits.sequences} sequences: --set limits.sequences={sequences} fits"
    else:
        fixed = need - sum(r.bytes for r in table if r.purpose in (KV_CACHE, CONTEXT_CACHE))
        way_out = (
            f"without any context it still needs {format_bytes(fixed)} a rank: choose a topology with more devices or "
            "memory, a smaller model, or a quant spec that packs more roles"
        )
    raise FitError(
        loaded.problem(
            DOES_NOT_FIT,
            f"one rank needs {format_bytes(need)}, but {loaded.topology.device.name} has {format_bytes(memory)}: "
            f"{format_bytes(need - memory)} too much",
            "engine",
            ("limits", "context") if context else ("topology",),
            note="; ".join(f"{row.purpose} {format_bytes(row.bytes)}" for row in biggest),
            help=way_out,
        )
    )


def verify(table: Sequence[MemoryRow], weights: Sequence[Weight], backend: str, itemsize: int) -> None:
    """Raises VerifyError where a row is negative, named twice, or weights went missing."""
    names = [row.purpose for row in table]
    if len(set(names)) != len(names):
        raise VerifyError("memory", next(n for n in names if names.count(n) > 1), "two rows of this name")
    for row in table:
        if row.bytes < 0:
            raise VerifyError("memory", row.purpose, f"{row.bytes} bytes")
    held = sum(row.bytes for row in table if "weights: " in row.purpose)
    if held != sum(held_bytes(w, backend, itemsize) for w in weights):
        raise VerifyError("memory", "weights", f"the table holds {held} bytes, the weights are other bytes")
