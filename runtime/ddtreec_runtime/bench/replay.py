"""Rounds of every budget from one text: how acceptance is measured without decoding once a budget.

The text of a prompt is the same for all budgets: speculation is lossless, draws go by position. What a round accepts
is the longest path of its tree that the text follows. So the text is that of plain decoding, and a round is known from
the draft at its root and the text behind it. One pass over prompt and text gives the features; the drafter then runs
once for every root that at least one budget visits, roots ascending, and each budget's tree is built by the engine's
own `propose` from that draft.

Rounds are those whose root stands before token `max_new_tokens` - 1 of the output and before its stop token. The text
goes on a block further, so none of them is cut short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ddtreec.core.errors import SpecError
from ddtreec_runtime import checks
from ddtreec_runtime.drafting import propose
from ddtreec_runtime.engine import Engine
from ddtreec_runtime.foresight import Foresight, foresee
from ddtreec_runtime.sampling import SamplingParams, pick
from ddtreec_runtime.threads import using
from ddtreec_runtime.tree import Tree, chain_tree, verify_walk_lazy

NEAR = 1e-3
"""Best two logits closer than this are a near tie."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to decode: 'off' (budget 0), 'chain' or 'tree', and the most nodes besides the root."""

    mode: Literal["off", "chain", "tree"]
    budget: int

    @property
    def name(self) -> str:
        """'off', 'chain' or 'tree 16'."""
        return f"tree {self.budget}" if self.mode == "tree" else self.mode


@dataclass(slots=True)
class Tally:
    """Rounds of one way on one text. committed: tokens a round, bonus included. reached, offered, accepted: as in
    `report.Share`, by depth - 1; rank_offered, rank_accepted: by rank.
    """

    committed: list[int] = field(default_factory=list)
    reached: list[int] = field(default_factory=list)
    offered: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    rank_offered: list[int] = field(default_factory=list)
    rank_accepted: list[int] = field(default_factory=list)

    def add(self, tree: Tree, path: Sequence[int]) -> None:
        """Count one round with its accepted path, root first."""
        self.committed.append(len(path))
        depths, ranks, parents = tree.depths.tolist(), tree.ranks.tolist(), tree.parents.tolist()
        on_path = set(path)
        for depth in range(len(path)):
            _bump(self.reached, depth)
        for depth in {depths[node - 1] for node in range(1, tree.rows) if parents[node] in on_path}:
            _bump(self.offered, depth - 1)
        for node in range(1, tree.rows):
            if parents[node] in on_path:
                _bump(self.rank_offered, ranks[node - 1])
        for node in path[1:]:
            _bump(self.accepted, depths[node - 1] - 1)
            _bump(self.rank_accepted, ranks[node - 1])


@dataclass(slots=True)
class Replayed:
    """One prompt at one temperature. text: output ids, a block longer than asked where the context allows. length: of
    the output as asked, its stop token included. looping, ended: see `report.TemperatureResult`, as are positions,
    near_ties and differing. tallies: one a way, in order.
    """

    text: list[int]
    length: int
    looping: bool
    ended: bool
    positions: int
    near_ties: int
    differing: int
    tallies: list[Tally]


def loops(text: Sequence[int], longest: int = 32, run: int = 32) -> bool:
    """Whether a text ends in a loop: for some period p of 1 .. `longest` tokens, each of its last max(p, `run`) tokens
    equals the one p before.
    """
    n = len(text)
    for period in range(1, longest + 1):
        stretch = max(period, run)
        if n >= stretch + period and all(text[i] == text[i - period] for i in range(n - stretch, n)):
            return True
    return False


def replay(engine: Engine, prompt: Sequence[int], tokens: int, params: SamplingParams, ways: Sequence[Way]) -> Replayed:
    """Generate `tokens` tokens behind a prompt and tell the rounds of every way on them.

    Raises what `Engine.generate` raises.
    """
    plan = engine.plan
    if plan.drafter is None or not engine.drafts:
        raise SpecError(checks.no_drafter(plan))
    block = plan.drafter.block
    prompt = list(prompt)
    made = engine.generate(
        prompt, tokens + block, params.temperature, params.top_p, params.top_k, params.seed,
        speculation="off", ignore_eos=True,
    )  # fmt: skip
    text = made.output_ids
    stop = next((place for place, token in enumerate(text) if token in plan.model.eos), len(text))
    # The last root that the engine starts from, and that has a whole block of text behind it.
    last = min(tokens - 2, stop - 1, len(text) - 1 - block)
    length = min(tokens, stop + 1, len(text))
    with torch.inference_mode(), using(engine.threads):
        features, near, differing = read_again(engine, prompt, text, params)
        tallies = rounds(engine, prompt, text, features, last, ways, params)
    return Replayed(text, length, loops(text[:length]), stop < tokens, len(text), near, differing, tallies)


def read_again(engine: Engine, prompt: list[int], text: list[int], params: SamplingParams) -> tuple[Tensor, int, int]:
    """One pass over prompt and text: features [P + T - 1, taps * hidden], near ties, and picks unlike the text's."""
    target = engine._fresh().target
    whole, first = [*prompt, *text], len(prompt)
    kept: list[Tensor] = []
    near = differing = 0
    for places, logits in target.prefill(whole[:-1], "all"):
        held = target.features(len(places))
        assert held is not None
        kept.append(held.clone())
        skip = max(0, first - 1 - places.start)
        if skip >= len(places):
            continue
        behind = [place + 1 for place in places][skip:]
        picks = pick(logits[skip:], behind, params)
        differing += sum(token != whole[place] for token, place in zip(picks, behind, strict=True))
        if params.greedy:
            best = logits[skip:].topk(2, dim=1).values
            near += int((best[:, 0] - best[:, 1] < NEAR).sum())
    return torch.cat(kept), near, differing


def rounds(
    engine: Engine,
    prompt: list[int],
    text: list[int],
    features: Tensor,
    last: int,
    ways: Sequence[Way],
    params: SamplingParams,
) -> list[Tally]:
    """The rounds of every way with roots 0 .. `last` of the text, which `params` drew."""
    drafter = engine._fresh().drafter
    assert drafter is not None
    tallies = [Tally() for _ in ways]
    root_of = [0] * len(ways)
    fed = 0
    for root in range(last + 1):
        here = [number for number, at in enumerate(root_of) if at == root]
        drafting = [number for number in here if ways[number].mode != "off"]
        logits, known = torch.empty(0), None
        if drafting:
            start = len(prompt) + root
            drafter.feed(features[fed:start])
            fed = start
            logits = drafter.draft(text[root])
            known = foresee(params, start, len(logits))
        for number in here:
            tree = _tree(engine, logits, ways[number], known)
            depths = [0, *tree.depths.tolist()]
            path, _ = verify_walk_lazy(tree, lambda node, d=depths, r=root: text[r + d[node] + 1])
            tallies[number].add(tree, path)
            root_of[number] += len(path)
    return tallies


def _tree(engine: Engine, logits: Tensor, way: Way, known: Foresight | None) -> Tree:
    if way.mode == "off":
        return chain_tree(())
    return propose(logits, way.mode, way.budget, engine.plan.tree, known)


def _bump(counts: list[int], place: int) -> None:
    counts.extend([0] * (place + 1 - len(counts)))
    counts[place] += 1
