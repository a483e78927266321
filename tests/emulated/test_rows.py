"""Row kernels on the emulator, against their parts: those of real engines, and shapes that no engine has."""

from __future__ import annotations

from functools import cache

import pytest

from ddtreec import driver
from ddtreec.artifacts.plan import Cache, Call
from ddtreec.emit.cuda.table import kernel_table
from ddtreec.plan.assemble import assemble
from ddtreec.spec.load import load_engine
from ddtreec_runtime.backends.cuda.check import Result, check_kernel
from tests.emulated.emulator import missing
from tests.emulated.launcher import Emulated
from tests.emulated.single import Built, Setting, rope, single, value, weight

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

KINDS = {"add", "add_norm", "context_append", "embedding", "kv_norm_rope_append", "latent_append", "norm_rope",
         "norm_rope_append", "rms_norm", "rope", "swiglu", "take_rows", "tap"}  # fmt: skip
COUNTS = (1, 2, 9, 17, 33)
LENGTHS = (43, 0, 16)

TURNS = {"rope": rope(8, "half", 1.2), "fine": rope(4, "interleaved"), "draft.rope": rope(32, "interleaved")}
LATENT = tuple(Cache(f"L{n}", "latent", 12) for n in range(2))
WIDE_LATENT = tuple(Cache(f"L{n}", "latent", 64) for n in range(3))
CONTEXT = tuple(Cache(f"D{n}", "context", 0, 2, 8, window) for n, window in enumerate((5, 0, 7)))


@cache
def built(engine: str) -> Built:
    state = driver.planned(load_engine(engine, ["limits.context=256"]))
    return assemble(state), *kernel_table(state, KINDS)


def checked(plan_table_sources: Built, name: str = "") -> list[Result]:
    """Results of all kernels, or of the one called `name`."""
    plan, table, sources = plan_table_sources
    launcher = Emulated(sources)
    kernels = [kernel for kernel in table.kernels if name in ("", kernel.name)]
    return [r for k in kernels for r in check_kernel(launcher, plan, table, k, {}, COUNTS, LENGTHS)]


@pytest.mark.parametrize("engine", ["tiny-k2-h200-x1", "kimi-k2.6-rtx-pro-6000-x8-pcie", "moonlight-16b-a3b-h200-x1"])
def test_row_kernels_of_engines(engine: str) -> None:
    results = checked(built(engine))
    assert len({result.kernel for result in results}) == len(built(engine)[1].kernels) > 3
    assert not [result for result in results if result.faults]


def normed(name: str, out: str, w: str) -> Call:
    return Call("", "rms_norm", (out,), (name,), (w,), {"eps": 1e-5})


def one(kernel: str, outs: str, ins: str, weights: str = "", **params: int | float | str) -> Call:
    return Call("", kernel, tuple(outs.split()), tuple(ins.split()), tuple(weights.split()), dict(params))


