"""What a checkpoint says about itself, in our words: the input of `graphs` and the output of `config`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class YarnFacts:
    """YaRN of a rotary table, as in DeepSeek configs."""

    factor: float
    original_positions: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 1.0
    mscale_all_dim: float = 0.0


@dataclass(frozen=True, slots=True)
class RouterFacts:
    """Routed experts of the MoE layers. `shared` counts shared experts (one MLP of shared * inter)."""

    experts: int
    top_k: int
    groups: int
    top_groups: int
    inter: int
    shared: int
    score: str
    normalize: bool
    scale: float
    bias: bool


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """A model of the DeepSeek-V3 / Kimi K2 family. `dense` layers come first, the others have routed experts."""

    name: str
    hidden: int
    vocab: int
    layers: int
    dense: int
    heads: int
    q_lora: int | None
    kv_lora: int
    nope: int
    rope: int
    v: int
    inter: int
    router: RouterFacts | None
    eps: float
    latent_eps: float
    positions: int
    eos: tuple[int, ...]
    bos: int | None
    pad: int | None
    theta: float
    yarn: YarnFacts | None = None
    rope_layout: str = "interleaved"
    prefix: str = ""
    skip: tuple[str, ...] = ()
    tied: bool = False


@dataclass(frozen=True, slots=True)
class DrafterFacts:
    """A DFlash drafter. `layers` holds (window or None, causal inside the block) of each draft layer."""

    name: str
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    inter: int
    layers: tuple[tuple[int | None, bool], ...]
    eps: float
    theta: float
    block_size: int
    mask_token: int
    taps: tuple[int, ...]
    target_layers: int
    target_hidden: int
    yarn: YarnFacts | None = None
    amplitude: float | None = None
    prefix: str = ""
    fc: str = "fc.weight"
    fc_norm: str = "hidden_norm.weight"
    own_embedding: bool = False
    own_head: bool = False
