"""Rewrites generated/: what `ddtreec compile` gives for the reference engines, committed as text and reviewed as diffs.

Run it as `python -m tools.golden` after a change of a pass, a template or a shipped spec; both go in one commit. CUDA
engines stop at their sources: binaries are no text, and what is committed must not depend on a version of NVRTC.
"""

from __future__ import annotations

from pathlib import Path

from ddtreec import driver

ENGINES: dict[str, driver.Stage] = {
    "tiny-k2-cpu": "bundle",
    "tiny-k2-h200-x1": "src",
    "kimi-k2.6-rtx-pro-6000-x8-pcie": "src",
}
"""Reference engine to the stage that is committed."""

ROOT = Path(__file__).resolve().parents[1] / "generated"


def main(root: Path = ROOT) -> None:
    """Compiles the reference engines into `root`, one folder each."""
    for engine, stage in ENGINES.items():
        driver.compile_engine(engine, to=stage, out=root / engine)
        print(root / engine)


if __name__ == "__main__":
    main()
