"""Gives every value of a program its place and says what one rank holds. Runs last but cost, on the lowered calls.

Afterwards each 'arena' value has an offset such that no two values that are needed at one time overlap. It does not
choose what is computed, in which order or on which rank.

Sizes are planned for the engine's dtype. A runtime that computes in a wider dtype multiplies offsets and arena by
`itemsize / planned itemsize` (1, 2 or 4), so every value must grow by at most that: a 'compute' value grows by exactly
it, 'int32' and 'int64' do not grow, and 'float32' ("float32 or wider") is planned at max(4, itemsize) bytes because
it turns into float64 only where compute does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from ddtreec.artifacts.plan import Call, Program, Value, Weight
from ddtreec.core.errors import VerifyError

ALIGN = 64
"""Bytes. Every offset is a multiple: whole cache lines, and any vector load."""

ITEMSIZE = {"float32": 4, "bfloat16": 2, "float64": 8}


@dataclass(frozen=True, slots=True)
class Interval:
    """One arena value: its aligned bytes, and the first and last call (numbers) at which its bytes must be its own."""

    id: str
    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Extents of the two free dims of a program and the itemsize in bytes of the planned dtype."""

    rows: int
    out_rows: int
    itemsize: int

    def value_bytes(self, value: Value) -> int:
        """Bytes of `value` at the most rows it can have; 0 for a value without data."""
        if value.home == "token":
            return 0
        item = {"compute": self.itemsize, "float32": max(4, self.itemsize), "int32": 4, "int64": 8}[value.dtype]
        for dim in value.shape:
            item *= {"rows": self.rows, "out_rows": self.out_rows}[dim] if isinstance(dim, str) else dim
        return item


def held_bytes(weight: Weight, backend: str, itemsize: int) -> int:
    """Bytes of one rank's slice as the backend holds it: as packed in the checkpoint on a GPU; the CPU backend unpacks
    everything to the compute dtype when it loads (float32 or wider where the weight asks for it)."""
    if backend != "cpu":
        return weight.bytes
    return math.prod(weight.shape) * (max(4, itemsize) if weight.precision == "float32" else itemsize)


