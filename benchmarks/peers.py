"""What other kernels take for the same work on one H200: the numbers that `gpu_page` puts beside ours.

Measured for this project in autumn 2026 on one H200, cold caches, uniform routing; one rank's shapes of K2.6 cut over
eight (TP8). The raw measurements are not in this repository. Microseconds, each for one layer, unless said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SOURCE = (
    "Peers were measured for this project on one H200 with the software of autumn 2026 (Marlin MoE chain and Triton "
    "verify of SGLang 0.5.23, Humming 0.1.20, FlashMLA, cuBLAS), cold caches, uniform routing; their raw measurements "
    "are not in this repository"
)

EXPERTS: Mapping[str, Mapping[int, float]] = {
    "Marlin MoE chain": {1: 23.4, 2: 39.1, 4: 52.8, 8: 81.8, 16: 128.9, 32: 207.8, 64: 299.3, 128: 384.9},
    "Humming, align not counted": {1: 21.9, 8: 66.5, 16: 106.6, 32: 173.1, 64: 250.2, 128: 327.2},
    "bytes / read ceiling": {1: 5.5, 2: 11, 4: 21, 8: 41, 16: 74, 32: 130, 64: 194, 128: 245},
}
"""Routed experts by rows, without the shared expert."""

ATTENTION: Mapping[str, Mapping[tuple[int, int], float]] = {
    "FlashMLA, causal only": {
        (1024, 1): 10.8, (1024, 8): 13.6, (1024, 32): 14.8,
        (8192, 1): 24.9, (8192, 8): 27.7, (8192, 32): 25.3,
        (32768, 1): 43.8, (32768, 8): 48.1, (32768, 32): 58.0,
    },
    "Triton verify, tree mask": {
        (1024, 1): 24.4, (1024, 8): 33.7, (8192, 1): 61.7, (8192, 8): 77.7, (32768, 1): 184, (32768, 8): 221,
    },
    "latents / read ceiling": {(1024, 1): 0.3, (8192, 1): 2.1, (32768, 1): 8.3},
}  # fmt: skip
"""Absorbed MLA of 8 heads by (context, rows), without W_uv."""


@dataclass(frozen=True, slots=True)
class Product:
    """`node`: ours without its layer; `low`, `high`: of the peers for 1 to 64 rows; `peers`, `ours`: what each does."""

    node: str
    low: float
    high: float
    peers: str
    ours: str


PRODUCTS = (
    Product("attention.add_norm_linear", 13, 15, "cuBLAS A-projection", "A-projection, residual sum, norm"),
    Product("attention.q_b_absorb_rope", 8.4, 10.3, "cuBLAS q_b and W_uk", "q_b, W_uk, norm, rotation"),
    Product("attention.o_proj", 6.8, 7.1, "cuBLAS o_proj", "o_proj"),
    Product("moe.add_norm_router", 7.5, 8.0, "cuBLAS router", "router, residual sum, norm, choice of experts"),
    Product("head.take_norm_linear", 80, 83, "cuBLAS lm_head", "lm_head, norm"),
)

STEP: Mapping[int, float] = {1: 6.3, 8: 9.9}
"""Milliseconds of a step at 8k context by rows: these kernels summed over 61 layers, without norms, RoPE, top-k of the
experts and cache writes."""

GOALS: Mapping[int, float] = {1: 6.0, 8: 9.0}
"""Milliseconds of a step at 8k context by rows that this project set itself."""
