"""Rewrites generated/: what `ddtreec compile` gives for the reference engines, committed as text and reviewed as diffs.

Run it as `python -m tools.golden` after a change of a pass, a template or a shipped spec; both go in one commit.
"""

from __future__ import annotations

from pathlib import Path

from ddtreec import driver

ENGINES = ("tiny-k2-cpu", "kimi-k2.6-rtx-pro-6000-x8-pcie")
ROOT = Path(__file__).resolve().parents[1] / "generated"


def main(root: Path = ROOT) -> None:
    """Compiles the reference engines into `root`, one folder each."""
    for engine in ENGINES:
        driver.compile_engine(engine, out=root / engine)
        print(root / engine)


if __name__ == "__main__":
    main()