def aligned(size: int) -> int:
    """`size` rounded up to ALIGN."""
    return -(-size // ALIGN) * ALIGN


def roots(values: Iterable[Value]) -> dict[str, str]:
    """Each value to the value that owns its bytes: itself, or the end of its chain of aliases."""
    parent = {v.id: v.parent if v.home == "alias" else v.id for v in values}

    def root(identifier: str) -> str:
        while parent[identifier] != identifier:
            identifier = parent[identifier]
        return identifier

    return {identifier: root(identifier) for identifier in parent}


def intervals(values: Sequence[Value], calls: Sequence[Call], outputs: Iterable[str], sizes: Sizes) -> list[Interval]:
    """Lives of the arena values, in order of first call.

    A value lives from the call that writes it to the last that reads it, itself or through an alias; a program output
    to the end. Both ends count: a kernel never writes over what it reads, and a collective reads while it writes.
    """
    root = roots(values)
    arena = {v.id: aligned(sizes.value_bytes(v)) for v in values if v.home == "arena"}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, call in enumerate(calls):
        for identifier in (*call.outs, *call.ins):
            owner = root[identifier]
            if owner in arena:
                first.setdefault(owner, number)
                last[owner] = number
    for identifier in outputs:
        if root[identifier] in first:
            last[root[identifier]] = len(calls)
    return [Interval(identifier, arena[identifier], first[identifier], last[identifier]) for identifier in first]


def _place(order: Iterable[Interval], calls: int) -> tuple[dict[str, int], int]:
    """First fit in the given order: each interval at the lowest gap between those it meets in time."""
    at_call: list[list[tuple[int, int]]] = [[] for _ in range(calls + 1)]
    offsets: dict[str, int] = {}
    top = 0
    for interval in order:
        taken = sorted({place for number in range(interval.first, interval.last + 1) for place in at_call[number]})
        offset = 0
        for start, stop in taken:
            if start - offset >= interval.size:
                break
            offset = max(offset, stop)
        offsets[interval.id] = offset
        top = max(top, offset + interval.size)
        for number in range(interval.first, interval.last + 1):
            at_call[number].append((offset, offset + interval.size))
    return offsets, top


def pack(lives: Sequence[Interval], calls: int) -> tuple[dict[str, int], int]:
    """Offsets in bytes by id, and the bytes of the arena. `calls`: how many calls the program has.

    Three greedy orders, the smallest arena wins: big first, long-lived first, by time. Sorted by id last, so that one
    program always gives one layout.
    """
    rules: tuple[Callable[[Interval], tuple[int, ...]], ...] = (
        lambda i: (-i.size, i.first, i.last),
        lambda i: (-(i.last - i.first), -i.size, i.first),
        lambda i: (i.first, -i.size, i.last),
    )
    layouts = [_place(sorted(lives, key=lambda i, rule=rule: (*rule(i), i.id)), calls) for rule in rules]
    return min(layouts, key=lambda layout: layout[1])


def peak_live(lives: Iterable[Interval], calls: int) -> int:
    """The most bytes alive at one call: no layout can be smaller."""
    change = [0] * (calls + 2)
    for interval in lives:
        change[interval.first] += interval.size
        change[interval.last + 1] -= interval.size
    peak = level = 0
    for delta in change:
        level += delta
        peak = max(peak, level)
    return peak


def place_program(
    name: str,
    values: Sequence[Value],
    calls: Sequence[Call],
    outputs: Sequence[str],
    sizes: Sizes,
    layer_outputs: tuple[str, ...] = (),
) -> Program:
    """The program with an offset for each arena value. `outputs` live to the end; `layer_outputs` are only named."""
    lives = intervals(values, calls, outputs, sizes)
    offsets, arena = pack(lives, len(calls))
    placed = tuple(
        msgspec.structs.replace(v, offset=offsets[v.id]) if v.home == "arena" and v.id in offsets else v for v in values
    )
    return Program(
        name=name,
        max_rows=sizes.rows,
        max_out_rows=sizes.out_rows,
        arena_bytes=arena,
        values=placed,
        calls=tuple(calls),
        layer_outputs=layer_outputs,
    )


def verify(program: Program, outputs: Iterable[str], sizes: Sizes) -> None:
    """Runs the program over byte ranges: every read must find the bytes its writer left. Knows nothing of intervals.

    Raises VerifyError naming the node that reads lost or never written bytes, writes over its own inputs, or leaves
    the arena.
    """
    values = {v.id: v for v in program.values}
    root = roots(program.values)
    extent = {v.id: (v.offset, v.offset + sizes.value_bytes(v)) for v in program.values if v.home == "arena"}
    holders: dict[str, tuple[int, int]] = {}
    written: set[str] = set()
    lost: dict[str, str] = {}

    def fail(node: str, reason: str) -> None:
        raise VerifyError("memory", node, reason)

    def read(identifier: str, node: str) -> None:
        owner = root[identifier]
        if values[owner].home == "arena" and owner not in holders:
            by = lost.get(owner)
            fail(node, f"reads '{identifier}', " + (f"overwritten by '{by}'" if by else "which was never written"))

    def write(identifier: str, node: str) -> None:
        owner = root[identifier]
        if values[owner].home == "input":
            fail(node, f"writes the input '{owner}'")
        if values[owner].home != "arena" or owner in holders:
            return
        start, stop = extent[owner]
        if start % ALIGN or start < 0 or stop > program.arena_bytes:
            fail(node, f"'{owner}' lies at bytes {start} to {stop}, arena {program.arena_bytes}, align {ALIGN}")
        for other, (low, high) in tuple(holders.items()):
            if low < stop and start < high:
                del holders[other]
                lost[other] = owner
        holders[owner] = (start, stop)
        written.add(owner)

    for call in program.calls:
        for identifier in call.ins:
            read(identifier, call.node)
        for identifier in call.outs:
            if identifier in written:
                fail(call.node, f"writes '{identifier}' a second time")
            write(identifier, call.node)
        for identifier in (*call.ins, *call.outs):
            owner = root[identifier]
            if values[owner].home == "arena" and owner not in holders:
                fail(call.node, f"'{lost.get(owner, '?')}' overlaps '{identifier}' in one call")
    for identifier in outputs:
        read(identifier, "end of " + program.name)


def persistent_bytes(program: Program, sizes: Sizes) -> dict[str, int]:
    """Bytes of each buffer of the program that outlives a step (features, logits), at its most rows."""
    return {v.id: aligned(sizes.value_bytes(v)) for v in program.values if v.home == "persistent"}
