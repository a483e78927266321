"""Sizes and rates with units. `GiB` is 2^30 and `GB` is 10^9, always; a bare number is refused."""

from __future__ import annotations

import re

_DECIMAL = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
UNITS = _DECIMAL | _BINARY
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(text: str) -> int:
    """Bytes in '96GiB', '14336B', '1.5MB'. Raises ValueError with the reason and, where it can, what was meant."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size; write a number and a unit, e.g. 96GiB or 448KiB")
    number, unit = match.groups()
    if not unit:
        raise ValueError(f"{text!r} has no unit; write e.g. {number}GiB (2^30) or {number}GB (10^9)")
    if unit not in UNITS:
        raise ValueError(f"{text!r} has the unknown unit {unit!r}; {_meant(unit)}")
    value = float(number) * UNITS[unit]
    if value != int(value):
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(value)


def parse_rate(text: str) -> float:
    """Bytes per second in '4.54TB/s'. Raises ValueError with the reason."""
    size, slash, second = text.partition("/")
    if not slash or second.strip() != "s":
        raise ValueError(f"{text!r} is not a rate; write bytes per second, e.g. 1.6TB/s")
    return float(parse_bytes(size))


def format_bytes(count: float) -> str:
    """Bytes for reading, in binary units with one decimal: 72.4 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _meant(unit: str) -> str:
    if unit.lower().endswith("b") and unit[:-1].lower() in {"g", "m", "t", "k"} | {"gi", "mi", "ti", "ki"}:
        near = next(known for known in UNITS if known.lower() == unit.lower())
        return f"did you mean {near}?"
    if unit.lower() in {"g", "m", "t", "k"}:
        letter = unit.upper()
        return f"write {letter}iB (powers of 1024) or {'k' if letter == 'K' else letter}B (powers of 1000)"
    return "known units are " + ", ".join(UNITS)
