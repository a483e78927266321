"""The pages of `graph` and `plan --html` in a real browser: no network, no errors, and the numbers of the plan."""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddtreec import driver
from ddtreec.core.units import format_bytes
from ddtreec.emit.graph_page import graph_page
from ddtreec.emit.plan_page import plan_page
from ddtreec.plan.build_view import graph_view
from ddtreec.plan.text import text as plan_text
from ddtreec.spec.load import load_engine

sys.path.insert(0, str(Path(__file__).parent))
from webdriver import CHROMEDRIVER, CHROMIUM, Browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and CHROMEDRIVER), reason="needs chromium and chromedriver"),
]

BIG, TINY = "kimi-k2.6-rtx-pro-6000-x8-pcie", "tiny-k2-cpu"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


class Page:
    """A page that is open."""

    def __init__(self, browser: Browser, path: Path, text: str, fragment: str = "", **look: Any):
        path.write_text(text, encoding="utf-8")
        self.browser, self.path = browser, path
        browser.console()
        browser.emulate(**({"width": 1280, "height": 900} | look))
        browser.open(path, fragment)

    def texts(self, selector: str) -> list[str]:
        script = """
            return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent.replace(/\\s+/g, ' ').trim());
        """
        return self.browser.run(script, selector)

    def text(self, selector: str) -> str:
        (only,) = self.texts(selector)
        return only

    def count(self, selector: str) -> int:
        return len(self.texts(selector))

    def click(self, selector: str, number: int = 0) -> None:
        self.browser.run("document.querySelectorAll(arguments[0])[arguments[1]].click()", selector, number)

    def choose(self, selector: str, label: str) -> None:
        script = """
            const select = document.querySelector(arguments[0]);
            select.value = [...select.options].find((o) => o.textContent === arguments[1]).value;
            select.dispatchEvent(new Event('change', {bubbles: true}));
        """
        self.browser.run(script, selector, label)

    def table(self, name: str) -> list[list[str]]:
        script = """
            return [...document.querySelectorAll(`[data-table="${arguments[0]}"] tr`)].map(
              (row) => [...row.cells].map((cell) => cell.textContent.replace(/\\s+/g, ' ').trim()));
        """
        return self.browser.run(script, name)

    def quiet(self) -> None:
        """Nothing was said on the console, and nothing was asked of a network."""
        assert self.browser.console() == []
        assert self.browser.run("return performance.getEntriesByType('resource').length") == 0


def graph_text(engine: str, layer: str = "") -> str:
    return graph_page(graph_view(driver.state_after(load_engine(engine), "fuse"), "fuse"), layer)


@pytest.fixture
def graph(browser: Browser, tmp_path: Path) -> Page:
    return Page(browser, tmp_path / "graph.html", graph_text(BIG))


# ---- graph --------------------------------------------------------------------------------------------------------


def test_the_big_model_is_small_and_quick(browser: Browser, tmp_path: Path) -> None:
    text = graph_text(BIG)
    assert len(text.encode()) < 2_000_000
    assert re.search(r"(?:src|href)=|@import|url\(", text) is None
    began = time.perf_counter()
    page = Page(browser, tmp_path / "graph.html", text)
    assert page.count(".run") == 5
    assert time.perf_counter() - began < 3.0
    drawn = "const n = performance.getEntriesByType('navigation')[0]; return n.domComplete - n.responseEnd"
    assert browser.run(drawn) < 1000
    page.quiet()


def test_a_layer_opens_and_closes(graph: Page) -> None:
    assert graph.count(".row") == 0
    number = next(i for i, words in enumerate(graph.texts(".run .name")) if "\u00d759" in words)
    graph.click(".run > button", number)
    names = graph.texts(".row .id")
    assert "moe.experts_shared" in names and graph.count('.run > button[aria-expanded="true"]') == 1
    graph.click(".run > button", number)
    assert graph.count(".row") == 0
    graph.quiet()


