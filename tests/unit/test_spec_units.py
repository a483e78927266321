"""Sizes and rates: binary and decimal units never mix, and a number alone is refused."""

from __future__ import annotations

import re

import pytest

from ddtreec.core.units import format_bytes, parse_bytes, parse_rate


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("96GiB", 96 * 2**30),
        ("96GB", 96 * 10**9),
        ("0B", 0),
        ("14336B", 14336),
        ("1.5MiB", 3 * 2**19),
        ("99 KiB", 99 * 1024),
        ("2TiB", 2**41),
        ("1kB", 1000),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("96", "no unit"),
        ("96G", "GiB (powers of 1024) or GB"),
        ("96gb", "did you mean GB?"),
        ("96Gib", "did you mean GiB?"),
        ("96KB", "did you mean kB?"),
        ("12kib", "did you mean KiB?"),
        ("96 apples", "unknown unit 'apples'"),
        ("-1GB", "not a size"),
        ("lots", "not a size"),
        ("0.3B", "not a whole number of bytes"),
    ],
)
def test_wrong_sizes(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_bytes(text)


def test_rates() -> None:
    assert parse_rate("4.54TB/s") == 4.54e12
    assert parse_rate("1.5 GB/s") == 1.5e9


@pytest.mark.parametrize("text", ["4.54TB", "4TB/h", "4/s", "fast"])
def test_wrong_rates(text: str) -> None:
    with pytest.raises(ValueError, match=r"rate|unit"):
        parse_rate(text)


def test_formatting() -> None:
    assert [format_bytes(n) for n in (512, 2048, 3 * 2**30, 5 * 2**41)] == ["512 B", "2.0 KiB", "3.0 GiB", "10.0 TiB"]
