"""Where a generation ends, and what the API refuses."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from ddtreec.artifacts.plan import Tree as TreePolicy
from ddtreec.core.errors import BundleError, DdtreecError, SpecError
from ddtreec_runtime import Engine
from ddtreec_runtime.generation import Generation, Job, run_job
from ddtreec_runtime.output import Output
from ddtreec_runtime.sampling import SamplingParams
from tests.runtime.engines import K26, bundle, engine, random_drafter

A = K26 / "a-flat-8e"
SMALL = ("limits.context=80", "limits.chunk=16")


def small() -> Engine:
    """Context 80, chunks of 16, a random drafter, trees up to 64."""
    return engine(A, "float64", with_drafter=random_drafter(128, 3, 512, 511), tree="ddtree-64", overrides=SMALL)


@cache
def plain() -> list[int]:
    gold = load_file(A / "goldens.safetensors")
    return [*gold["p1.input_ids"].tolist(), *gold["g1.tokens"].tolist()]


class Knowing:
    """A drafter that knows the continuation."""

    block = 8

    def __init__(self, loaded: Engine):
        self.target = loaded._live().target

    def extend(self, rows: Sequence[int]) -> None:
        pass

    def draft(self, anchor: int) -> Tensor:
        logits = torch.zeros(7, 512)
        for row, token in enumerate(plain()[self.target.committed + 1 : self.target.committed + 8]):
            logits[row, token] = 9.0
        return logits


def knowing(limit: int, eos: Sequence[int] = (), budget: int = 7) -> tuple[Generation, list[list[int]]]:
    """Generate with the drafter that knows; the runs as a listener hears them."""
    loaded, runs = small(), []
    parts = loaded._fresh()
    output = Output(None, eos, (), lambda ids, text: runs.append(ids))
    job = Job(plain()[:17], limit, SamplingParams(), TreePolicy("t", "ddtree", budget, 7), "tree", budget)
    with torch.inference_mode():
        return run_job(job, parts.target, Knowing(loaded), output.accept), runs


@pytest.mark.parametrize("limit", range(1, 20))
def test_length(limit: int) -> None:
    done, runs = knowing(limit)
    assert done.output_ids == plain()[17 : 17 + limit] == [token for run in runs for token in run]
    assert done.finish_reason == "length"
    # A drafter that knows fills whole blocks; the last tree is no deeper than what is missing.
    assert done.accepted_per_round == [8] * ((limit - 1) // 8) + [(limit - 1) % 8] * ((limit - 1) % 8 > 0)
    assert done.rounds == len(done.accepted_per_round)
    assert done.tau == (0 if limit == 1 else (limit - 1) / done.rounds)


@pytest.mark.parametrize("place", range(12))
def test_stop_token_anywhere_in_a_run(place: int) -> None:
    stop = plain()[17 + place]
    first = plain()[17:].index(stop)
    done, runs = knowing(30, eos=(stop, 100_000))
    assert done.output_ids == plain()[17 : 18 + first] == [token for run in runs for token in run]
    assert done.finish_reason == "stop"
    assert done.rounds == -(-first // 8)


@pytest.mark.parametrize("speculation", ["off", "chain", "tree"])
def test_context_full(speculation: str) -> None:
    """80 tokens in all: the tree shrinks, every last token is produced, then 'length'."""
    for count in (1, 17, 40, 78, 79):
        prompt = plain()[:count]
        done = small().generate(prompt, 1000, speculation=speculation, ignore_eos=True)
        assert len(prompt) + len(done.output_ids) == 80
        assert done.finish_reason == "length"
        if count == 17:
            assert done.output_ids == plain()[17:80]
    with pytest.raises(SpecError, match="R002"):
        small().generate(plain()[:80])


def test_model_stop_tokens_end_the_text() -> None:
    loaded = small()
    eos = loaded.plan.model.eos
    assert eos
    begun = [n for n in range(3, 500) if n not in eos][:40]
    ended = [loaded.generate([token], 30, 30.0, seed=token, speculation="tree") for token in begun]
    for done in ended:
        assert (done.finish_reason == "stop") == (done.output_ids[-1] in eos)
        assert not set(done.output_ids[:-1]) & set(eos)
    assert any(done.finish_reason == "stop" for done in ended)


def test_profile_covers_the_time() -> None:
    done = small().generate(plain()[:17], 30, ignore_eos=True)
    assert set(done.profile) == {"prefill", "draft", "tree", "verify", "walk", "commit", "context", "text"}
    total = done.prefill_s + done.decode_s
    assert 0.9 * total < sum(done.profile.values()) <= total * 1.001


def test_the_engine_forgets_between_calls() -> None:
    """Calls of all kinds in any order on one engine give what a fresh engine gives."""
    loaded = small()
    first = loaded.logits(plain()[:20])
    text = loaded.generate(plain()[:17], 24, 0.9, seed=3, ignore_eos=True).output_ids
    draft = loaded.draft_logits(plain()[:30])
    tree = loaded.tree_logits(plain()[:9], [5, 6, 7], [-1, 0, 0])
    hidden = loaded.hidden_states(plain()[:20], [1])
    assert torch.equal(loaded.logits(plain()[:20]), first)
    assert torch.equal(loaded.draft_logits(plain()[:30]), draft)
    assert loaded.generate(plain()[:17], 24, 0.9, seed=3, ignore_eos=True).output_ids == text
    assert torch.equal(loaded.tree_logits(plain()[:9], [5, 6, 7], [-1, 0, 0]), tree)
    assert torch.equal(loaded.hidden_states(plain()[:20], [1]), hidden)
    # A tree's paths are what plain runs give.
    for node in (1, 2):
        alone = loaded.logits([*plain()[:9], 5, (5, 6, 7)[node]])[-1]
        torch.testing.assert_close(tree[node], alone, atol=1e-9, rtol=0)


def test_logits_of_prompts_whose_chunk_is_longer_than_the_heads_rows() -> None:
    wide = engine(A, "float64", overrides=("limits.chunk=128", "limits.context=512"))
    program = wide.plan.programs[0]
    assert program.max_out_rows < program.max_rows
    torch.testing.assert_close(wide.logits((plain() * 2)[:100])[:80], small().logits(plain()[:80]), atol=1e-9, rtol=0)
    with pytest.raises(SpecError, match="R008"):
        wide.tree_logits([1], [2] * 100, [-1] + [0] * 99)


def test_draft_logits_do_not_depend_on_chunks() -> None:
    wide = engine(A, "float64", with_drafter=random_drafter(128, 3, 512, 511), tree="ddtree-64")
    torch.testing.assert_close(small().draft_logits(plain()[:50]), wide.draft_logits(plain()[:50]), atol=1e-10, rtol=0)


def test_rounds_are_reported() -> None:
    rounds: list = []
    done = small().generate(plain()[:17], 20, speculation="tree", budget=5, ignore_eos=True, on_round=rounds.append)
    assert len(rounds) == done.rounds
    committed = [rounds[0].root]
    for record in rounds:
        assert record.root == committed[-1]
        committed += record.committed
        assert record.posterior[record.accepted[-1]] == record.next_token
    assert committed[: len(done.output_ids)] == done.output_ids


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda e: e.logits([]), "R001"),
        (lambda e: e.logits([1, 512]), "R003"),
        (lambda e: e.logits([1.5]), "R003"),
        (lambda e: e.logits([1] * 81), "R002"),
        (lambda e: e.hidden_states([1], [3]), "R010"),
        (lambda e: e.hidden_states([1], ["last"]), "R010"),
        (lambda e: e.tree_logits([1], [2, 3], [-1]), "R008"),
        (lambda e: e.tree_logits([1], [2, 3], [-1, 1]), "R008"),
        (lambda e: e.tree_logits([1], [2, 3], [0, 0]), "R008"),
        (lambda e: e.tree_logits([1] * 74, [2] * 7, [-1, 0, 0, 0, 0, 0, 0]), "R002"),
        (lambda e: e.draft_logits([1]), "R001"),
        (lambda e: e.generate([1], 0), "R006"),
        (lambda e: e.generate([1], 4, budget=65), "R004"),
        (lambda e: e.generate([1], 4, budget=True), "R004"),
        (lambda e: e.generate([1], 4, speculation="fast"), "R005"),
        (lambda e: e.generate([1], 4, temperature=-1), "R011"),
        (lambda e: e.generate([1], 4, stop=["x"]), "R007"),
    ],
)
def test_refusals(call, code: str) -> None:
    with pytest.raises(DdtreecError, match=rf"error\[{code}\]") as caught:
        call(small())
    assert all(problem.help for problem in caught.value.problems)


def test_without_a_drafter() -> None:
    made = bundle(A, drafter=random_drafter(128, 3, 512, 511))
    with Engine.load(made, A) as loaded:
        assert not loaded.drafts
        assert loaded.generate(plain()[:17], 5, ignore_eos=True).output_ids == plain()[17:22]
        for call in (lambda: loaded.generate([1], 2, speculation="chain"), lambda: loaded.draft_logits([1, 2])):
            with pytest.raises(SpecError, match="R005"):
                call()
    with pytest.raises(BundleError, match="B029"):
        loaded.logits([1])
    for wrong in ({"dtype": "int8"}, {"device": "tpu"}):
        with pytest.raises(SpecError, match="R009"):
            Engine.load(made, A, **wrong)


def test_one_call_at_a_time() -> None:
    """A call from a listener or another thread is refused and leaves the running one as it was."""
    loaded = engine(K26 / "a-flat-8e")
    plain = loaded.generate([5, 6, 7], 8).output_ids
    refusals: list[str] = []

    def call() -> None:
        try:
            loaded.logits([1, 2])
        except SpecError as error:
            refusals.append(error.problems[0].code)

    def listen(ids: list[int], text: str) -> None:
        call()
        other = threading.Thread(target=call)
        other.start()
        other.join()

    assert loaded.generate([5, 6, 7], 8, on_tokens=listen).output_ids == plain
    assert refusals == ["R016"] * 16
    with pytest.raises(ZeroDivisionError):
        loaded.generate([5, 6, 7], 8, on_tokens=lambda ids, text: print(1 // 0))
    assert loaded.generate([5, 6, 7], 8).output_ids == plain
