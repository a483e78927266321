"""Caches: pages, compaction, and that what was rejected is never seen again."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtreec_runtime.kv import ContextCache, LatentCache, PagePool, PageTable
from tests.golden.ragged import load, prefixes

COMPACT = load("ddtree/compact.npz")


@pytest.mark.parametrize("case", prefixes(COMPACT, "keep"))
def test_compaction_golden(case: str) -> None:
    """Rows of keys, flattened, through the paged cache, one run and scattered pages."""
    past, keep = int(COMPACT[f"{case}past"]), COMPACT[f"{case}keep"].tolist()
    for name in ("k", "v"):
        before, after = (torch.from_numpy(COMPACT[f"{case}{name}_{when}"].copy()) for when in ("before", "after"))
        layers, heads, total, dim = before.shape
        flat = before.permute(0, 2, 1, 3).reshape(layers, total, heads * dim).float()
        for free in (None, list(range(1, 400, 2))):
            pool = PagePool(400, 4)
            pool.free = free or pool.free
            table, cache = PageTable(pool), LatentCache(layers, 400, 4, heads * dim, torch.float32)
            for start, stop in ((0, past), (past, total)):
                place = table.place(stop - start)
                for layer in range(layers):
                    cache.write(layer, place, flat[layer, start:stop, :1], flat[layer, start:stop, 1:])
                table.commit(range(past) if start == 0 else keep, [cache])
            assert table.committed == past + len(keep)
            place = table.place(0)
            got = torch.stack([cache.read(layer, place) for layer in range(layers)])
            want = after.permute(0, 2, 1, 3).reshape(layers, past + len(keep), heads * dim).float()
            assert torch.equal(got, want)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_pages_against_a_list(data: st.DataObject) -> None:
    """Random steps and commits on two sequences of one pool hold what two plain lists hold."""
    page = data.draw(st.integers(1, 5))
    pool = PagePool(40, page)
    cache = LatentCache(2, 40, page, 3, torch.float32)
    tables, known, stamp = [PageTable(pool), PageTable(pool)], [[], []], 0.0
    for _ in range(data.draw(st.integers(1, 12))):
        which = data.draw(st.integers(0, 1))
        table, rows = tables[which], data.draw(st.integers(1, 6))
        if data.draw(st.integers(0, 9)) == 0:
            table.release()
            known[which] = []
        if table.committed + rows > 60:
            continue
        place = table.place(rows)
        values = torch.arange(rows, dtype=torch.float32) + stamp
        stamp += rows
        for layer in range(2):
            lines = (values * (layer + 1)).unsqueeze(1).expand(rows, 3)
            cache.write(layer, place, lines[:, :2], lines[:, 2:])
        assert cache.read(1, place)[:, 0].tolist() == [2 * v for v in [*known[which], *values.tolist()]]
        accepted = sorted(data.draw(st.sets(st.integers(0, rows - 1), max_size=rows)))
        table.commit(accepted, [cache])
        known[which] += [values[row].item() for row in accepted]
        for table, want in zip(tables, known, strict=True):
            assert cache.read(0, table.place(0))[:, 2].tolist() == want
    taken = [p for table in tables for p in table.pages]
    assert len(taken) == len(set(taken))
    assert sorted([*taken, *pool.free]) == list(range(40))


def test_pool_says_when_it_is_full() -> None:
    table = PageTable(PagePool(2, 4))
    table.place(8)
    with pytest.raises(MemoryError, match="1 pages wanted, 0 free"):
        table.place(9)


def test_commit_in_order_moves_nothing() -> None:
    class Untouchable(LatentCache):
        def move(self, source: torch.Tensor, target: torch.Tensor) -> None:
            raise AssertionError("moved")

    table, cache = PageTable(PagePool(4, 4)), Untouchable(1, 4, 4, 2, torch.float32)
    table.place(5)
    table.commit([0, 1, 2], [cache])
    with pytest.raises(AssertionError, match="moved"):
        table.commit([0, 2], [cache])


def test_window_forgets_old_tokens_only() -> None:
    """A windowed layer's buffer is shorter than the context and still holds the last `window` tokens."""
    window, step = 6, 4
    cache = ContextCache([window, 0], 1, 1, 100, step, torch.float32)
    assert cache.layers[0].shape[2] < cache.layers[1].shape[2] == 104
    for start in range(0, 96, 3):
        rows = torch.arange(start, start + 3, dtype=torch.float32).view(3, 1, 1)
        for layer in (0, 1):
            cache.write(layer, start, rows, -rows)
            block = torch.full((step, 1, 1), 1000.0)
            committed = start + 3
            first = max(0, committed - window + 1) if layer == 0 else 0
            keys, values = cache.with_block(layer, first, committed, block, block)
            assert keys[0, :, 0].tolist() == [*map(float, range(first, committed)), *[1000.0] * step]
            assert values[0, :-step, 0].tolist() == [-float(n) for n in range(first, committed)]
    cache.crop(95)
    with pytest.raises(ValueError, match="left the window"):
        cache.crop(20)
    cache.crop(0)
    assert cache.base == [0, 0]