SINGLES: dict[str, Built] = {
    "add of odd width": single(one("add", "y", "a b"), [value("y", 21), value("a", 21), value("b", 21)]),
    "add of columns": single(
        one("add", "y", "a b"),
        [value("p", 48), value("y", 16), value("a", 16, parent="p", start=8), value("b", 16, parent="p", start=32)],
    ),
    "add of columns that begin at an odd place": single(
        one("add", "y", "a b"),
        [value("p", 48), value("y", 16), value("a", 16, parent="p", start=8), value("b", 16, parent="p", start=27)],
    ),
    "add to columns": single(
        one("add", "y", "a b"), [value("p", 32), value("y", 16, parent="p", start=8), value("a", 16), value("b", 16)]
    ),
    "rms_norm of a wide row": single(
        one("rms_norm", "y", "x", "w", eps=1e-6), [value("y", 18440), value("x", 18440)], [weight("w", 18440)]
    ),
    "rms_norm of heads": single(
        one("rms_norm", "y", "x", "w", eps=1e-6),
        [value("p", 3, 14), value("y", 3, 6), value("x", 3, 6, parent="p", start=5)],
        [weight("w", 6)],
    ),
    "add_norm": single(
        one("add_norm", "y h", "a b", "w", eps=1e-5),
        [value("y", 40), value("h", 40), value("a", 40), value("b", 40)],
        [weight("w", 40)],
        parts=[one("add", "y", "a b"), normed("y", "h", "w")],
    ),
    "take_rows": single(one("take_rows", "y", "x"), [value("y", 24, rows="out_rows"), value("x", 24)]),
    "embedding of the second of two ranks": single(
        one("embedding", "x", "t", "w", first_per=32, coord="rank"),
        [value("x", 12), value("t", dtype="int32")],
        [weight("w", 32, 12)],
        Setting(ranks=2),
    ),
    "tap": single(one("tap", "f", "x", index=1), [value("f", 72), value("x", 24)]),
    "swiglu": single(
        one("swiglu", "y", "g u"),
        [value("p", 80), value("y", 40), value("g", 40, parent="p"), value("u", 40, parent="p", start=40)],
    ),
    "rope of one run": single(
        one("rope", "y", "x", table="fine"),
        [value("p", 9), value("y", 4), value("x", 4, parent="p", start=5)],
        setting=Setting(TURNS),
    ),
    "rope of heads": single(
        one("rope", "y", "x", table="rope"),
        [value("p", 20, 16), value("y", 20, 8), value("x", 20, 8, parent="p", start=8)],
        setting=Setting(TURNS),
    ),
    "norm_rope": single(
        one("norm_rope", "y", "x", "w", table="draft.rope", eps=1e-5),
        [value("y", 3, 32), value("x", 3, 32)],
        [weight("w", 32)],
        Setting(TURNS),
        [normed("x", "n", "w"), one("rope", "y", "n", table="draft.rope")],
        [value("n", 3, 32)],
    ),
    "latent_append": single(
        one("latent_append", "", "c k", layer=1), [value("c", 8), value("k", 4)], setting=Setting(TURNS, LATENT)
    ),
    "kv_norm_rope_append": single(
        one("kv_norm_rope_append", "", "c k", "w", table="fine", eps=1e-5, layer=0),
        [value("p", 12), value("c", 8, parent="p"), value("k", 4, parent="p", start=8)],
        [weight("w", 8)],
        Setting(TURNS, LATENT),
        [normed("c", "n", "w"), one("rope", "t", "k", table="fine"), one("latent_append", "", "n t", layer=0)],
        [value("n", 8), value("t", 4)],
    ),
    "kv_norm_rope_append of whole accesses": single(
        one("kv_norm_rope_append", "", "c k", "w", table="draft.rope", eps=1e-5, layer=2),
        [value("c", 32), value("k", 32)],
        [weight("w", 32)],
        Setting(TURNS, WIDE_LATENT),
        [normed("c", "n", "w"), one("rope", "t", "k", table="draft.rope"), one("latent_append", "", "n t", layer=2)],
        [value("n", 32), value("t", 32)],
    ),
    "context_append to a ring": single(
        one("context_append", "", "k v", layer=2),
        [value("p", 40), value("k", 2, 8, parent="p", start=3), value("v", 2, 8, parent="p", start=19)],
        setting=Setting(TURNS, CONTEXT, program="draft_context", chunk=9),
    ),
    "norm_rope_append to a ring": single(
        one("norm_rope_append", "", "k v", "w", table="rope", eps=1e-5, layer=0),
        [value("p", 32), value("k", 2, 8, parent="p"), value("v", 2, 8, parent="p", start=16)],
        [weight("w", 8)],
        Setting(TURNS, CONTEXT, program="draft_context", chunk=9),
        [normed("k", "n", "w"), one("rope", "t", "n", table="rope"), one("context_append", "", "t v", layer=0)],
        [value("n", 2, 8), value("t", 2, 8)],
    ),
    "norm_rope_append to a whole context": single(
        one("norm_rope_append", "", "k v", "w", table="rope", eps=1e-5, layer=1),
        [value("k", 2, 8), value("v", 2, 8)],
        [weight("w", 8)],
        Setting(TURNS, CONTEXT, program="draft_context"),
        [normed("k", "n", "w"), one("rope", "t", "n", table="rope"), one("context_append", "", "t v", layer=1)],
        [value("n", 2, 8), value("t", 2, 8)],
    ),
}


@pytest.mark.parametrize("name", SINGLES)
def test_shapes_that_no_engine_has(name: str) -> None:
    results = checked(SINGLES[name])
    assert results
    assert not [result for result in results if result.faults]
