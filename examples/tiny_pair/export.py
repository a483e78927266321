"""Write and read checkpoints in the released layout: K2.6 names and nesting, INT4 experts, DFlash drafter.

    python export.py check --target DIR [--drafter DIR]     # sizes, and a round trip through the files
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from drafter import Drafter, DrafterConfig
from model import BOS, EOS, MASK, PAD, Moe, Target, TargetConfig
from quant import dequantise, pack, quantise, unpack

PREFIX = "language_model."
EXPERT_PARTS = {"gate_proj": "experts_gate", "up_proj": "experts_up", "down_proj": "experts_down"}


def plain_name(name: str) -> str:
    """Checkpoint name (without prefix) of a module parameter other than a routed expert."""
    name = name.replace(".mlp.shared.", ".mlp.shared_experts.").replace(".mlp.router", ".mlp.gate.weight")
    name = name.replace(".mlp.bias", ".mlp.gate.e_score_correction_bias")
    return name if name.startswith("lm_head") else f"model.{name}"


def text_config(cfg: TargetConfig) -> dict[str, object]:
    """The `text_config` part of the target's config.json."""
    weights = {"actorder": None, "block_structure": None, "dynamic": False, "group_size": 32, "num_bits": 4,
               "observer": "minmax", "observer_kwargs": {}, "strategy": "group", "symmetric": True,
               "type": "int"}  # fmt: skip
    group = {"input_activations": None, "targets": ["Linear"], "weights": weights}
    ignore = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]
    return {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "attention_bias": False,
        "attention_dropout": 0.0, "aux_loss_alpha": 0.001, "bos_token_id": BOS, "dtype": "bfloat16",
        "eos_token_id": EOS, "ep_size": 1, "hidden_act": "silu", "initializer_range": 0.02, "moe_layer_freq": 1,
        "n_group": 1, "norm_topk_prob": True, "num_key_value_heads": cfg.num_attention_heads,
        "num_nextn_predict_layers": 0, "pad_token_id": PAD, "pretraining_tp": 1, "rope_interleave": True,
        "rope_scaling": None, "scoring_func": "sigmoid", "seq_aux": True, "tie_word_embeddings": False,
        "topk_group": 1, "topk_method": "noaux_tc", "use_cache": True, **cfg.as_dict(),
        "quantization_config": {
            "config_groups": {"group_0": group}, "format": "pack-quantized", "ignore": ignore,
            "kv_cache_scheme": None, "quant_method": "compressed-tensors", "quantization_status": "compressed",
        },
    }  # fmt: skip


def write_json(path: Path, value: object) -> None:
    """Pretty JSON with a final newline."""
    path.write_text(json.dumps(value, indent=2) + "\n")


def export_target(masters: Target, out: str | Path, tokenizer: Path | None = None) -> None:
    """Writes config.json, generation_config.json, model.safetensors and a copy of the tokenizer.

    `masters` holds unrounded weights (float32): experts become INT4, the rest bfloat16, the router bias stays float32.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    state = masters.state_dict()
    for name, tensor in state.items():
        tensor = tensor.detach().cpu()
        if "experts_" in name:
            layer, part = name.rsplit(".", 1)
            proj = next(p for p, attr in EXPERT_PARTS.items() if attr == part)
            for index, weight in enumerate(tensor):
                q, scale = quantise(weight)
                base = f"{PREFIX}model.{layer}.experts.{index}.{proj}"
                tensors[f"{base}.weight_packed"] = pack(q)
                tensors[f"{base}.weight_scale"] = scale
                tensors[f"{base}.weight_shape"] = torch.tensor(weight.shape, dtype=torch.int32)
        else:
            dtype = torch.float32 if name.endswith(".bias") else torch.bfloat16
            tensors[PREFIX + plain_name(name)] = tensor.to(dtype).contiguous()
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    write_json(out / "config.json", {
        "architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "bos_token_id": BOS,
        "eos_token_id": EOS, "pad_token_id": PAD, "dtype": "bfloat16", "ignore_index": -100,
        "tie_word_embeddings": False, "text_config": text_config(masters.cfg),
    })  # fmt: skip
    write_json(out / "generation_config.json", {"eos_token_id": EOS, "bos_token_id": BOS, "pad_token_id": PAD})
    if tokenizer is not None and tokenizer.resolve() != (out / "tokenizer.json").resolve():
        shutil.copyfile(tokenizer, out / "tokenizer.json")


def load_target(directory: str | Path, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Target:
    """The target of a checkpoint directory, experts dequantised (product rounded to bfloat16), in `dtype`."""
    model = Target(TargetConfig.load(directory))
    tensors = load_file(Path(directory) / "model.safetensors")
    state: dict[str, Tensor] = {}
    for name in model.state_dict():
        if "experts_" not in name:
            state[name] = tensors[PREFIX + plain_name(name)]
            continue
        layer, part = name.rsplit(".", 1)
        proj = next(p for p, attr in EXPERT_PARTS.items() if attr == part)
        parts = []
        for index in range(model.cfg.n_routed_experts):
            base = f"{PREFIX}model.{layer}.experts.{index}.{proj}"
            parts.append(dequantise(unpack(tensors[f"{base}.weight_packed"]), tensors[f"{base}.weight_scale"]))
        state[name] = torch.stack(parts)
    model.load_state_dict(state)
    return model.cast(dtype).to(device).eval()


def export_drafter(drafter: Drafter, out: str | Path) -> None:
    """Writes config.json and model.safetensors (bfloat16) of the drafter."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    tensors = {name: t.detach().cpu().to(torch.bfloat16).contiguous() for name, t in drafter.state_dict().items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    values = asdict(drafter.cfg)
    taps = list(values.pop("target_layer_ids"))
    write_json(out / "config.json", {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "dtype": "bfloat16", **values,
        "layer_types": ["full_attention"] * drafter.cfg.num_hidden_layers,
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": taps},
    })  # fmt: skip


def load_drafter(directory: str | Path, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Drafter:
    """The drafter of a checkpoint directory."""
    drafter = Drafter(DrafterConfig.load(directory))
    drafter.load_state_dict(load_file(Path(directory) / "model.safetensors"))
    return drafter.to(dtype=dtype).to(device).eval()


def check(target_dir: Path, drafter_dir: Path | None) -> None:
    """Prints the bytes of each file, and that re-exporting the loaded experts gives the same packed words."""
    total = 0
    for path in sorted(p for d in (target_dir, drafter_dir) if d for p in d.iterdir()):
        total += path.stat().st_size
        print(f"{path.stat().st_size:>10}  {path}")
    print(f"{total:>10}  together ({total / 1e6:.2f} MB)")
    model = load_target(target_dir)
    changed = 0
    for module in model.modules():
        if isinstance(module, Moe):
            for attr in EXPERT_PARTS.values():
                weight = getattr(module, attr).detach()
                changed += int((dequantise(*quantise(weight)) != weight.to(torch.bfloat16)).sum())
    print(f"expert values that a second quantisation would change: {changed}")


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=["check"])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path)
    args = parser.parse_args()
    check(args.target, args.drafter)


if __name__ == "__main__":
    main()
