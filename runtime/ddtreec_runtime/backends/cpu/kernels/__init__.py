"""The kernels of the CPU backend: one file a kind, named as the op. They are the meaning of every op.

A kernel is called with its operands and works at once. Where the same call comes again and again, `recorder` gives
kernels that only note it, bound to its operands: views and all else that depends on shapes alone are then made once.
Kinds that gain by it have a `bind_<kind>` beside the kernel; the kernel is `bind_<kind>(...)()`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

from ddtreec_runtime.backends.cpu.kernels.add import add, bind_add
from ddtreec_runtime.backends.cpu.kernels.all_gather import all_gather
from ddtreec_runtime.backends.cpu.kernels.all_reduce import all_reduce
from ddtreec_runtime.backends.cpu.kernels.block_attention import block_attention
from ddtreec_runtime.backends.cpu.kernels.context_append import context_append
from ddtreec_runtime.backends.cpu.kernels.embedding import embedding
from ddtreec_runtime.backends.cpu.kernels.experts import bind_experts, experts
from ddtreec_runtime.backends.cpu.kernels.latent_append import latent_append
from ddtreec_runtime.backends.cpu.kernels.latent_attention import bind_latent_attention, latent_attention
from ddtreec_runtime.backends.cpu.kernels.linear import bind_linear, linear
from ddtreec_runtime.backends.cpu.kernels.mla_attention import mla_attention
from ddtreec_runtime.backends.cpu.kernels.q_absorb import bind_q_absorb, q_absorb
from ddtreec_runtime.backends.cpu.kernels.rms_norm import bind_rms_norm, rms_norm
from ddtreec_runtime.backends.cpu.kernels.rope import bind_rope, rope
from ddtreec_runtime.backends.cpu.kernels.router import bind_router, router
from ddtreec_runtime.backends.cpu.kernels.swiglu import swiglu
from ddtreec_runtime.backends.cpu.kernels.take_rows import take_rows
from ddtreec_runtime.backends.cpu.kernels.tap import bind_tap, tap
from ddtreec_runtime.backends.cpu.kernels.v_up import bind_v_up, v_up

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

BINDERS: dict[str, Callable[..., Callable[[], object]]] = {
    "add": bind_add,
    "experts": bind_experts,
    "latent_attention": bind_latent_attention,
    "linear": bind_linear,
    "q_absorb": bind_q_absorb,
    "rms_norm": bind_rms_norm,
    "rope": bind_rope,
    "router": bind_router,
    "tap": bind_tap,
    "v_up": bind_v_up,
}
"""Kinds with a binder of their own; all others are bound by keeping their operands."""


def recorder(calls: list[Callable[[], object]]) -> SimpleNamespace:
    """Kernels that append the call, without arguments, to `calls` instead of making it."""

    def noting(kind: str, kernel: Callable[..., object]) -> Callable[..., None]:
        bind = BINDERS.get(kind) or partial(partial, kernel)
        return lambda *operands, **params: calls.append(bind(*operands, **params))

    return SimpleNamespace(**{kind: noting(kind, kernel) for kind, kernel in vars(KERNELS).items()})
