"""Speculation never changes the text: budgets, chain and off agree token by token, greedy and with a seed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from ddtreec.artifacts.plan import Tree as TreePolicy
from ddtreec_runtime import Engine
from ddtreec_runtime.generation import Generation, Job, run_job
from ddtreec_runtime.sampling import SamplingParams
from tests.runtime.engines import CHECKPOINTS, K26, engine, random_drafter

HOT = 8.0
"""The goldens' margins are about 18 logits: only at such a temperature do draws differ from the best token."""
TOKENS = 20
BUDGETS = (0, 1, 2, 7, 8, 16, 64)
SHAPES = {
    "a-flat-8e": (128, 512),
    "b-real-heads": (96, 448),
    "c-vl-nested-int4": (128, 512),
    "d-vl-nested-bf16": (128, 512),
}
TEMPERATURES = (0.0, 0.8, HOT)
PLANS = [("cpu", False), ("cpu-x2", True)]


@cache
def prompt(name: str, number: int) -> list[int]:
    return load_file(K26 / name / "goldens.safetensors")[f"p{number}.input_ids"].tolist()


def drafting(name: str, topology: str, sliding: bool) -> Engine:
    hidden, vocab = SHAPES[name]
    drafter = random_drafter(hidden, 3, vocab, vocab - 1, sliding)
    return engine(K26 / name, "float64", topology=topology, with_drafter=drafter, tree="ddtree-64")


@pytest.mark.parametrize(("topology", "sliding"), PLANS)
@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_engine_with_a_random_drafter(name: str, temperature: float, topology: str, sliding: bool) -> None:
    loaded = drafting(name, topology, sliding)

    def text(speculation: str, budget: int | None = None) -> list[int]:
        return loaded.generate(
            prompt(name, 2), TOKENS, temperature, seed=11, speculation=speculation, budget=budget, ignore_eos=True
        ).output_ids

    plain = text("off")
    assert len(plain) == TOKENS
    assert {budget: text("tree", budget) == plain for budget in BUDGETS} == dict.fromkeys(BUDGETS, True)
    assert text("chain") == plain
    greedy = loaded.generate(prompt(name, 2), TOKENS, speculation="off", ignore_eos=True).output_ids
    assert (plain == greedy) == (temperature < HOT)
    assert text("chain", 3) == plain


class Guesser:
    """A drafter of any skill: knows the plain continuation and is wrong, or less sure than it should be, by noise."""

    def __init__(self, loaded: Engine, known: Sequence[int], start: int, noise: float, vocab: int):
        self.block = 8
        self.known, self.start, self.vocab = list(known), start, vocab
        self.noise, self.target = noise, loaded._live().target
        self.random = torch.Generator().manual_seed(3)

    def extend(self, rows: Sequence[int]) -> None:
        pass

    def draft(self, anchor: int) -> Tensor:
        at = self.target.committed - self.start
        logits = torch.randn(7, self.vocab, generator=self.random) * self.noise
        for row, token in enumerate(self.known[at + 1 : at + 8]):
            logits[row, token] += 6.0
        return logits


@pytest.mark.parametrize("topology", ["cpu", "cpu-x2"])
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_drafts_that_are_often_right(name: str, temperature: float, topology: str) -> None:
    """Long accepted paths and accepted branches: compaction and positions are put to work."""
    loaded, vocab = engine(K26 / name, "float64", topology=topology), SHAPES[name][1]
    params, start = SamplingParams(temperature, seed=5), len(prompt(name, 2))

    def run(mode: str | None, budget: int, known: Sequence[int] = (), noise: float = 0.0) -> tuple[Generation, int]:
        parts = loaded._fresh()
        branches = 0

        def count(report) -> None:
            nonlocal branches
            branches += report.accepted != list(range(len(report.accepted)))

        job = Job(prompt(name, 2), 32, params, TreePolicy("t", "ddtree", budget, 7), mode, budget)  # type: ignore[arg-type]
        guesser = Guesser(loaded, known, start, noise, vocab) if mode else None
        with torch.inference_mode():
            return run_job(job, parts.target, guesser, lambda ids: (len(ids), False), count), branches

    plain, _ = run(None, 0)
    taus, branched = [], 0
    for mode, budget in [("chain", 7), *(("tree", min(budget, 16)) for budget in BUDGETS)]:
        for noise in (1.0, 2.0):
            done, branches = run(mode, budget, plain.output_ids, noise)
            assert done.output_ids == plain.output_ids, (mode, budget, noise)
            taus.append(done.tau)
            branched += branches
    assert max(taus) > 4, "the drafts were never accepted, so nothing was shown"
    assert branched > 0, "no branch was ever accepted, so compaction was not shown"


def test_seed_decides_the_text() -> None:
    loaded = drafting("a-flat-8e", "cpu", False)
    texts = {
        seed: tuple(loaded.generate(prompt("a-flat-8e", 1), 24, HOT, seed=seed, ignore_eos=True).output_ids)
        for seed in range(4)
    }
    assert len(set(texts.values())) == 4
    again = loaded.generate(prompt("a-flat-8e", 1), 24, HOT, seed=2, ignore_eos=True)
    assert tuple(again.output_ids) == texts[2]


def test_the_sampled_law_is_the_targets() -> None:
    """Chi-square of 4000 sampled second tokens, drafted with a tree, against the target's own probabilities."""
    name = "a-flat-8e"
    loaded = engine(K26 / name, "float64")
    first = prompt(name, 0)
    temperature = 2 * HOT
    parts = loaded._fresh()
    begin = loaded.logits(first)[-1]
    root = int(begin.argmax())
    law = (loaded.logits([*first, root])[-1] / temperature).softmax(-1)
    # Drafting is fixed; the token behind `root` is drawn 4000 times with other seeds through the walk over a tree.
    from ddtreec_runtime.sampling import pick_walk
    from ddtreec_runtime.tree import Tree

    best = law.argsort(descending=True)[:6].tolist()
    tree = Tree.from_parents(torch.tensor([*best, best[0]], dtype=torch.int32), [-1, 0, 0, 0, 0, 0, 0, 1])
    logits = loaded.tree_logits(first, [root, *best, best[0]], [-1, 0, 0, 0, 0, 0, 0, 1])
    counts = torch.zeros(len(law))
    draws = 4000
    for seed in range(draws):
        accepted, token = pick_walk(tree, logits, len(first), SamplingParams(temperature, seed=seed))
        counts[int(tree.tokens[accepted[1] - 1]) if len(accepted) > 1 else token] += 1
    assert parts is loaded._live()
    top = law.argsort(descending=True)
    expected = law[top] * draws
    cut = int((expected >= 8).sum())
    observed, wanted = counts[top].double(), expected.double()
    bins_seen = torch.cat([observed[:cut], observed[cut:].sum().view(1)])
    bins_want = torch.cat([wanted[:cut], wanted[cut:].sum().view(1)])
    chi = float(((bins_seen - bins_want) ** 2 / bins_want).sum())
    # Mean of chi-square with `cut` degrees of freedom is cut, deviation sqrt(2 cut): five deviations.
    assert cut > 20
    assert chi < cut + 5 * (2 * cut) ** 0.5
