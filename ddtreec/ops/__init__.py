"""Ops, one file a kind, and the explicit list of them."""

from __future__ import annotations

from ddtreec.ops.add import Add
from ddtreec.ops.all_gather import AllGather
from ddtreec.ops.all_reduce import AllReduce
from ddtreec.ops.base import Op
from ddtreec.ops.block_attention import BlockAttention
from ddtreec.ops.context_append import ContextAppend
from ddtreec.ops.embedding import Embedding
from ddtreec.ops.experts import Experts
from ddtreec.ops.fused import Fused
from ddtreec.ops.latent_append import LatentAppend
from ddtreec.ops.latent_attention import LatentAttention
from ddtreec.ops.linear import Linear
from ddtreec.ops.mla_attention import MlaAttention
from ddtreec.ops.q_absorb import QAbsorb
from ddtreec.ops.rms_norm import RmsNorm
from ddtreec.ops.rope import Rope
from ddtreec.ops.router import Router
from ddtreec.ops.split import Split
from ddtreec.ops.swiglu import Swiglu
from ddtreec.ops.take_rows import TakeRows
from ddtreec.ops.tap import Tap
from ddtreec.ops.v_up import VUp

OPS: tuple[type[Op], ...] = (
    Add,
    AllGather,
    AllReduce,
    BlockAttention,
    ContextAppend,
    Embedding,
    Experts,
    Fused,
    LatentAppend,
    LatentAttention,
    Linear,
    MlaAttention,
    QAbsorb,
    RmsNorm,
    Rope,
    Router,
    Split,
    Swiglu,
    TakeRows,
    Tap,
    VUp,
)
"""Every kind of op there is."""

KINDS: dict[str, type[Op]] = {op.kind: op for op in OPS}

SPEC_OPS: dict[str, type[Op]] = {op.kind: op for op in OPS if op.SPEC is not None}
"""The kinds a spec may name."""
