"""Two engines side by side: which values differ and where each was set, and what that does to memory and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ddtreec.plan.report import Report
from ddtreec.spec.resolved import Leaf

DIFF_SCHEMA = "ddtreec.diff/1"
ABSENT = "absent"


class Side(msgspec.Struct, frozen=True):
    """A value on one side: as data, and where it was set. `there` is False where the path does not exist."""

    there: bool
    value: object = None
    origin: str = ""


class Change(msgspec.Struct, frozen=True):
    """One path that differs."""

    path: str
    a: Side
    b: Side


class Number(msgspec.Struct, frozen=True):
    """A number on both sides; None where one side has no such thing."""

    name: str
    a: float | None
    b: float | None


class Effect(msgspec.Struct, frozen=True):
    """What the changes do, each side priced at its own of `contexts`: bytes of one rank by purpose, predicted ms by
    program and rows, tokens/s by budget and tau, and the layout answers that differ."""

    contexts: tuple[int, int]
    memory: tuple[Number, ...]
    steps_ms: tuple[Number, ...]
    tokens_per_s: tuple[Number, ...]
    layout: tuple[tuple[str, str, str], ...]


class Difference(msgspec.Struct, frozen=True):
    """All of it. `effect` is None where a side cannot be planned; `why_not` then says why."""

    schema: str
    a: str
    b: str
    changes: tuple[Change, ...]
    effect: Effect | None
    why_not: str = ""

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not self.changes


def changes(a: Sequence[Leaf], b: Sequence[Leaf]) -> tuple[Change, ...]:
    """The leaves that differ, in the order of `a`, then those that only `b` has."""
    ours, theirs = {leaf.dotted: leaf for leaf in a}, {leaf.dotted: leaf for leaf in b}
    paths = [*ours, *(path for path in theirs if path not in ours)]
    found: list[Change] = []
    for path in paths:
        one, two = ours.get(path), theirs.get(path)
        if one is None or two is None or one.value != two.value or type(one.value) is not type(two.value):
            found.append(Change(path, _side(one), _side(two)))
    return tuple(found)


def _side(leaf: Leaf | None) -> Side:
    return Side(False) if leaf is None else Side(True, leaf.value, leaf.origin)


def effect(a: Report, b: Report) -> Effect:
    """The numbers of both plans, only those that differ."""
    memory = _numbers(_memory(a), _memory(b))
    steps = _numbers(
        {f"{s.program} {s.rows}": s.predicted_ms for s in a.steps},
        {f"{s.program} {s.rows}": s.predicted_ms for s in b.steps},
    )
    speeds = _numbers(_speeds(a), _speeds(b))
    questions = dict.fromkeys([*a.layout, *b.layout])
    answers = [(q, _answer(a, q), _answer(b, q)) for q in questions]
    return Effect((a.context, b.context), memory, steps, speeds, tuple(item for item in answers if item[1] != item[2]))


def _memory(report: Report) -> dict[str, float]:
    used = sum(row.bytes for row in report.memory)
    rows = {row.purpose: float(row.bytes) for row in report.memory}
    return {**rows, "all of it": float(used), "free": float(report.free_bytes)}


def _speeds(report: Report) -> dict[str, float]:
    return {f"budget {b.budget} tau {tau}": speed for b in report.budgets for tau, speed in b.tokens_per_s.items()}


def _answer(report: Report, question: str) -> str:
    return report.layout.get(question, "-").partition(" (")[0]


def _numbers(a: Mapping[str, float], b: Mapping[str, float]) -> tuple[Number, ...]:
    names = [*a, *(name for name in b if name not in a)]
    return tuple(Number(n, a.get(n), b.get(n)) for n in names if a.get(n) != b.get(n))
