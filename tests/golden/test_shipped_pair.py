"""The shipped trained pair against its goldens (Hugging Face transformers agrees with them): 1, 2, 4 and 8 ranks.

Unlike `test_tiny_pair` it needs nothing beside the repository.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ddtreec_runtime import Engine
from tests.runtime.engines import K26, engine

PAIR = Path(__file__).resolve().parents[2] / "models" / "tiny-pair"
CLOSE = 5e-5
"""On logits of standard deviation about 3; the goldens are float32 sums themselves (the card: 3.2e-5)."""
TIE = 1e-3
"""Top-2 gaps under this may go either way in float32 (the card: one step of 2560)."""


def pair(topology: str, dtype: str) -> Engine:
    return engine(PAIR / "target", dtype, topology=topology, with_drafter=PAIR / "drafter", tree="ddtree-64", eps=1e-5)


@cache
def golden() -> dict[str, np.ndarray]:
    with np.load(PAIR / "goldens.npz") as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize("topology", ["cpu", "cpu-x2", "cpu-x4", "cpu-x8"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_last_logits(dtype: str, topology: str) -> None:
    loaded = pair(topology, dtype)
    for prompt, want in zip(golden()["prompts"], golden()["last_logits"], strict=False):
        got = loaded.logits(prompt.tolist())[-1].float().numpy()
        np.testing.assert_allclose(got, want, rtol=0, atol=CLOSE)


@pytest.mark.parametrize(
    ("topology", "prompts", "tokens"), [("cpu", 2, 128), ("cpu-x2", 1, 48), ("cpu-x4", 1, 24), ("cpu-x8", 1, 24)]
)
def test_greedy_text_with_every_speculation(topology: str, prompts: int, tokens: int) -> None:
    """Token by token in float64; where the gap is no tie, the stored text too."""
    loaded = pair(topology, "float64")
    for i in range(prompts):
        runs = {
            (mode, budget): loaded.generate(
                golden()["prompts"][i].tolist(), tokens, speculation=mode, budget=budget, ignore_eos=True
            )
            for mode, budget in (("off", None), ("chain", None), ("tree", 1), ("tree", 16), ("tree", 64))
        }
        plain = runs["off", None].output_ids
        assert {how: done.output_ids == plain for how, done in runs.items()} == dict.fromkeys(runs, True)
        assert runs["tree", 64].tau > runs["tree", 1].tau > 1
        differ = np.flatnonzero(golden()["greedy_fp32"][i][:tokens] != plain)
        assert len(differ) == 0 or golden()["gap"][i][differ[0]] < TIE


@pytest.mark.parametrize("topology", ["cpu-x4", "cpu-x8"])
def test_ranks_agree_with_one(topology: str) -> None:
    """Drafts, hidden states and trees in float64, to rounding; collectives are there, so the ranks hold slices."""
    one, many = pair("cpu", "float64"), pair(topology, "float64")
    assert any(call.collective for program in many.plan.programs for call in program.calls)
    ids = golden()["prompts"][0].tolist()
    layers = ["embed", *range(one.plan.model.layers), "final"]
    for ask in (
        lambda e: e.draft_logits(ids),
        lambda e: e.hidden_states(ids, layers),
        lambda e: e.tree_logits(ids, [5, 6, 7, 8, 9], [-1, 0, 0, 1, 1]),
    ):
        torch.testing.assert_close(ask(many), ask(one), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("experts", ["ep2xtp2", "ep4xtp1"])
def test_int4_experts_cut_over_four_ranks(experts: str) -> None:
    """Everything that can be cut is, INT4 groups and their scales among it."""
    checkpoint = K26 / "c-vl-nested-int4"
    pins = (
        "layout.attention=tp", "layout.a_proj=gather", "layout.mlp=tp", "layout.vocab=parallel",
        f"layout.experts={experts}", "quant.roles.experts.product=exact",
    )  # fmt: skip
    loaded = engine(checkpoint, "float64", topology="cpu-x4", overrides=pins)
    gold = load_file(checkpoint / "goldens.safetensors")
    for i in range(4):
        want = gold[f"p{i}.logits"]
        got = loaded.logits(gold[f"p{i}.input_ids"].tolist())[-len(want) :].float()
        torch.testing.assert_close(got, want, atol=1e-4, rtol=0)
    done = loaded.generate(gold["p1.input_ids"].tolist(), 64, ignore_eos=True)
    assert done.output_ids == gold["g1.tokens"].tolist()


def test_drawn_text_is_the_same_with_every_speculation() -> None:
    """At temperature 0.8, where this model's text is not its greedy one, and real drafts are accepted in part."""
    loaded, prompt = pair("cpu", "float64"), golden()["prompts"][0].tolist()

    def text(mode: str, budget: int | None = None, heat: float = 0.8) -> list[int]:
        return loaded.generate(prompt, 40, heat, seed=4, speculation=mode, budget=budget, ignore_eos=True).output_ids

    plain = text("off")
    assert plain != text("off", heat=0.0)
    for mode, budget in (("chain", None), *(("tree", n) for n in (0, 1, 2, 7, 8, 16, 64))):
        assert text(mode, budget) == plain, (mode, budget)
