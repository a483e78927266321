"""The loop: draft, build a tree, verify it, walk, commit; until a stop token, a stop string or the length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal, Protocol

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Tree as TreePolicy
from ddtreec_runtime.drafting import DraftSource, Mode, propose
from ddtreec_runtime.foresight import foresee
from ddtreec_runtime.sampling import SamplingParams, pick, pick_walk
from ddtreec_runtime.state import causal
from ddtreec_runtime.tree import Tree, chain_tree

FinishReason = Literal["stop", "length"]
Accept = Callable[[list[int]], tuple[int, bool]]
"""Takes newly committed ids; gives how many of them belong to the output, and whether it ends there."""


@dataclass(slots=True)
class Generation:
    """What one `generate` made.

    prompt_ids, output_ids: token ids; the output ends with the stop token where one ended it.
    text: the output's text without special tokens and cut before a stop string, None without a tokenizer.
    finish_reason: 'stop' (a stop token or string) or 'length' (max_new_tokens reached, or the context is full).
    rounds: verify steps after the prefill. accepted_per_round: tokens each of them committed, bonus included, before
    any cut; tau: their mean, 0 without rounds. prefill_s: seconds to the first token; decode_s: seconds from there;
    tokens_per_s: tokens after the first per second of decode, 0 without any. profile: seconds by phase (prefill,
    draft, tree, verify, walk, commit, context, text).
    """

    prompt_ids: list[int]
    output_ids: list[int] = field(default_factory=list)
    text: str | None = None
    finish_reason: FinishReason = "length"
    rounds: int = 0
    accepted_per_round: list[int] = field(default_factory=list)
    prefill_s: float = 0.0
    decode_s: float = 0.0
    profile: dict[str, float] = field(default_factory=dict)

    @property
    def tau(self) -> float:
        """Mean tokens committed per round, bonus included."""
        return sum(self.accepted_per_round) / self.rounds if self.rounds else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of decode; the first token belongs to the prefill."""
        return (len(self.output_ids) - 1) / self.decode_s if self.decode_s > 0 else 0.0


class TargetSource(Protocol):
    """What the loop needs of a target; `Target` is the real one."""

    @property
    def committed(self) -> int:
        """Tokens in the cache."""
        ...

    @property
    def room(self) -> int:
        """Rows that still fit."""
        ...

    @property
    def max_rows(self) -> int:
        """Most rows of one step."""
        ...

    def prefill(self, tokens: Sequence[int]) -> Iterator[tuple[range, Tensor]]:
        """Commit tokens in chunks; the last chunk's logits are [1, V]."""
        ...

    def step(self, tokens: Tensor, positions: Tensor, hidden: Tensor | None) -> Tensor:
        """Logits [rows, V] of rows that are not committed yet."""
        ...

    def commit(self, accepted: Sequence[int]) -> None:
        """Keep these rows."""
        ...


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What a listener hears of a round: the tree, the root and its position, the target's logits, the walk's result."""

    tree: Tree
    start: int
    root: int
    logits: Tensor
    accepted: list[int]
    next_token: int


@dataclass(frozen=True, slots=True)
class Job:
    """How to generate. `limit`: most output tokens; `mode` None: plain decoding; `budget`: nodes besides the root."""

    prompt: Sequence[int]
    limit: int
    params: SamplingParams
    policy: TreePolicy
    mode: Mode | None = None
    budget: int = 0
    request: int = 0
    heed_stops: bool = True
    """Whether the model's stop tokens end it. A loop on the device asks this; here `accept` does it."""


class Clock:
    """Seconds by phase: `lap` books the time since the last lap."""

    def __init__(self, seconds: dict[str, float]):
        self.seconds = seconds
        self.last = perf_counter()

    def lap(self, phase: str) -> None:
        """Book the time since the last lap on `phase`."""
        now = perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self.last
        self.last = now


def run_job(
    job: Job,
    target: TargetSource,
    drafter: DraftSource | None,
    accept: Accept,
    listen: Callable[[RoundReport], None] | None = None,
) -> Generation:
    """Generate; the target and drafter must be empty. `accept` sees every committed run once, in order.

    Raises NonFiniteLogits when the target's logits have no largest value.
    """
    done = Generation(prompt_ids=list(job.prompt))
    clock, began = Clock(done.profile), perf_counter()
    token = _prefill(job, target, drafter if job.mode else None)
    clock.lap("prefill")
    done.prefill_s = perf_counter() - began
    ended = take(done, [token], job, accept)
    while not ended:
        clock.lap("text")
        start = target.committed
        tree = _guess(job, target, drafter, token, job.limit - len(done.output_ids) - 1, clock)
        logits = _verify(target, tree, token, start)
        clock.lap("verify")
        accepted, bonus = pick_walk(tree, logits, start, job.params, job.request)
        clock.lap("walk")
        if listen is not None:
            listen(RoundReport(tree, start, token, logits, accepted, bonus))
            clock.lap("text")
        done.rounds += 1
        done.accepted_per_round.append(len(accepted))
        ended = take(done, [*tree.tokens[[node - 1 for node in accepted[1:]]].tolist(), bonus], job, accept)
        clock.lap("text")
        if not ended:
            target.commit(accepted)
            clock.lap("commit")
            if job.mode and drafter is not None:
                drafter.extend(accepted)
                clock.lap("context")
        token = bonus
    done.decode_s = perf_counter() - began - done.prefill_s
    return done


def _prefill(job: Job, target: TargetSource, drafter: DraftSource | None) -> int:
    """Commit the prompt, feed its features to the drafter, pick the first token."""
    logits = torch.empty(0)
    for places, last in target.prefill(job.prompt):
        logits = last
        if drafter is not None:
            drafter.extend(range(len(places)))
    return pick(logits, [len(job.prompt)], job.params, job.request)[0]


def _guess(job: Job, target: TargetSource, drafter: DraftSource | None, root: int, wanted: int, clock: Clock) -> Tree:
    """The tree of this round. `wanted`: tokens missing besides the one any round gives; deeper guesses are useless.

    The tree also shrinks to the rows that the cache still has.
    """
    budget = min(job.budget, target.room - 1, target.max_rows - 1)
    if not job.mode or drafter is None or wanted <= 0 or budget <= 0:
        return chain_tree(())
    logits = drafter.draft(root)[:wanted]
    clock.lap("draft")
    known = foresee(job.params, target.committed, len(logits), job.request)
    tree = propose(logits, job.mode, budget, job.policy, known)
    clock.lap("tree")
    return tree


def _verify(target: TargetSource, tree: Tree, root: int, start: int) -> Tensor:
    """The target's logits at every node, root first."""
    rows = tree.rows
    tokens = torch.empty(rows, dtype=torch.int32)
    tokens[0] = root
    positions = torch.full((rows,), start)
    if rows == 1:
        return target.step(tokens, positions, None)
    tokens[1:] = torch.from_numpy(tree.tokens)
    positions[1:] += torch.from_numpy(tree.depths)
    if tree.depths[-1] == rows - 1:
        return target.step(tokens, positions, causal(rows))
    return target.step(tokens, positions, torch.from_numpy(~tree.visibility).unsqueeze(1))


def take(done: Generation, ids: list[int], job: Job, accept: Accept) -> bool:
    """Add committed ids to the output, cut at its end. Whether generation is over."""
    ids = ids[: job.limit - len(done.output_ids)]
    keep, stopped = accept(ids)
    done.output_ids += ids[:keep]
    if stopped:
        done.finish_reason = "stop"
    return stopped or len(done.output_ids) >= job.limit
