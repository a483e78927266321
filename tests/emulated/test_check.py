"""The checker sees what it is there for: faults planted into kernels that pass."""

from __future__ import annotations

import msgspec
import pytest
import torch

from ddtreec.artifacts.plan import Call
from ddtreec_runtime.backends.cpu.kernels.router import router
from ddtreec_runtime.backends.cuda.check import check_kernel
from ddtreec_runtime.backends.cuda.check_router import SIGMAS, clearance
from ddtreec_runtime.backends.cuda.layouts import LAYOUTS
from tests.emulated.emulator import BODIES, EmulatorError, missing
from tests.emulated.launcher import CUH, Emulated
from tests.emulated.test_engines import TINY, built, kernels_of
from tests.emulated.test_rows import SINGLES

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

RMS, APPEND, ADD = "rms_norm of a wide row", "kv_norm_rope_append", "add of odd width"

FAULTS = {
    "a wrong epsilon": (RMS, "+ S::kEps", "+ 0.1f", "relative error"),
    "elements that are left out": (
        ADD, "to[i] = to_bf16(v[i])", "to[i] = threadIdx.x < 18 ? to_bf16(v[i]) : 0", "relative error"),
    "sums that depend on how many rows there are": (
        RMS, "v[run][i] *= scale", "v[run][i] *= (gridDim.x > 9 ? 1.001f : 1.0f) * scale", "than in a larger step"),
    "a race": (
        RMS, "held.load(x + static", "__shared__ float raced; raced = 0.5f + threadIdx.x; __syncthreads(); "
        "scales.v[0][0] *= raced; held.load(x + static", "a second run gave other bits"),
    "an input overwritten": (ADD, "other.load(b +", "const_cast<bf16*>(b)[row] = 0; other.load(b +", "wrote to 'b'"),
    "columns of others": ("add to columns", "y + row * S::kYStride", "y + 8 + row * S::kYStride", "wrote to 'p'"),
    "a token of the cache that is not the step's": (
        APPEND, "committed[slot] + row % group)", "committed[slot] + 1 + row % group)",
        "wrote to the latent cache"),
    "pages ignored": (APPEND, "const int page = pages[slot * S::kPages + token / S::kPage]",
                      "const int page = slot * S::kPages + token / S::kPage", "wrote to the latent cache"),
    "keys turned the other way": (APPEND, "old * t.x - b[i] * t.y", "old * t.x + b[i] * t.y", "relative error"),
    "a ring that does not wrap": (
        "norm_rope_append to a ring", "position % tokens", "position", "wrote to the context cache"),
    "rows that are not those of the index": (
        "take_rows", "int row = index[blockIdx.x]", "int row = index[blockIdx.x] + 1", "relative error"),
    "features of the first tap": ("tap", "index * S::kWidth", "0 * S::kWidth", "wrote to 'f'"),
}  # fmt: skip

PUNISHED = {
    "padding that is used": (APPEND, "return row % group < valid[row / group]", "return true"),
    "a row too many": (ADD, "const i64 row = blockIdx.x", "const i64 row = blockIdx.x + 1"),
}


def faults_of(name: str, old: str, new: str, *, alike: bool = True) -> set[str]:
    """What the checker says of a kernel with `old` replaced in the bodies, which promises what `alike` says."""
    plan, table, sources = SINGLES[name]
    bodies = {path.name: path.read_text() for path in sorted(BODIES.glob("*.cuh"))}
    assert any(old in text for text in bodies.values()), f"no body has {old}"
    planted = {CUH + file: text.replace(old, new) for file, text in bodies.items()}
    kernel = msgspec.structs.replace(table.kernels[0], alike=alike)
    results = check_kernel(Emulated(sources | planted), plan, table, kernel, {}, (1, 2, 9, 17), (43, 0))
    return {fault for result in results for fault in result.faults}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str) -> None:
    name, old, new, message = FAULTS[fault]
    assert any(message in said for said in faults_of(name, old, new))


