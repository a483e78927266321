"""The step programs of one rank, value by value, against the basic ops they stand for in float32.

Collectives are left out: what an all-reduce gives is what this rank put in, what an all-gather gives is random and the
same on both sides. Every kernel is judged twice: *alone*, its parts run on what the kernel was given, and *in a row*,
its parts run on what the parts of earlier kernels gave. The parts are `Kernel.reference`, run by the CPU backend's
interpreter and kernels on tensors of the device that holds the weights.

What a network makes of rounding on the way is no fault of a kernel. So the parts run in a row a second time, *rounded*:
in float32 too, but what the engine stores in bfloat16 between two kernels is rounded to it, which no engine of that
dtype can avoid. How far that is from the row in float32 is the measure of how far the kernels may be.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import msgspec
import torch
from torch import Tensor

from ddtreec.artifacts.kernels import Kernel
from ddtreec.artifacts.plan import Call, Program, Value
from ddtreec_runtime.backends.cpu.interpreter import run_calls
from ddtreec_runtime.backends.cpu.kernels import KERNELS
from ddtreec_runtime.backends.cuda.alone import alone
from ddtreec_runtime.backends.cuda.check_bench import mask_words
from ddtreec_runtime.backends.cuda.check_cache import rings
from ddtreec_runtime.backends.cuda.check_case import depths, tree
from ddtreec_runtime.backends.cuda.driver import Driver
from ddtreec_runtime.backends.cuda.machine import Loaded, Machine
from ddtreec_runtime.backends.cuda.steps import Shape
from ddtreec_runtime.backends.cuda.weights import layouts_of
from ddtreec_runtime.bundle import Bundle
from ddtreec_runtime.kv import ContextCache, LatentCache
from ddtreec_runtime.state import RopeTables, StepState
from tests.gpu.wide_router import Choice, Follower
from tests.gpu.wide_weights import random_weights

CACHE = "cache"
CHAINS = ("in_a_row", "rounded")
"""Rows of parts, each with values and caches of its own."""

OF_A_CALL = ("layer", "index", "first_per", "coord")
"""Parameters that tell the calls of one kernel from each other."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One result of one kernel in one step. Relative errors ||got - want|| / ||want||: of the whole result and of its
    worst row, `alone` and `in_a_row`; `rounded` is what the rounded parts differ by from those of `in_a_row`."""

    program: str
    rows: int
    committed: int
    node: str
    kernel: str
    result: str
    alone: float
    alone_row: float
    in_a_row: float
    in_a_row_row: float
    rounded: float
    rounded_row: float


@dataclass
class Found:
    """All of a rank."""

    results: list[Judged] = field(default_factory=list[Judged])
    choices: list[Choice] = field(default_factory=list[Choice])


class WideRank:
    """One rank of a bundle with random weights, and its reference."""

    def __init__(self, bundle: Bundle, loaded: Loaded, driver: Driver, device: str, rank: int, seed: int = 0):
        plan = bundle.plan
        apart = [alone(program) for program in plan.programs]
        lonely = msgspec.structs.replace(plan, programs=tuple(one.program for one in apart))
        laid, self.exact = random_weights(plan.weights, layouts_of(plan, loaded.table), device, seed)
        nothing = dict.fromkeys(("all_reduce", "all_gather"), _nothing)
        own = dataclasses.replace(bundle, plan=lonely)
        self.machine = Machine(own, loaded, driver, laid, device, plan.drafter is not None, rank, nothing)
        self.plan, self.device, self.rank = lonely, device, rank
        self.draw = torch.Generator(device).manual_seed(seed + 1)
        self.dice = torch.Generator().manual_seed(seed + 2)
        self.gathered = {one.program.name: one.gathered for one in apart}
        for name, values in self.gathered.items():
            for value in values:
                self.machine.kept[name][value].normal_(generator=self.draw)
        self._kernels = {kernel.name: kernel for kernel in loaded.table.kernels}

    def step(self, name: str, rows: int, committed: int, found: Found) -> None:
        """One step of a program behind `committed` tokens of a random cache: a random tree for the target, the rows of
        a block for the drafter."""
        chain = name != "target" or committed == 0
        parents = tree(rows, self.dice, chain=chain)
        with self.machine.driver.ordered(), torch.device(self.device), torch.inference_mode():
            _Step(self, name, parents, committed).run(found)

    def kernel(self, program: str, number: int) -> Kernel:
        """The one that serves call `number` of a program."""
        return self._kernels[self.machine.table.programs[program][number]]


class _Step:
    def __init__(self, rank: WideRank, name: str, parents: list[int], committed: int):
        rows = len(parents)
        self.rank, self.rows, self.committed = rank, rows, committed
        self.machine, self.plan = rank.machine, rank.plan
        self.device_program = self.machine.programs[name]
        self.program: Program = self.device_program.program
        self.values = {value.id: value for value in self.program.values}
        self.visible = torch.eye(rows, dtype=torch.bool, device="cpu")
        for row, parent in enumerate(parents):
            if parent >= 0:
                self.visible[row] |= self.visible[parent]
        self.positions = torch.tensor([committed + depth for depth in depths(parents)], device="cpu")
        out = range(1, rows) if name == "draft_block" else range(min(rows, self.program.max_out_rows))
        self.out_index = torch.tensor(list(out), device="cpu")
        self.shape = Shape(1, rows, 0 if name == "draft_context" else len(self.out_index))
        self._begin()
        self.states = {kind: self._state() for kind in ("alone", *CHAINS)}
        self.envs: dict[str, dict[str, Tensor]] = {}
        for chain in CHAINS:
            (env,) = run_calls(self.program.values, [], [{}], [self.states[chain]])
            for value in rank.gathered[name]:
                env[value].copy_(self.machine.kept[name][value][: len(env[value])])
            self.envs[chain] = env

    # ---- before ----

    def _begin(self) -> None:
        arrays, draw = self.machine.arrays, self.rank.draw
        arrays.put("positions", self.positions)
        arrays.put("committed", torch.tensor([self.committed]))
        arrays.put("valid", torch.tensor([self.rows]))
        arrays.put("masks", mask_words(self.visible))
        arrays.put("out_index", self.out_index)
        if "latent" in arrays:
            pages = arrays["pages"]
            pages[0] = torch.randperm(pages.shape[1], generator=draw).to(torch.int32)
        for name in ("latent", "context"):
            if name in arrays:
                arrays[name].normal_(generator=draw)
        for name, buffer in self.device_program.homes.inputs.items():
            if name == "tokens":
                first, held = self._vocabulary()
                buffer[: self.rows] = torch.randint(first, first + held, (self.rows,), generator=draw).int()
            else:
                buffer.normal_(generator=draw)

    def _vocabulary(self) -> tuple[int, int]:
        """First token and number of tokens that this rank embeds; others would be rows of zeros."""
        call = next(call for call in self.program.calls if call.kernel == "embedding")
        per = int(call.params.get("first_per") or 0)
        first = per * self.plan.mesh.coord(str(call.params.get("coord") or "rank"), self.rank.rank)
        return first, int(self.rank.exact[call.weights[0]].shape[0])

    def _state(self) -> StepState:
        """A state of the reference with caches of its own, filled with what the device's hold."""
        plan, total = self.plan, self.committed + self.rows
        latents = [cache for cache in plan.caches if cache.kind == "latent"]
        contexts = [cache for cache in plan.caches if cache.kind == "context"]
        page = plan.limits.page
        latent = LatentCache(len(latents), -(-total // page), page, latents[0].width, torch.float32)
        context = None
        if contexts:
            # Without windows nothing leaves the reference's cache; what a query may see, the kernel's window says.
            every = [0] * len(contexts)
            context = ContextCache(every, contexts[0].heads, contexts[0].head_dim, total, 0, torch.float32)
        ropes = RopeTables(plan.ropes, torch.float32)
        state = StepState(ropes, torch.float32, latent, context, plan.mesh, self.rank.rank)
        hidden = None if self.rows == 1 else ~self.visible.unsqueeze(1).to(self.rank.device)
        out = self.out_index.to(self.rank.device)
        inputs = {n: self._numbers(b[: self.rows]) for n, b in self.device_program.homes.inputs.items()}
        positions = self.positions.to(self.rank.device)
        state.begin(inputs, positions, committed=self.committed, hidden=hidden, out_index=out)
        for layer in range(len(latents)):
            latent.store[layer, : self.committed] = self._latent(layer, 0, self.committed)
        for layer in range(len(contexts)):
            begin, rows = self._context(layer, 0, self.committed)
            state.context.layers[layer][:, :, begin : self.committed] = rows
        return state

    # ---- the caches of the device ----

    def _latent(self, layer: int, begin: int, end: int) -> Tensor:
        """float32 [end - begin, width] of tokens."""
        token, page = torch.arange(begin, end), self.plan.limits.page
        line = self.machine.arrays["pages"][0][token // page].long() * page + token % page
        return self.machine.arrays["latent"][layer][line].float()

    def _context(self, layer: int, begin: int, end: int) -> tuple[int, Tensor]:
        """Of tokens begin .. end those that the ring of a drafter layer holds: the first, and float32 [2, heads, n,
        head_dim]."""
        each = rings(self.plan)
        cache = next(cache for cache in self.plan.caches if cache.kind == "context")
        width, ring = 2 * cache.heads * cache.head_dim, each[layer][1]
        start = self.plan.limits.sequences * width * sum(size for _, size in each[:layer])
        lines = self.machine.arrays["context"][start : start + ring * width].view(ring, 2, cache.heads, cache.head_dim)
        begin = max(begin, end - ring)
        return begin, lines[torch.arange(begin, end) % ring].float().permute(1, 2, 0, 3)

    # ---- the step ----

    def run(self, found: Found) -> None:
        """Kernel by kernel."""
        values = self.device_program.values(self.shape)
        numbers = [n for n, call in enumerate(self.program.calls) if not call.collective]
        driver = self.machine.driver
        for number, launches in zip(numbers, self.device_program.by_call(self.shape), strict=True):
            call, kernel = self.program.calls[number], self.rank.kernel(self.program.name, number)
            given = {name: self._numbers(values[name]).clone() for name in call.ins}
            driver.run(launches)
            driver.wait()
            got = {name: self._numbers(values[name]).clone() for name in call.outs}
            meaning = Meaning.of(kernel, call, self.values)
            after: dict[str, dict[str, Tensor]] = {}
            inputs = {chain: {name: self.envs[chain][name] for name in call.ins} for chain in CHAINS}
            for kind, those in ({"alone": given} | inputs).items():
                after[kind] = self._run(kind, meaning, call, those, got, found)
            for name in call.outs:
                if values[name].dtype == torch.bfloat16:
                    _round(after["rounded"][name])
                for chain in CHAINS:
                    exact = after[chain][name]
                    written = ~exact.isnan() if exact.is_floating_point() else torch.ones_like(exact, dtype=torch.bool)
                    self.envs[chain][name][written] = exact[written]
            if meaning.appends:
                got[CACHE] = self._written(int(call.params["layer"] or 0))
            for name, result in got.items():
                if result.is_floating_point():
                    want = after["in_a_row"][name]
                    errors = (*relative(result, after["alone"][name]), *relative(result, want))
                    where = (self.program.name, self.rows, self.committed, call.node, kernel.name, name)
                    found.results.append(Judged(*where, *errors, *relative(after["rounded"][name], want)))

    def _run(
        self,
        kind: str,
        meaning: Meaning,
        call: Call,
        inputs: Mapping[str, Tensor],
        got: Mapping[str, Tensor],
        found: Found,
    ) -> dict[str, Tensor]:
        """What the parts of a call give, what they wrote to a cache under CACHE."""
        state, layer = self.states[kind], int(call.params.get("layer") or 0)
        if kind == "alone" and meaning.kinds & {"latent_attention", "mla_attention"}:
            state.latent.store[layer, : self.committed + self.rows] = self._latent(layer, 0, self.committed + self.rows)
        state.inputs = dict(inputs)
        follower = Follower(inputs, got, meaning.calls)
        kernels = SimpleNamespace(**{**vars(KERNELS), "router": follower})
        weights = {name: self.rank.exact[name] for name in call.weights}
        (env,) = run_calls(meaning.values, meaning.calls, [weights], [state], kernels)
        if kind != "rounded":
            where = (self.program.name, self.rows, self.committed, call.node, kind)
            found.choices += [Choice(*where, **each) for each in follower.seen]
        after = {name: env[name] for name in call.outs}
        if meaning.appends:
            rows = slice(self.committed, self.committed + self.rows)
            latent = "latent_append" in meaning.kinds
            after[CACHE] = state.latent.store[layer, rows] if latent else state.context.layers[layer][:, :, rows]
            if kind == "rounded":
                _round(after[CACHE])
            if not latent:
                after[CACHE] = after[CACHE].permute(2, 0, 1, 3).flatten(1)
        return after

    def _written(self, layer: int) -> Tensor:
        """What the device holds of this step's rows."""
        total = self.committed + self.rows
        if self.program.name == "target":
            return self._latent(layer, self.committed, total)
        return self._context(layer, self.committed, total)[1].permute(2, 0, 1, 3).flatten(1)

    @staticmethod
    def _numbers(tensor: Tensor) -> Tensor:
        return tensor.float() if tensor.is_floating_point() else tensor


@dataclass(frozen=True, slots=True)
class Meaning:
    """The parts of one call under its own names."""

    values: list[Value]
    calls: list[Call]

    @property
    def kinds(self) -> set[str]:
        """Kinds of its parts."""
        return {part.kernel for part in self.calls}

    @property
    def appends(self) -> bool:
        """Whether it writes to a cache."""
        return bool(self.kinds & {"latent_append", "context_append"})

    @classmethod
    def of(cls, kernel: Kernel, call: Call, values: Mapping[str, Value]) -> Meaning:
        """The reference of a kernel tells of the first call that it serves; `call` may be another."""
        border = (*call.outs, *call.ins, *call.weights)
        names = dict(zip(kernel.reference.tensors, border, strict=True))

        def spelt(name: str) -> str:
            return names.get(name, f"{call.node}/{name}")

        made: list[Value] = []
        for value in kernel.reference.values:
            renamed = msgspec.structs.replace(value, id=spelt(value.id), parent=spelt(value.parent))
            if renamed.id in call.ins:
                renamed = msgspec.structs.replace(renamed, home="input")
            elif renamed.id in call.outs:
                renamed = msgspec.structs.replace(renamed, home="arena")
            made.append(renamed)
        calls = [
            msgspec.structs.replace(
                part,
                outs=tuple(map(spelt, part.outs)),
                ins=tuple(map(spelt, part.ins)),
                weights=tuple(map(spelt, part.weights)),
                params={k: call.params.get(k, v) if k in OF_A_CALL else v for k, v in part.params.items()},
            )
            for part in kernel.reference.calls
        ]
        return cls(made, calls)


def relative(got: Tensor, want: Tensor) -> tuple[float, float]:
    """||got - want|| / ||want|| of all and of the worst row, of what `want` has numbers for; inf for NaN in `got`."""
    asked = ~want.isnan()
    off, size = torch.where(asked, got - want, 0.0).flatten(1), torch.where(asked, want, 0.0).flatten(1)
    rows = (off.norm(dim=1) / size.norm(dim=1).clamp_min(1e-30)).max()
    found = (float(off.norm() / size.norm().clamp_min(1e-30)), float(rows))
    return tuple(math.inf if math.isnan(one) else one for one in found)  # type: ignore[return-value]


def _round(numbers: Tensor) -> None:
    """To bfloat16 in place; `numbers` may be a view of a cache."""
    numbers.copy_(numbers.bfloat16())


def _nothing(outs: Sequence[Tensor], ins: Sequence[Tensor], **params: object) -> None:
    """A collective that is left out."""
