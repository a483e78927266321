"""What one rank holds: caches by hand-worked numbers, the largest context, and verifiers that reject planted faults."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import pytest

from ddtreec import driver
from ddtreec.artifacts.plan import Cache, Call, MemoryRow
from ddtreec.core.errors import FitError, VerifyError
from ddtreec.passes import fit, schedule
from ddtreec.passes.state import State
from ddtreec.spec.load import load_engine

ROOM = fit.Room(context=1000, sequences=1, page=16, tree_rows=17, block=8, step=64)
LATENT = Cache("L00", "latent", 576)
FULL = Cache("D00", "context", 2 * 4 * 32, 4, 32)


def test_pages_hold_the_context_a_tree_and_a_block() -> None:
    assert ROOM.pages == 65, "1000 + 17 + 8 = 1025 tokens in pages of 16"
    assert replace(ROOM, context=1015).pages == 65 and replace(ROOM, context=1016).pages == 66


def test_cache_bytes() -> None:
    assert fit.cache_bytes([LATENT] * 3, ROOM, 2) == {"latent": 3 * 65 * 16 * 576 * 2, "context": 0}
    assert fit.cache_bytes([FULL], ROOM, 4) == {"latent": 0, "context": 1064 * 2 * 4 * 32 * 4}
    window = msgspec.structs.replace(FULL, window=100)
    assert fit.cache_bytes([window], ROOM, 4)["context"] == 2 * 164 * 2 * 4 * 32 * 4
    assert fit.cache_bytes([msgspec.structs.replace(FULL, window=900)], ROOM, 4)["context"] == 1064 * 2 * 4 * 32 * 4
    two = fit.cache_bytes([LATENT, FULL], replace(ROOM, sequences=2), 2)
    assert two == {kind: 2 * size for kind, size in fit.cache_bytes([LATENT, FULL], ROOM, 2).items()}


@pytest.mark.parametrize("spare", [0, 1, 17, 100_000, 10**7])
def test_largest_context_is_the_largest(spare: int) -> None:
    table = (MemoryRow("weights: all", 10**6), MemoryRow(fit.KV_CACHE, 1))
    caches = [LATENT, FULL]
    least = sum(fit.cache_bytes(caches, replace(ROOM, context=1), 2).values())
    found = fit.largest_context(table, caches, ROOM, 2, 10**6 + least + spare, positions=5000)
    assert 1 <= found <= 5000
    assert sum(fit.cache_bytes(caches, replace(ROOM, context=found), 2).values()) <= least + spare
    if found < 5000:
        assert sum(fit.cache_bytes(caches, replace(ROOM, context=found + 1), 2).values()) > least + spare
    assert fit.largest_context(table, caches, ROOM, 2, 10**6 + least - 1, positions=5000) == 0


@pytest.fixture(scope="module")
def state() -> State:
    return driver.planned(load_engine("tiny-k2-cpu-x2"))


def test_the_table_adds_up(state: State) -> None:
    assert state.placed is not None
    assert fit.total(state.placed.table) + state.placed.free == state.placed.device
    fit.verify(state.placed.table, state.placed.weights, "cpu", 4)


@pytest.mark.parametrize("fault", ["lost weight", "negative", "twice"])
def test_the_verifier_rejects_a_wrong_table(state: State, fault: str) -> None:
    assert state.placed is not None
    table, weights = state.placed.table, state.placed.weights
    broken = {
        "lost weight": table[1:],
        "negative": (*table, MemoryRow("hole", -1)),
        "twice": (*table, table[-1]),
    }[fault]
    with pytest.raises(VerifyError, match="memory"):
        fit.verify(broken, weights, "cpu", 4)


def test_a_device_one_byte_too_small_is_refused(state: State) -> None:
    assert state.placed is not None
    need = fit.total(state.placed.table)
    driver.planned(load_engine("tiny-k2-cpu-x2", [f"topology.device.memory={need}B"]))
    with pytest.raises(FitError, match=r"1 B too much") as caught:
        driver.planned(load_engine("tiny-k2-cpu-x2", [f"topology.device.memory={need - 1}B"]))
    assert caught.value.exit_code == 3


def test_the_cpu_holds_what_it_unpacks_and_a_gpu_what_the_checkpoint_packs(state: State) -> None:
    """The CPU backend loads everything in the compute dtype: 4 bytes a weight here, whatever the packing."""
    assert state.placed is not None
    elements = {w.role: 0 for w in state.placed.weights}
    for w in state.placed.weights:
        elements[w.role] += math.prod(w.shape)
    rows = {row.purpose: row.bytes for row in state.placed.table}
    assert rows["weights: experts"] == 4 * elements["experts"]
    big = driver.planned(load_engine("kimi-k2.6-rtx-pro-6000-x8-pcie")).placed
    assert big is not None
    experts = next(row.bytes for row in big.table if row.purpose == "weights: experts")
    assert experts == 60 * 384 * 24_772_608 // 8, "4.5 bits a weight: nibbles, and a bf16 scale for 32 of them"


CALLS = (Call("a", "add", ("x",), ()), Call("b", "add", ("y",), ("x",)))
ORDER = schedule.launches(CALLS, "cpu")


@pytest.mark.parametrize(
    ("buckets", "order", "calls", "reason"),
    [
        ((2, 64), ORDER, CALLS, "buckets"),
        ((1, 2), ORDER, CALLS, "buckets"),
        ((1, 64, 2), ORDER, CALLS, "buckets"),
        ((1, 2, 64), (*ORDER, ORDER[0]), CALLS, "launched twice"),
        ((1, 2, 64), ORDER[:1], CALLS, "never launched"),
        ((1, 2, 64), ORDER, CALLS[::-1], "before it is written"),
    ],
)
def test_the_schedule_verifier_rejects(
    buckets: tuple[int, ...], order: tuple[schedule.Launch, ...], calls: tuple[Call, ...], reason: str
) -> None:
    schedule.verify((1, 2, 64), 1, 64, ORDER, CALLS)
    with pytest.raises(VerifyError, match=reason):
        schedule.verify(buckets, 1, 64, order, calls)
