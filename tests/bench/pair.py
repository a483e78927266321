"""Which trained pair the tests of measurements run on: the shipped one, else the golden one beside the repository."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ddtreec.cli.prompts import read_prompts
from ddtreec_runtime import Engine
from tests.runtime.engines import bundle

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "models" / "tiny-pair"
GOLDEN = next((p / "shared/goldens/tiny-pair" for p in ROOT.parents if (p / "shared/goldens/tiny-pair").is_dir()), None)


@dataclass(frozen=True)
class Pair:
    """Checkpoints, the bundle with a tree of 64, and prompts as ids."""

    target: Path
    drafter: Path
    bundle: Path
    prompts: list[list[int]]

    def load(self, dtype: str = "float32") -> Engine:
        return Engine.load(self.bundle, self.target, self.drafter, dtype=dtype)


def _pair(folder: Path, prompts: list[list[int]]) -> Pair:
    target, drafter = folder / "target", folder / "drafter"
    return Pair(target, drafter, bundle(target, drafter=drafter, tree="ddtree-64", eps=1e-5), prompts)


def golden_pair() -> Pair:
    """The pair whose tau table is known; skips where it is not there."""
    if GOLDEN is None or not (GOLDEN / "goldens.npz").exists():
        pytest.skip("the golden pair is not beside the repository")
    with np.load(GOLDEN / "goldens.npz") as file:
        return _pair(GOLDEN, file["prompts"].tolist())


def shipped_pair() -> Pair:
    """The pair that ships with the package; skips where it is not trained yet."""
    prompts = SHIPPED / "heldout.jsonl"
    if not prompts.exists():
        pytest.skip("models/tiny-pair is not there")
    return _pair(SHIPPED, [list(one.ids) for one in read_prompts(None, None, None, prompts)])


def any_pair() -> Pair:
    """The shipped pair, else the golden one."""
    return shipped_pair() if (SHIPPED / "heldout.jsonl").exists() else golden_pair()
