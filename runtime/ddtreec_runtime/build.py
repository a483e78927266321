"""Turns a checked bundle and loaded weights into the parts that run: caches, states and bound programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Cache, Plan, Program
from ddtreec.core.errors import VerifyError
from ddtreec_runtime.backends.cpu.kernels import recorder
from ddtreec_runtime.bundle import Bundle
from ddtreec_runtime.drafting import Drafter
from ddtreec_runtime.kv import ContextCache, LatentCache, PagePool, PageTable
from ddtreec_runtime.program import BoundProgram, namespace, new_arena
from ddtreec_runtime.state import RopeTables, StepState
from ddtreec_runtime.target import Target


@dataclass(frozen=True, slots=True)
class Parts:
    """What runs: the target, and the drafter if its weights are loaded."""

    target: Target
    drafter: Drafter | None


def build(bundle: Bundle, weights: Sequence[dict[str, Tensor]], dtype: torch.dtype, drafting: bool) -> Parts:
    """Parts of all ranks in this process. `weights[rank]` by id; `drafting`: the drafter's weights are among them."""
    plan = bundle.plan
    programs = {p.name: p for p in plan.programs}
    if not drafting:
        programs = {"target": programs["target"]}
    pool = PagePool(pages(plan), plan.limits.page)
    ropes = RopeTables(plan.ropes, dtype)
    states = [
        StepState(
            ropes,
            dtype,
            latent_cache(plan, pages(plan), dtype),
            context_cache(plan, programs, dtype) if drafting else None,
            plan.mesh,
            rank,
        )
        for rank in range(plan.mesh.ranks)
    ]
    arenas = [new_arena(list(programs.values()), plan.dtype, dtype) for _ in states]
    spaces = [namespace(of_rank) for of_rank in weights]

    def bound(name: str, inputs: dict[str, Tensor]) -> BoundProgram:
        function = getattr(bundle.steps, name)
        return BoundProgram(programs[name], function, recorder, spaces, states, arenas, inputs, plan.dtype)

    target = Target(
        bound("target", {"tokens": token_buffer(programs["target"])}),
        PageTable(pool),
        min(plan.limits.chunk, programs["target"].max_rows),
        plan.limits.context,
    )
    if not drafting or plan.drafter is None:
        return Parts(target, None)
    features = target.program.persistent[0].get("features")
    if features is None:
        raise VerifyError("memory", "features", "the plan has a drafter but its target keeps no features")
    drafter = Drafter(
        bound("draft_context", {"features": features}),
        bound("draft_block", {"tokens": token_buffer(programs["draft_block"])}),
        plan.drafter.block,
        plan.drafter.mask_token,
    )
    return Parts(target, drafter)


def token_buffer(program: Program) -> Tensor:
    """Room for the token ids of one step."""
    return torch.zeros(program.max_rows, dtype=torch.int32)


def pages(plan: Plan) -> int:
    """Pages of one sequence: its context and, behind it, the rows of the largest tree."""
    return -(-(plan.limits.context + plan.tree.budget + 1) // plan.limits.page)


def latent_cache(plan: Plan, count: int, dtype: torch.dtype) -> LatentCache:
    """The latents of all layers on one rank."""
    caches = [cache for cache in plan.caches if cache.kind == "latent"]
    widths = {cache.width for cache in caches}
    if len(widths) != 1:
        raise VerifyError("memory", caches[0].id if caches else "caches", f"latent widths {sorted(widths)}, not one")
    return LatentCache(len(caches), count, plan.limits.page, widths.pop(), dtype)


def context_cache(plan: Plan, programs: dict[str, Program], dtype: torch.dtype) -> ContextCache:
    """The drafter's context of all its layers on one rank."""
    caches: list[Cache] = [cache for cache in plan.caches if cache.kind == "context"]
    shapes = {(cache.heads, cache.head_dim) for cache in caches}
    if len(shapes) != 1:
        raise VerifyError("memory", caches[0].id if caches else "caches", f"context shapes {sorted(shapes)}, not one")
    heads, head_dim = shapes.pop()
    step = max(programs["draft_context"].max_rows, programs["draft_block"].max_rows)
    return ContextCache([cache.window for cache in caches], heads, head_dim, plan.limits.context, step, dtype)
