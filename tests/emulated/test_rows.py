"""Row kernels of real engines on the emulator, against their parts."""

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
from tests.emulated.emulator import missing
from tests.emulated.launcher import Emulated

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

KINDS = {"add", "add_norm", "context_append", "embedding", "kv_norm_rope_append", "latent_append", "norm_rope",
         "norm_rope_append", "rms_norm", "rope", "swiglu", "take_rows", "tap"}  # fmt: skip


@cache
def built(engine: str) -> tuple[Plan, KernelTable, dict[str, str]]:
    state = driver.planned(load_engine(engine))
    return assemble(state), *kernel_table(state, KINDS)


@pytest.mark.parametrize("engine", ["tiny-k2-h200-x1"])
def test_row_kernels(engine: str) -> None:
    plan, table, sources = built(engine)
    launcher = Emulated(sources)
    for kernel in table.kernels:
        results = check_kernel(launcher, plan, table, kernel, {}, counts=(1, 2, 9, 17, 33))
        for result in results:
            print(result)
        assert not [result for result in results if result.faults]
