"""Runs the calls of a program with fresh buffers and keeps every value: the reference the step program is held to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Call, Value
from ddtreec_runtime.backends.cpu.kernels import KERNELS, STATEFUL
from ddtreec_runtime.state import StepState, buffer_dtype

Param = int | float | str | bool | None


def run_calls(
    values: Sequence[Value],
    calls: Sequence[Call],
    weights_by_rank: Sequence[Mapping[str, Tensor]],
    states: Sequence[StepState],
    kernels: SimpleNamespace = KERNELS,
) -> list[dict[str, Tensor]]:
    """Execute `calls` in order for all ranks; the result maps, per rank, each value id to its tensor.

    `weights_by_rank[rank]` maps weight ids to tensors; `states[rank]` is a begun StepState whose `inputs` hold the
    values of home 'input'. Buffers start as NaN (integers as -1), so a value that is read before it is written shows.
    Tokens (no data) are left out. Works before the memory pass: offsets are not looked at.
    """
    envs = [_allocate(values, state) for state in states]
    data = {value.id for value in values if value.home != "token"}
    for call in calls:
        kernel = getattr(kernels, call.kernel)
        outs, ins = [v for v in call.outs if v in data], [v for v in call.ins if v in data]
        if call.collective:
            for out, given in zip(outs, ins, strict=True):
                kernel([env[out] for env in envs], [env[given] for env in envs], **call.params)
            continue
        for env, weights, state in zip(envs, weights_by_rank, states, strict=True):
            operands = [env[v] for v in (*outs, *ins)] + [weights[w] for w in call.weights]
            kernel(*([state] if call.kernel in STATEFUL else []), *operands, **keywords(call, state))
    return envs


def keywords(call: Call, state: StepState) -> dict[str, Param]:
    """The kernel's keyword parameters on this rank: `first_per` along `coord` becomes `first`."""
    params = dict(call.params)
    if "first_per" in params:
        per, coord = params.pop("first_per"), params.pop("coord")
        params["first"] = state.first(str(coord), int(per)) if per else 0
    return params


def _allocate(values: Sequence[Value], state: StepState) -> dict[str, Tensor]:
    """One rank's buffers; aliases are views of their parents, which come before them."""
    env: dict[str, Tensor] = {}
    for value in values:
        if value.home == "token":
            continue
        if value.home == "input":
            env[value.id] = state.inputs[value.id]
            continue
        shape = resolve(value.shape, state.rows, state.out_rows)
        if value.home == "alias":
            env[value.id] = alias(env[value.parent], value.start, shape)
            continue
        dtype = buffer_dtype(value.dtype, state.dtype)
        env[value.id] = torch.full(shape, float("nan") if dtype.is_floating_point else -1, dtype=dtype)
    return env


def resolve(shape: Sequence[int | str], rows: int, out_rows: int) -> tuple[int, ...]:
    """Shape with 'rows' and 'out_rows' replaced by numbers."""
    return tuple(rows if n == "rows" else out_rows if n == "out_rows" else int(n) for n in shape)


def alias(parent: Tensor, start: int, shape: Sequence[int]) -> Tensor:
    """Columns start.. of the parent's last axis, seen as `shape`; never a copy."""
    if len(shape) == parent.dim():
        return parent[..., start : start + shape[-1]]
    count = 1
    for size in shape[parent.dim() - 1 :]:
        count *= size
    return parent[..., start : start + count].unflatten(-1, tuple(shape[parent.dim() - 1 :]))
