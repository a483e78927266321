"""The terminal drawing of a round. `drawings/` holds what it must look like, reviewed by eye."""

from __future__ import annotations

import io
import re
import unicodedata
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtreec_runtime.rounds import Round
from ddtreec_runtime.show import TokenPieces, TreePrinter, draw_round
from ddtreec_runtime.show.layout import percent
from ddtreec_runtime.show.pieces import shorten, visible, width_of

EXPECTED = Path(__file__).parent / "drawings"
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def make(parents: list[int], probabilities: list[float | None], accepted: list[int], start: int = 10) -> Round:
    """A round whose node i carries token i, its root token 0 and its next token 999."""
    depths = [0]
    for parent in parents:
        depths.append(depths[parent] + 1)
    n = len(parents)
    return Round(
        start=start,
        root=0,
        tokens=tuple(range(1, n + 1)),
        parents=(-1, *parents),
        depths=tuple(depths[1:]),
        ranks=(0,) * n,
        probabilities=tuple(probabilities),
        accepted=tuple(accepted),
        posterior=(None,) * (n + 1),
        next_token=999,
    )


# Round 4 of a small model that writes `class Stack:`, as it was.
STACK_PIECES = [
    " of", " item", "s", ",", " item", " of", ".", "s", " item", " to", ",", ",", '."""', " the", " of", " object", ".",
]  # fmt: skip
STACK = make(
    [0, 1, 2, 1, 2, 2, 2, 2, 2, 4, 1, 2, 0, 1, 1, 1],
    [0.91, 0.41, 0.07, 0.1, 0.021, 0.017, 0.017, 0.016, 0.014, 0.017, 0.025, 0.013, 0.02, 0.012, 0.011, 0.01],
    [0, 1, 2, 3],
    start=50,
)
DEEP = make(list(range(15)), [0.9**depth for depth in range(1, 16)], list(range(10)))
BUSHY = make(
    [0, 0, 0, 0] + [1 + i % 4 for i in range(12)] + [5 + i % 12 for i in range(24)] + [17 + i % 24 for i in range(24)],
    [0.4, 0.3, 0.2, 0.1] + [0.1 / (i + 1) for i in range(60)],
    [0, 2, 6, 18, 42],
)
WORLD_PIECES = [
    "def",
    "变量名称很长很长很长很长",
    "🎉🎊",
    "\n        ",
    "\x1b[31m",
    "é",
    "\u0301x",
    "\u202e",
    "\t",
    "a" * 40,
]
WORLD = make([0, 1, 2, 0, 1, 0, 0, 2, 2], [0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.04, 0.03, 0.005], [0, 1, 2, 3])


def stack_piece(token: int) -> str:
    return " last" if token == 999 else STACK_PIECES[token]


def world_piece(token: int) -> str:
    return "世界" if token == 999 else WORLD_PIECES[token]


def name_piece(token: int) -> str:
    return f"·n{token}"


CASES = {
    "stack-120-color": (STACK, stack_piece, 120, True, None),
    "stack-80-color": (STACK, stack_piece, 80, True, None),
    "stack-40-color": (STACK, stack_piece, 40, True, None),
    "stack-120-plain": (STACK, stack_piece, 120, False, None),
    "stack-40-plain": (STACK, stack_piece, 40, False, None),
    "stack-80-five-lines": (STACK, stack_piece, 80, True, 5),
    "deep-80-color": (DEEP, name_piece, 80, True, None),
    "deep-40-plain": (DEEP, name_piece, 40, False, None),
    "bushy-100-color": (BUSHY, name_piece, 100, True, None),
    "bushy-100-twelve-lines": (BUSHY, name_piece, 100, True, 12),
    "world-80-color": (WORLD, world_piece, 80, True, None),
    "world-80-plain": (WORLD, world_piece, 80, False, None),
}


def drawn(name: str) -> str:
    record, piece, width, color, height = CASES[name]
    return draw_round(record, piece, width, color, height=height, number=4)


@pytest.mark.parametrize("name", CASES)
def test_drawing_is_the_expected_one(name: str) -> None:
    # Colours are checked below; without them the files can be read and diffed.
    text = ANSI.sub("", drawn(name))
    assert text + "\n" == (EXPECTED / f"{name}.txt").read_text("utf-8")


