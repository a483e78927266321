"""The target: a small decoder of Kimi K2's architecture (MLA, sigmoid-routed experts, one shared expert).

Weights live in the module in the dtype they are computed in (bfloat16 while training). All routed experts are computed
for every token as one wide MLP whose middle activations are scaled by the router's weights (zero outside the top-k):
sum_e w_e W_down_e h_e is W_down [w_e h_e]_e, so three plain matrix products do the work of the whole layer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BOS, EOS, MASK, PAD = 4092, 4093, 4094, 4095


@dataclass(frozen=True)
class TargetConfig:
    """Sizes and constants of the target, under the names of Hugging Face's `config.json`."""

    vocab_size: int = 4096
    hidden_size: int = 256
    num_hidden_layers: int = 5
    first_k_dense_replace: int = 1
    intermediate_size: int = 512
    n_routed_experts: int = 16
    num_experts_per_tok: int = 4
    moe_intermediate_size: int = 96
    n_shared_experts: int = 1
    routed_scaling_factor: float = 2.0
    num_attention_heads: int = 8
    q_lora_rank: int = 128
    kv_lora_rank: int = 128
    qk_nope_head_dim: int = 32
    qk_rope_head_dim: int = 16
    v_head_dim: int = 32
    rope_theta: float = 50000.0
    rms_norm_eps: float = 1e-5
    max_position_embeddings: int = 2048

    @classmethod
    def load(cls, directory: str | Path) -> TargetConfig:
        """Reads `config.json` of a target directory, nested (`text_config`) or flat."""
        raw = json.loads((Path(directory) / "config.json").read_text())
        raw = raw.get("text_config", raw)
        return cls(**{f.name: raw[f.name] for f in fields(cls)})

    def as_dict(self) -> dict[str, object]:
        """All fields as plain values."""
        return asdict(self)


class Norm(nn.Module):
    """RMSNorm over the last dimension: float32 statistics, one rounding to the input's dtype, then the weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return wide.to(x.dtype) * self.weight


def rope_tables(length: int, dim: int, theta: float, device: torch.device | str) -> tuple[Tensor, Tensor]:
    """cos and sin [length, dim / 2] float32 of plain RoPE."""
    freq = theta ** (-torch.arange(0, dim, 2, device=device, dtype=torch.float32) / dim)
    angle = torch.arange(length, device=device, dtype=torch.float32)[:, None] * freq
    return angle.cos(), angle.sin()


def rotate_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates pairs (x0, x1), (x2, x3), ... of the last dimension; `cos` and `sin` broadcast against [..., dim / 2]."""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2).to(x.dtype)


