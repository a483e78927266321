"""Goldens of the K2 family, made with Hugging Face transformers: through init, compile and Engine, on 1 and 2 ranks."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ddtreec_runtime import Engine
from ddtreec_runtime.backends.cpu.interpreter import run_calls
from ddtreec_runtime.state import causal
from tests.runtime.engines import CHECKPOINTS, K26, engine

CLOSE = 1e-4
"""On logits of standard deviation about 10, whose goldens are float32 sums themselves."""

pytestmark = pytest.mark.parametrize("topology", ["cpu", "cpu-x2"])


@cache
def goldens(name: str, file: str = "goldens") -> dict[str, torch.Tensor]:
    return load_file(K26 / name / f"{file}.safetensors")


def exact(name: str, dtype: str, topology: str) -> Engine:
    """The engine whose arithmetic `goldens.safetensors` has: INT4 products are not rounded there."""
    sets = ("quant.roles.experts.product=exact",) if name.startswith("c-") else ()
    return engine(K26 / name, dtype, topology=topology, overrides=sets)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_logits(name: str, dtype: str, topology: str) -> None:
    loaded, gold = exact(name, dtype, topology), goldens(name)
    for i in range(4):
        want = gold[f"p{i}.logits"]
        got = loaded.logits(gold[f"p{i}.input_ids"].tolist())
        assert got.dtype == getattr(torch, dtype)
        torch.testing.assert_close(got[-len(want) :].float(), want, atol=CLOSE, rtol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_greedy(name: str, dtype: str, topology: str) -> None:
    loaded, gold = exact(name, dtype, topology), goldens(name)
    for i in range(4):
        done = loaded.generate(gold[f"p{i}.input_ids"].tolist(), 64, ignore_eos=True)
        assert done.output_ids == gold[f"g{i}.tokens"].tolist()
        assert (done.finish_reason, done.rounds, done.tau) == ("length", 63, 1.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_hidden_states(name: str, dtype: str, topology: str) -> None:
    loaded, gold = exact(name, dtype, topology), goldens(name)
    keys = ["p1.embed", "p1.layer.0", "p1.layer.1", "p1.layer.2", "p1.final_norm"]
    got = loaded.hidden_states(gold["p1.input_ids"].tolist(), ["embed", 0, 1, 2, "final"])
    for state, key in zip(got.float(), keys, strict=True):
        # Residuals reach hundreds: the bound is on the error relative to their size.
        assert (state - gold[key]).abs().max() <= 3e-6 * gold[key].abs().max().clamp(min=1), key


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_tree_logits_walk_and_what_follows(name: str, dtype: str, topology: str) -> None:
    loaded, gold = exact(name, dtype, topology), goldens(name)
    for j in range(3):
        prefix, nodes = gold[f"t{j}.prefix_ids"].tolist(), gold[f"t{j}.token_ids"].tolist()
        parents, accepted = gold[f"t{j}.parent"].tolist(), gold[f"t{j}.accepted"].tolist()
        logits = loaded.tree_logits(prefix, nodes, parents)
        torch.testing.assert_close(logits.float(), gold[f"t{j}.logits"], atol=CLOSE, rtol=0)
        picks, path = logits.argmax(-1).tolist(), [0]
        while step := [n for n in range(len(nodes)) if parents[n] == path[-1] and nodes[n] == picks[path[-1]]]:
            path += step
        assert path == accepted
        assert picks[path[-1]] == gold[f"t{j}.bonus"].item()
        # The step above left the tree behind the prefix: committing the path must give the cache plain decoding has.
        target = loaded._live().target
        with torch.inference_mode():
            target.commit(accepted)
            token, after = picks[path[-1]], []
            for _ in range(16):
                token = int(target.step([token])[0].argmax())
                target.commit([0])
                after.append(token)
        assert after == gold[f"t{j}.next_tokens"].tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_cache_and_router(name: str, dtype: str, topology: str) -> None:
    loaded, gold = exact(name, dtype, topology), goldens(name)
    ids = gold["p1.input_ids"].tolist()
    loaded.logits(ids)
    program = loaded._live().target.program
    for layer in range(3):
        cache = program.states[0].latent.layers[layer][: len(ids)].float()
        lora = gold[f"p1.layer.{layer}.c_kv"].shape[1]
        torch.testing.assert_close(cache[:, :lora], gold[f"p1.layer.{layer}.c_kv"], atol=3e-5, rtol=1e-5)
        k_rot = cache[:, lora:]
        # Hugging Face keeps the turned key as evens, then odds.
        halves = torch.cat([k_rot[:, 0::2], k_rot[:, 1::2]], dim=-1)
        torch.testing.assert_close(halves, gold[f"p1.layer.{layer}.k_rope"], atol=3e-5, rtol=1e-5)
    for i in range(4):
        _check_router(loaded, gold, i)


def _check_router(loaded: Engine, gold: dict[str, torch.Tensor], i: int) -> None:
    """Chosen experts and their weights of prompt i, by expert id."""
    ids = gold[f"p{i}.input_ids"]
    parts = loaded._fresh()
    program, rows = parts.target.program, len(ids)
    with torch.inference_mode():
        place = parts.target.table.place(rows)
        for state in program.states:
            state.begin({"tokens": ids}, torch.arange(rows), hidden=causal(rows), placement=place)
        envs = run_calls(program.program.values, program.program.calls, loaded._weights, program.states)
    for layer, call in enumerate((c for c in program.program.calls if c.kernel == "router"), start=1):
        for env in envs:
            chosen, weights = (env[out] for out in call.outs)
            order = chosen.argsort(-1)
            want = gold[f"p{i}.router.{layer}.topk_ids"].long()
            want_order = want.argsort(-1)
            assert torch.equal(chosen.gather(1, order), want.gather(1, want_order))
            want_weights = gold[f"p{i}.router.{layer}.topk_weights"].gather(1, want_order)
            torch.testing.assert_close(weights.gather(1, order).float(), want_weights, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "file", "kind"),
    [
        ("c-vl-nested-int4", "goldens_dequant_bf16", {}),
        ("d-vl-nested-bf16", "goldens_anorm_eps_config", {"eps": 1e-5}),
    ],
)
def test_other_readings(name: str, file: str, kind: dict[str, float], dtype: str, topology: str) -> None:
    """INT4 products rounded to bfloat16; the latent norms with rms_norm_eps as vLLM and SGLang read it."""
    loaded, gold = engine(K26 / name, dtype, topology=topology, **kind), goldens(name, file)
    for i in (0, 1, 3):
        want = gold[f"p{i}.logits"]
        got = loaded.logits(gold[f"p{i}.input_ids"].tolist())
        torch.testing.assert_close(got[-len(want) :].float(), want, atol=CLOSE, rtol=0)
    for i in range(4):
        prompt = goldens(name)[f"p{i}.input_ids"].tolist()
        assert loaded.generate(prompt, 64, ignore_eos=True).output_ids == gold[f"g{i}.tokens"].tolist()


@pytest.mark.parametrize("name", ["a-flat-8e", "b-real-heads"])
def test_bfloat16_keeps_the_greedy_text(name: str, topology: str) -> None:
    """The margins of the goldens are far above bfloat16 noise (see their README)."""
    loaded, gold = exact(name, "bfloat16", topology), goldens(name)
    for i in (0, 1):
        done = loaded.generate(gold[f"p{i}.input_ids"].tolist(), 64, ignore_eos=True)
        assert done.output_ids == gold[f"g{i}.tokens"].tolist()


def test_data_is_all_here(topology: str) -> None:
    assert {path.name for path in Path(K26).iterdir() if path.is_dir()} == set(CHECKPOINTS)
