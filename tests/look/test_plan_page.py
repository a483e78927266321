"""`ddtreec plan --html`: the command; what the page shows is tested in tests/browser."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

from ddtreec.emit.charts import Series, nice_top, spread
from ddtreec.emit.pages import json_island

from .commands import run


def test_the_page_is_one_file_and_the_same_twice(tmp_path: Path) -> None:
    for name in ("one.html", "two.html"):
        assert "wrote" in run("plan", "tiny-k2-cpu", "--html", str(tmp_path / name)).stderr
    text = (tmp_path / "one.html").read_text(encoding="utf-8")
    assert text == (tmp_path / "two.html").read_text(encoding="utf-8")
    island = re.search(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)
    assert island is not None
    assert json.loads(island[1]) == json.loads(run("plan", "tiny-k2-cpu", "--json").stdout)


def test_page_and_json_together(tmp_path: Path) -> None:
    out = run("plan", "tiny-k2-cpu", "--json", "--html", str(tmp_path / "p.html")).stdout
    assert json.loads(out)["engine"] == "tiny-k2-cpu" and (tmp_path / "p.html").exists()


def test_a_folder_that_is_not_there() -> None:
    assert "C001" in run("plan", "tiny-k2-cpu", "--html", "no/such/p.html", code=2).stderr


def test_json_cannot_end_its_element() -> None:
    told = json_island(json.dumps({"a": "</script><b>&"}).encode())
    assert "<" not in told and json.loads(told) == {"a": "</script><b>&"}


def test_axes_hold_their_values() -> None:
    for most in (0.003, 0.9, 1.0, 7.3, 54.5, 999.0, 1000.0, 123456.0):
        top, step = nice_top(most)
        assert most <= top * (1 + 1e-9) <= most * 2.6 and 2 <= round(top / step) <= 5
    assert nice_top(0) == (1.0, 0.5)


def test_names_do_not_lie_on_each_other() -> None:
    s = Series("s", "", ((0.0, 0.0),))
    ends = [y for y, _ in spread([(100.0, s), (98.0, s), (97.0, s), (20.0, s)])]
    assert ends[-1] == 20.0 and all(a - b >= 13 for a, b in itertools.pairwise(ends))
