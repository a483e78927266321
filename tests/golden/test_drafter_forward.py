"""The DFlash drafter against the public implementation: config through init and compile, both its programs."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from ddtreec.artifacts.plan import Plan
from ddtreec_runtime.backends.cpu.interpreter import run_calls
from ddtreec_runtime.build import context_cache
from ddtreec_runtime.state import RopeTables, StepState
from ddtreec_runtime.weights import load_all, read_checkpoint
from tests.golden.ragged import load
from tests.runtime.engines import K26, bundle, plan_of, scratch

ARRAYS = load("ddtree/drafter_forward.npz")
VOCAB, CLOSE = 32, 1e-4


def checkpoints(variant: int) -> tuple[Path, Path, dict[str, Any]]:
    """A target's config of the right hidden size and depth, and the drafter as a Hugging Face directory."""
    facts = json.loads(str(ARRAYS[f"v{variant}_config_json"]))
    hidden = ARRAYS[f"v{variant}_r0_target_hidden"].shape[1] // len(facts["dflash_config"]["target_layer_ids"])
    target, drafter = Path(tempfile.mkdtemp(dir=scratch())), Path(tempfile.mkdtemp(dir=scratch()))
    config = json.loads((K26 / "a-flat-8e" / "config.json").read_text())
    config |= {"hidden_size": hidden, "num_hidden_layers": facts["num_target_layers"], "vocab_size": VOCAB}
    config |= {"eos_token_id": 1, "pad_token_id": 0, "bos_token_id": 2}
    (target / "config.json").write_text(json.dumps(config))
    (drafter / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": facts["hidden"],
                "num_hidden_layers": facts["layers"], "num_attention_heads": facts["heads"],
                "num_key_value_heads": facts["kv"], "head_dim": facts["hd"], "intermediate_size": facts["inter"],
                "block_size": facts["block"], "rope_theta": facts["theta"], "rope_scaling": facts["rope_scaling"],
                "rms_norm_eps": facts["eps"], "vocab_size": VOCAB, "num_target_layers": facts["num_target_layers"],
                "layer_types": ["full_attention"] * facts["layers"], "dflash_config": facts["dflash_config"],
                "max_position_embeddings": 4096,
            }
        )
    )  # fmt: skip
    start = f"v{variant}_w."
    tensors = {k.removeprefix(start): torch.from_numpy(v.copy()) for k, v in ARRAYS.items() if k.startswith(start)}
    save_file(tensors, drafter / "model.safetensors")
    return target, drafter, facts


@cache
def compiled(variant: int, topology: str) -> tuple[Plan, Path, dict[str, Any]]:
    target, drafter, facts = checkpoints(variant)
    return plan_of(bundle(target, topology, drafter)), drafter, facts


@pytest.mark.parametrize("topology", ["cpu", "cpu-x2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("variant", [0, 1, 2])
def test_rounds(variant: int, dtype: torch.dtype, topology: str) -> None:
    plan, drafter, facts = compiled(variant, topology)
    programs = {p.name: p for p in plan.programs}
    hidden, block = facts["hidden"], facts["block"]
    weights = load_all(
        {"drafter": read_checkpoint(drafter)}, [w for w in plan.weights if w.store == "drafter"], plan.mesh, dtype
    )
    rope = next(r for name, r in plan.ropes.items() if name.startswith("draft"))
    np.testing.assert_allclose(rope.inv_freq, ARRAYS[f"v{variant}_inv_freq"], rtol=1e-6)
    assert rope.amplitude == pytest.approx(float(ARRAYS[f"v{variant}_rope_attention_factor"]), rel=1e-6)
    tables = RopeTables(plan.ropes, dtype)
    states = [
        StepState(tables, dtype, None, context_cache(plan, programs, dtype), plan.mesh, rank)
        for rank in range(plan.mesh.ranks)
    ]
    length, number = 0, 0
    while f"v{variant}_r{number}_start" in ARRAYS:
        at = f"v{variant}_r{number}_"
        start = int(ARRAYS[at + "start"])
        features = torch.from_numpy(ARRAYS[at + "target_hidden"].astype(np.float32)).to(dtype)
        _run(programs["draft_context"], weights, states, {"features": features}, length, out=0)
        length += len(features)
        assert length == start
        for layer in range(facts["layers"]):
            kept = torch.cat([_heads(state, layer, start) for state in _owners(states, facts)], dim=1).float()
            keys, values = kept[0, :, -len(features) :], kept[1, :, -len(features) :]
            torch.testing.assert_close(keys, _array(f"{at}ctx_k.{layer}"), atol=CLOSE, rtol=0)
            torch.testing.assert_close(values, _array(f"{at}ctx_v.{layer}"), atol=CLOSE, rtol=0)
        # The block's embeddings stand as the first rows of the embedding, the head is not part of the golden.
        noise = torch.zeros(VOCAB, hidden, dtype=dtype)
        noise[:block] = torch.from_numpy(ARRAYS[at + "noise_embedding"].astype(np.float32)).to(dtype)
        whole = [_with_target(w, plan, noise, rank) for rank, w in enumerate(weights)]
        tokens = torch.arange(block, dtype=torch.int32)
        envs = _run(programs["draft_block"], whole, states, {"tokens": tokens}, start, out=block)
        norm = [call for call in programs["draft_block"].calls if call.kernel == "rms_norm"][-1]
        for env in envs:
            torch.testing.assert_close(env[norm.outs[0]].float(), _array(at + "output_hidden"), atol=CLOSE, rtol=0)
        number += 1
    assert number >= 3


def _run(program: Any, weights: Any, states: list[StepState], inputs: Any, start: int, out: int) -> Any:
    rows = next(iter(inputs.values())).shape[0]
    for state in states:
        state.begin(inputs, torch.arange(start, start + rows), committed=start, out_index=torch.arange(out))
    with torch.inference_mode():
        return run_calls(program.values, program.calls, weights, states)


def _owners(states: list[StepState], facts: dict[str, Any]) -> list[StepState]:
    """The states that together hold every kv head once."""
    assert states[0].context is not None
    held = states[0].context.layers[0].shape[1]
    return states[: facts["kv"] // held]


def _heads(state: StepState, layer: int, length: int) -> torch.Tensor:
    assert state.context is not None
    return state.context.layers[layer][:, :, :length]


def _with_target(
    weights: dict[str, torch.Tensor], plan: Plan, noise: torch.Tensor, rank: int
) -> dict[str, torch.Tensor]:
    """Adds the target's embedding and a zero head, in the slice of this rank."""
    full = dict(weights)
    for weight in plan.weights:
        if weight.store == "target" and weight.role == "vocab":
            held = weight.shape[0]
            part = noise if "embed" in weight.id else torch.zeros_like(noise)
            full[weight.id] = part[rank * held : (rank + 1) * held] if held < VOCAB else part
    return full


def _array(name: str) -> torch.Tensor:
    return torch.from_numpy(ARRAYS[name].astype(np.float32))
