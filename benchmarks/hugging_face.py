"""The peer on the CPU: the same checkpoint in Hugging Face transformers, float32, INT4 experts dequantised.

transformers reads the K2 family through DeepseekV3ForCausalLM. A nested or INT4 checkpoint is rewritten once into a
flat float32 one, which `from_pretrained` then loads by its own rules.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from time import perf_counter

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ddtreec_runtime.weights.int4 import dequantize

PREFIX = "language_model."
LATENT_NORMS = ("q_a_layernorm", "kv_a_layernorm")


def flat_checkpoint(source: Path, target: Path) -> None:
    """Write the text model of `source` to `target` under flat names in float32, INT4 products rounded to bfloat16."""
    config = json.loads((source / "config.json").read_text())
    text = config.get("text_config", config)
    text.pop("quantization_config", None)
    text.update(model_type="deepseek_v3", architectures=["DeepseekV3ForCausalLM"], dtype="float32")
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(source.glob("model*.safetensors")):
        with safe_open(file, "pt") as handle:
            raw = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118  (not a mapping)
        for name, tensor in raw.items():
            if name.startswith(("vision_tower.", "mm_projector.")) or name.endswith(("_scale", "_shape")):
                continue
            flat = name.removeprefix(PREFIX)
            if name.endswith("_packed"):
                scale = raw[name.removesuffix("_packed") + "_scale"]
                tensors[flat.removesuffix("_packed")] = dequantize(tensor, scale, torch.float32, "bf16")
            else:
                tensors[flat] = tensor.float()
    target.mkdir(parents=True, exist_ok=True)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    (target / "config.json").write_text(json.dumps(text))


class Peer:
    """A transformers model ready to generate greedily."""

    def __init__(self, source: Path, latent_norm_eps: float | None = None):
        os.environ["HF_HUB_OFFLINE"] = "1"
        from transformers import AutoModelForCausalLM

        with tempfile.TemporaryDirectory() as folder:
            flat_checkpoint(source, Path(folder))
            self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        if latent_norm_eps is not None:
            for name, module in self.model.named_modules():
                if name.rsplit(".", 1)[-1] in LATENT_NORMS:
                    module.variance_epsilon = latent_norm_eps

    def generate(self, prompt: list[int], tokens: int) -> tuple[list[int], float]:
        """Greedy continuation of exactly `tokens` tokens, and the seconds of the whole call, prefill included."""
        ids = torch.tensor([prompt])
        start = perf_counter()
        with torch.inference_mode():
            out = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                do_sample=False,
                pad_token_id=0,
            )
        return out[0, len(prompt) :].tolist(), perf_counter() - start
