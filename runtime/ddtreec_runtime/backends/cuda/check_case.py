"""One sample of what a kernel is given, and what its parts make of it in float64, by the kernels of the CPU backend.

A case has `slots` sequences of `group` rows each. A row sees earlier rows of its slot alone (its ancestors in a random
tree), so that a step of the first rows of some of the slots must give the same for those rows, and one reference
serves steps of any size. Samples and results are on the CPU; the parts run where the weights are, since a GPU does in
milliseconds what takes a CPU minutes at the widths of a large model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import torch
from torch import Tensor

from ddtreec.artifacts.kernels import Kernel
from ddtreec.artifacts.plan import Call, Plan, Program, Value
from ddtreec_runtime.backends.cpu.interpreter import run_calls
from ddtreec_runtime.backends.cuda.check_router import SIGMAS, clearance
from ddtreec_runtime.backends.cuda.check_weights import Made, pooled_weights
from ddtreec_runtime.kv import ContextCache, LatentCache, Placement
from ddtreec_runtime.state import RopeTables, StepState, buffer_dtype

POOL = 24
"""Experts, or tokens of an embedding, that hold numbers: all of them would need more room than a check is worth."""

POOLED = {"embedding": 0, "experts": 1}
"""Kinds whose weight holds numbers for the pool alone, with the place of the input that says which are read."""

MOST_DRAWS = 200
"""Draws of a row until the choice of its experts is clear."""


@dataclass
class Case:
    """The sample.

    device: where the parts run; all tensors here are on the CPU. committed, parents, positions: by slot (and row).
    inputs: by root value [slots, group, ...] in device dtypes. pool: local experts that hold numbers. latent: by slot
    [committed, width], with the rows of the step behind them where the kernel reads these and does not append them
    itself; context: by slot [committed, 2, heads, dim]. expected: by output of the call [slots, group, ...] float64,
    NaN where its parts write nothing. written: what the parts add to the cache, by slot [group, ...] float64.
    """

    plan: Plan
    program: Program
    kernel: Kernel
    call: Call
    committed: tuple[int, ...]
    group: int
    layer: int
    parents: list[list[int]]
    positions: Tensor
    pool: Tensor
    device: str = "cpu"
    inputs: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    latent: list[Tensor] = field(default_factory=list[Tensor])
    context: list[Tensor] = field(default_factory=list[Tensor])
    expected: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    written: list[Tensor] = field(default_factory=list[Tensor])

    @property
    def slots(self) -> int:
        """Sequences of the case."""
        return len(self.committed)

    @property
    def rank(self) -> int:
        """The last one, whose slices do not begin at zero."""
        return self.plan.mesh.ranks - 1

    def visible(self, slot: int) -> Tensor:
        """bool [group, group]: row i sees row j, its ancestors and itself."""
        seen = torch.eye(self.group, dtype=torch.bool)
        for row, parent in enumerate(self.parents[slot]):
            if parent >= 0:
                seen[row] |= seen[parent]
        return seen


def cache_kind(kernel: Kernel) -> str:
    """Which cache a kernel reads or writes: 'latent', 'context' or ''."""
    args = {arg for stage in kernel.stages for arg in stage.args}
    return next((kind for kind in ("latent", "context") if f"state:{kind}" in args), "")


def roots(kernel: Kernel, names: Sequence[str]) -> dict[str, Value]:
    """The values that own the memory of these, by id."""
    values = {value.id: value for value in kernel.reference.values}
    owners = [values[values[name].parent] if values[name].home == "alias" else values[name] for name in names]
    return {owner.id: owner for owner in owners}


def pool_of(plan: Plan, kernel: Kernel, draw: torch.Generator) -> Tensor:
    """Which local experts, or rows of an embedding, hold numbers, int64; empty for a kernel without such a weight."""
    pooled = pooled_weights(kernel)
    sizes = {w.shape[0] for w in plan.weights if w.id in pooled}
    return torch.randperm(sizes.pop(), generator=draw)[:POOL] if sizes else torch.zeros(0, dtype=torch.int64)


def make_case(
    plan: Plan,
    program: Program,
    kernel: Kernel,
    call: Call,
    committed: tuple[int, ...],
    group: int,
    weights: Mapping[str, Made],
    pool: Tensor,
    draw: torch.Generator,
    device: str = "cpu",
) -> Case:
    """A case with its reference. `call`: one that `kernel` serves; `pool`: as the weights were made with; `device`:
    where they are."""
    chain = program.name != "target"
    parents = [tree(group, draw, chain=chain or slot % 2 == 1) for slot in range(len(committed))]
    positions = torch.tensor([[c + d for d in depths(p)] for c, p in zip(committed, parents, strict=True)])
    layer = int(call.params.get("layer") or 0)
    case = Case(plan, program, kernel, call, committed, group, layer, parents, positions, pool, device)
    _fill_caches(case, draw)
    for name, value in roots(kernel, call.ins).items():
        case.inputs[name] = _numbers(case, value, draw)
    exact = {name: made.exact for name, made in weights.items()}
    _make_clear(case, exact, draw)
    _run(case, exact)
    return case


def tree(rows: int, draw: torch.Generator, *, chain: bool) -> list[int]:
    """Parent of each row, -1 for the root: a random tree whose parents come before their children, or a chain."""
    if chain:
        return list(range(-1, rows - 1))
    return [-1, *(int(torch.randint(row, (1,), generator=draw)) for row in range(1, rows))]


def depths(parents: Sequence[int]) -> list[int]:
    """Edges from the root to each row."""
    found: list[int] = []
    for parent in parents:
        found.append(found[parent] + 1 if parent >= 0 else 0)
    return found


def _numbers(case: Case, value: Value, draw: torch.Generator) -> Tensor:
    """[slots, group, ...] of what the parts expect of this input."""
    shape = (case.slots, case.group, *(int(n) for n in value.shape[1:]))
    for part in case.kernel.reference.calls:
        if part.kernel == "embedding" and value.id == part.ins[0]:
            candidates = _candidates(case, part)
            chosen = torch.randint(len(candidates), shape, generator=draw)
            return candidates[chosen].to(torch.int32)
        if part.kernel == "experts" and value.id == part.ins[1]:
            candidates = _candidates(case, part)
            rows = [torch.randperm(len(candidates), generator=draw)[: shape[-1]] for _ in range(shape[0] * shape[1])]
            return candidates[torch.stack(rows)].view(shape)
        if part.kernel == "experts" and value.id == part.ins[2]:
            return 0.1 + torch.rand(shape, generator=draw)
    return torch.randn(shape, generator=draw).to(buffer_dtype(value.dtype, torch.bfloat16))


def _candidates(case: Case, part: Call) -> Tensor:
    """Ids to choose from: those of the pool, and where a weight is cut over ranks some of other ranks too."""
    first = first_of(case, part)
    return torch.cat([case.pool + first, torch.arange(min(first, len(case.pool)))])


def first_of(case: Case, call: Call) -> int:
    """Number of the first row or expert that the rank of the case holds, by the parameters of a call."""
    per = int(call.params.get("first_per") or 0)
    return case.plan.mesh.coord(str(call.params["coord"]), case.rank) * per if per else 0


def appends(kernel: Kernel) -> bool:
    """Whether it writes the step's rows into a cache."""
    return any(part.kernel in ("latent_append", "context_append") for part in kernel.reference.calls)


