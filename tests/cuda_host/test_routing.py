"""Random weights keep rows apart through all layers, so that experts are chosen evenly; and where not, it is said."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ddtreec_runtime.backends.cuda import synthetic
from ddtreec_runtime.backends.cuda.rank_bench import warnings
from ddtreec_runtime.backends.cuda.routing import Chosen, Router, chosen, expected, held_means, spread
from ddtreec_runtime.weights.int4 import dequantize

WIDTH, INNER, LAYERS, ROWS, EXPERTS, TOP_K, GROUP = 1024, 64, 61, 8, 96, 4, 32


def test_int4_matrices_have_no_mean_and_the_size_of_dense_ones() -> None:
    words, scale = synthetic.drawn_int4((3, 512, 1024), GROUP, "cpu", torch.Generator().manual_seed(0))
    dense = dequantize(words, scale, torch.float32)
    assert abs(float(dense.std()) * 32 - 1) < 0.02
    assert abs(float(dense.mean())) < 0.01 * float(dense.std())
    # The mean of a row of 1024 is as of independent numbers, but that those of a group share its sign: 1.17 times that.
    assert float(dense.mean(-1).std()) < 1.25 * float(dense.std()) / 32


def normed(x: Tensor) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()


def distinct_by_layer(embedded: float) -> list[int]:
    """Layers of the shape of K2.6 at a small width with weights of this size, and an attention that gives all rows
    almost the same: they share a context."""
    draw = torch.Generator().manual_seed(1)

    def dense(out: int, width: int) -> Tensor:
        return torch.randn(out, width, generator=draw) * width**-0.5

    def packed(out: int, width: int) -> Tensor:
        shape = (synthetic.DISTINCT, out, width)
        return dequantize(*synthetic.drawn_int4(shape, GROUP, "cpu", draw), torch.float32)

    x, found = torch.randn(ROWS, WIDTH, generator=draw) * embedded, list[int]()
    for layer in range(LAYERS):
        own = normed(x) @ dense(256, WIDTH).t()
        x = x + (torch.randn(1, 256, generator=draw) + 0.3 * own) @ dense(WIDTH, 256).t()
        if layer == 0:
            continue
        h = normed(x)
        weight, ids = (h @ dense(EXPERTS, WIDTH).t()).sigmoid().topk(TOP_K)
        weight = 2.827 * weight / weight.sum(-1, keepdim=True)
        found.append(chosen(Router("ids", EXPERTS, TOP_K, 0, EXPERTS), ids).distinct)
        gate, up = torch.einsum("eoi,ri->reo", packed(2 * INNER, WIDTH), h).chunk(2, -1)
        each = torch.einsum("eoi,rei->reo", packed(WIDTH, INNER), torch.nn.functional.silu(gate) * up)
        x = x + (
            weight.unsqueeze(-1) * each.gather(1, (ids % synthetic.DISTINCT).unsqueeze(-1).expand(-1, -1, WIDTH))
        ).sum(1)
    return found


def test_routing_stays_even_in_every_layer() -> None:
    want = expected(Router("ids", EXPERTS, TOP_K, 0, EXPERTS), ROWS)
    found = distinct_by_layer(synthetic.EMBEDDED)
    assert len(found) == 60
    for begin in range(0, 60, 10):
        assert sum(found[begin : begin + 10]) / 10 > 0.9 * want
    assert 0.97 * want < sum(found) / 60 < 1.03 * want
    small = distinct_by_layer(WIDTH**-0.5)
    assert sum(small) / 60 < 0.7 * want, "embeddings as small as matrices let rows grow alike"


def test_expectations_of_even_routing() -> None:
    k26 = Router("ids", 384, 8, 0, 384)
    for rows, want in ((1, 8.0), (8, 59.5), (32, 188.2), (128, 358.1)):
        assert expected(k26, rows) == pytest.approx(want, abs=0.05)


def test_counts_of_a_rank_that_holds_some_experts() -> None:
    router = Router("ids", 16, 2, 8, 4)
    assert chosen(router, torch.tensor([[0, 8], [8, 11], [12, 0]])) == Chosen(4, 2)
    steps = [[Chosen(4, 2), Chosen(5, 1)], [Chosen(6, 4), Chosen(5, 2)]]
    assert held_means(steps) == [3.0, 1.5]
    assert spread([router, router], 3, steps) == {
        "least": 4,
        "mean": 5.0,
        "most": 6,
        "expected": pytest.approx(16 * (1 - 0.875**3)),
        "even": True,
    }
    assert spread([], 3, [[], []]) is None


def test_rows_that_are_alike_are_told() -> None:
    k26 = Router("ids", 384, 8, 0, 384)
    uneven, even = (spread([k26], 8, [[Chosen(count, count)]]) for count in (15, 58))
    found: dict[str, Any] = {"steps": [{"rows": 8, "experts": one} for one in (even, uneven, None)]}
    assert uneven is not None and not uneven["even"]
    (said,) = warnings(found)
    assert said.startswith("at 8 rows 15.0 experts a layer were chosen where even routing chooses 59.5: below 90%")