class Attention(nn.Module):
    """Multi-head latent attention with a low-rank query."""

    def __init__(self, cfg: TargetConfig) -> None:
        super().__init__()
        self.cfg, heads = cfg, cfg.num_attention_heads
        qk = cfg.qk_nope_head_dim + cfg.qk_rope_head_dim
        self.q_a_proj = nn.Linear(cfg.hidden_size, cfg.q_lora_rank, bias=False)
        self.q_a_layernorm = Norm(cfg.q_lora_rank, cfg.rms_norm_eps)
        self.q_b_proj = nn.Linear(cfg.q_lora_rank, heads * qk, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(cfg.hidden_size, cfg.kv_lora_rank + cfg.qk_rope_head_dim, bias=False)
        self.kv_a_layernorm = Norm(cfg.kv_lora_rank, cfg.rms_norm_eps)
        self.kv_b_proj = nn.Linear(cfg.kv_lora_rank, heads * (cfg.qk_nope_head_dim + cfg.v_head_dim), bias=False)
        self.o_proj = nn.Linear(heads * cfg.v_head_dim, cfg.hidden_size, bias=False)

    def queries(self, h: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Unrotated and rotated query parts, [..., heads, nope] and [..., heads, rope]."""
        cfg = self.cfg
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(h))).unflatten(-1, (cfg.num_attention_heads, -1))
        q_n, q_r = q.split([cfg.qk_nope_head_dim, cfg.qk_rope_head_dim], -1)
        return q_n, rotate_interleaved(q_r, cos.unsqueeze(-2), sin.unsqueeze(-2))

    def latents(self, h: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """What a cache holds per token: [..., kv_lora + rope], the normed latent and the rotated shared key."""
        cfg = self.cfg
        c, k_r = self.kv_a_proj_with_mqa(h).split([cfg.kv_lora_rank, cfg.qk_rope_head_dim], -1)
        return torch.cat((self.kv_a_layernorm(c), rotate_interleaved(k_r, cos, sin)), -1)

    def forward(self, h: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Causal attention over h [B, T, H] from position 0; returns the output and the latents."""
        cfg, heads = self.cfg, self.cfg.num_attention_heads
        q = torch.cat(self.queries(h, cos, sin), -1)
        latent = self.latents(h, cos, sin)
        c, k_r = latent.split([cfg.kv_lora_rank, cfg.qk_rope_head_dim], -1)
        kv = self.kv_b_proj(c).unflatten(-1, (heads, -1))
        k_n, v = kv.split([cfg.qk_nope_head_dim, cfg.v_head_dim], -1)
        k = torch.cat((k_n, k_r.unsqueeze(-2).expand(-1, -1, heads, -1)), -1)
        v = F.pad(v, (0, q.shape[-1] - cfg.v_head_dim))  # fused kernels want one head size
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return self.o_proj(out.transpose(1, 2)[..., : cfg.v_head_dim].flatten(-2)), latent

    def step(self, h: Tensor, cache: Tensor, position: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """One token a sequence: h [B, H], cache [B, S, kv_lora + rope] (written at `position`), in absorbed form."""
        cfg = self.cfg
        q_n, q_r = self.queries(h, cos, sin)
        cache.index_copy_(1, position, self.latents(h, cos, sin).unsqueeze(1))
        up = self.kv_b_proj.weight.view(cfg.num_attention_heads, -1, cfg.kv_lora_rank)
        up_k, up_v = up.split([cfg.qk_nope_head_dim, cfg.v_head_dim], 1)
        q = torch.cat((torch.einsum("bhn,hnc->bhc", q_n, up_k), q_r), -1)
        scores = (q @ cache.transpose(1, 2)).float() * (cfg.qk_nope_head_dim + cfg.qk_rope_head_dim) ** -0.5
        seen = torch.arange(cache.shape[1], device=h.device) <= position
        probs = scores.masked_fill(~seen, float("-inf")).softmax(-1).to(h.dtype)
        out = torch.einsum("bhc,hvc->bhv", probs @ cache[..., : cfg.kv_lora_rank], up_v)
        return self.o_proj(out.flatten(-2))


class Mlp(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Moe(nn.Module):
    """Sigmoid router with a correction bias (used for choosing only), routed experts and one shared expert."""

    def __init__(self, cfg: TargetConfig) -> None:
        super().__init__()
        self.cfg = cfg
        experts, inner, hidden = cfg.n_routed_experts, cfg.moe_intermediate_size, cfg.hidden_size
        self.router = nn.Parameter(torch.empty(experts, hidden))
        self.register_buffer("bias", torch.zeros(experts, dtype=torch.float32))
        self.experts_gate = nn.Parameter(torch.empty(experts, inner, hidden))
        self.experts_up = nn.Parameter(torch.empty(experts, inner, hidden))
        self.experts_down = nn.Parameter(torch.empty(experts, hidden, inner))
        self.shared = Mlp(hidden, inner * cfg.n_shared_experts)

    def route(self, h: Tensor) -> Tensor:
        """Router weights [..., E] float32, zero outside the top-k. Ties go to the lower expert."""
        score = torch.sigmoid(F.linear(h.float(), self.router.float()))
        choice = score + self.bias
        index = torch.arange(choice.shape[-1], device=h.device)
        mine, other = choice.unsqueeze(-1), choice.unsqueeze(-2)
        ahead = (other > mine) | ((other == mine) & (index < index[:, None]))
        weight = score * (ahead.sum(-1) < self.cfg.num_experts_per_tok)
        return weight / (weight.sum(-1, keepdim=True) + 1e-20) * self.cfg.routed_scaling_factor

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """The layer's output and the number of tokens that chose each expert [E]."""
        weight = self.route(h)
        middle = F.silu(F.linear(h, self.experts_gate.flatten(0, 1))) * F.linear(h, self.experts_up.flatten(0, 1))
        middle = middle.unflatten(-1, (self.cfg.n_routed_experts, -1)) * weight.to(h.dtype).unsqueeze(-1)
        out = F.linear(middle.flatten(-2), self.experts_down.transpose(0, 1).flatten(1))
        return out + self.shared(h), (weight.detach() > 0).flatten(0, -2).sum(0)


class Layer(nn.Module):
    """One pre-norm decoder layer, dense or with experts."""

    def __init__(self, cfg: TargetConfig, index: int) -> None:
        super().__init__()
        self.input_layernorm = Norm(cfg.hidden_size, cfg.rms_norm_eps)
        self.self_attn = Attention(cfg)
        self.post_attention_layernorm = Norm(cfg.hidden_size, cfg.rms_norm_eps)
        dense = index < cfg.first_k_dense_replace
        self.mlp: Mlp | Moe = Mlp(cfg.hidden_size, cfg.intermediate_size) if dense else Moe(cfg)

    def feed_forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """x plus the feed-forward part, and the expert load where there are experts."""
        h = self.post_attention_layernorm(x)
        if isinstance(self.mlp, Moe):
            out, load = self.mlp(h)
            return x + out, load
        return x + self.mlp(h), None

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        """The residual stream after this layer, the expert load (None if dense) and the latents."""
        out, latent = self.self_attn(self.input_layernorm(x), cos, sin)
        x, load = self.feed_forward(x + out)
        return x, load, latent

    def step(self, x: Tensor, cache: Tensor, position: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The same for one token a sequence, x [B, H], against a cache."""
        x = x + self.self_attn.step(self.input_layernorm(x), cache, position, cos, sin)
        return self.feed_forward(x)[0]


def run_layer(layer: Layer, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    """`layer(...)` as a function of the layer: compiled once, it serves all layers of a kind."""
    return layer(x, cos, sin)


def run_step(layer: Layer, x: Tensor, cache: Tensor, position: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`layer.step(...)` as a function of the layer."""
    return layer.step(x, cache, position, cos, sin)


@dataclass
class Trace:
    """What a forward pass gives: `last` [B, T, H] after the final norm, residual streams, expert loads, latents."""

    last: Tensor
    streams: list[Tensor]
    loads: list[Tensor]
    latents: list[Tensor]


class Target(nn.Module):
    """The whole target."""

    def __init__(self, cfg: TargetConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.embed_tokens = nn.Embedding(cfg.vocab_size, cfg.hidden_size)
        self.layers = nn.ModuleList(Layer(cfg, i) for i in range(cfg.num_hidden_layers))
        self.norm = Norm(cfg.hidden_size, cfg.rms_norm_eps)
        self.lm_head = nn.Linear(cfg.hidden_size, cfg.vocab_size, bias=False)
        cos, sin = rope_tables(cfg.max_position_embeddings, cfg.qk_rope_head_dim, cfg.rope_theta, "cpu")
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def init_weights(self, seed: int) -> None:
        """Random weights: scaled by fan-in, output projections smaller by the depth."""
        gen = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, p in self.named_parameters():
                if p.ndim < 2:
                    continue
                std = 0.02 if "embed" in name or "lm_head" in name or "router" in name else 0.6 * p.shape[-1] ** -0.5
                if name.endswith(("o_proj.weight", "down_proj.weight", "experts_down")):
                    std /= (2 * self.cfg.num_hidden_layers) ** 0.5
                p.copy_(torch.randn(p.shape, generator=gen) * std)

    def cast(self, dtype: torch.dtype) -> Target:
        """All parameters in `dtype`; router bias and RoPE tables stay float32."""
        for p in self.parameters():
            p.data = p.data.to(dtype)
        return self

    def forward(self, ids: Tensor, keep_latents: bool = False, run: Callable[..., tuple] = run_layer) -> Trace:
        """Runs ids [B, T] from position 0. `streams[i]` is the residual stream after layer i.

        `run` is `run_layer` or a compiled version of it.
        """
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        x = self.embed_tokens(ids)
        trace = Trace(x, [], [], [])
        for layer in self.layers:
            x, load, latent = run(layer, x, cos, sin)
            trace.streams.append(x)
            if load is not None:
                trace.loads.append(load)
            if keep_latents:
                trace.latents.append(latent)
        trace.last = self.norm(x)
        return trace

    def logits(self, last: Tensor) -> Tensor:
        """Float32 logits of states after the final norm."""
        return self.lm_head(last).float()

    def step(
        self, ids: Tensor, caches: list[Tensor], position: Tensor, run: Callable[..., Tensor] = run_step
    ) -> Tensor:
        """States [B, H] after the final norm, one more token: ids [B], a cache [B, S, kv_lora + rope] a layer.

        `position` [1] int64 is the token's place; `run` is `run_step` or a compiled version of it.
        """
        cos, sin = self.cos[position], self.sin[position]
        x = self.embed_tokens(ids)
        for index, layer in enumerate(self.layers):
            x = run(layer, x, caches[index], position, cos, sin)
        return self.norm(x)
