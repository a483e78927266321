"""From rounds to numbers: tau with its interval, acceptance by depth and rank."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from ddtreec_runtime.bench.replay import Tally
from ddtreec_runtime.bench.report import Estimate, Share

NORMAL_95 = 1.959964
"""Half width of a 95 % interval in standard errors, normal law."""


def tau(tallies: Sequence[Tally]) -> Estimate:
    """Tokens committed per round over all texts. Texts without a round do not count.

    The interval is that of a ratio of sums over prompts (linearised; Cochran, Sampling Techniques, 1977, section 6.4):
    se^2 = n / (n - 1) * sum((tokens_i - tau * rounds_i)^2) / (sum rounds_i)^2.
    """
    pairs = [(sum(tally.committed), len(tally.committed)) for tally in tallies if tally.committed]
    tokens, rounds, n = sum(t for t, _ in pairs), sum(r for _, r in pairs), len(pairs)
    value = tokens / rounds if rounds else 0.0
    if n < 2:
        return Estimate(value, None, None, rounds, tokens, n)
    spread = math.sqrt(n / (n - 1) * sum((t - value * r) ** 2 for t, r in pairs)) / rounds
    return Estimate(value, value - NORMAL_95 * spread, value + NORMAL_95 * spread, rounds, tokens, n)


def by_depth(tallies: Iterable[Tally]) -> tuple[Share, ...]:
    """Shares of depths 1, 2, .. as far as a tree reached."""
    listed = list(tallies)
    columns = zip_longest(
        *(_sum(getattr(t, name) for t in listed) for name in ("reached", "offered", "accepted")), fillvalue=0
    )
    return tuple(Share(depth, *column) for depth, column in enumerate(columns, start=1) if column[1])


def by_rank(tallies: Iterable[Tally]) -> tuple[Share, ...]:
    """Shares of ranks 0, 1, .. that were offered. `reached`: parents on the path, the same number for every rank."""
    listed = list(tallies)
    parents = sum(sum(t.reached) for t in listed)
    offered, accepted = _sum(t.rank_offered for t in listed), _sum(t.rank_accepted for t in listed)
    pairs = enumerate(zip_longest(offered, accepted, fillvalue=0))
    return tuple(Share(rank, parents, *pair) for rank, pair in pairs if pair[0])


def _sum(rows: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip_longest(*rows, fillvalue=0)]
