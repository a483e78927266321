"""The kernels of the CPU backend: one file a kind, named as the op. They are the meaning of every op."""

from __future__ import annotations

from types import SimpleNamespace

from ddtreec_runtime.backends.cpu.kernels.add import add
from ddtreec_runtime.backends.cpu.kernels.all_gather import all_gather
from ddtreec_runtime.backends.cpu.kernels.all_reduce import all_reduce
from ddtreec_runtime.backends.cpu.kernels.block_attention import block_attention
from ddtreec_runtime.backends.cpu.kernels.context_append import context_append
from ddtreec_runtime.backends.cpu.kernels.embedding import embedding
from ddtreec_runtime.backends.cpu.kernels.experts import experts
from ddtreec_runtime.backends.cpu.kernels.latent_append import latent_append
from ddtreec_runtime.backends.cpu.kernels.latent_attention import latent_attention
from ddtreec_runtime.backends.cpu.kernels.linear import linear
from ddtreec_runtime.backends.cpu.kernels.mla_attention import mla_attention
from ddtreec_runtime.backends.cpu.kernels.q_absorb import q_absorb
from ddtreec_runtime.backends.cpu.kernels.rms_norm import rms_norm
from ddtreec_runtime.backends.cpu.kernels.rope import rope
from ddtreec_runtime.backends.cpu.kernels.router import router
from ddtreec_runtime.backends.cpu.kernels.swiglu import swiglu
from ddtreec_runtime.backends.cpu.kernels.take_rows import take_rows
from ddtreec_runtime.backends.cpu.kernels.tap import tap
from ddtreec_runtime.backends.cpu.kernels.v_up import v_up

STATEFUL = frozenset(
    {"rope", "latent_append", "mla_attention", "latent_attention", "take_rows", "context_append", "block_attention"}
)
"""Kernels that take the step's state as their first argument."""

KERNELS = SimpleNamespace(
    add=add,
    all_gather=all_gather,
    all_reduce=all_reduce,
    block_attention=block_attention,
    context_append=context_append,
    embedding=embedding,
    experts=experts,
    latent_append=latent_append,
    latent_attention=latent_attention,
    linear=linear,
    mla_attention=mla_attention,
    q_absorb=q_absorb,
    rms_norm=rms_norm,
    rope=rope,
    router=router,
    swiglu=swiglu,
    take_rows=take_rows,
    tap=tap,
    v_up=v_up,
)
