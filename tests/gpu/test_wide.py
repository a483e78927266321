"""Kimi K2.6 at its real widths: one dense and two expert layers and a drafter of two, INT4 experts, one rank of each
layout. Every result of every kernel is held against float32; see wide.py."""

from __future__ import annotations

import pytest

from tests.gpu.wide import RANKS, TARGET_BEHIND, TARGET_ROWS, faults, lines, measured


@pytest.mark.slow
@pytest.mark.parametrize("name", RANKS)
def test_all_kernels_at_full_width(name: str) -> None:
    found, about = measured(name)
    print("\n".join(lines(name, found, about)))
    assert not faults(found)
    steps = {(one.rows, one.committed) for one in found.results if one.program == "target"}
    assert steps == {(rows, committed) for rows in TARGET_ROWS for committed in TARGET_BEHIND}
    assert {one.program for one in found.results} == {"target", "draft_context", "draft_block"}
    most = max(choice.experts for choice in found.choices)
    assert most > 300, f"128 rows chose {most} of 384 experts: the rows are too much alike to test them"
