"""Launches that are products, and routers, of real engines on the emulator, against their parts."""

from __future__ import annotations

from functools import cache

import pytest

from ddtreec import driver
from ddtreec.artifacts.kernels import KernelTable
from ddtreec.artifacts.plan import Plan
from ddtreec.emit.cuda.table import kernel_table
from ddtreec.plan.assemble import assemble
from ddtreec.spec.load import load_engine
from ddtreec_runtime.backends.cuda.check import check_kernel
from ddtreec_runtime.backends.cuda.layouts import LAYOUTS
from tests.emulated.emulator import missing
from tests.emulated.launcher import Emulated

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

KINDS = {"linear", "norm_linear", "add_norm_linear", "take_norm_linear", "swiglu_linear", "q_absorb", "v_up",
         "q_absorb_rope", "q_b_absorb_rope", "router", "add_norm_router"}  # fmt: skip


@cache
def built(engine: str) -> tuple[Plan, KernelTable, dict[str, str]]:
    state = driver.planned(load_engine(engine, ["limits.context=256"]))
    return assemble(state), *kernel_table(state, KINDS)


@pytest.mark.parametrize("counts", [(1, 2, 9), (17, 33), (65, 128)], ids=str)
def test_launches(counts: tuple[int, ...]) -> None:
    plan, table, sources = built("tiny-k2-h200-x1")
    launcher = Emulated(sources)
    for kernel in table.kernels:
        results = check_kernel(launcher, plan, table, kernel, LAYOUTS, counts=counts, lengths=(37,))
        for result in results:
            print(result)
        assert not [result for result in results if result.faults]
