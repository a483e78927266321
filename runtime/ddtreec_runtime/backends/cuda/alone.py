"""A step program of many ranks as one rank alone can run it: collectives left out, so that its kernels can be timed.

What an all-reduce gives is then what this rank put in; what an all-gather gives is a buffer that nothing writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from ddtreec.artifacts.plan import Program, Value

ALIGN = 64
ITEMSIZE = {"compute": 2, "float32": 4, "int32": 4, "int64": 8}


@dataclass(frozen=True, slots=True)
class Alone:
    """The program, and the values that stand for gathered ones: persistent, to be filled once."""

    program: Program
    gathered: tuple[str, ...]


def alone(program: Program) -> Alone:
    """The program with the outputs of collectives replaced and every arena value placed anew. Its calls stay."""
    reduced: dict[str, str] = {}
    gathered: list[str] = []
    for call in program.calls:
        if call.kernel == "all_reduce":
            reduced |= dict(zip(call.outs, call.ins, strict=True))
        elif call.collective:
            gathered += call.outs
    values = [_replaced(value, reduced, gathered) for value in program.values]
    return Alone(_placed(program, values, reduced), tuple(gathered))


def _replaced(value: Value, reduced: Mapping[str, str], gathered: list[str]) -> Value:
    """A reduced value is a view of what went in, and so is every view of it."""
    if value.id in reduced:
        width = int(value.shape[-1])
        assert len(value.shape) == 2, "residuals have rows and columns"
        return Value(value.id, ("rows", width), value.dtype, "alias", parent=_end(value.id, reduced))
    if value.home == "alias":
        return msgspec.structs.replace(value, parent=_end(value.parent, reduced))
    if value.id in gathered:
        return msgspec.structs.replace(value, home="persistent", offset=0)
    return value


def _end(name: str, reduced: Mapping[str, str]) -> str:
    while name in reduced:
        name = reduced[name]
    return name


def _placed(program: Program, values: list[Value], reduced: Mapping[str, str]) -> Program:
    """First fit by time; a value lives from its first call to its last, through its views too."""
    owner = {value.id: value.parent if value.home == "alias" else value.id for value in values}
    lives: dict[str, list[int]] = {}
    for number, call in enumerate(program.calls):
        for name in (*call.outs, *call.ins):
            lives.setdefault(owner[name], []).append(number)
    by_id = {value.id: value for value in values}
    taken: list[tuple[int, int, int, int]] = []  # first call, last call, begin, end
    offsets: dict[str, int] = {}
    for name, calls in lives.items():
        if by_id[name].home != "arena":
            continue
        size = -(-_bytes(by_id[name], program) // ALIGN) * ALIGN
        first, last, offset = min(calls), max(calls), 0
        for _, _, begin, end in sorted((t for t in taken if t[0] <= last and first <= t[1]), key=lambda t: t[2]):
            if begin - offset >= size:
                break
            offset = max(offset, end)
        offsets[name] = offset
        taken.append((first, last, offset, offset + size))
    placed = tuple(
        msgspec.structs.replace(value, offset=offsets[value.id]) if value.id in offsets else value for value in values
    )
    return msgspec.structs.replace(program, values=placed, arena_bytes=max((t[3] for t in taken), default=0))


def _bytes(value: Value, program: Program) -> int:
    count = ITEMSIZE[value.dtype]
    for size in value.shape:
        count *= {"rows": program.max_rows, "out_rows": program.max_out_rows}[size] if isinstance(size, str) else size
    return count
