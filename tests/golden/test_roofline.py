"""Predicted bytes and floors of Kimi K2.6 against an independent roofline, worked out by hand from the configuration.

8 ranks, all roles cut over them except the A-projection, context 8192, 1.792 TB/s and 417 TFLOPS a device.
"""

from __future__ import annotations

import pytest

from ddtreec import driver
from ddtreec.passes import cost
from ddtreec.passes.state import State
from ddtreec.spec.load import load_engine

ENGINE = "kimi-k2.6-rtx-pro-6000-x8-pcie"
# rows: distinct experts a layer, GB a rank, and ms of: routed experts, cache and attention, all of it
TABLE = {
    1: (8.0, 6.60, 0.83, 0.32, 3.69),
    8: (59.5, 16.18, 6.17, 0.32, 9.03),
    16: (109.8, 25.52, 11.39, 0.33, 14.25),
    32: (188.2, 40.09, 19.52, 0.67, 22.72),
    64: (284.2, 57.92, 29.47, 1.34, 33.33),
    128: (358.1, 71.64, 37.12, 2.67, 42.33),
}
A_PROJECTION_MS = 1.03
BYTES_AT_ONE_ROW = {
    "a_proj": 1.847e9, "experts": 1.486e9, "o_proj": 0.895e9, "shared": 0.661e9, "router": 0.330e9, "lm_head": 0.294e9,
    "q_b": 0.288e9, "kv_b": 0.128e9, "dense": 0.099e9,
}  # fmt: skip


@pytest.fixture(scope="module")
def state() -> State:
    overrides = (
        "layout.a_proj=replicated", "layout.attention=tp", "layout.mlp=tp", "layout.vocab=parallel",
        "layout.experts=ep1xtp8", "limits.context=8192",
    )  # fmt: skip
    return driver.planned(load_engine(ENGINE, overrides))


@pytest.fixture(scope="module")
def sharded(state: State) -> State:
    """Before launches are merged: every op by its own name."""
    return next(after for step, after in driver.passes(state.loaded) if step.name == "shard")


@pytest.fixture(scope="module")
def nodes(sharded: State) -> dict[int, list[cost.NodeCost]]:
    assert sharded.programs is not None
    rates = cost.Rates(read=((1.0, 1.792e12),), flops=417e12, launch=0.0)
    costed = cost.Costed(sharded.programs.graphs["target"], rates)
    return {rows: costed.nodes(cost.At(rows, rows, 8192, 2)) for rows in TABLE}


def part_of(node: str) -> str:
    """The row of the roofline that a node belongs to, by its name."""
    if node.startswith(("L00.mlp", "L00.moe")):
        return "dense"
    for part, words in {
        "a_proj": (".q_a", ".kv_a"), "experts": (".experts",), "o_proj": ("o_proj",), "router": ("router",),
        "shared": ("shared_gate", "shared_up", "shared_down"), "lm_head": ("lm_head",),
        "q_b": ("q_b",), "kv_b": ("q_absorb", "v_up"),
        "attention": ("attend",),
    }.items():  # fmt: skip
        if any(node.endswith(word) for word in words):
            return part
    return "rest"


def summed(nodes: list[cost.NodeCost], part: str) -> tuple[float, float]:
    """Bytes that must be read, and floor in ms."""
    mine = [n for n in nodes if part_of(n.node) == part]
    return sum(n.cost.weight_bytes + n.cost.cache_bytes for n in mine), sum(n.floor for n in mine) * 1e3


@pytest.mark.parametrize("rows", TABLE)
def test_bytes_and_floors(nodes: dict[int, list[cost.NodeCost]], rows: int) -> None:
    _, gigabytes, routed, attention, floor = TABLE[rows]
    read = sum(n.cost.weight_bytes + n.cost.cache_bytes for n in nodes[rows])
    assert read / 1e9 == pytest.approx(gigabytes, rel=0.005)
    assert summed(nodes[rows], "experts")[1] == pytest.approx(routed, rel=0.03)
    assert summed(nodes[rows], "attention")[1] == pytest.approx(attention, rel=0.03)
    assert summed(nodes[rows], "a_proj")[1] == pytest.approx(A_PROJECTION_MS, rel=0.03)
    assert sum(n.floor for n in nodes[rows]) * 1e3 == pytest.approx(floor, rel=0.03)


@pytest.mark.parametrize("part", BYTES_AT_ONE_ROW)
def test_bytes_by_part(nodes: dict[int, list[cost.NodeCost]], part: str) -> None:
    assert summed(nodes[1], part)[0] == pytest.approx(BYTES_AT_ONE_ROW[part], rel=0.01)


def test_distinct_experts(nodes: dict[int, list[cost.NodeCost]]) -> None:
    one_expert = 24_772_608 / 8
    for rows, (distinct, *_) in TABLE.items():
        layers = [n for n in nodes[rows] if part_of(n.node) == "experts"]
        assert len(layers) == 60
        assert layers[0].cost.weight_bytes / one_expert == pytest.approx(distinct, rel=0.005)


def test_memory_of_a_rank(state: State) -> None:
    """71.8 GiB of weights a rank with the vision tower, which is not ours (0.94 GB); the embedding is cut here."""
    assert state.placed is not None
    weights = sum(row.bytes for row in state.placed.table if row.purpose.startswith("weights: "))
    assert weights == pytest.approx(77.1e9 - 0.94e9, rel=0.005)
    cache = next(row.bytes for row in state.placed.table if row.purpose == "KV cache")
    assert cache / 70_272 == pytest.approx(8192, rel=0.01)
