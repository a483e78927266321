"""Reading the golden npz files: ragged arrays, and files whose arrays carry a case prefix."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parents[1] / "data"


@cache
def load(path: str) -> dict[str, np.ndarray]:
    """All arrays of `tests/data/<path>`, read once."""
    with np.load(DATA / path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def ragged(arrays: dict[str, np.ndarray], name: str, case: int) -> np.ndarray:
    """Case `case` of a ragged array: `name[name_off[case]:name_off[case + 1]]`, flat."""
    offsets = arrays[f"{name}_off"]
    return arrays[name][offsets[case] : offsets[case + 1]]


def prefixes(arrays: dict[str, np.ndarray], last: str) -> list[str]:
    """The case prefixes of a file, e.g. 'c3_', found as what precedes the array called `last`."""
    return sorted((key.removesuffix(last) for key in arrays if key.endswith(f"_{last}")), key=lambda p: (len(p), p))


def golden_tree_inputs(case: int) -> tuple[np.ndarray, np.ndarray, int]:
    """(top_logprobs [L, K], top_token_ids [L, K], budget) of a case of ddtree/trees.npz."""
    trees = load("ddtree/trees.npz")
    shape = int(trees["case_depth_limit"][case]), int(trees["case_k_stored"][case])
    return (
        ragged(trees, "top_logprobs", case).reshape(shape),
        ragged(trees, "top_token_ids", case).reshape(shape),
        int(trees["case_budget"][case]),
    )
