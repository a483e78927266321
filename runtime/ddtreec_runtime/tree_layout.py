"""A tree as the verifier sees it: rows, positions and mask going in, cache rows to keep coming out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ddtreec_runtime.arrays import vector

if TYPE_CHECKING:
    from ddtreec_runtime.tree import Tree


@dataclass(frozen=True, slots=True)
class VerifierInputs:
    """What the target is fed in one verify; `allowed` covers the prefix and the tree.

    ids        int32 [n + 1]: root token first
    positions  int32 [n + 1]: absolute, start + depth (not the row number)
    allowed    bool [n + 1, start + n + 1]: row may attend column; the `start` prefix columns are all True
    """

    ids: np.ndarray
    positions: np.ndarray
    allowed: np.ndarray


def verifier_inputs(tree: Tree, root_token: int, start: int) -> VerifierInputs:
    """Inputs of one verify in arrays of their own; see `VerifierBuffers` for a decode loop."""
    return VerifierBuffers(tree.rows, start + tree.rows).fill(tree, root_token, start)


class VerifierBuffers:
    """Verifier inputs written into the same arrays round after round.

    Room for `max_rows` rows (budget + 1) over `max_columns` cached tokens (context + budget + 1). A fill costs
    O(rows^2), whatever the prefix: outside the last tree every entry of the mask stays True.
    """

    def __init__(self, max_rows: int, max_columns: int):
        self.ids = np.zeros(max_rows, dtype=np.int32)
        self.positions = np.zeros(max_rows, dtype=np.int32)
        self.mask = np.ones((max_rows, max_columns), dtype=np.bool_)
        self._last = (0, 0)

    def fill(self, tree: Tree, root_token: int, start: int) -> VerifierInputs:
        """Views of this round's inputs, valid until the next fill. `start`: the root's position = cached tokens.

        Raises ValueError on a negative start and where the tree does not fit.
        """
        rows = tree.rows
        if start < 0:
            raise ValueError(f"start is {start}; it counts cached tokens")
        if rows > len(self.ids) or start + rows > self.mask.shape[1]:
            raise ValueError(f"{rows} rows from {start} on do not fit buffers of {list(self.mask.shape)}")
        self.ids[0] = root_token
        self.ids[1:rows] = tree.tokens
        self.positions[0] = start
        np.add(tree.depths, start, out=self.positions[1:rows])
        old_start, old_rows = self._last
        self.mask[:old_rows, old_start : old_start + old_rows] = True
        self.mask[:rows, start : start + rows] = tree.visibility
        self._last = (start, rows)
        return VerifierInputs(self.ids[:rows], self.positions[:rows], self.mask[:rows, : start + rows])


def compaction(accepted: Sequence[int], start: int) -> tuple[np.ndarray, np.ndarray]:
    """Cache rows to move after a walk: (source, destination), int64 [m] each; empty when the path is already in place.

    Row start + accepted[j] goes to start + j; the leading j with accepted[j] == j stay. Every source must be read
    before any destination is written (or the moves be done in order: accepted[j] >= j). Afterwards start +
    len(accepted) rows are valid. Raises ValueError unless accepted starts with 0 and strictly increases.
    """
    nodes = vector(accepted, "accepted", np.integer).astype(np.int64)
    if len(nodes) == 0 or nodes[0] != 0 or (nodes[1:] <= nodes[:-1]).any():
        raise ValueError(f"accepted is {nodes.tolist()}; a path starts with 0 and strictly increases")
    places = np.arange(len(nodes), dtype=np.int64)
    moved = nodes != places
    return nodes[moved] + start, places[moved] + start


def compact(cache: Any, accepted: Sequence[int], start: int, axis: int) -> Any:
    """Apply `compaction` in place to one cache (torch tensor or numpy array) whose tokens lie along `axis`.

    Returns the view of the start + len(accepted) rows that remain. Raises ValueError as `compaction` does and where
    an accepted row lies outside the cache.
    """
    source, destination = compaction(accepted, start)
    length = start + len(accepted)
    needed = int(source[-1]) + 1 if len(source) else length
    if start < 0 or needed > cache.shape[axis]:
        raise ValueError(
            f"path {list(accepted)} from {start} on needs {needed} rows; the cache has {cache.shape[axis]}"
        )
    lead = (slice(None),) * (axis % cache.ndim)
    if len(source):
        first = int(destination[0])
        # Indexing with an array gathers into a copy, so no row is overwritten before it is read.
        gather = torch.from_numpy(source).to(cache.device) if isinstance(cache, torch.Tensor) else source
        cache[(*lead, slice(first, length))] = cache[(*lead, gather)]
    return cache[(*lead, slice(0, length))]