def test_what_a_node_shows_is_the_plan(graph: Page) -> None:
    report = driver.plan(load_engine(BIG))
    (layer,) = [x for x in report.layers if x.program == "target" and "L03" in (x.layer, *x.same)]
    graph.click(".run > button", 2)
    graph.choose(".as select", "L03")
    compared = 0
    for column, rows in enumerate(report.rows):
        graph.choose("#rows", str(rows))
        shown = {name: i for i, name in enumerate(graph.texts(".row .id"))}
        for kernel in layer.kernels:
            graph.click(".row", shown[kernel.node])
            assert graph.text("#node") == f"L03.{kernel.node}"
            assert graph.text('[data-number="predicted"]') == f"{kernel.predicted_us[column]:.1f} µs"
            assert graph.text('[data-number="floor"]') == f"{kernel.floor_us[column]:.1f} µs"
            if rows == report.rows[-1]:
                assert graph.text('[data-number="weights read"]') == format_bytes(kernel.weight_bytes)
            compared += 1
    assert compared == 2 * len(layer.kernels) >= 16
    graph.quiet()


def test_the_time_of_a_program_is_the_step_of_the_plan(graph: Page) -> None:
    steps = {s.rows: s for s in driver.plan(load_engine(BIG)).steps if s.program == "target"}
    for rows in (1, 4, 8, 64):
        graph.choose("#rows", str(rows))
        assert f"{steps[rows].predicted_ms:.3f} ms predicted for {rows} row" in graph.text("#detail .sub")
        parts = [float(words.removesuffix(" ms")) for words in graph.texts(".run .big")]
        assert sum(parts) == pytest.approx(steps[rows].predicted_ms, abs=0.003)


def test_details_name_tensors_of_the_layer_that_is_shown(graph: Page) -> None:
    graph.click(".run > button", 2)
    graph.choose(".as select", "L37")
    graph.click(".row", graph.texts(".row .id").index("moe.experts_shared"))
    tensors = graph.texts("#detail .weight code")
    assert "language_model.model.layers.37.mlp.experts.{expert}.gate_proj.weight" in tensors
    assert "L36" not in graph.text("#detail") and "kimi-k2.6.yaml:" in graph.text("#detail")


def test_search_finds_a_node_of_any_layer(graph: Page) -> None:
    graph.browser.keys("/")
    graph.browser.keys(*"L37.moe.experts")
    assert graph.texts("#hits li")[0].startswith("L37.moe.experts")
    graph.browser.keys("\ue007")
    assert graph.text("#node") == "L37.moe.experts_shared"
    graph.browser.keys("/")
    graph.browser.keys(*"lm_head")
    assert any("draft" in words for words in graph.texts("#hits li"))
    graph.browser.keys("\ue00c")
    graph.quiet()


def test_the_keyboard_is_enough(graph: Page) -> None:
    graph.browser.keys("down", "down", "down", "\ue007")
    assert graph.count(".row") > 5
    graph.browser.keys("down", "down", "\ue007")
    first = graph.text("#node")
    graph.browser.keys("down")
    assert graph.text("#node") != first
    graph.browser.keys("\ue00c")
    assert graph.text("#node") == "target"
    graph.quiet()


def test_programs_and_deep_links(browser: Browser, tmp_path: Path) -> None:
    page = Page(browser, tmp_path / "g.html", graph_text(TINY), "#draft_block%3AD01.mlp.swiglu_linear")
    assert page.text("#node") == "D01.mlp.swiglu_linear"
    page.click("#programs button", 1)
    assert page.text('#programs [aria-selected="true"]') == page.text("#node") == "draft_context"
    page.quiet()


def test_a_layer_is_open_at_the_start(browser: Browser, tmp_path: Path) -> None:
    page = Page(browser, tmp_path / "g.html", graph_text(TINY, "L03"))
    assert page.browser.run("return document.querySelector('.as select').value") == "L03"


# ---- plan ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [BIG, TINY, "moonlight-16b-a3b-h200-x1"])
def test_the_page_says_what_the_text_says(browser: Browser, tmp_path: Path, engine: str) -> None:
    report = driver.plan(load_engine(engine))
    text = plan_page(report)
    assert re.search(r"(?:src|href)=|@import|url\(", text) is None and len(text.encode()) < 500_000
    page = Page(browser, tmp_path / "plan.html", text)
    told = [re.split(r"\s{2,}", line.strip()) for line in plan_text(report).splitlines()]
    for row in page.table("memory")[1:-2]:
        assert row[:3] in told
    for row in page.table("steps")[1:]:
        assert row in told
    if len(report.budgets) > 1:
        for row in page.table("speed")[1:]:
            assert row in told
    for question, answer in report.layout.items():
        assert [question, answer] in page.table("layout")
    page.quiet()


