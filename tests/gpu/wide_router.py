"""A reference of the router that follows the choices of the kernel it judges.

Two experts of nearly the same score may change places under rounding, and then all that comes behind differs for no
fault. So the reference takes the kernel's choice, and what must hold is that no better expert was left out by more
than rounding explains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ddtreec.artifacts.plan import Call

SIGMAS = 6.0
SLOPE = 0.25
"""Most that a sigmoid moves when its logit moves by one."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One router in one step.

    flips: rows whose chosen set is not that of the reference's own scores. gap: the largest by which an expert was
    better than one that was chosen instead; bound: what rounding explains in that row. wrong: rows with a gap beyond
    it, or with an expert twice. closest: least distance in any row between the last chosen score and the next.
    experts: how many different ones all rows chose.
    """

    program: str
    rows: int
    committed: int
    node: str
    kind: str
    flips: int
    gap: float
    bound: float
    wrong: int
    closest: float
    experts: int


class Follower:
    """Stands in for the router kernel among the parts of one call. See `Choice` for what it keeps of each use."""

    def __init__(self, inputs: Mapping[str, Tensor], got: Mapping[str, Tensor], parts: Sequence[Call]):
        """`got`: what the kernel under test gave: its choices, and the normed rows that it chose by."""
        self.seen: list[dict[str, Any]] = []
        routers = [part for part in parts if part.kernel == "router"]
        if routers:
            (router,) = routers
            self._ids = got[router.outs[0]]
            self._rows = {**inputs, **got}[router.ins[0]]

    def __call__(
        self,
        ids: Tensor,
        w: Tensor,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        top_k: int,
        groups: int,
        top_groups: int,
        score: str,
        normalize: bool,
        scale: float,
    ) -> None:
        """As `cpu.kernels.router`, without groups."""
        assert groups == 1 and score == "sigmoid" and ids.shape == self._ids.shape
        logits = x @ weight.t()
        scores = logits.sigmoid()
        choice = scores if bias is None else scores + bias
        ids.copy_(self._ids)
        twice = (ids.sort(-1).values.diff(dim=-1) == 0).any(-1) | (ids < 0).any(-1) | (ids >= weight.shape[0]).any(-1)
        safe = ids.clamp(0, weight.shape[0] - 1)
        missed = choice.scatter(1, safe, float("-inf")).amax(-1)
        gap = missed - choice.gather(1, safe).amin(-1)
        # The row that the kernel chose by is off by a share e; that moves a logit by about e times its size.
        share = (self._rows - x).norm(dim=1) / x.norm(dim=1)
        bound = SIGMAS * 2**0.5 * SLOPE * share * logits.square().mean(-1).sqrt()
        taken = scores.gather(1, safe)
        w.copy_(taken / (taken.sum(-1, keepdim=True) + 1e-20) * scale if normalize else taken * scale)
        order = choice.topk(top_k + 1, dim=-1).values
        worst = int(gap.argmax())
        self.seen.append(
            {
                "flips": int((gap > 0).sum()),
                "gap": float(gap[worst].clamp_min(0)),
                "bound": float(bound[worst]),
                "wrong": int(((gap > bound) | twice).sum()),
                "closest": float((order[:, top_k - 1] - order[:, top_k]).min()),
                "experts": len(ids.unique()),
            }
        )
