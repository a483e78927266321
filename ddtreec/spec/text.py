"""YAML text in the layout of the shipped specs: an op a line, flow lists, comments beside numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from ddtreec.spec.reader import scalar
from ddtreec.spec.source import Data, as_list, as_map

WIDTH = 118
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.+-]*")


def value(data: Data) -> str:
    """Any plain data on one line."""
    if (mapping := as_map(data)) is not None:
        return "{" + ", ".join(f"{key}: {value(item)}" for key, item in mapping.items()) + "}"
    if (items := as_list(data)) is not None:
        return "[" + ", ".join(value(item) for item in items) + "]"
    if isinstance(data, bool) or data is None:
        return {True: "true", False: "false", None: "null"}[data]
    if isinstance(data, float):
        return number(data)
    if isinstance(data, int):
        return str(data)
    words = str(data)
    plain = _PLAIN.fullmatch(words) is not None and isinstance(scalar(words), str)
    return words if plain else json.dumps(words, ensure_ascii=False)


def number(data: float) -> str:
    """A float that reads back as the same float: 1.0e-05, 50000.0."""
    text = repr(data)
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}.0e{exponent}" if e and "." not in mantissa else text


def op(fields: Mapping[str, Data], indent: int) -> list[str]:
    """One op as a flow mapping, broken before a field where the line would grow too long."""
    lines: list[str] = []
    line = " " * indent + "- {"
    for i, (key, item) in enumerate(fields.items()):
        part = f"{key}: {value(item)}" + ("}" if i == len(fields) - 1 else ",")
        if len(line) + len(part) + 1 > WIDTH and i:
            lines.append(line.rstrip())
            line = " " * (indent + 3)
        line += part if line.endswith("{") else (part if not line.strip() else f" {part}")
    return [*lines, line]


def noted(entries: Sequence[tuple[str, Data, str]], indent: int) -> list[str]:
    """`key: value  # note` lines with the notes in one column."""
    lines = [f"{' ' * indent}{key}: {value(item)}" for key, item, _ in entries]
    column = max(map(len, lines)) + 2
    return [f"{line:{column}}# {note}" if note else line for line, (_, _, note) in zip(lines, entries, strict=True)]
