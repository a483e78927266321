"""Rotary tables as numbers: frequencies of each pair and the factor on cos and sin."""

from __future__ import annotations

import math

from ddtreec.artifacts.plan import Rope
from ddtreec.spec.schema import RopeSpec, Yarn


def rope_table(spec: RopeSpec, dim: int) -> Rope:
    """The table of `spec` over `dim` elements (even). Plain: inv_freq_i = theta^(-2i/dim). YaRN (DeepSeek-V3): a blend
    of that and that over `factor`, by a ramp between the pairs that turn beta_fast and beta_slow times in
    `original_positions`; frequencies are static. The layout says which elements pair up and changes no number."""
    plain = tuple(spec.theta ** (-2.0 * i / dim) for i in range(dim // 2))
    amplitude = spec.amplitude
    if spec.yarn is None:
        return Rope(dim, spec.layout, plain, 1.0 if amplitude is None else amplitude)
    low, high = yarn_range(spec.yarn, spec.theta, dim)
    frequencies = tuple(_blend(f, (i - low) / (high - low), spec.yarn.factor) for i, f in enumerate(plain))
    if amplitude is None:
        amplitude = mscale(spec.yarn.factor, spec.yarn.mscale) / mscale(spec.yarn.factor, spec.yarn.mscale_all_dim)
    return Rope(dim, spec.layout, frequencies, amplitude)


def yarn_range(yarn: Yarn, theta: float, dim: int) -> tuple[float, float]:
    """First and last pair of the ramp, as pair numbers."""

    def pair(turns: float) -> float:
        return dim * math.log(yarn.original_positions / (turns * 2.0 * math.pi)) / (2.0 * math.log(theta))

    low = max(math.floor(pair(yarn.beta_fast)), 0)
    high = min(math.ceil(pair(yarn.beta_slow)), dim - 1)
    return low, high if high != low else high + 0.001


def mscale(factor: float, weight: float) -> float:
    """YaRN's temperature term, 0.1 * weight * ln(factor) + 1, and 1 where nothing is stretched."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def _blend(frequency: float, position: float, factor: float) -> float:
    ramp = min(max(position, 0.0), 1.0)
    return (1.0 - ramp) * frequency + ramp * frequency / factor