def test_colours_accepted_bold_rejected_dim_next_token_apart() -> None:
    record = make([0, 0], [0.8, 0.1], [0, 1])
    text = draw_round(record, lambda token: {0: "def", 1: " f", 2: " g", 999: "("}[token], 80, True, number=1)
    assert text.split("\n") == [
        "\x1b[1mround 1\x1b[0m\x1b[2m · position 10\x1b[0m\x1b[2m · 1 of 2 accepted\x1b[0m\x1b[2m · 0.9 expected\x1b[0m"
        "\x1b[2m · +2 tokens\x1b[0m",
        "\x1b[1m● def\x1b[0m\x1b[1;32m ━┯━ \x1b[0m\x1b[1;32m✓ ·f 80%\x1b[0m\x1b[1;32m ━━━ \x1b[0m\x1b[1;36m◆ (\x1b[0m",
        "      \x1b[2m └─ \x1b[0m\x1b[2m·g 10%\x1b[0m",
    ]


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith("plain")])
def test_plain_is_ascii_and_marks_the_accepted_path(name: str) -> None:
    text = drawn(name)
    assert text.isascii() and "\x1b" not in text
    record = CASES[name][0]
    assert (
        len(set(re.findall(r"\* '(?:[^'\\]|\\.)*'", text))) >= len(record.accepted) - 2
    )  # band starts are drawn twice
    assert "=> '" in text


def test_empty_tree_shows_root_and_next_token() -> None:
    record = make([], [], [0])
    assert draw_round(record, name_piece, 80, False) == "round, position 10, +1 token\n'\\xb7n0' === => '\\xb7n999'"
    assert ANSI.sub("", draw_round(record, name_piece, 80, True)) == "round · position 10 · +1 token\n● ·n0 ━━━ ◆ ·n999"


def test_nothing_accepted_keeps_every_draft_below_the_next_token() -> None:
    record = make([0, 0], [0.5, 0.2], [0])
    lines = ANSI.sub("", draw_round(record, name_piece, 80, True)).split("\n")
    assert lines[1:] == ["● ·n0 ━┯━ ◆ ·n999", "       └─ ·n1 50%  ·n2 20%"]


def test_unknown_probabilities_are_left_out() -> None:
    record = make([0, 1], [None, None], [0, 1])
    text = ANSI.sub("", draw_round(record, name_piece, 80, True))
    assert "%" not in text and "expected" not in text


def test_height_keeps_the_accepted_path_and_counts_what_is_hidden() -> None:
    for height in range(1, 20):
        text = ANSI.sub("", draw_round(BUSHY, name_piece, 100, True, height=height))
        for node in BUSHY.accepted[1:]:
            assert f"✓ ·n{node} " in text
        shown = len(re.findall(r"·n\d+ (?:<?\d+%)", text))
        hidden = sum(int(count) for count in re.findall(r"\+(\d+) more", text))
        assert shown + hidden == len(BUSHY.tokens)
        least = len(draw_round(BUSHY, name_piece, 100, True, height=1).split("\n"))
        assert len(text.split("\n")) <= max(height, least)


def test_least_probable_branches_are_hidden_first() -> None:
    reach = [1.0]
    for parent, chance in zip(BUSHY.parents[1:], BUSHY.probabilities, strict=True):
        assert chance is not None
        reach.append(min(reach[parent], chance))
    everything = set(range(1, 65))
    for height in (8, 12, 16, 24):
        text = ANSI.sub("", draw_round(BUSHY, name_piece, 100, True, height=height))
        shown = {int(node) for node in re.findall(r"·n(\d+) <?\d+%", text)}
        hidden = everything - shown
        assert hidden and shown - set(BUSHY.accepted)
        assert max(reach[node] for node in hidden) <= min(reach[node] for node in shown - set(BUSHY.accepted))


def test_columns_line_up_under_wide_characters() -> None:
    """The tee of a line and the branches below it stand in the same cell, whatever stands left of them."""
    lines = ANSI.sub("", drawn("world-80-color")).split("\n")[1:]
    cells = ["".join(char + "\0" * (width_of(char) - 1) for char in line if width_of(char)) for line in lines]
    for above, line in pairwise(cells):
        for column, char in enumerate(line):
            if char in "├└│":
                assert above[column] in "┯┬├│", (above, line)


def test_width_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="width is 0"):
        draw_round(STACK, stack_piece, 0, True)


# ---- pieces ----


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        (" def", "·def"),
        ("\n        ", "⏎·×8"),  # noqa: RUF001
        ("a   b", "a···b"),
        ("\t\r\n", "⇥\\r⏎"),
        ("\x00\x1b[0m", "\\x00\\x1b[0m"),
        ("", "∅"),
        ("\u200b\u202e\ufeff", "\\u200b\\u202e\\ufeff"),
        ("\u00a0\u3000", "\\u00a0\\u3000"),
        ("\u0301", "◌\u0301"),
        (" \u0301", "·◌\u0301"),
        ("e\u0301", "e\u0301"),
        ("❤\ufe0f", "❤"),
        ("\ud800", "\\ud800"),
        ("\u2028", "\\u2028"),
        ("你好🎉", "你好🎉"),
    ],
)
def test_visible(piece: str, shown: str) -> None:
    assert visible(piece) == shown


def test_visible_ascii_is_a_python_string_of_the_piece() -> None:
    for piece in (" def", "\n", "it's", "你", "\x1b"):
        assert visible(piece, ascii_only=True).isascii()
        assert eval(visible(piece, ascii_only=True)) == piece


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [("abcdef", 6, "abcdef"), ("abcdefgh", 6, "abcd…h"), ("你好世界", 5, "你好…"), ("abc", 1, "…"), ("abc", 0, "")],
)
def test_shorten(text: str, width: int, shown: str) -> None:
    assert shorten(text, width) == shown


