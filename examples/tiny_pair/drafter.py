"""The DFlash drafter: one pass turns `[anchor, MASK, ...]` into logits for the tokens after the anchor.

Context enters only as keys and values made from the target's residual streams (`fc`, `hidden_norm`); embedding and
output head are the target's own and stay frozen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model import MASK, Mlp, Norm, rope_tables

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(q [B, Hq, R, D], k [B, Hkv, S, D], v likewise) -> [B, Hq, R, D]; knows its own mask."""


@dataclass(frozen=True)
class DrafterConfig:
    """Sizes of the drafter."""

    hidden_size: int = 256
    num_hidden_layers: int = 3
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int = 32
    intermediate_size: int = 736
    block_size: int = 8
    rope_theta: float = 50000.0
    rms_norm_eps: float = 1e-5
    vocab_size: int = 4096
    num_target_layers: int = 5
    target_layer_ids: tuple[int, ...] = (1, 2, 3)
    max_position_embeddings: int = 2048

    @classmethod
    def load(cls, directory: str | Path) -> DrafterConfig:
        """Reads `config.json` of a drafter directory."""
        raw = json.loads((Path(directory) / "config.json").read_text())
        raw["target_layer_ids"] = tuple(raw["dflash_config"]["target_layer_ids"])
        return cls(**{key: raw[key] for key in asdict(cls()) if key in raw})


def rotate_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE on halves of the last dimension; `cos` and `sin` broadcast against [..., dim / 2]."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class DraftAttention(nn.Module):
    """Grouped-query attention of block rows over context rows and the block itself."""

    def __init__(self, cfg: DrafterConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = cfg.num_attention_heads, cfg.num_key_value_heads
        self.q_proj = nn.Linear(cfg.hidden_size, self.heads * cfg.head_dim, bias=False)
        self.k_proj = nn.Linear(cfg.hidden_size, self.kv_heads * cfg.head_dim, bias=False)
        self.v_proj = nn.Linear(cfg.hidden_size, self.kv_heads * cfg.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * cfg.head_dim, cfg.hidden_size, bias=False)
        self.q_norm = Norm(cfg.head_dim, cfg.rms_norm_eps)
        self.k_norm = Norm(cfg.head_dim, cfg.rms_norm_eps)

    def forward(self, h: Tensor, ctx: Tensor, rope: tuple[Tensor, ...], attend: Attend) -> Tensor:
        """h [B, R, H] block rows after the input norm, ctx [B, S, H]; `rope` is cos, sin of rows, then of context."""
        row_cos, row_sin, ctx_cos, ctx_sin = (table.unsqueeze(-2) for table in rope)
        q = rotate_half(self.q_norm(self.q_proj(h).unflatten(-1, (self.heads, -1))), row_cos, row_sin)
        k_row = rotate_half(self.k_norm(self.k_proj(h).unflatten(-1, (self.kv_heads, -1))), row_cos, row_sin)
        k_ctx = rotate_half(self.k_norm(self.k_proj(ctx).unflatten(-1, (self.kv_heads, -1))), ctx_cos, ctx_sin)
        v = torch.cat((self.v_proj(ctx), self.v_proj(h)), 1).unflatten(-1, (self.kv_heads, -1))
        k = torch.cat((k_ctx, k_row), 1)
        out = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.o_proj(out.transpose(1, 2).flatten(-2))


class DraftLayer(nn.Module):
    """One pre-norm layer; context rows skip the input norm and the MLP."""

    def __init__(self, cfg: DrafterConfig) -> None:
        super().__init__()
        self.input_layernorm = Norm(cfg.hidden_size, cfg.rms_norm_eps)
        self.self_attn = DraftAttention(cfg)
        self.post_attention_layernorm = Norm(cfg.hidden_size, cfg.rms_norm_eps)
        self.mlp = Mlp(cfg.hidden_size, cfg.intermediate_size)

    def forward(self, x: Tensor, ctx: Tensor, rope: tuple[Tensor, ...], attend: Attend) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), ctx, rope, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


