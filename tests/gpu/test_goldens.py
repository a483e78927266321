"""The K2 family's goldens (Hugging Face transformers, float32) on the GPU in bfloat16."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from safetensors.torch import load_file

from tests.gpu.payload import GOLDENS, NAMES, golden_engine

ERROR = 0.02
"""Relative error of a row of logits. Hugging Face in bfloat16 is 0.004 to 0.007 away from its own float32 here."""
SAFE = 0.01
"""Margin between the last chosen and the first other expert from which on bfloat16 must choose the same."""

pytestmark = pytest.mark.parametrize("name", NAMES)


@cache
def goldens(name: str, file: str = "goldens") -> dict[str, torch.Tensor]:
    return load_file(GOLDENS / name / f"{file}.safetensors")


def safe_rows(gold: dict[str, torch.Tensor], prompt: int) -> torch.Tensor:
    """Rows of a prompt whose experts leave no doubt in any layer."""
    margins = [value for key, value in gold.items() if key.startswith(f"p{prompt}.router.") and key.endswith("margin")]
    return torch.stack(margins).min(0).values > SAFE


def test_logits(name: str) -> None:
    engine, gold = golden_engine(name), goldens(name)
    worst, judged, agree, rows = 0.0, 0, 0, 0
    for i in range(4):
        want = gold[f"p{i}.logits"]
        got = engine.logits(gold[f"p{i}.input_ids"].tolist())[-len(want) :].float()
        assert torch.isfinite(got).all()
        error = (got - want).norm(dim=1) / want.norm(dim=1)
        safe = safe_rows(gold, i)[-len(want) :]
        print(f"{name} p{i}: relative error median {error.median():.4f}, largest {error.max():.4f}")
        assert error.median() < ERROR
        worst = max(worst, float(error[safe].max()) if safe.any() else 0.0)
        judged, rows = judged + int(safe.sum()), rows + len(want)
        agree += int((got.argmax(1) == want.argmax(1)).sum())
    print(f"{name}: {judged} rows of {rows} without doubtful experts, largest error {worst:.4f}; {agree} argmax agree")
    assert worst < ERROR
    assert agree == rows


def test_router(name: str) -> None:
    """Same experts wherever the choice leaves no doubt; weights of these within bfloat16."""
    engine, gold = golden_engine(name), goldens(name)
    layers = sorted({int(key.split(".")[2]) for key in gold if key.startswith("p1.router.") and key.endswith("ids")})
    for i in (1, 3):
        found: dict[str, list[torch.Tensor]] = {}

        def keep(start: int, values: dict[str, torch.Tensor], found: dict[str, list[torch.Tensor]] = found) -> None:
            for value, tensor in values.items():
                found.setdefault(value, []).append(tensor)

        with engine.observe([f"L{layer:02d}.moe.{what}" for layer in layers for what in ("ids", "w")], keep):
            engine.logits(gold[f"p{i}.input_ids"].tolist())
        safe, flips, worst = safe_rows(gold, i), 0, 0.0
        for layer in layers:
            ids, w = (torch.cat(found[f"L{layer:02d}.moe.{what}"]) for what in ("ids", "w"))
            want, shares = gold[f"p{i}.router.{layer}.topk_ids"].long(), gold[f"p{i}.router.{layer}.topk_weights"]
            same = (ids.sort(1).values == want.sort(1).values).all(1)
            flips += int((~same).sum())
            assert same[safe].all()
            order, wanted = ids.argsort(1), want.argsort(1)
            off = ((w.gather(1, order) - shares.gather(1, wanted)).norm(dim=1) / shares.norm(dim=1))[same]
            worst = max(worst, float(off.max()))
            assert off.median() < ERROR
        print(
            f"{name} p{i}: {flips} rows of {len(layers) * len(safe)} chose others, none of the {int(safe.sum())} safe; "
            f"largest relative error of a row's weights {worst:.3f}"
        )


def test_hidden_states(name: str) -> None:
    engine, gold = golden_engine(name), goldens(name)
    keys = ["p1.embed", "p1.layer.0", "p1.final_norm"]
    got = engine.hidden_states(gold["p1.input_ids"].tolist(), ["embed", 0, "final"]).float()
    assert torch.equal(got[0], gold["p1.embed"])
    for state, key in zip(got[1:], keys[1:], strict=True):
        error = (state - gold[key]).norm(dim=1) / gold[key].norm(dim=1)
        print(f"{name} {key}: median {error.median():.4f}, largest {error.max():.4f}")
        assert error.median() < ERROR


def test_greedy(name: str) -> None:
    """Margins are 12 logits and more, so every token must be the golden's."""
    engine, gold = golden_engine(name), goldens(name)
    for i in range(4):
        done = engine.generate(gold[f"p{i}.input_ids"].tolist(), 64, ignore_eos=True)
        assert done.output_ids == gold[f"g{i}.tokens"].tolist()
        assert (done.finish_reason, done.rounds) == ("length", 63)
    assert engine.decoder.waits_in_rounds == 0


def test_trees_and_what_follows(name: str) -> None:
    engine, gold = golden_engine(name), goldens(name)
    for j in range(3):
        prefix, nodes = gold[f"t{j}.prefix_ids"].tolist(), gold[f"t{j}.token_ids"].tolist()
        parents, accepted = gold[f"t{j}.parent"].tolist(), gold[f"t{j}.accepted"].tolist()
        if len(nodes) > engine._live().target.max_out_rows:
            print(f"{name} t{j}: {len(nodes)} nodes, this bundle takes {engine._live().target.max_out_rows}")
            continue
        logits, want = engine.tree_logits(prefix, nodes, parents).float(), gold[f"t{j}.logits"]
        error = (logits - want).norm(dim=1) / want.norm(dim=1)
        print(f"{name} t{j}: relative error median {error.median():.4f}, largest {error.max():.4f}")
        assert error.median() < ERROR
        picks, path = logits.argmax(-1).tolist(), [0]
        while step := [n for n in range(len(nodes)) if parents[n] == path[-1] and nodes[n] == picks[path[-1]]]:
            path += step
        assert path == accepted
        assert picks[path[-1]] == gold[f"t{j}.bonus"].item()
        # Committing the path must leave the cache that plain decoding has.
        target = engine._live().target
        with torch.inference_mode():
            target.commit(accepted)
            token, out = int(gold[f"t{j}.bonus"]), []
            for _ in range(16):
                token = int(target.step([token])[0].argmax())
                target.commit([0])
                out.append(token)
        assert out == gold[f"t{j}.next_tokens"].tolist()