@given(st.text(), st.integers(0, 30), st.booleans())
def test_shorten_never_exceeds_the_width(text: str, width: int, ascii_only: bool) -> None:
    assert width_of(shorten(visible(text, ascii_only=ascii_only), width, ascii_only=ascii_only)) <= width


@given(st.text())
def test_visible_is_one_line_without_anything_a_terminal_obeys(text: str) -> None:
    shown = visible(text)
    assert shown
    assert all(unicodedata.category(char)[0] not in "CZ" for char in shown)


@pytest.mark.parametrize(
    ("chance", "shown"),
    [(0.0, "<1%"), (0.009, "<1%"), (0.01, "1%"), (0.5, "50%"), (0.996, "99%"), (1.0, "100%")],
)
def test_percent(chance: float, shown: str) -> None:
    assert percent(chance) == shown


class FakeTokenizer:
    """What `TokenPieces` asks of a tokenizer: two whole tokens, half a character, a byte-fallback piece."""

    words = {1: (" def", "Ġdef"), 2: ("\ufffd", "ä½"), 3: ("\ufffd", "\ufffd∎"), 4: ("<|end|>", "<|end|>")}

    def decode(self, ids: list[int], skip_special: bool = True) -> str:
        assert not skip_special
        return self.words[ids[0]][0] if ids[0] in self.words else ""

    def token(self, token_id: int) -> str | None:
        return self.words[token_id][1] if token_id in self.words else None


def test_token_pieces() -> None:
    pieces = TokenPieces(FakeTokenizer())
    assert [pieces(token) for token in (1, 2, 3, 4, 5)] == [" def", "<0xE4><0xBD>", "\ufffd∎", "<|end|>", "#5"]
    assert TokenPieces(None)(7) == "#7"


# ---- whatever comes ----


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Round, list[str]]:
    """A random round of up to 64 nodes with random texts."""
    n = draw(st.integers(0, 64))
    parents = [draw(st.integers(0, node)) for node in range(n)]
    chances = [draw(st.one_of(st.none(), st.floats(0, 1))) for _ in range(n)]
    accepted = [0]
    while below := [node for node in range(1, n + 1) if parents[node - 1] == accepted[-1]]:
        if draw(st.booleans()):
            break
        accepted.append(draw(st.sampled_from(below)))
    pieces = draw(st.lists(st.text(max_size=20), min_size=1, max_size=8))
    return make(parents, chances, accepted), pieces


@settings(deadline=None, max_examples=80)
@given(rounds(), st.integers(1, 200), st.booleans(), st.one_of(st.none(), st.integers(0, 40)))
def test_never_wider_than_the_width_and_never_raises(
    case: tuple[Round, list[str]], width: int, color: bool, height: int | None
) -> None:
    record, pieces = case
    text = draw_round(record, lambda token: pieces[token % len(pieces)], width, color, height=height, number=3)
    for line in text.split("\n"):
        assert width_of(ANSI.sub("", line)) <= width
    if not color:
        assert text.isascii()
        assert "\x1b" not in text


@settings(deadline=None, max_examples=40)
@given(rounds(), st.integers(40, 160))
def test_every_accepted_node_is_drawn(case: tuple[Round, list[str]], width: int) -> None:
    """In full from 40 cells on; a narrower terminal may shorten even such short pieces."""
    record = case[0]
    text = ANSI.sub("", draw_round(record, lambda token: f"n{token}", width, True))
    for node in record.accepted[1:]:
        assert re.search(rf"✓ n{node}\b", text)
    assert "◆ n999" in text


# ---- the stream ----


class Terminal(io.StringIO):
    """A terminal of another size than the test's own, in UTF-8 or not."""

    def __init__(self, encoding: str = "utf-8"):
        super().__init__()
        self._name = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._name

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_printer_draws_in_colour_on_a_terminal_and_numbers_the_rounds() -> None:
    out = Terminal()
    printer = TreePrinter(stack_piece, out, width=80)
    printer(STACK)
    printer(replace(STACK, start=54))
    assert out.getvalue().startswith("\x1b[1mround 1\x1b[0m")
    assert "\x1b[1mround 2\x1b[0m\x1b[2m · position 54" in out.getvalue()
    assert out.getvalue().endswith("\n\n")


@pytest.mark.parametrize("case", ["pipe", "NO_COLOR", "dumb", "latin-1"])
def test_printer_is_plain_elsewhere(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO() if case == "pipe" else Terminal("latin-1" if case == "latin-1" else "utf-8")
    if case == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    if case == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    TreePrinter(stack_piece, out, width=80)(STACK)
    assert out.getvalue().isascii() and "\x1b" not in out.getvalue()
    assert "* ' item' 91%" in out.getvalue()
