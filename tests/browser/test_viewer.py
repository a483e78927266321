"""The viewer page in a real browser: it loads from a file, steps, shows what the trace says, runs nothing else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ddtreec_runtime.trace import Trace, decode_trace, write_viewer

sys.path.insert(0, str(Path(__file__).parent))
from webdriver import CHROMEDRIVER, CHROMIUM, Browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and CHROMEDRIVER), reason="needs chromium and chromedriver"),
]

TRACE = decode_trace((Path(__file__).parent / "queue-16.json").read_bytes())
"""A real generation: a small K2-shaped model and its drafter continue `class Queue:`, budget 16, greedy."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


class Viewer:
    """The page of one trace."""

    def __init__(self, browser: Browser, path: Path, trace: Trace, *, fragment: str = "", **look: Any):
        self.browser = browser
        browser.console()
        browser.emulate(**({"width": 1280, "height": 800} | look))
        write_viewer(path, trace)
        browser.open(path, fragment)

    def round(self) -> int:
        return int(self.browser.run("return document.body.dataset.round"))

    def texts(self, selector: str) -> list[str]:
        return self.browser.run(
            "return [...document.querySelectorAll(arguments[0])].map((element) => element.textContent)", selector
        )

    def text(self, selector: str) -> str:
        (only,) = self.texts(selector)
        return only

    def click(self, selector: str) -> None:
        script = "document.querySelector(arguments[0]).dispatchEvent(new MouseEvent('click', {bubbles: true}))"
        self.browser.run(script, selector)


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Viewer]:
    viewer = Viewer(browser, tmp_path / "trace.html", TRACE)
    yield viewer
    assert browser.console() == []


def shown(piece: str) -> str:
    """A token of this trace as the page writes it."""
    for count in range(12, 3, -1):
        piece = piece.replace(" " * count, f"·×{count}")  # noqa: RUF001
    return piece.replace(" ", "·").replace("\n", "⏎")


def assert_round(page: Viewer, number: int) -> None:
    """Everything on the page is that of this round."""
    record = TRACE.rounds[number - 1]
    assert page.round() == number
    assert page.text("#round-title") == f"Round {number}"
    assert page.text("#where") == f"{number} / {len(TRACE.rounds)}"
    assert page.browser.run("return document.getElementById('slider').value") == str(number)
    accepted = [record.pieces[node - 1] for node in record.accepted[1:]]
    assert page.texts(".node.accepted .piece") == [shown(piece) for piece in accepted]
    assert page.text(".node.root .piece") == shown(record.root_piece)
    assert page.text(".node.bonus .piece") == shown(record.next_piece)
    assert len(page.texts(".node")) == len(record.tokens) + 2
    assert len(page.texts(".node.rejected")) == len(record.tokens) - len(accepted)
    drafts, following = "".join(accepted), record.next_piece
    if number == len(TRACE.rounds):  # what it committed beyond max_new_tokens is in the tree, but not in the text
        drafts, following = TRACE.text[record.text_start : record.bonus_start], ""
        assert drafts and "".join(accepted).startswith(drafts)
    assert page.text("#text .drafts") == drafts.replace("\n", "⏎\n")
    assert page.text("#text .next") == following.replace("\n", "⏎\n")
    expected = TRACE.prompt_text + TRACE.text[: record.text_start]
    assert page.text("#text").startswith(expected)
    tau = sum(len(r.accepted) for r in TRACE.rounds[:number]) / number
    assert page.texts("#numbers dd")[:3] == [
        f"{len(accepted)} of {len(record.tokens)}",
        f"+{len(accepted) + 1} {1 + sum(record.probabilities):.1f} expected",  # type: ignore[arg-type]
        f"{tau:.2f} per round",
    ]
    assert page.browser.run("return [...document.querySelectorAll('.bars.here')].map((bar) => bar.dataset.round)") == [
        str(number - 1)
    ]


