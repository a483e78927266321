"""The explicit list: which emitter serves a launch kind (a basic op or a pattern of the fuse pass)."""

from __future__ import annotations

from collections.abc import Mapping

from ddtreec.emit.cuda import attention, experts, linears, ropes, round, router, rows
from ddtreec.emit.cuda.base import Emitter, RoundEmitter

LAUNCHES: Mapping[str, Emitter] = {
    "add": rows.add,
    "add_norm": rows.add_norm,
    "add_norm_linear": linears.add_norm_linear,
    "add_norm_router": router.add_norm_router,
    "block_attention": attention.block_attention,
    "context_append": ropes.context_append,
    "embedding": rows.embedding,
    "experts": experts.experts,
    "experts_shared": experts.experts,
    "kv_norm_rope_append": ropes.kv_norm_rope_append,
    "latent_append": ropes.latent_append,
    "latent_attention": attention.latent_attention,
    "latent_attention_v_up": attention.latent_attention_v_up,
    "linear": linears.linear,
    "norm_linear": linears.norm_linear,
    "norm_rope": ropes.norm_rope,
    "norm_rope_append": ropes.norm_rope_append,
    "q_absorb": linears.q_absorb,
    "q_absorb_rope": linears.q_b_absorb_rope,
    "q_b_absorb_rope": linears.q_b_absorb_rope,
    "rms_norm": rows.rms_norm,
    "rope": ropes.rope,
    "router": router.router,
    "swiglu": rows.swiglu,
    "swiglu_linear": linears.swiglu_linear,
    "take_norm_linear": linears.take_norm_linear,
    "take_rows": rows.take_rows,
    "tap": rows.tap,
    "v_up": linears.v_up,
}
"""Launch kind to emitter."""

ROUND: tuple[RoundEmitter, ...] = (round.round_kernels,)
"""Emitters of the kernels between the programs of a round."""
