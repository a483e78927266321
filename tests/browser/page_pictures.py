"""Rewrites the pictures of the graph and plan pages in docs/images: `python tests/browser/page_pictures.py`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from webdriver import Browser

ROOT = Path(__file__).resolve().parents[2]
ENGINE = "kimi-k2.6-rtx-pro-6000-x8-pcie"
OPEN = """
  document.querySelectorAll('.run > button')[2].click();
  [...document.querySelectorAll('.row')].find((row) => row.textContent.includes('experts_shared')).click();
  document.activeElement.blur();
"""


def main() -> None:
    """Makes both pages and takes each in light and dark."""
    with tempfile.TemporaryDirectory() as name, Browser(Path(name)) as browser:
        folder = Path(name)
        for verb, flag in (("graph", "-o"), ("plan", "--html")):
            page = folder / f"{verb}.html"
            subprocess.run(
                [sys.executable, "-m", "ddtreec.cli.main", verb, ENGINE, flag, str(page)], cwd=ROOT, check=True
            )
            for dark in (False, True):
                browser.emulate(1440, 900 if verb == "graph" else 1180, dark=dark)
                browser.open(page)
                if verb == "graph":
                    browser.run(OPEN)
                browser.screenshot(ROOT / "docs" / "images" / f"{verb}-{'dark' if dark else 'light'}.png")


if __name__ == "__main__":
    main()
