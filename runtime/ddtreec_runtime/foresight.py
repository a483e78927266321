"""What the draws say about the tokens to come: drafts scored with the very numbers that the target will draw with.

A draw is keyed by seed, request and position (`sampling`), so the number behind every depth of a tree is known before
the target is asked. `sampling.pick` inverts the target's law in token order at that number u. The drafter's row gives
a law close to the target's, so the token picked lies near the one at which the drafter's own sums reach u, and nodes
there are worth more than their probability alone says. The text stays the target's: it alone decides which token u
picks, and the tree only says which tokens are checked. That shared numbers make two parties draw alike is
communication-free coupling (Daliri, Musco, Suresh, arXiv 2408.07978); a tree wants more than one guess, so here the
number gives every token a chance instead of choosing one.

The model is a Gaussian copula. Let Q(t) be the sum of the drafter's probabilities of tokens 0 .. t, and c the
correlation between the normal scores of u and of the token's place. Then

    P(token <= t | u) = Phi((Phi^-1(Q(t)) - c Phi^-1(u)) / sqrt(1 - c^2))

Averaged over u this is the drafter's own law, whatever c is: c = 0 ignores u, c = 1 trusts the drafter entirely.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ddtreec_runtime.sampling import SamplingParams, uniform
from ddtreec_runtime.tree import top_logprobs

CORRELATIONS = (0.85, 0.65, 0.55, 0.5)
"""c at depths 1, 2, 3 and beyond, at temperature 1 and above; below, c falls with the temperature, since at 0 the
number no longer matters. Chosen on prompts of the shipped pair's training text at temperatures 0.4, 0.8 and 1. At
0.8, tau stays within 1 % from c = 0.7, 0.5, 0.4, 0.35 to 0.9, 0.75, 0.65, 0.6."""
CANDIDATES = 256
"""Tokens of a row that are scored, the drafter's best; more only where more are asked for."""
DOUBT = 0.01
"""Share of the drafter's own law that is mixed in, so that no token is ruled out by a number alone."""
_LEAST = 2.0**-54
"""Half the step of the draws: stands for 0, whose normal score is not finite."""


@dataclass(frozen=True, slots=True)
class Foresight:
    """Numbers [depths], each in [0, 1), that the tokens of depths 1, 2, .. will be drawn with, and the temperature."""

    numbers: tuple[float, ...]
    temperature: float


def foresee(params: SamplingParams, start: int, depths: int, request: int = 0) -> Foresight | None:
    """The numbers behind a root at absolute position `start`; None where nothing is drawn (greedy)."""
    if params.greedy:
        return None
    numbers = tuple(uniform(params.seed, request, start + depth) for depth in range(1, depths + 1))
    return Foresight(numbers, params.temperature)


def expected(logits: Tensor, known: Foresight, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k most likely tokens of each row of draft logits, float [L, V], given the numbers of `known` (at least L).

    Returns log-probs float32 [L, min(k, V)], descending, and token ids int64, equal ones smaller id first, as
    `tree.top_logprobs` does. A row with NaN or +inf, or nothing above -inf, gives NaN. Raises ValueError as
    `tree.top_logprobs` does, and where there are fewer numbers than rows.
    """
    depth = len(logits)
    if len(known.numbers) < depth:
        raise ValueError(f"{len(known.numbers)} numbers for {depth} rows of logits")
    _, best = top_logprobs(logits, max(k, CANDIDATES))
    ids = torch.from_numpy(np.sort(best, axis=1)).to(logits.device)
    sums = logits.float().softmax(-1).cumsum(-1, dtype=torch.float64)
    sums = sums / sums[:, -1:]
    above = sums.gather(1, ids)
    below = torch.where(ids > 0, sums.gather(1, (ids - 1).clamp(min=0)), 0.0)
    number = sums.new_tensor([max(number, _LEAST) for number in known.numbers[:depth]]).unsqueeze(1)
    heat = min(1.0, known.temperature)
    listed = [heat * CORRELATIONS[min(row, len(CORRELATIONS) - 1)] for row in range(depth)]
    correlation = sums.new_tensor(listed).unsqueeze(1)
    score = correlation * torch.special.ndtri(number)
    width = (1 - correlation**2).sqrt()
    low, high = ((torch.special.ndtri(side) - score) / width for side in (below, above))
    # Both ends far above 0 would leave nothing of their difference; mirrored, they lie far below.
    mirrored = low > 0
    low, high = torch.where(mirrored, -high, low), torch.where(mirrored, -low, high)
    mass = torch.special.ndtr(high) - torch.special.ndtr(low)
    law = ((1 - DOUBT) * mass + DOUBT * (above - below)).clamp(max=1.0)
    law, order = law.sort(dim=1, descending=True, stable=True)
    chosen = ids.gather(1, order)
    keep = min(k, logits.shape[1])
    return law[:, :keep].log().float().cpu().numpy(), chosen[:, :keep].cpu().numpy()
