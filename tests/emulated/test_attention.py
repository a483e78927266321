"""Attention kernels on the emulator against float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import msgspec
import pytest
import torch
from torch import Tensor

from ddtreec import driver
from ddtreec.artifacts.plan import Cache, Call, Plan
from ddtreec.core.errors import SpecError
from ddtreec.emit.cuda import attention
from ddtreec.emit.cuda.base import Device, KernelDraft, Site
from ddtreec.emit.cuda.base import Tensor as Operand
from ddtreec.emit.cuda.source import kernel_source
from ddtreec.emit.cuda.state import context_layers, room_of
from ddtreec.emit.cuda.table import kernel_table
from ddtreec.plan.assemble import assemble
from ddtreec.spec.load import load_engine
from ddtreec_runtime.backends.cuda.check import check_kernel
from tests.emulated.emulator import BACKWARD, FORWARD, Memory, library, missing
from tests.emulated.launcher import Emulated

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
NAN = float("nan")


@cache
def tiny_plan() -> Plan:
    return assemble(driver.planned(load_engine("tiny-k2-h200-x1")))


@pytest.mark.parametrize("kind", ["latent_attention_v_up", "block_attention"])
def test_launches_of_an_engine_against_their_parts(kind: str) -> None:
    state = driver.planned(load_engine("tiny-k2-h200-x1", ["limits.context=256"]))
    table, sources = kernel_table(state, {kind})
    (kernel,) = table.kernels
    results = check_kernel(Emulated(sources), assemble(state), table, kernel, {}, counts=(1, 2, 9, 33), lengths=(83, 0))
    assert len(results) >= 3
    assert [result for result in results if result.faults] == []


def plan_with(page: int = 16, sequences: int = 1, context: int = 512, windows: tuple[int, ...] = ()) -> Plan:
    """The plan of the tiny engine with other limits, and context caches of these windows."""
    plan = tiny_plan()
    limits = msgspec.structs.replace(plan.limits, page=page, sequences=sequences, context=context)
    caches = tuple(Cache(f"D{i:02d}", "context", 1, 1, 1, window) for i, window in enumerate(windows))
    return msgspec.structs.replace(plan, limits=limits, caches=caches or plan.caches, programs=())


def run(
    draft: KernelDraft, symbols: Mapping[str, int], arrays: Mapping[str, Tensor | int], flags: int = FORWARD
) -> None:
    """All stages, one after another, with fresh scratch."""
    memory, kernel, built = Memory(), draft.kernel(), library(kernel_source(draft))
    scratch = {f"scratch:{s.name}": memory.tensor((s.bytes.value(symbols),), torch.uint8) for s in kernel.scratch}
    whole = {**arrays, **scratch, **{f"int:{name}": value for name, value in symbols.items()}}
    for stage in kernel.stages:
        variant = next(v for v in stage.variants if v.rows >= symbols[stage.count])
        args = [a if isinstance(a, int) else a.data_ptr() for a in (whole[name] for name in stage.args)]
        grid = [dim.value(symbols) for dim in variant.grid]
        built.launch(variant.function, grid, variant.threads, variant.shared, args, flags)


def close(found: Tensor, weights: Tensor, values: Tensor) -> None:
    """`found` [n, width] is weights [n, keys] times values [keys, width], where weights and results were rounded to
    bfloat16 (relative error 2^-8) once, and sums are of float32."""
    exact = weights @ values
    room = 1.01 * 2**-8 * (weights @ values.abs() + exact.abs()) + 1e-5 * values.abs().max()
    assert not found.isnan().any()
    assert (found.double() - exact).abs().sub(room).max() <= 0


def tree_mask(group: int, seed: int) -> Tensor:
    """[group, group] bool, row i sees itself and its ancestors in a random tree."""
    pick = torch.Generator().manual_seed(seed)
    seen = torch.eye(group, dtype=torch.bool)
    for i in range(1, group):
        seen[i] |= seen[int(torch.randint(0, i, (1,), generator=pick))]
    return seen


def causal_mask(group: int, seed: int = 0) -> Tensor:
    return torch.ones(group, group, dtype=torch.bool).tril()


def packed(seen: Tensor) -> Tensor:
    """[group, 4] int32: bit j of row i."""
    words = torch.zeros(seen.shape[0], 128, dtype=torch.int64)
    words[:, : seen.shape[1]] = seen.long()
    return (words.view(-1, 4, 32) << torch.arange(32)).sum(-1).to(torch.int32)


@dataclass(frozen=True)
class Latent:
    """Shapes of absorbed attention."""

    heads: int
    lora: int
    rope: int
    sms: int = 8
    page: int = 16
    most: int = 128
    scale: float = 0.11

    def draft(self, sequences: int) -> KernelDraft:
        call = Call("L00.attend", "latent_attention", params={"layer": 1, "scale": self.scale})
        return attention.latent_attention(
            Site(
                plan_with(self.page, sequences),
                Device("sm_90", self.sms, 227 * 1024),
                call,
                (Operand("t:0", (self.heads, self.lora), self.heads * self.lora),),
                (
                    Operand("t:1", (self.heads, self.lora), self.heads * self.lora),
                    Operand("t:2", (self.heads, self.rope), self.heads * self.rope + 8),
                ),
                (),
                (),
                {"rows": self.most, "out_rows": 1, "slots": sequences, "group": self.most},
            )
        )


class Step:
    """Random operands of one step: slot s has committed[s] tokens and valid[s] real rows of `group`. All that nobody
    may see is NaN."""

    def __init__(
        self, shape: Latent, committed: list[int], valid: list[int], group: int, seen: list[Tensor], seed: int = 0
    ):
        pick = torch.Generator().manual_seed(seed)
        memory, slots, width = Memory(), len(committed), shape.lora + shape.rope
        plan = plan_with(shape.page, slots)
        pages = room_of(plan).pages
        self.shape, self.group, self.committed, self.valid, self.seen = shape, group, committed, valid, seen
        rows = slots * group
        self.o = memory.tensor((rows, shape.heads, shape.lora), torch.bfloat16)
        self.q_c = memory.tensor((rows, shape.heads, shape.lora), torch.bfloat16)
        stride = shape.heads * shape.rope + 8
        self.q_rot = memory.tensor((rows * stride - 8,), torch.bfloat16)
        self.rot = self.q_rot.as_strided((rows, shape.heads, shape.rope), (stride, shape.rope, 1))
        self.masks = memory.tensor((rows, 4), torch.int32)
        self.pages = memory.tensor((slots, pages), torch.int32)
        self.pages.copy_(torch.randperm(slots * pages, generator=pick).view(slots, pages))
        self.latent = memory.tensor((2, slots * pages * shape.page, width), torch.bfloat16)
        self.keys: list[Tensor] = []
        for s, (base, real) in enumerate(zip(committed, valid, strict=True)):
            token = torch.arange(base + real)
            place = self.pages[s].long()[token // shape.page] * shape.page + token % shape.page
            keys = torch.randn(base + real, width, generator=pick).bfloat16()
            self.latent[1, place] = keys
            self.keys.append(keys)
            at = slice(s * group, s * group + real)
            self.q_c[at] = torch.randn(real, shape.heads, shape.lora, generator=pick).bfloat16()
            self.rot[at] = torch.randn(real, shape.heads, shape.rope, generator=pick).bfloat16()
            self.masks[at] = packed(seen[s])[:real]
        self.ints = {
            name: memory.tensor((slots,), torch.int32).copy_(torch.tensor(value, dtype=torch.int32))
            for name, value in (("state:committed", committed), ("state:valid", valid))
        }

    def run(self, flags: int = FORWARD) -> Tensor:
        self.o.fill_(NAN)
        slots = len(self.committed)
        arrays = {"t:0": self.o, "t:1": self.q_c, "t:2": self.q_rot, "state:latent": self.latent, "param:layer": 1}
        arrays |= {"state:pages": self.pages, "state:masks": self.masks, **self.ints}
        symbols = {"rows": slots * self.group, "slots": slots, "group": self.group}
        run(self.shape.draft(slots), symbols, arrays, flags)
        return self.o.clone()

    def check(self) -> None:
        found = self.run()
        for s, keys in enumerate(self.keys):
            base, real = self.committed[s], self.valid[s]
            at, lora = slice(s * self.group, s * self.group + real), self.shape.lora
            query = torch.cat((self.q_c[at], self.rot[at]), -1).double()
            scores = self.shape.scale * torch.einsum("rhw,kw->rhk", query, keys.double())
            hidden = torch.zeros(real, base + real, dtype=torch.bool)
            hidden[:, base:] = ~self.seen[s][:real, :real]
            weights = scores.masked_fill(hidden.unsqueeze(1), -torch.inf).softmax(-1)
            if real:
                close(found[at].flatten(0, 1), weights.flatten(0, 1), keys[:, :lora].double())
        again = self.run(BACKWARD)
        for s, real in enumerate(self.valid):
            at = slice(s * self.group, s * self.group + real)
            assert torch.equal(found[at], again[at])


TINY, SMALL = Latent(8, 128, 16), Latent(4, 32, 8)


@pytest.mark.parametrize("committed", [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 300])
@pytest.mark.parametrize("rows", [1, 5])
def test_every_length_of_context(committed: int, rows: int) -> None:
    Step(SMALL, [committed], [rows], rows, [tree_mask(rows, committed)], committed).check()


@pytest.mark.parametrize("shape", [TINY, Latent(2, 32, 8), Latent(3, 40, 24), Latent(1, 8, 8), Latent(8, 128, 64)])
def test_shapes(shape: Latent) -> None:
    Step(shape, [137], [9], 9, [tree_mask(9, 3)]).check()


def test_the_widths_of_large_models() -> None:
    Step(Latent(8, 512, 64, sms=132), [150], [8], 8, [tree_mask(8, 5)]).check()
    Step(Latent(64, 512, 64, sms=4), [70], [1], 1, [tree_mask(1, 5)]).check()


@pytest.mark.parametrize("page", [1, 5, 16, 48])
def test_pages_of_any_size(page: int) -> None:
    Step(Latent(4, 32, 8, page=page), [111], [4], 4, [tree_mask(4, 1)]).check()


def test_a_causal_chunk_and_a_tree_of_all_mask_bits() -> None:
    Step(SMALL, [70], [128], 128, [causal_mask(128)]).check()
    Step(SMALL, [33], [117], 128, [tree_mask(128, 2)]).check()
    Step(SMALL, [0], [40], 40, [causal_mask(40)]).check()


def test_slots_of_their_own_lengths() -> None:
    masks = [tree_mask(7, s) for s in range(3)]
    Step(SMALL, [40, 0, 129], [7, 3, 1], 7, masks).check()
    Step(Latent(4, 32, 8, sms=132), [5, 300], [1, 1], 1, masks).check()


def test_an_idle_slot_is_left_alone() -> None:
    Step(SMALL, [0, 20], [0, 2], 3, [tree_mask(3, 0), tree_mask(3, 1)]).check()


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    """A causal chunk of eight rows, and the same rows one at a time: the same bits, as all lengths here have the same
    splits. Where they do not, nothing is promised."""
    base, shape = 100, Latent(8, 128, 16)
    step = Step(shape, [base], [8], 8, [causal_mask(8)])
    together = step.run()
    for i in range(8):
        alone = Step(shape, [base + i], [1], 1, [causal_mask(1)])
        alone.pages, alone.latent = step.pages, step.latent
        alone.q_c.copy_(step.q_c[i : i + 1])
        alone.rot.copy_(step.rot[i : i + 1])
        assert torch.equal(alone.run()[0], together[i])


def test_widths_without_kernel_are_refused() -> None:
    with pytest.raises(SpecError, match="kv_lora 12; it must be a multiple of 8"):
        Latent(4, 12, 8).draft(1)


@dataclass(frozen=True)
class Block:
    """Shapes of the drafter's attention; `windows` of its layers."""

    heads: int
    kv_heads: int
    dim: int
    windows: tuple[int, ...] = (0,)
    causal: bool = False
    sms: int = 8
    context: int = 512

    def check(self, layer: int, committed: list[int], valid: list[int], group: int, seed: int = 0) -> None:
        pick = torch.Generator().manual_seed(seed)
        memory, slots = Memory(), len(committed)
        rows, heads, kv, dim = slots * group, self.heads, self.kv_heads, self.dim
        plan = plan_with(sequences=slots, context=self.context, windows=self.windows)
        caches = tuple(msgspec.structs.replace(c, heads=kv, head_dim=dim) for c in plan.caches)
        plan = msgspec.structs.replace(plan, caches=caches)
        window, scale = self.windows[layer], dim**-0.5
        params: dict[str, int | float | str | bool | None] = {
            "layer": layer,
            "scale": scale,
            "window": window,
            "causal": self.causal,
        }
        stride = (heads + 2 * kv) * dim
        operands = (Operand("t:1", (heads, dim), heads * dim), Operand("t:2", (kv, dim), kv * dim))
        site = Site(
            plan,
            Device("sm_90", self.sms, 227 * 1024),
            Call("D00.attend", "block_attention", params=params),
            (Operand("t:0", (heads, dim), heads * dim),),
            (*operands, Operand("t:3", (kv, dim), stride)),
            (),
            (),
            {"rows": rows, "out_rows": rows, "slots": slots, "group": group},
        )
        places = context_layers(plan, room_of(plan))
        offset, tokens = places[layer]
        last = places[-1][0] + slots * places[-1][1] * 2 * kv * dim
        o, q = (memory.tensor((rows, heads, dim), torch.bfloat16) for _ in range(2))
        k, flat = memory.tensor((rows, kv, dim), torch.bfloat16), memory.tensor((rows * stride,), torch.bfloat16)
        v = flat.as_strided((rows, kv, dim), (stride, dim, 1))
        context = memory.tensor((last,), torch.bfloat16)
        here = context[offset:].as_strided(
            (slots, tokens, 2, kv, dim), (tokens * 2 * kv * dim, 2 * kv * dim, kv * dim, dim, 1)
        )
        both: list[Tensor] = []
        for s, (base, real) in enumerate(zip(committed, valid, strict=True)):
            low, at = max(0, base + 1 - window) if window else 0, slice(s * group, s * group + real)
            every = torch.full((base + real, 2, kv, dim), NAN).bfloat16()
            every[low:] = torch.randn(base + real - low, 2, kv, dim, generator=pick).bfloat16()
            here[s, torch.arange(low, base) % tokens] = every[low:base]
            q[at] = torch.randn(real, heads, dim, generator=pick).bfloat16()
            k[at], v[at] = every[base:, 0], every[base:, 1]
            both.append(every)
        ints = [
            memory.tensor((slots,), torch.int32).copy_(torch.tensor(x, dtype=torch.int32)) for x in (committed, valid)
        ]
        arrays = {"t:0": o, "t:1": q, "t:2": k, "t:3": flat, "state:context": context, "param:layer": layer}
        arrays |= {"state:committed": ints[0], "state:valid": ints[1]}
        found: list[Tensor] = []
        for flags in (FORWARD, BACKWARD):
            o.fill_(NAN)
            symbols = {"rows": rows, "slots": slots, "group": group}
            run(attention.block_attention(site), symbols, arrays, flags)
            found.append(o.clone())
        for s, every in enumerate(both):
            base, real = committed[s], valid[s]
            at = slice(s * group, s * group + real)
            assert torch.equal(found[0][at], found[1][at])
            position, key = base + torch.arange(real).view(-1, 1), torch.arange(base + real).view(1, -1)
            hidden = torch.zeros(real, base + real, dtype=torch.bool)
            hidden |= (key > position) if self.causal else hidden
            hidden |= (key <= position - window) if window else hidden
            seen = every.double().nan_to_num()
            for h in range(heads if real else 0):
                keys, values = seen[:, 0, h * kv // heads], seen[:, 1, h * kv // heads]
                scores = (scale * q[at, h].double() @ keys.T).masked_fill(hidden, -torch.inf)
                close(found[0][at, h], scores.softmax(-1), values)


@pytest.mark.parametrize("committed", [0, 1, 31, 32, 33, 64, 200])
@pytest.mark.parametrize("window", [0, 1, 7, 40])
@pytest.mark.parametrize("causal", [False, True])
def test_the_drafters_window_and_block(committed: int, window: int, causal: bool) -> None:
    Block(4, 2, 32, (window,), causal).check(0, [committed], [8], 8, committed)


def test_drafters_of_other_shapes() -> None:
    Block(8, 1, 128, sms=132).check(0, [100], [8], 8)
    Block(16, 1, 16).check(0, [65], [8], 8)
    Block(3, 3, 24).check(0, [65], [5], 8)


def test_layers_of_the_context_and_rings_that_went_around() -> None:
    block = Block(4, 2, 32, (16, 16, 0, 24), context=800)
    for layer in range(4):
        block.check(layer, [700, 3], [8, 8], 8, layer)


def test_slots_of_the_drafter_with_idle_ones() -> None:
    Block(4, 2, 32, (40,)).check(0, [90, 0, 0], [8, 8, 0], 8)


def test_layers_of_one_window_share_a_kernel() -> None:
    plan = tiny_plan()
    names = set[str]()
    for layer, window in enumerate((64, 64, 0)):
        shaped = plan_with(windows=(64, 64, 0))
        caches = tuple(msgspec.structs.replace(c, heads=4, head_dim=32) for c in shaped.caches)
        params: dict[str, int | float | str | bool | None] = {
            "layer": layer,
            "scale": 0.2,
            "window": window,
            "causal": False,
        }
        operand = Operand("t:0", (4, 32), 128)
        site = Site(
            msgspec.structs.replace(plan, caches=caches),
            Device("sm_90", 132, 227 * 1024),
            Call("D.attend", "block_attention", params=params),
            (operand,),
            (operand, operand, operand),
            (),
            (),
            {"rows": 8, "out_rows": 8, "slots": 1, "group": 8},
        )
        names.add(attention.block_attention(site).name)
    assert len(names) == 2
