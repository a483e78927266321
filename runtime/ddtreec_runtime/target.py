"""The target model as the loop sees it: prefill, verify a tree, commit the accepted path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ddtreec_runtime.kv import PageTable
from ddtreec_runtime.program import BoundProgram
from ddtreec_runtime.state import causal

NO_ROWS = torch.zeros(0, dtype=torch.int64)


class Target:
    """One sequence on all ranks.

    `step` puts rows behind the committed tokens without committing them; `commit` keeps some. `features` are the tapped
    residuals of the rows of the last step.
    """

    def __init__(self, program: BoundProgram, table: PageTable, chunk: int, context: int):
        self.program = program
        self.table = table
        self.chunk = chunk
        self.context = context
        self.max_rows = program.program.max_rows
        self.max_out_rows = program.program.max_out_rows
        self._caches = [state.latent for state in program.states if state.latent is not None]
        self._tokens = program.inputs["tokens"]

    @property
    def committed(self) -> int:
        """Tokens whose latents are kept: the absolute position of the next row."""
        return self.table.committed

    @property
    def room(self) -> int:
        """Rows that still fit behind the committed tokens."""
        pool = self.table.pool
        return (len(pool.free) + len(self.table.pages)) * pool.page - self.committed

    def step(
        self,
        tokens: Sequence[int] | Tensor,
        positions: Tensor | None = None,
        hidden: Tensor | None = None,
        out_index: Tensor | None = None,
    ) -> Tensor:
        """Run rows; logits [out_rows, V], a view that the next step overwrites.

        tokens: ids [rows]. positions: int64 [rows], by default the places right behind the committed tokens. hidden:
        bool [rows, 1, rows] as in StepState, by default causal for default positions. out_index: rows to give logits
        for, all by default. Raises MemoryError when the cache is full, ValueError for more than `max_rows` rows.
        """
        rows, start = len(tokens), self.committed
        if rows > self.max_rows:
            raise ValueError(f"a step takes {self.max_rows} rows, not {rows}")
        ids = tokens if isinstance(tokens, Tensor) else torch.tensor(tokens, dtype=torch.int32)
        self._tokens[:rows] = ids
        if positions is None:
            positions, hidden = torch.arange(start, start + rows), causal(rows)
        placement = self.table.place(rows)
        for state in self.program.states:
            state.begin(
                self.program.inputs, positions, committed=start, hidden=hidden, out_index=out_index, placement=placement
            )
        self.program.run()
        return self.program.output("logits")

    def commit(self, accepted: Sequence[int]) -> None:
        """Keep these rows of the last step (increasing), in order; the others are gone."""
        self.table.commit(accepted, self._caches)

    def prefill(self, tokens: Sequence[int], out: str = "last") -> Iterator[tuple[range, Tensor]]:
        """Commit `tokens` in chunks, giving after each chunk its absolute positions and logits.

        `out`: 'last' gives logits [1, V] of the last token with the last chunk and [0, V] before, 'all' of every row,
        'none' no logits. The features of the chunk are readable until the next one.
        """
        chunk = min(self.chunk, self.max_out_rows) if out == "all" else self.chunk
        for begin in range(0, len(tokens), chunk):
            part = tokens[begin : begin + chunk]
            rows, start = len(part), self.committed
            last = out == "last" and begin + rows == len(tokens)
            index = None if out == "all" else torch.tensor([rows - 1]) if last else NO_ROWS
            logits = self.step(part, out_index=index)
            self.commit(range(rows))
            yield range(start, start + rows), logits

    def features(self, rows: int) -> Tensor | None:
        """[rows, taps * hidden] of the last step, None when the plan taps nothing. A view of the live buffer."""
        buffer = self.program.persistent[0].get("features")
        return None if buffer is None else buffer[:rows]

    def reset(self) -> None:
        """Forget the sequence."""
        self.table.release()
