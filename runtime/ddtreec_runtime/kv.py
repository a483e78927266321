"""Caches of one sequence: the paged latent cache of the target and the context cache of the drafter.

Rows of a step are written right behind the committed rows. Committing keeps some of them; whatever is not kept is
overwritten by the next step before it can be read, so a rejected row is never visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a sequence lies: `committed` + `rows` slots, as a run from `first` or, scattered, as `slots`."""

    committed: int
    rows: int
    first: int = 0
    slots: Tensor | None = None
    """int64 [committed + rows], None when the tokens are one run of slots."""


class PagePool:
    """Which pages of `page` tokens are free. Shared by all layers and ranks: page n is the same slots in each cache."""

    def __init__(self, pages: int, page: int):
        self.page = page
        self.free = list(range(pages))

    def take(self, count: int, after: int | None = None) -> list[int]:
        """`count` free pages, following page `after` if possible, else the first run long enough, else the lowest.

        Raises MemoryError when fewer are free.
        """
        if count > len(self.free):
            raise MemoryError(f"{count} pages wanted, {len(self.free)} free")
        starts = range(len(self.free) - count + 1)
        runs = [i for i in starts if self.free[i + count - 1] - self.free[i] == count - 1]
        follow = [i for i in runs if after is not None and self.free[i] == after + 1]
        at = (follow or runs or [0])[0]
        taken = self.free[at : at + count]
        del self.free[at : at + count]
        return taken

    def give(self, pages: Sequence[int]) -> None:
        """Return pages to the pool."""
        self.free = sorted([*self.free, *pages])


class PageTable:
    """The pages of one sequence and how many of its tokens are committed."""

    def __init__(self, pool: PagePool):
        self.pool = pool
        self.pages: list[int] = []
        self.committed = 0
        self._consecutive = True

    def place(self, rows: int) -> Placement:
        """Slots of the committed tokens and of `rows` new ones; takes pages as needed. Raises MemoryError when full."""
        page, total = self.pool.page, self.committed + rows
        missing = -(-total // page) - len(self.pages)
        if missing > 0:
            self.pages += self.pool.take(missing, self.pages[-1] if self.pages else None)
            self._consecutive = self.pages[-1] - self.pages[0] == len(self.pages) - 1 and self.pages == sorted(
                self.pages
            )
        if self._consecutive:
            return Placement(self.committed, rows, self.pages[0] * page if self.pages else 0)
        return Placement(self.committed, rows, slots=self.slots(0, total))

    def slots(self, start: int, stop: int) -> Tensor:
        """Slots of tokens [start, stop), int64."""
        token = torch.arange(start, stop)
        page = self.pool.page
        return torch.tensor(self.pages)[token // page] * page + token % page

    def commit(self, accepted: Sequence[int], caches: Sequence[LatentCache]) -> None:
        """Keep rows `accepted` (increasing) of the last step, in order, right behind the committed tokens.

        No data moves when they already lie there.
        """
        count = len(accepted)
        moved = [j for j, row in enumerate(accepted) if row != j]
        if moved:
            source = self.slots(self.committed, self.committed + accepted[-1] + 1)[torch.tensor(accepted[moved[0] :])]
            target = self.slots(self.committed + moved[0], self.committed + count)
            for cache in caches:
                cache.move(source, target)
        self.committed += count

    def release(self) -> None:
        """Give all pages back and forget the tokens."""
        self.pool.give(self.pages)
        self.pages, self.committed, self._consecutive = [], 0, True


class LatentCache:
    """Latents and shared turned keys of a rank: [layers, slots, width], slot = page number * page size + offset."""

    def __init__(self, layers: int, pages: int, page: int, width: int, dtype: torch.dtype):
        self.store = torch.zeros(layers, pages * page, width, dtype=dtype)
        self.layers = list(self.store.unbind())

    def write(self, layer: int, place: Placement, c: Tensor, k: Tensor) -> None:
        """The step's rows of one layer: c [rows, kv_lora], k [rows, rope]."""
        store, lora = self.layers[layer], c.shape[-1]
        if place.slots is None:
            rows = store.narrow(0, place.first + place.committed, place.rows)
            rows[:, :lora] = c
            rows[:, lora:] = k
        else:
            store.index_copy_(0, place.slots[place.committed :], torch.cat([c, k], dim=-1))

    def read(self, layer: int, place: Placement) -> Tensor:
        """[committed + rows, width], without a copy when the pages are one run."""
        store = self.layers[layer]
        if place.slots is None:
            return store.narrow(0, place.first, place.committed + place.rows)
        return store.index_select(0, place.slots)

    def move(self, source: Tensor, target: Tensor) -> None:
        """Copy slots in every layer; all are read before any is written."""
        self.store.index_copy_(1, target, self.store.index_select(1, source))


class ContextCache:
    """Keys and values of committed tokens for every drafter layer on one rank.

    A layer with a window keeps at least the last `window` tokens and drops older ones when its buffer is full.
    """

    def __init__(
        self, windows: Sequence[int], kv_heads: int, head_dim: int, context: int, step: int, dtype: torch.dtype
    ):
        """`windows`: visible tokens per layer, 0 for all. `context`: most tokens; `step`: most rows written at once."""
        sizes = [min(context + step, 2 * (w + step)) if w else context + step for w in windows]
        self.windows = tuple(windows)
        self.layers = [torch.zeros(2, kv_heads, size, head_dim, dtype=dtype) for size in sizes]
        self.base = [0] * len(sizes)
        """Position of the first token kept, by layer."""

    def write(self, layer: int, committed: int, k: Tensor, v: Tensor) -> None:
        """Rows k, v [n, kv_heads, head_dim] of positions committed .. committed + n."""
        self._write(layer, committed, k, v)

    def with_block(self, layer: int, first: int, committed: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [kv_heads, n, head_dim] of positions first .. committed and of the block behind them.

        The block's rows are scratch: the next append or block overwrites them.
        """
        stop = self._write(layer, committed, k, v)
        store, start = self.layers[layer], first - self.base[layer]
        return store[0, :, start:stop], store[1, :, start:stop]

    def crop(self, length: int) -> None:
        """Forget the tokens from `length` on. Raises ValueError where a window has already dropped older ones."""
        if length and any(base > max(0, length - window) for base, window in zip(self.base, self.windows, strict=True)):
            raise ValueError(f"the context before position {length} has left the window")
        if not length:
            self.base = [0] * len(self.base)

    def _write(self, layer: int, committed: int, k: Tensor, v: Tensor) -> int:
        store, rows = self.layers[layer], k.shape[0]
        at = committed - self.base[layer]
        if at + rows > store.shape[2]:
            keep = min(at, self.windows[layer])
            store[:, :, :keep] = store[:, :, at - keep : at].clone()
            self.base[layer], at = committed - keep, keep
        store[0, :, at : at + rows] = k.transpose(0, 1)
        store[1, :, at : at + rows] = v.transpose(0, 1)
        return at + rows
