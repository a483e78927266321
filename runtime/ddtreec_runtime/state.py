"""What kernels may know of a step besides their operands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Mesh, Rope
from ddtreec_runtime.kv import ContextCache, LatentCache, Placement


class RopeTables:
    """The rotary tables of a plan, evaluated at the positions of the present step and shared by all ranks."""

    def __init__(self, ropes: Mapping[str, Rope], dtype: torch.dtype):
        self.ropes = dict(ropes)
        self._complex = torch.complex128 if dtype == torch.float64 else torch.complex64
        self._inv_freq = {name: torch.tensor(r.inv_freq, dtype=torch.float64) for name, r in ropes.items()}
        self._positions: Tensor | None = None
        self._turns: dict[tuple[str, bool], Tensor] = {}

    def at(self, positions: Tensor, table: str, heads: bool = False) -> Tensor:
        """amplitude * exp(i position inv_freq), angles in float64: complex [rows, dim / 2], or [rows, 1, dim / 2]."""
        if positions is not self._positions:
            self._positions, self._turns = positions, {}
        turn = self._turns.get((table, heads))
        if turn is None:
            turn = self.at(positions, table).unsqueeze(1) if heads else self._evaluated(positions, table)
            self._turns[table, heads] = turn
        return turn

    def _evaluated(self, positions: Tensor, table: str) -> Tensor:
        angle = positions.to(torch.float64).unsqueeze(1) * self._inv_freq[table]
        size = torch.full_like(angle, self.ropes[table].amplitude)
        return torch.polar(size, angle).to(self._complex)


class StepState:
    """One rank's view of the step that runs. Kernels read it; the engine sets it with `begin`.

    rows, out_rows: rows of the step and rows the head is asked for. committed: tokens already in the cache that the
    program appends to. positions: int64 [rows]. hidden: bool [rows, 1, rows], True where a row must not see another
    row of the step, None when each sees all (one row). out_index: int64 [out_rows]. inputs: the values the step is
    given, by name. placement: slots of the latent cache. latent, context: this rank's caches.
    """

    def __init__(
        self,
        ropes: RopeTables,
        dtype: torch.dtype,
        latent: LatentCache | None = None,
        context: ContextCache | None = None,
        mesh: Mesh | None = None,
        rank: int = 0,
    ):
        """`mesh` and `rank`: which slices of cut weights this rank holds; one rank by default."""
        self.mesh = mesh or Mesh(1, 1, 1)
        self.rank = rank
        self.tables = ropes
        self.ropes = ropes.ropes
        self.dtype = dtype
        self.latent = latent
        self.context = context
        self.rows = self.out_rows = self.committed = 0
        self.positions = torch.zeros(0, dtype=torch.int64)
        self.out_index = torch.zeros(0, dtype=torch.int64)
        self.hidden: Tensor | None = None
        self.placement = Placement(0, 0)
        self.inputs: dict[str, Tensor] = {}

    def begin(
        self,
        inputs: Mapping[str, Tensor],
        positions: Tensor,
        *,
        committed: int = 0,
        hidden: Tensor | None = None,
        out_index: Tensor | None = None,
        placement: Placement | None = None,
    ) -> None:
        """Set all that changes from step to step. Defaults: rows from slot `committed` on, all rows out."""
        self.inputs = dict(inputs)
        self.positions = positions
        self.rows = positions.shape[0]
        self.committed = committed
        self.hidden = hidden
        self.out_index = every_row(self.rows) if out_index is None else out_index
        self.out_rows = self.out_index.shape[0]
        self.placement = Placement(committed, self.rows) if placement is None else placement

    def first(self, coord: str, per: int) -> int:
        """Number of the first row or expert this rank holds, where rank index n along `coord` holds run n of `per`."""
        return self.mesh.coord(coord, self.rank) * per

    def turn(self, table: str, heads: bool = False) -> Tensor:
        """Rotation of each row of the step, complex [rows, dim / 2], with an axis of one in the middle for `heads`."""
        return self.tables.at(self.positions, table, heads)


@lru_cache(maxsize=256)
def every_row(rows: int) -> Tensor:
    """0 .. rows, int64. Shared: never write to it."""
    return torch.arange(rows)


@lru_cache(maxsize=256)
def causal(rows: int) -> Tensor | None:
    """The `hidden` of a plain run of tokens: a row must not see later rows. Shared: never write to it."""
    if rows == 1:
        return None
    return torch.ones(rows, rows, dtype=torch.bool).triu(1).unsqueeze(1)


def buffer_dtype(name: str, compute: torch.dtype) -> torch.dtype:
    """torch dtype of a plan value: 'compute' is the engine's, 'float32' at least float32."""
    if name == "compute":
        return compute
    if name == "float32":
        return torch.float64 if compute == torch.float64 else torch.float32
    return {"int32": torch.int32, "int64": torch.int64}[name]
