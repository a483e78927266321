"""CPU kernels against plain formulas, in every dtype, on strided views."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ddtreec.artifacts.plan import Rope
from ddtreec_runtime.backends.cpu.kernels import BINDERS, STATEFUL, recorder
from ddtreec_runtime.backends.cpu.kernels import KERNELS as K
from ddtreec_runtime.kv import ContextCache, LatentCache, PagePool, PageTable
from ddtreec_runtime.state import RopeTables, StepState, causal

DTYPES = [(torch.float64, 1e-12), (torch.float32, 2e-5), (torch.bfloat16, 5e-2)]
dtypes = pytest.mark.parametrize(("dtype", "close"), DTYPES, ids=["f64", "f32", "bf16"])


def draw(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def columns(x: Tensor) -> Tensor:
    """The same values as columns of something wider, as an alias has them."""
    wide = torch.full((*x.shape[:-1], x.shape[-1] + 6), float("nan"), dtype=x.dtype)
    wide[..., 4 : 4 + x.shape[-1]] = x
    return wide[..., 4 : 4 + x.shape[-1]]


def fresh(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.full(shape, float("nan"), dtype=dtype)


def near(got: Tensor, want: Tensor, close: float) -> None:
    assert torch.isfinite(got).all()
    scale = want.abs().max().clamp(min=1)
    assert (got.double() - want.double()).abs().max() <= close * scale


@dtypes
def test_rms_norm(dtype: torch.dtype, close: float) -> None:
    x, weight = draw(3, 4, 10, dtype=dtype), draw(10, dtype=dtype, seed=1)
    wide = x.double()
    want = wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    for given, out in ((x, fresh(3, 4, 10, dtype=dtype)), (columns(x), columns(x.clone()))):
        K.rms_norm(out, given, weight, eps=1e-5)
        near(out, want, close)


@dtypes
def test_linear(dtype: torch.dtype, close: float) -> None:
    x, weight = draw(3, 4, 5, dtype=dtype), draw(6, 20, dtype=dtype, seed=1)
    want = x.double().flatten(1) @ weight.double().t()
    for given, out in ((x, fresh(3, 2, 3, dtype=dtype)), (columns(x), columns(fresh(3, 6, dtype=dtype)))):
        K.linear(out, given, weight)
        near(out.flatten(1), want, close)
    for kind in (dtype, torch.float64):
        K.linear(fresh(0, 6, dtype=kind), x[:0], weight)


@dtypes
@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize("shape", [(3, 8), (3, 2, 8)])
@pytest.mark.parametrize("strided", [False, True])
def test_rope(dtype: torch.dtype, close: float, layout: str, shape: tuple[int, ...], strided: bool) -> None:
    freq = (1.0, 0.3, 0.1, 0.01)
    state = StepState(RopeTables({"t": Rope(8, layout, freq, 1.25)}, dtype), dtype)  # type: ignore[arg-type]
    positions = torch.tensor([0, 7, 1000])
    state.begin({}, positions)
    x = draw(*shape, dtype=dtype)
    out = fresh(*shape, dtype=dtype)
    K.rope(state, out, columns(x) if strided else x, table="t")
    want = torch.zeros(shape, dtype=torch.float64)
    for row, p in enumerate(positions.tolist()):
        for i, f in enumerate(freq):
            lo, hi = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + 4)
            a, b = x[row, ..., lo].double(), x[row, ..., hi].double()
            want[row, ..., lo] = 1.25 * (a * math.cos(p * f) - b * math.sin(p * f))
            want[row, ..., hi] = 1.25 * (b * math.cos(p * f) + a * math.sin(p * f))
    near(out, want, close)


@dtypes
def test_absorbed_attention_is_the_naive_one(dtype: torch.dtype, close: float) -> None:
    """q_absorb, latent_attention and v_up against mla_attention over a tree, pages in one run and scattered."""
    heads, nope, rope, v, lora, before, rows = 3, 6, 4, 5, 8, 9, 4
    kv_b = draw(heads, nope + v, lora, dtype=dtype, seed=1)
    q_nope, q_rot = columns(draw(rows, heads, nope, dtype=dtype, seed=2)), draw(rows, heads, rope, dtype=dtype, seed=3)
    hidden = ~torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]], dtype=torch.bool).unsqueeze(1)
    results = []
    for scattered in (False, True):
        pool = PagePool(10, 4)
        if scattered:
            pool.free = [1, 3, 4, 7, 9]
        table = PageTable(pool)
        state = StepState(RopeTables({}, dtype), dtype, LatentCache(2, 10, 4, lora + rope, dtype))
        assert state.latent is not None
        state.latent.store.fill_(float("nan"))
        place = table.place(before)
        state.begin({}, torch.arange(before), hidden=causal(before), placement=place)
        kept_c, kept_k = draw(before, lora, dtype=dtype, seed=4), draw(before, rope, dtype=dtype, seed=5)
        K.latent_append(state, kept_c, kept_k, layer=1)
        table.commit(range(before), [state.latent])
        place = table.place(rows)
        assert (place.slots is not None) == scattered
        state.begin({}, torch.tensor([9, 10, 10, 11]), committed=before, hidden=hidden, placement=place)
        c, k = draw(rows, lora, dtype=dtype, seed=6), draw(rows, rope, dtype=dtype, seed=7)
        K.latent_append(state, c, k, layer=1)
        naive = fresh(rows, heads, v, dtype=dtype)
        K.mla_attention(state, naive, q_nope, q_rot, kv_b, layer=1, scale=0.3)
        q_c, o_c, o = (fresh(rows, heads, n, dtype=dtype) for n in (lora, lora, v))
        K.q_absorb(q_c, q_nope, kv_b[:, :nope])
        K.latent_attention(state, o_c, q_c, q_rot, layer=1, scale=0.3)
        K.v_up(o, o_c, kv_b[:, nope:])
        near(o, naive, close)
        results.append(naive)
        keys_c, keys_k = torch.cat([kept_c, c]).double(), torch.cat([kept_k, k]).double()
        key = torch.einsum("hnl,sl->shn", kv_b[:, :nope].double(), keys_c)
        scores = torch.einsum("rhn,shn->rhs", q_nope.double(), key) + torch.einsum(
            "rhd,sd->rhs", q_rot.double(), keys_k
        )
        scores = scores * 0.3
        scores[:, :, before:] = scores[:, :, before:].masked_fill(hidden, float("-inf"))
        values = torch.einsum("hnl,sl->shn", kv_b[:, nope:].double(), keys_c)
        near(naive, torch.einsum("rhs,shv->rhv", scores.softmax(-1), values), close)
    assert torch.equal(*results)


@dtypes
@pytest.mark.parametrize("causal_block", [False, True])
@pytest.mark.parametrize("window", [0, 5, 100])
def test_block_attention(dtype: torch.dtype, close: float, window: int, causal_block: bool) -> None:
    heads, kv, dim, rows, before = 4, 2, 6, 3, 11
    state = StepState(RopeTables({}, dtype), dtype, None, ContextCache([0, window], kv, dim, 32, 8, dtype))
    k, v = draw(before, kv, dim, dtype=dtype, seed=1), draw(before, kv, dim, dtype=dtype, seed=2)
    for part in (slice(0, 4), slice(4, 9), slice(9, 11)):
        state.begin({}, torch.arange(part.start, part.stop), committed=part.start)
        K.context_append(state, k[part], v[part], layer=1)
    state.begin({}, torch.arange(before, before + rows), committed=before)
    q = draw(rows, heads, dim, dtype=dtype, seed=3)
    own_k, own_v = draw(rows, kv, dim, dtype=dtype, seed=4), draw(rows, kv, dim, dtype=dtype, seed=5)
    o = fresh(rows, heads, dim, dtype=dtype)
    for _ in range(2):  # the block is scratch: a second pass sees the same context
        K.block_attention(state, o, q, own_k, own_v, layer=1, scale=0.4, window=window, causal=causal_block)
    keys, values = torch.cat([k, own_k]).double(), torch.cat([v, own_v]).double()
    want = torch.zeros(rows, heads, dim, dtype=torch.float64)
    for row in range(rows):
        place = before + row
        seen = [
            s for s in range(before + rows)
            if (s < before or not causal_block or s <= place) and (not window or s > place - window)
        ]  # fmt: skip
        for head in range(heads):
            scores = 0.4 * keys[seen, head // 2] @ q[row, head].double()
            want[row, head] = scores.softmax(-1) @ values[seen, head // 2]
    near(o, want, close)


def plain_router(x: Tensor, weight: Tensor, bias: Tensor | None, k: int, groups: int, kept: int, score: str) -> Tensor:
    """Chosen experts of each row by sorting Python tuples."""
    logits = x.double() @ weight.double().t()
    scores = logits.sigmoid() if score == "sigmoid" else logits.softmax(-1)
    chosen = []
    for row in scores + (bias.double() if bias is not None else 0):
        size = len(row) // groups
        best = sorted(range(groups), key=lambda g: (-row[g * size : (g + 1) * size].topk(min(2, size)).values.sum(), g))
        allowed = [e for e in range(len(row)) if e // size in best[:kept]]
        chosen.append(sorted(allowed, key=lambda e: (-row[e], e))[:k])
    return torch.tensor(chosen)


@dtypes
@pytest.mark.parametrize("score", ["sigmoid", "softmax"])
@pytest.mark.parametrize(("groups", "kept"), [(1, 1), (4, 2), (12, 5)])
@pytest.mark.parametrize("biased", [False, True])
def test_router(dtype: torch.dtype, close: float, score: str, groups: int, kept: int, biased: bool) -> None:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    x, weight = draw(5, 8, dtype=dtype), draw(12, 8, dtype=wide, seed=1)
    bias = draw(12, dtype=wide, seed=2) * 0.5 if biased else None
    ids, w = torch.full((5, 3), -1), fresh(5, 3, dtype=wide)
    K.router(ids, w, x, weight, bias, top_k=3, groups=groups, top_groups=kept, score=score, normalize=True, scale=2.5)
    assert torch.equal(ids, plain_router(x, weight, bias, 3, groups, kept, score))
    logits = x.double() @ weight.double().t()
    scores = (logits.sigmoid() if score == "sigmoid" else logits.softmax(-1)).gather(1, ids)
    near(w, 2.5 * scores / scores.sum(-1, keepdim=True), 1e-5)
    K.router(ids, w, x, weight, bias, top_k=3, groups=groups, top_groups=kept, score=score, normalize=False, scale=2.0)
    near(w, 2.0 * scores, 1e-5)


def test_router_ties_take_the_smaller_expert() -> None:
    ids, w = torch.full((2, 4), -1), torch.zeros(2, 4)
    K.router(ids, w, torch.ones(2, 3), torch.zeros(40, 3), None, top_k=4)
    assert ids.tolist() == [[0, 1, 2, 3]] * 2
    K.router(ids, w, torch.ones(2, 3), torch.zeros(40, 3), None, top_k=4, groups=8, top_groups=1)
    assert ids.tolist() == [[0, 1, 2, 3]] * 2


@dtypes
@pytest.mark.parametrize("rows", [1, 2, 9, 40])
@pytest.mark.parametrize(("experts", "first", "held"), [(16, 0, 16), (16, 4, 8), (300, 0, 300)])
def test_experts(dtype: torch.dtype, close: float, rows: int, experts: int, first: int, held: int) -> None:
    hidden, inter, k = 16, 8, 3
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    x = draw(rows, hidden, dtype=dtype)
    gate_up, down = draw(held, 2 * inter, hidden, dtype=dtype, seed=1), draw(held, hidden, inter, dtype=dtype, seed=2)
    random = torch.Generator().manual_seed(3)
    ids = torch.stack([torch.randperm(experts, generator=random)[:k] for _ in range(rows)])
    w = draw(rows, k, dtype=wide, seed=4)
    want = torch.zeros(rows, hidden, dtype=torch.float64)
    for row in range(rows):
        for expert, share in zip(ids[row].tolist(), w[row].double(), strict=True):
            if first <= expert < first + held:
                h = gate_up[expert - first].double() @ x[row].double()
                act = torch.nn.functional.silu(h[:inter]) * h[inter:]
                want[row] += share * (down[expert - first].double() @ act)
    y = fresh(rows, hidden, dtype=dtype)
    K.experts(y, x, ids, w, gate_up, down, first=first)
    near(y, want, close)


@dtypes
def test_small_kernels(dtype: torch.dtype, close: float) -> None:
    table = draw(10, 4, dtype=dtype)
    tokens = torch.tensor([3, 9, 0], dtype=torch.int32)
    x = fresh(3, 4, dtype=dtype)
    K.embedding(x, tokens, table, first=0)
    assert torch.equal(x, table[tokens.long()])
    halves = []
    for first in (0, 5):
        part = fresh(3, 4, dtype=dtype)
        K.embedding(part, tokens, table[first : first + 5], first=first)
        halves.append(part)
    assert torch.equal(halves[0] + halves[1], x)

    a, b = draw(3, 4, dtype=dtype, seed=1), columns(draw(3, 4, dtype=dtype, seed=2))
    y = fresh(3, 4, dtype=dtype)
    K.add(y, a, b)
    assert torch.equal(y, a + b)
    K.swiglu(y, a, b)
    near(y, torch.nn.functional.silu(a.double()) * b.double(), close)

    features = fresh(3, 8, dtype=dtype)
    K.tap(features, a, index=1)
    K.tap(features, b, index=0)
    assert torch.equal(features, torch.cat([b, a], dim=1))

    state = StepState(RopeTables({}, dtype), dtype)
    state.begin({}, torch.arange(3), out_index=torch.tensor([2, 0]))
    out = fresh(2, 4, dtype=dtype)
    K.take_rows(state, out, b)
    assert torch.equal(out, b[[2, 0]])


@dtypes
def test_collectives(dtype: torch.dtype, close: float) -> None:
    parts = [draw(2, 3, dtype=dtype, seed=n) for n in range(4)]
    outs = [fresh(2, 3, dtype=dtype) for _ in parts]
    K.all_reduce(outs, parts)
    near(outs[0], sum(p.double() for p in parts), close)
    assert all(torch.equal(out, outs[0]) for out in outs)
    for axis, shape in ((0, (8, 3)), (1, (2, 12))):
        outs = [fresh(*shape, dtype=dtype) for _ in parts]
        K.all_gather(outs, parts, axis=axis)
        assert all(torch.equal(out, torch.cat(parts, dim=axis)) for out in outs)


def test_every_kernel_has_its_file() -> None:
    from pathlib import Path

    folder = Path(K.linear.__code__.co_filename).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert files == set(vars(K))
    assert set(vars(K)) >= STATEFUL


def test_a_recorded_call_runs_later_on_what_its_operands_hold_then() -> None:
    calls: list[Callable[[], object]] = []
    kernels = recorder(calls)
    a, b, y, z = draw(3, 4, dtype=torch.float64), draw(3, 4, dtype=torch.float64), *torch.zeros(2, 3, 4).double()
    kernels.add(y, a, b)
    kernels.swiglu(z, y, b)
    assert not y.any() and not z.any()
    assert set(vars(kernels)) == set(vars(K)) >= set(BINDERS)
    for _ in range(2):
        a += 1
        for call in calls:
            call()
        assert torch.equal(y, a + b)
        near(z, torch.nn.functional.silu(a + b) * b, 1e-12)
