"""Compare the exported target with Hugging Face transformers, and write the golden arrays.

    python compare.py --target DIR --prompts heldout.jsonl --out goldens.npz

transformers' DeepseekV3ForCausalLM gets the dequantised weights (product rounded to bfloat16) and runs in float32 on
the CPU; its q_a and kv_a norms are set to the checkpoint's rms_norm_eps, as in the released engines.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from export import load_target, plain_name
from generate import Generator
from model import Moe, Target
from torch import Tensor


def transformers_model(target: Target) -> torch.nn.Module:
    """The same weights in transformers' class."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    values = target.cfg.as_dict()
    theta = values.pop("rope_theta")
    cfg = DeepseekV3Config(
        **values, n_group=1, topk_group=1, norm_topk_prob=True, num_key_value_heads=target.cfg.num_attention_heads,
        hidden_act="silu", attention_bias=False, rope_interleave=True, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": theta}, attn_implementation="eager",
        experts_implementation="eager",
    )  # fmt: skip
    model = DeepseekV3ForCausalLM(cfg).float().eval()
    state = {}
    for name, tensor in target.state_dict().items():
        if "experts_" not in name:
            state[plain_name(name)] = tensor
    for index, layer in enumerate(target.layers):
        if isinstance(layer.mlp, Moe):
            base = f"model.layers.{index}.mlp.experts"
            state[f"{base}.gate_up_proj"] = torch.cat((layer.mlp.experts_gate, layer.mlp.experts_up), 1)
            state[f"{base}.down_proj"] = layer.mlp.experts_down
    model.load_state_dict(state)
    for name, module in model.named_modules():
        if name.endswith(("q_a_layernorm", "kv_a_layernorm")):
            module.variance_epsilon = target.cfg.rms_norm_eps
    return model


@torch.no_grad()
def largest_difference(target: Target, prompts: Tensor) -> tuple[float, float]:
    """Largest absolute difference of the logits at all positions of prompts [B, P], and the share of equal argmaxes."""
    ours = target.logits(target(prompts).last)
    theirs = transformers_model(target)(prompts).logits
    return float((ours - theirs).abs().max()), float((ours.argmax(-1) == theirs.argmax(-1)).float().mean())


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=20)
    args = parser.parse_args()
    target = load_target(args.target)
    rows = [json.loads(line) for line in args.prompts.read_text().splitlines()][: args.count]
    prompts = torch.tensor([row["prompt_ids"] for row in rows])
    difference, same = largest_difference(target, prompts[:4])
    print(f"transformers, float32, 4 prompts: largest logit difference {difference:.2e}, equal argmaxes {same:.4f}")
    gaps: list[Tensor] = []
    text = Generator(target).run(prompts, 128, torch.zeros(len(prompts)), torch.Generator().manual_seed(0), gaps)
    with torch.no_grad():
        last = target.logits(target(prompts[:4]).last[:, -1])
    gap = torch.stack(gaps, 1)
    np.savez_compressed(
        args.out, prompts=prompts.numpy().astype(np.int16), greedy_fp32=text.numpy().astype(np.int16),
        gap=gap.numpy().astype(np.float16), last_logits=last.numpy(),
    )  # fmt: skip
    print(f"{args.out}: {args.out.stat().st_size} bytes; {int((gap < 1e-3).sum())} of {gap.numel()} gaps under 1e-3")


if __name__ == "__main__":
    main()
