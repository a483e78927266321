"""Runs programs on the CPU kernels with random weights, on any number of virtual ranks, without the memory pass.

Weights are cut here, from whole random tensors, by the words of `ddtreec.artifacts.plan.Weight` alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ddtreec.artifacts.plan import Mesh, Shard, Weight, WeightPart
from ddtreec.passes.lower import lower
from ddtreec.passes.programs import Programs, all_weights, caches
from ddtreec_runtime.backends.cpu.interpreter import run_calls
from ddtreec_runtime.kv import ContextCache, LatentCache
from ddtreec_runtime.state import RopeTables, StepState, causal

SLOTS, PAGE = 16, 4


@dataclass
class Checkpoint:
    """Random float64 tensors by name, made when first asked for; the same name always gives the same numbers."""

    seed: int = 0
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def tensor(self, name: str, dims: tuple[int, ...]) -> Tensor:
        if name not in self.tensors:
            digest = hashlib.sha256(f"{self.seed}{name}".encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
            values = torch.randn(math.prod(dims), generator=generator, dtype=torch.float64)
            scale = 1.0 if len(dims) == 1 else dims[-1] ** -0.5
            self.tensors[name] = values * scale
        return self.tensors[name].view(dims)

    def part(self, part: WeightPart, mesh: Mesh, rank: int, expert: int | None) -> Tensor:
        name = part.tensor if expert is None else part.tensor.replace("{expert}", str(expert))
        tensor = self.tensor(name, part.dims)
        for axis, (start, stop) in enumerate(part.take):
            tensor = tensor.narrow(axis, start, stop - start)
        return run(tensor, part.shard, mesh, rank).reshape(-1)

    def weight(self, weight: Weight, mesh: Mesh, rank: int) -> Tensor:
        experts = [None] if not weight.experts else run(torch.arange(weight.experts), weight.expert_shard, mesh, rank)
        numbers = [None if e is None else int(e) for e in experts]
        flat = [self.part(p, mesh, rank, e) for e in numbers for p in weight.parts]
        return torch.cat(flat).view(weight.shape)


def run(tensor: Tensor, shard: Shard | None, mesh: Mesh, rank: int) -> Tensor:
    """The run of a tensor that a rank holds."""
    if shard is None:
        return tensor
    return tensor.chunk(shard.count, shard.axis)[mesh.coord(shard.coord, rank)]


@dataclass(frozen=True)
class Inputs:
    """A prompt, then a tree of tokens behind it (`parents[i]` < i, -1 for the root), then a draft block."""

    prompt: Tensor
    tree: Tensor
    parents: tuple[int, ...]
    block: Tensor

    def hidden(self) -> Tensor:
        """[n, 1, n], True where a node must not see another."""
        size = len(self.parents)
        seen = torch.eye(size, dtype=torch.bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                seen[node] |= seen[parent]
        return ~seen.unsqueeze(1)

    def depths(self) -> Tensor:
        depths: list[int] = []
        for parent in self.parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        return torch.tensor(depths)


def results(programs: Programs, mesh: Mesh, checkpoint: Checkpoint, inputs: Inputs) -> dict[str, Tensor]:
    """Logits of the prompt and of the tree, features, and the drafter's logits behind the prompt. Every rank must give
    the same."""
    ranks = range(mesh.ranks)
    states = _states(programs, mesh)
    weights = [{w.id: checkpoint.weight(w, mesh, r) for w in all_weights(programs)} for r in ranks]
    found: dict[str, Tensor] = {}

    def step(
        name: str, given: Mapping[str, Tensor], positions: Tensor, committed: int, hidden: Tensor | None
    ) -> dict[str, Tensor]:
        for state in states:
            state.begin(given, positions, committed=committed, hidden=hidden)
        envs = run_calls(*lower(programs.graphs[name], "cpu"), weights, states)
        for value in ("logits", "features"):
            for env in envs[1:]:
                if value in env:
                    assert torch.equal(env[value], envs[0][value]), f"ranks disagree on {name} {value}"
        return envs[0]

    length = len(inputs.prompt)
    prompt = step("target", {"tokens": inputs.prompt}, torch.arange(length), 0, causal(length))
    found["prompt"] = prompt["logits"]
    tree = step("target", {"tokens": inputs.tree}, length + inputs.depths(), length, inputs.hidden())
    found["tree"] = tree["logits"]
    if "draft_block" in programs.graphs:
        found["features"] = prompt["features"]
        step("draft_context", {"features": prompt["features"]}, torch.arange(length), 0, None)
        positions = length + torch.arange(len(inputs.block))
        found["draft"] = step("draft_block", {"tokens": inputs.block}, positions, length, None)["logits"]
    assert all(bool(torch.isfinite(t).all()) for t in found.values())
    return found


def _states(programs: Programs, mesh: Mesh) -> list[StepState]:
    kept = caches(programs)
    latents, contexts = [c for c in kept if c.kind == "latent"], [c for c in kept if c.kind == "context"]
    states = []
    for rank in range(mesh.ranks):
        latent = LatentCache(len(latents), SLOTS // PAGE, PAGE, latents[0].width, torch.float64)
        context = None
        if contexts:
            context = ContextCache(
                [c.window for c in contexts], contexts[0].heads, contexts[0].head_dim, SLOTS, SLOTS, torch.float64
            )
        states.append(StepState(RopeTables(programs.ropes, torch.float64), torch.float64, latent, context, mesh, rank))
    return states


def assert_same(given: Mapping[str, Tensor], wanted: Mapping[str, Tensor], what: str, tolerance: float = 1e-10) -> None:
    """All results agree to rounding."""
    assert set(given) == set(wanted)
    for name, tensor in wanted.items():
        gap = float((given[name] - tensor).abs().max()) / max(1.0, float(tensor.abs().max()))
        assert gap < tolerance, f"{what}: {name} differs by {gap:.2e}"
