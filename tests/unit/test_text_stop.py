"""Stop strings on bare text: the same result for any pieces, nothing of a stop ever shown."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtreec.core.errors import SpecError
from ddtreec_runtime.text import StopStrings


@settings(max_examples=500, deadline=None)
@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=6), max_size=4),
    st.lists(st.integers(0, 30)),
)
def test_any_pieces_give_what_a_naive_search_gives(text: str, stops: list[str], cuts: list[int]) -> None:
    want, found = text, None
    for end in range(1, len(text) + 1):
        hits = [stop for stop in stops if text[:end].endswith(stop)]
        if hits:
            found = max(hits, key=len)
            want = text[: end - len(found)]
            break
    scan = StopStrings(stops)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    shown = ""
    for a, b in itertools.pairwise(edges):
        shown += scan.feed(text[a:b])
        assert want.startswith(shown)
        if scan.found is None:  # held back: exactly the longest end that may begin a stop
            held = max((n for stop in stops for n in range(len(stop)) if text[:b].endswith(stop[:n])), default=0)
            assert len(shown) == b - held
    assert shown + scan.flush() == want and scan.found == found


def test_no_stops_hold_nothing() -> None:
    scan = StopStrings(())
    assert scan.feed("abc") == "abc" and scan.flush() == "" and scan.found is None


def test_first_complete_wins_then_longest() -> None:
    first = StopStrings(["abc", "b"])
    assert first.feed("xabc") == "xa" and first.found == "b"
    longest = StopStrings(["c", "abc"])
    assert longest.feed("xabc") == "x" and longest.found == "abc"
    assert longest.feed("more") == "" and longest.flush() == ""


def test_a_single_string_is_one_stop() -> None:
    scan = StopStrings("ab")
    assert scan.feed("ba") == "b" and scan.feed("b") == "" and scan.found == "ab"


def test_long_stop_strings_are_cheap() -> None:
    scan = StopStrings(["a" * 100_000 + "b"])
    shown = "".join(scan.feed("a" * 10) for _ in range(20_000))
    assert len(shown) == 100_000 and len(scan.flush()) == 100_000


@pytest.mark.parametrize(("stop", "code"), [("", "R102"), ("a\ud800", "R101")])
def test_bad_stops(stop: str, code: str) -> None:
    with pytest.raises(SpecError) as caught:
        StopStrings(["fine", stop])
    (problem,) = caught.value.problems
    assert problem.code == code and "stop string" in problem.message and problem.help and caught.value.exit_code == 2
