"""Pictures for the documentation from a trace: `python tests/browser/pictures.py TRACE.json docs/images ROUND`.

Writes viewer-light.png, viewer-dark.png (the page at that round) and show-tree.png (the terminal from that round on).
"""

from __future__ import annotations

import html
import re
import sys
import tempfile
from pathlib import Path

from ddtreec_runtime.rounds import Round
from ddtreec_runtime.show import draw_round
from ddtreec_runtime.trace import Trace, decode_trace, write_viewer

sys.path.insert(0, str(Path(__file__).parent))
from webdriver import Browser

_LOOK = {"1": "color:#f2f4f7;font-weight:700", "1;32": "color:#4cd9a3;font-weight:700", "2": "color:#7d8894"}
_LOOK["1;36"] = "color:#6cc7f5;font-weight:700"
_COLUMNS = 108


def terminal(trace: Trace, first: int, rounds: int = 4) -> str:
    """Rounds as a terminal shows them, as an HTML page."""
    drawn: list[str] = []
    for number, told in enumerate(trace.rounds[first - 1 : first - 1 + rounds], start=first):
        pieces = dict(zip(told.tokens, told.pieces, strict=True))
        pieces |= {told.root: told.root_piece, told.next_token: told.next_piece}
        record = Round(**{name: getattr(told, name) for name in Round.__dataclass_fields__})
        drawn.append(draw_round(record, pieces.__getitem__, _COLUMNS, True, number=number))
    text = html.escape("\n\n".join(drawn), quote=False)
    text = re.sub("\x1b\\[0m", "</span>", text)
    text = re.sub("\x1b\\[([0-9;]+)m", lambda match: f'<span style="{_LOOK[match[1]]}">', text)
    style = "margin:0;padding:22px 26px;background:#12161b;color:#d5dae1;font:15px/1.32 'DejaVu Sans Mono',monospace"
    return f'<!doctype html><meta charset="utf-8"><body style="margin:0"><pre style="{style}">{text}</pre>'


def main(source: str, folder: str, shown: str) -> None:
    """Draw the three pictures."""
    trace, out = decode_trace(Path(source).read_bytes(), source), Path(folder)
    with tempfile.TemporaryDirectory() as scratch, Browser(Path(scratch)) as browser:
        page = Path(scratch) / "page.html"
        write_viewer(page, trace)
        for scheme in ("light", "dark"):
            browser.emulate(1280, 800, dark=scheme == "dark", scale=1.5)
            browser.open(page, f"#{shown}")
            browser.screenshot(out / f"viewer-{scheme}.png")
        page.write_text(terminal(trace, int(shown)), "utf-8")
        browser.open(page)
        browser.run("document.querySelector('pre').style.width = 'max-content'")
        width, height = browser.run("const b = document.querySelector('pre'); return [b.offsetWidth, b.offsetHeight]")
        browser.emulate(width, height, scale=1.5)
        browser.screenshot(out / "show-tree.png")


if __name__ == "__main__":
    main(*sys.argv[1:4])
