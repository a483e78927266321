"""The explicit list: which emitter serves a launch kind (a basic op or a pattern of the fuse pass)."""

from __future__ import annotations

from collections.abc import Mapping

from ddtreec.emit.cuda import attention, ropes, rows
from ddtreec.emit.cuda.base import Emitter, RoundEmitter

LAUNCHES: Mapping[str, Emitter] = {
    "add": rows.add,
    "add_norm": rows.add_norm,
    "block_attention": attention.block_attention,
    "context_append": ropes.context_append,
    "embedding": rows.embedding,
    "kv_norm_rope_append": ropes.kv_norm_rope_append,
    "latent_append": ropes.latent_append,
    "latent_attention": attention.latent_attention,
    "latent_attention_v_up": attention.latent_attention_v_up,
    "norm_rope": ropes.norm_rope,
    "norm_rope_append": ropes.norm_rope_append,
    "rms_norm": rows.rms_norm,
    "rope": ropes.rope,
    "swiglu": rows.swiglu,
    "take_rows": rows.take_rows,
    "tap": rows.tap,
}
"""Launch kind to emitter."""

ROUND: tuple[RoundEmitter, ...] = ()
"""Emitters of the kernels between the programs of a round."""