def test_loads_and_shows_the_first_round(page: Viewer) -> None:
    assert_round(page, 1)
    assert page.text("#engine") == TRACE.engine
    lengths = f"{len(TRACE.prompt_ids)} prompt tokens · {len(TRACE.output_ids)} written"
    assert page.text("#facts") == f"tree of 16 · greedy · {lengths} · finished: length"
    assert len(page.texts(".bars")) == len(TRACE.rounds)


def test_every_round_by_the_arrow_key(page: Viewer) -> None:
    for number in range(1, len(TRACE.rounds) + 1):
        assert_round(page, number)
        page.browser.keys("right")
    assert page.round() == len(TRACE.rounds)


def test_keys(page: Viewer) -> None:
    steps = [("end", len(TRACE.rounds)), ("left", len(TRACE.rounds) - 1), ("home", 1), ("left", 1), ("right", 2)]
    for key, number in steps:
        page.browser.keys(key)
        assert page.round() == number


def test_buttons_slider_and_strip(page: Viewer) -> None:
    for selector, number in (("#next", 2), ("#next", 3), ("#previous", 2), ("#last", len(TRACE.rounds)), ("#first", 1)):
        page.click(selector)
        assert page.round() == number
    page.browser.run("const s = document.getElementById('slider'); s.value = 9; s.dispatchEvent(new Event('input'))")
    assert_round(page, 9)
    page.click('.bars[data-round="4"]')
    assert_round(page, 5)
    assert page.browser.run("return location.hash") == "#5"


def test_play_goes_on_and_stops_at_a_key(page: Viewer) -> None:
    page.browser.keys(" ")
    assert page.browser.run("return document.getElementById('play').getAttribute('aria-pressed')") == "true"
    for _ in range(100):
        if page.round() >= 2:
            break
        time.sleep(0.05)
    assert page.round() >= 2
    page.browser.keys("home")
    assert page.round() == 1
    assert page.browser.run("return document.getElementById('play').getAttribute('aria-pressed')") == "false"


def test_nodes_by_key_say_what_they_are(page: Viewer) -> None:
    record = TRACE.rounds[0]
    page.browser.keys("down", "down")
    assert page.browser.run("return document.querySelector('.node.chosen').dataset.node") == "1"
    said = page.text("#detail")
    assert said.startswith(f"{shown(record.pieces[0])} token {record.tokens[0]} at position {record.start + 1}")
    assert f"rank {record.ranks[0] + 1}" in said
    assert shown(record.posterior_pieces[1] or "") in said
    page.browser.keys("up", "up")
    assert page.text("#detail").startswith(f"{shown(record.next_piece)} token {record.next_token}")


def test_address_names_the_round(browser: Browser, tmp_path: Path) -> None:
    for fragment, number in (("#7", 7), ("#999", len(TRACE.rounds)), ("#x", 1), ("#-3", 1)):
        assert Viewer(browser, tmp_path / "trace.html", TRACE, fragment=fragment).round() == number


@pytest.mark.parametrize(
    "attack", ["</script><img src=x onerror='window.hit=1'>", "<img src=x onerror='window.hit=1'>"]
)
def test_hostile_text_stays_text(browser: Browser, tmp_path: Path, attack: str) -> None:
    data = msgspec.json.decode(msgspec.json.encode(TRACE))
    data["prompt_text"] = data["engine"] = data["text"] = data["finish_reason"] = attack
    for record in data["rounds"]:
        record["pieces"] = [attack] * len(record["pieces"])
        record["root_piece"] = record["next_piece"] = attack
        record["text_end"] = len(attack)
        record["text_start"] = record["bonus_start"] = 0
    viewer = Viewer(browser, tmp_path / "trace.html", msgspec.convert(data, Trace))
    viewer.browser.keys("right", "down", "down")
    assert viewer.round() == 2
    assert viewer.texts("img") == [] and browser.run("return window.hit === undefined")
    assert viewer.text("#engine") == attack and viewer.text("#text .next") == attack
    assert browser.console() == []