def test_the_sweeps_meet_the_report(browser: Browser, tmp_path: Path) -> None:
    report = driver.plan(load_engine(BIG))
    swept = report.sweep
    page = Page(browser, tmp_path / "plan.html", plan_page(report))
    steps = {str(s.rows): s for s in report.steps if s.program == "target"}
    rows = page.table("rows")
    assert rows[0][:3] == ["rows", "floor ms", "predicted ms"] and len(rows) > 10
    for row in rows[1:]:
        assert row[1:3] == [f"{steps[row[0]].floor_ms:.3f}", f"{steps[row[0]].predicted_ms:.3f}"]
        assert sum(map(float, row[3:])) == pytest.approx(float(row[2]), abs=0.005)
    contexts = {row[0]: row[1:] for row in page.table("contexts")[1:]}
    assert list(contexts) == ["1,024", "2,048", "4,096", "8,192", "16,384", "32,768", "65,536", "131,072", "262,144"]
    for count, value in zip(swept.context_rows, contexts["8,192"], strict=True):
        assert value == f"{steps[str(count)].predicted_ms:.3f}"
    values = [[float(x) for x in row] for row in contexts.values()]
    assert all(a <= b for one, two in itertools.pairwise(values) for a, b in zip(one, two, strict=True))


def test_charts_are_drawn_to_scale(browser: Browser, tmp_path: Path) -> None:
    report = driver.plan(load_engine(BIG))
    swept = report.sweep
    Page(browser, tmp_path / "plan.html", plan_page(report))
    script = """
        const boxes = {};
        for (const rect of document.querySelectorAll('#rows rect')) {
          const rows = rect.querySelector('title').textContent.match(/, (\\d+): /)[1];
          boxes[rows] = (boxes[rows] ?? 0) + rect.getBBox().height + 0.6;
        }
        return boxes;
    """
    heights = browser.run(script)
    for point in swept.by_rows:
        expected = heights["64"] * point.predicted_ms / swept.by_rows[-1].predicted_ms
        assert heights[str(point.rows)] == pytest.approx(expected, abs=2.5)
    widths = "return [...document.querySelectorAll('#memory rect:not(.track)')].map((r) => r.getBBox().width)"
    used = sum(row.bytes for row in report.memory) / report.device_bytes
    assert sum(browser.run(widths)) / 716 == pytest.approx(used, abs=0.03)


@pytest.mark.parametrize("kind", ["graph", "plan"])
@pytest.mark.parametrize("dark", [False, True])
def test_both_themes_can_be_read(browser: Browser, tmp_path: Path, kind: str, dark: bool) -> None:
    report = driver.plan(load_engine(TINY))
    text = graph_text(TINY) if kind == "graph" else plan_page(report)
    page = Page(browser, tmp_path / "page.html", text, dark=dark)

    def contrast() -> float:
        return browser.run("""
          const linear = (v) => v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
          const light = (text) => {
            const c = document.createElement('canvas').getContext('2d');
            c.fillStyle = text;
            c.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...c.getImageData(0, 0, 1, 1).data].map(linear);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const facts = getComputedStyle(document.querySelector('.facts')), body = getComputedStyle(document.body);
          const [a, b] = [light(facts.color), light(body.backgroundColor)];
          return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        """)

    assert contrast() > 4.5
    ground = "return getComputedStyle(document.body).backgroundColor"
    before = browser.run(ground)
    page.click("#theme")
    assert browser.run(ground) != before and contrast() > 4.5
    page.quiet()


@pytest.mark.parametrize("kind", ["graph", "plan"])
def test_a_narrow_window_does_not_scroll_sideways(browser: Browser, tmp_path: Path, kind: str) -> None:
    report = driver.plan(load_engine(TINY))
    text = graph_text(TINY, "L03") if kind == "graph" else plan_page(report)
    Page(browser, tmp_path / "page.html", text, width=400, height=800)
    assert browser.run("return document.documentElement.scrollWidth") <= 400