@pytest.mark.parametrize("fault", PUNISHED)
def test_planted_faults_that_a_gpu_punishes(fault: str) -> None:
    with pytest.raises(EmulatorError):
        faults_of(*PUNISHED[fault])


def test_bits_of_other_steps_count_where_they_are_promised() -> None:
    """A kernel that promises less must still give the same bits in a second run, and the right numbers."""
    assert faults_of(*FAULTS["sums that depend on how many rows there are"][:3], alike=False) == set()
    for fault in ("a race", "a wrong epsilon"):
        *planted, message = FAULTS[fault]
        assert any(message in said for said in faults_of(*planted, alike=False))


def test_attention_alone_promises_no_bits_of_other_steps() -> None:
    plan, table, sources = built(TINY)
    different = [kernel for kernel in kernels_of(TINY) if not kernel.alike]
    assert sorted(kernel.name.partition("__")[0] for kernel in different) == [
        "block_attention",
        "latent_attention_v_up",
    ]
    (latent,) = [kernel for kernel in different if kernel.name.startswith("latent")]
    for alike in (False, True):
        kernel = msgspec.structs.replace(latent, alike=alike)
        results = check_kernel(Emulated(sources), plan, table, kernel, LAYOUTS, (1, 33, 128), (83,))
        assert {fault for one in results for fault in one.faults} == (
            {"a row has other bits than in a larger step"} if alike else set()
        )


RULES = {
    "sigmoid and bias": {"score": "sigmoid", "groups": 1, "top_groups": 1},
    "softmax": {"score": "softmax", "groups": 1, "top_groups": 1},
    "groups": {"score": "sigmoid", "groups": 8, "top_groups": 4},
}


@pytest.mark.parametrize("rule", RULES)
def test_rounding_changes_no_choice_that_is_clear(rule: str) -> None:
    """Rows rounded as a kernel rounds them, once before their norm and once behind it: choices change, unclear ones."""
    draw = torch.Generator().manual_seed(3)
    rows, experts, inputs, top_k = 8192, 64, 256, 6
    sums = torch.randn(rows, inputs, generator=draw, dtype=torch.float64)
    weights = [inputs**-0.5 * torch.randn(experts, inputs, generator=draw, dtype=torch.float64)]
    if rule != "softmax":
        weights.append(0.1 * torch.randn(experts, generator=draw, dtype=torch.float64))
    params = RULES[rule] | {"top_k": top_k, "normalize": True, "scale": 1.0}

    def normed(x: torch.Tensor) -> torch.Tensor:
        return x * x.square().mean(-1, keepdim=True).rsqrt()

    def chosen(x: torch.Tensor) -> torch.Tensor:
        ids = torch.zeros(rows, top_k, dtype=torch.int64)
        router(ids, x.new_zeros(rows, top_k), x, *weights, **params)  # type: ignore[arg-type]
        return ids

    exact, rounded = normed(sums), normed(sums.bfloat16().double()).bfloat16().double()
    changed = (chosen(exact) != chosen(rounded)).any(-1)
    clear = clearance(Call("r", "router", ("ids", "w"), ("x",), (), params), exact, weights)  # type: ignore[arg-type]
    assert changed.sum() > 100, "a test of nothing"
    assert clear[changed].max() < SIGMAS
    assert (clear > SIGMAS).float().mean() > 0.05, "rows that are clear must be found by drawing"


def test_a_router_is_right_whatever_the_seed() -> None:
    plan, table, sources = built(TINY)
    (kernel,) = [kernel for kernel in kernels_of(TINY) if kernel.name.startswith("add_norm_router")]
    launcher = Emulated(sources)
    for seed in range(30):
        results = check_kernel(launcher, plan, table, kernel, LAYOUTS, (65, 127, 128), (83,), seed)
        assert [result for result in results if result.faults] == []