def test_a_foreign_script_does_not_run(browser: Browser, tmp_path: Path) -> None:
    """The policy itself: markup added to the file by hand is not obeyed."""
    path = tmp_path / "trace.html"
    write_viewer(path, TRACE)
    page = path.read_text("utf-8").replace("</body>", "<img src='x' onerror='hit=1'><script>hit=1</script></body>")
    path.write_text(page, "utf-8")
    browser.console()
    browser.open(path)
    assert browser.run("return document.body.dataset.round === '1' && window.hit === undefined")
    assert any("Content Security Policy" in message for message in browser.console())


def test_no_rounds_and_no_drafts(browser: Browser, tmp_path: Path) -> None:
    empty = msgspec.structs.replace(TRACE, rounds=())
    viewer = Viewer(browser, tmp_path / "trace.html", empty)
    viewer.browser.keys("right", "down", " ")
    assert viewer.text("#round-title") == "No rounds were recorded"
    assert viewer.text("#text") == TRACE.prompt_text + TRACE.text
    bare = msgspec.structs.replace(
        TRACE.rounds[0], tokens=(), parents=(-1,), depths=(), ranks=(), probabilities=(), pieces=(), accepted=(0,),
        posterior=(5,), posterior_pieces=("x",),
    )  # fmt: skip
    off = msgspec.structs.replace(TRACE, mode="off", budget=0, rounds=(bare,))
    viewer = Viewer(browser, tmp_path / "trace.html", off)
    assert [len(viewer.texts(f".node.{kind}")) for kind in ("root", "accepted", "rejected", "bonus")] == [1, 0, 0, 1]
    assert viewer.text("#detail").startswith("Nothing was drafted")
    assert viewer.browser.run("return document.getElementById('next').disabled")
    assert browser.console() == []


def test_unknown_probabilities(browser: Browser, tmp_path: Path) -> None:
    bare = [msgspec.structs.replace(r, probabilities=(None,) * len(r.tokens)) for r in TRACE.rounds[:2]]
    viewer = Viewer(browser, tmp_path / "trace.html", msgspec.structs.replace(TRACE, rounds=tuple(bare)))
    assert viewer.texts(".chance") == [] and "NaN" not in browser.run("return document.documentElement.outerHTML")
    assert browser.console() == []


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1024, 640), (390, 844), (320, 568)])
def test_page_never_scrolls_sideways(browser: Browser, tmp_path: Path, width: int, height: int) -> None:
    mobile = width < 800
    viewer = Viewer(browser, tmp_path / "trace.html", TRACE, fragment="#8", width=width, height=height, mobile=mobile)
    assert viewer.browser.run("return document.documentElement.scrollWidth") <= width
    if not mobile:
        assert viewer.browser.run("return document.documentElement.scrollHeight") <= height


def _luminance(color: str) -> float:
    red, green, blue = (int(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3])
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_contrast_in_both_schemes(browser: Browser, tmp_path: Path, dark: bool) -> None:
    """WCAG AA (4.5) for what must be read: pieces, text, numbers."""
    viewer = Viewer(browser, tmp_path / "trace.html", TRACE, fragment="#3", dark=dark)
    pairs = {
        ".node.accepted .piece": ".node.accepted rect",
        ".node.bonus .piece": ".node.bonus rect",
        ".node.root .piece": ".node.root rect",
        ".node.rejected .piece": ".node.rejected rect",
        "#text .drafts": "#text .drafts",
        "#text .next": "#text .next",
        "#numbers dt": ".card",
        "#facts": "body",
    }
    script = """const style = (s) => getComputedStyle(document.querySelector(s));
        const [front, back] = arguments, svg = back.endsWith("rect");
        return [svg ? style(front).fill : style(front).color, svg ? style(back).fill : style(back).backgroundColor]"""
    for front, back in pairs.items():
        high, low = sorted(map(_luminance, viewer.browser.run(script, front, back)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, front
    page = viewer.browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (_luminance(page) < 0.1) == dark