def run_draft_layer(layer: DraftLayer, x: Tensor, ctx: Tensor, rope: tuple[Tensor, ...], attend: Attend) -> Tensor:
    """`layer(...)` as a function of the layer: compiled once, it serves all layers."""
    return layer(x, ctx, rope, attend)


class Drafter(nn.Module):
    """The whole drafter, without embedding and head."""

    def __init__(self, cfg: DrafterConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.fc = nn.Linear(len(cfg.target_layer_ids) * cfg.hidden_size, cfg.hidden_size, bias=False)
        self.hidden_norm = Norm(cfg.hidden_size, cfg.rms_norm_eps)
        self.layers = nn.ModuleList(DraftLayer(cfg) for _ in range(cfg.num_hidden_layers))
        self.norm = Norm(cfg.hidden_size, cfg.rms_norm_eps)
        cos, sin = rope_tables(cfg.max_position_embeddings + cfg.block_size, cfg.head_dim, cfg.rope_theta, "cpu")
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def init_weights(self, seed: int) -> None:
        """Random weights, scaled by fan-in."""
        gen = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, p in self.named_parameters():
                if p.ndim == 2:
                    std = 0.6 * p.shape[-1] ** -0.5
                    if name.endswith(("o_proj.weight", "down_proj.weight")):
                        std /= (2 * self.cfg.num_hidden_layers) ** 0.5
                    p.copy_(torch.randn(p.shape, generator=gen) * std)

    def forward(
        self,
        features: Tensor,
        rows: Tensor,
        positions: Tensor,
        attend: Attend,
        run: Callable[..., Tensor] = run_draft_layer,
    ) -> Tensor:
        """States [B, R, H] after the final norm.

        `features` [B, S, taps * H]: the target's streams at positions 0..S-1. `rows` [B, R, H]: embeddings of the block
        tokens, at `positions` [R]. `attend` decides which context and block rows each row sees; `run` is
        `run_draft_layer` or a compiled version of it.
        """
        size = features.shape[1]
        rope = (self.cos[positions], self.sin[positions], self.cos[:size], self.sin[:size])
        ctx = self.hidden_norm(self.fc(features))
        x = rows
        for layer in self.layers:
            x = run(layer, x, ctx, rope, attend)
        return self.norm(x)


def visible(row: Tensor, key: Tensor, starts: Tensor, context: int, block: int) -> Tensor:
    """Whether block row `row` sees key `key`: context strictly before its anchor, or its own block.

    `starts` [blocks] are the anchors' positions; keys below `context` are context rows, the rest block rows.
    """
    own = row // block
    return torch.where(key < context, key < starts[own], (key - context) // block == own)


def dense_attend(starts: Tensor, context: int, block: int) -> Attend:
    """Attention through a dense mask, for evaluation and for machines without flex attention."""
    rows = torch.arange(len(starts) * block, device=starts.device)
    keys = torch.arange(context + len(rows), device=starts.device)
    mask = visible(rows[:, None], keys[None, :], starts, context, block)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

    return attend


def flex_attend(context: int, block: int, device: torch.device | str) -> Attend:
    """Attention for training, where a block starts at every `block`-th position of the context."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def mask(_b: Tensor, _h: Tensor, row: Tensor, key: Tensor) -> Tensor:
        own = row // block
        return ((key < context) & (key < own * block)) | ((key >= context) & ((key - context) // block == own))

    table = create_block_mask(mask, None, None, context, 2 * context, device=str(device))

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, block_mask=table, enable_gqa=True)  # type: ignore[return-value]

    return attend


def block_tokens(anchors: Tensor, block: int) -> Tensor:
    """[B, A] anchor tokens -> [B, A * block] block tokens, MASK behind each anchor."""
    rows = torch.full((*anchors.shape, block), MASK, dtype=anchors.dtype, device=anchors.device)
    rows[..., 0] = anchors
    return rows.flatten(1)
