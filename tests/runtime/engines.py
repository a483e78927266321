"""Bundles for tests: a checkpoint through init and compile, once a session and combination."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import save_file

from ddtreec import driver
from ddtreec.artifacts.plan import Plan, decode
from ddtreec.spec.init import Request, init
from ddtreec_runtime import Engine

K26 = Path(__file__).resolve().parents[1] / "data" / "k26"
CHECKPOINTS = ("a-flat-8e", "b-real-heads", "c-vl-nested-int4", "d-vl-nested-bf16")


@cache
def scratch() -> Path:
    """A folder of this test process, removed at its end."""
    folder = Path(tempfile.mkdtemp(prefix="ddtreec-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def bundle(
    checkpoint: Path,
    topology: str = "cpu",
    drafter: Path | None = None,
    tree: str | None = None,
    eps: float | None = None,
    overrides: tuple[str, ...] = (),
) -> Path:
    """The bundle of a checkpoint on a topology, made by init and compile."""
    out = Path(tempfile.mkdtemp(dir=scratch()))
    init(Request(checkpoint, out / "spec", drafter, topology, tree, latent_eps=eps))
    driver.compile_engine(out / "spec" / "engine.yaml", overrides, "bundle", out / "bundle")
    return out / "bundle"


@cache
def engine(checkpoint: Path, dtype: str = "float32", with_drafter: Path | None = None, **kind: object) -> Engine:
    """A loaded engine, shared by the tests of this process."""
    made = bundle(checkpoint, drafter=with_drafter, **kind)  # type: ignore[arg-type]
    loaded = Engine.load(made, checkpoint, with_drafter, dtype=dtype)
    poison(loaded)
    return loaded


def poison(loaded: Engine) -> None:
    """NaN in every arena before every step, so that nothing can live on stale data."""
    parts = loaded._live()
    parts.target.program.poison = True
    if parts.drafter is not None:
        parts.drafter._context.poison = parts.drafter._block.poison = True


def plan_of(path: Path) -> Plan:
    """The plan of a bundle."""
    return decode((path / "plan.json").read_bytes())


@cache
def random_drafter(hidden: int, layers: int, vocab: int, mask: int, sliding: bool = False, seed: int = 7) -> Path:
    """A small DFlash drafter checkpoint with random weights: 2 layers, block 8, taps on all but one layer."""
    folder = Path(tempfile.mkdtemp(dir=scratch()))
    taps = list(range(layers - 1))
    config = {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": hidden, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64, "block_size": 8,
        "rope_theta": 50000.0, "rms_norm_eps": 1e-05, "vocab_size": vocab, "num_target_layers": layers,
        "layer_types": ["full_attention", "sliding_attention" if sliding else "full_attention"],
        "dflash_config": {"mask_token_id": mask, "target_layer_ids": taps},
    }  # fmt: skip
    if sliding:
        config |= {"sliding_window": 16, "use_sliding_window": True}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(drafter_weights(hidden, len(taps), seed), folder / "model.safetensors")
    return folder


def drafter_weights(hidden: int, taps: int, seed: int) -> dict[str, torch.Tensor]:
    """Random weights by checkpoint name, in the shapes of `random_drafter`."""
    draw = torch.Generator().manual_seed(seed)

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw) * shape[-1] ** -0.5

    def gain(size: int) -> torch.Tensor:
        return 1 + 0.1 * torch.randn(size, generator=draw)

    tensors = {
        "fc.weight": matrix(hidden, taps * hidden),
        "hidden_norm.weight": gain(hidden),
        "norm.weight": gain(hidden),
    }
    for layer in range(2):
        at = f"layers.{layer}."
        tensors |= {
            at + "input_layernorm.weight": gain(hidden), at + "post_attention_layernorm.weight": gain(hidden),
            at + "self_attn.q_proj.weight": matrix(64, hidden), at + "self_attn.k_proj.weight": matrix(32, hidden),
            at + "self_attn.v_proj.weight": matrix(32, hidden), at + "self_attn.o_proj.weight": matrix(hidden, 64),
            at + "self_attn.q_norm.weight": gain(16), at + "self_attn.k_norm.weight": gain(16),
            at + "mlp.gate_proj.weight": matrix(64, hidden), at + "mlp.up_proj.weight": matrix(64, hidden),
            at + "mlp.down_proj.weight": matrix(hidden, 64),
        }  # fmt: skip
    return tensors