def _fill_caches(case: Case, draw: torch.Generator) -> None:
    kind = cache_kind(case.kernel)
    caches = [cache for cache in case.plan.caches if cache.kind == kind]
    own = 0 if appends(case.kernel) else case.group
    for committed in case.committed:
        if kind == "latent":
            case.latent.append(torch.randn(committed + own, caches[0].width, generator=draw).to(torch.bfloat16))
        elif kind == "context":
            shape = (committed, 2, caches[0].heads, caches[0].head_dim)
            case.context.append(torch.randn(shape, generator=draw).to(torch.bfloat16))


def _parts_of(case: Case, slot: int, weights: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], StepState]:
    """Runs the parts for one slot in float64: every value by id, and the state with what they wrote to caches."""
    values, calls = _parts(case)
    inputs = {name: _wide(tensor[slot]) for name, tensor in case.inputs.items()}
    for part in case.kernel.reference.calls:
        if part.kernel in POOLED:
            name = part.ins[POOLED[part.kernel]]
            inputs[name] = _pool_ids(case, inputs[name], part)
    with torch.device(case.device):
        state = _state(case, slot, {name: tensor.to(case.device) for name, tensor in inputs.items()})
        (env,) = run_calls(values, calls, [weights], [state])
    return env, state


def _state(case: Case, slot: int, inputs: Mapping[str, Tensor]) -> StepState:
    """One slot's view of the step with caches of its own, in float64, made on the device that torch has by default."""
    plan, committed, group = case.plan, case.committed[slot], case.group
    page = plan.limits.page
    latent = context = None
    if case.latent:
        width = case.latent[slot].shape[1]
        latent = LatentCache(1, -(-(committed + group) // page), page, width, torch.float64)
        latent.store[0, : len(case.latent[slot])] = case.latent[slot]
    if case.context:
        caches = [cache for cache in plan.caches if cache.kind == "context"]
        _, _, heads, dim = case.context[slot].shape
        window = caches[case.layer].window
        context = ContextCache([window], heads, dim, committed + group, max(group, 1), torch.float64)
        for start in range(0, committed, group):
            k, v = case.context[slot][start : start + group].double().unbind(1)
            context.write(0, start, k, v)
    state = StepState(RopeTables(plan.ropes, torch.float64), torch.float64, latent, context, plan.mesh, case.rank)
    hidden = None if group == 1 else ~case.visible(slot).unsqueeze(1)
    state.begin(
        inputs,
        case.positions[slot].to(case.device),
        committed=committed,
        hidden=hidden,
        out_index=torch.arange(group),
        placement=Placement(committed, group),
    )
    return state


def _pool_ids(case: Case, ids: Tensor, part: Call) -> Tensor:
    """Ids of experts or tokens as places in the pool; beyond it for those of other ranks."""
    local = ids - first_of(case, part)
    places = torch.full((int(case.pool.max()) + 1,), len(case.pool))
    places[case.pool] = torch.arange(len(case.pool))
    held = (local >= 0) & (local < len(places))
    return torch.where(held, places[local.clamp(0, len(places) - 1)], len(case.pool)).to(ids.dtype)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _parts(case: Case) -> tuple[list[Value], list[Call]]:
    """Values and calls of the reference, inputs of the call given by the state and caches of one layer."""
    values = [
        msgspec.structs.replace(value, home="input") if value.id in case.inputs else value
        for value in case.kernel.reference.values
    ]
    calls: list[Call] = []
    for part in case.kernel.reference.calls:
        params = dict(part.params)
        if "layer" in params:
            params["layer"] = 0
        if part.kernel in POOLED:
            params["first_per"] = 0
        calls.append(msgspec.structs.replace(part, params=params))
    return values, calls


def _run(case: Case, weights: Mapping[str, Tensor]) -> None:
    """Runs the parts of every slot and keeps what they give."""
    outs: dict[str, list[Tensor]] = {name: [] for name in case.call.outs}
    appended = appends(case.kernel)
    for slot, committed in enumerate(case.committed):
        env, state = _parts_of(case, slot, weights)
        for name, found in outs.items():
            found.append(env[name].cpu())
        if appended and state.latent is not None:
            case.written.append(state.latent.store[0, committed : committed + case.group].cpu())
        elif appended and state.context is not None:
            at = committed - state.context.base[0]
            rows = state.context.layers[0][:, :, at : at + case.group]
            case.written.append(rows.permute(2, 0, 1, 3).cpu())
    case.expected = {name: torch.stack(found) for name, found in outs.items()}


def _make_clear(case: Case, weights: Mapping[str, Tensor], draw: torch.Generator) -> None:
    """Draws rows anew until no choice of a router hangs on rounding. Raises ValueError where that takes too long."""
    routers = [part for part in case.kernel.reference.calls if part.kernel == "router"]
    if not routers:
        return
    (router,) = routers
    for _ in range(MOST_DRAWS):
        margins: list[Tensor] = []
        for slot in range(case.slots):
            env, _ = _parts_of(case, slot, weights)
            margins.append(clearance(router, env[router.ins[0]], [weights[name] for name in router.weights]).cpu())
        unclear = torch.stack(margins) < SIGMAS
        if not unclear.any():
            return
        for name, tensor in case.inputs.items():
            fresh = _numbers(case, roots(case.kernel, case.call.ins)[name], draw)
            tensor[unclear] = fresh[unclear]
    raise ValueError(f"{case.kernel.name}: no clear choice of experts in {MOST_DRAWS} draws")
