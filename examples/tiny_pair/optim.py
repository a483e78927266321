"""Muon for matrices and AdamW for the rest, over float32 masters; the module keeps the weights it computes with.

After each step the masters are written back into the module, rounded to its dtype and, where a rounding function is
given (INT4 fake quantisation), through that. Gradients taken at the rounded weights are applied to the masters: the
straight-through estimator without any extra node in the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Rounding = Callable[[Tensor], Tensor]
ADAM_NAMES = ("embed_tokens", "lm_head", "router")


@dataclass
class Rates:
    """Learning rates at the top of the schedule, and Muon's decoupled weight decay."""

    muon: float = 0.02
    adam: float = 0.003
    decay: float = 0.05


def orthogonalise(update: Tensor) -> Tensor:
    """Approximate polar factor of each matrix of update [N, R, C], by five quintic Newton-Schulz steps in bfloat16."""
    x = update.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.float().norm(dim=(-2, -1), keepdim=True) + 1e-7).bfloat16()
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x.mT if tall else x


class Optimizer:
    """Owns the masters and moments of a module's trainable parameters."""

    def __init__(self, module: nn.Module, rates: Rates) -> None:
        self.rates, self.steps = rates, 0
        self.groups: dict[tuple[int, int], list[tuple[str, nn.Parameter]]] = {}
        self.rest: list[tuple[str, nn.Parameter]] = []
        for name, p in module.named_parameters():
            if p.ndim < 2 or any(part in name for part in ADAM_NAMES):
                self.rest.append((name, p))
            else:
                self.groups.setdefault((p.shape[-2], p.shape[-1]), []).append((name, p))
        self.state: dict[str, Tensor] = {}
        for shape, members in self.groups.items():
            master = torch.cat([p.detach().float().view(-1, *shape) for _, p in members])
            self.state[f"muon.{shape[0]}x{shape[1]}.master"] = master
            self.state[f"muon.{shape[0]}x{shape[1]}.momentum"] = torch.zeros_like(master)
        flat = torch.cat([p.detach().float().flatten() for _, p in self.rest])
        self.state |= {"adam.master": flat, "adam.first": torch.zeros_like(flat), "adam.second": torch.zeros_like(flat)}

    @torch.no_grad()
    def step(self, scale: float, rounding: Rounding | None = None) -> None:
        """One update at `scale` times the top rates; clears the gradients; writes the module's weights back."""
        self.steps += 1
        momentum = min(0.95, 0.85 + 0.1 * self.steps / 300)
        for (rows, cols), members in self.groups.items():
            grad = torch.cat([p.grad.view(-1, rows, cols) for _, p in members]).float()  # type: ignore[union-attr]
            master, buffer = (self.state[f"muon.{rows}x{cols}.{part}"] for part in ("master", "momentum"))
            buffer.lerp_(grad, 1 - momentum)
            update = orthogonalise(grad.lerp_(buffer, momentum)).float()
            rate = scale * self.rates.muon
            master.mul_(1 - rate * self.rates.decay).sub_(update, alpha=rate * max(1.0, rows / cols) ** 0.5)
        flat, first, second = (self.state[f"adam.{part}"] for part in ("master", "first", "second"))
        grad = torch.cat([p.grad.flatten() for _, p in self.rest]).float()  # type: ignore[union-attr]
        first.lerp_(grad, 0.1)
        second.lerp_(grad.square(), 0.05)
        top = first / (1 - 0.9**self.steps)
        flat.sub_(top / ((second / (1 - 0.95**self.steps)).sqrt() + 1e-10), alpha=scale * self.rates.adam)
        for _, p in [*self.rest, *(m for members in self.groups.values() for m in members)]:
            p.grad = None
        self.write_back(rounding)

    @torch.no_grad()
    def write_back(self, rounding: Rounding | None = None) -> None:
        """Copies the masters into the module; `rounding` applies to routed experts only."""
        targets, sources = [], []
        for (rows, cols), members in self.groups.items():
            master = self.state[f"muon.{rows}x{cols}.master"]
            parts = master.split([p.numel() // (rows * cols) for _, p in members])
            for (name, p), part in zip(members, parts, strict=True):
                targets.append(p.data)
                sources.append((rounding(part) if rounding and "experts_" in name else part).view(p.shape))
        parts = self.state["adam.master"].split([p.numel() for _, p in self.rest])
        targets += [p.data for _, p in self.rest]
        sources += [part.view(p.shape) for (_, p), part in zip(self.rest, parts, strict=True)]
        torch._foreach_copy_(targets, sources)

    def state_dict(self) -> dict[str, Tensor]:
        """Masters in float32, moments in bfloat16, and the step count."""
        out = {key: t if key.endswith("master") else t.bfloat16() for key, t in self.state.items()}
        return {**out, "steps": torch.tensor([self.steps])}

    def load_state_dict(self, saved: dict[str, Tensor]) -> None:
        """Inverse of `state_dict`; the module's weights are written back."""
        self.steps = int(saved["steps"])
        for key, t in self.state.items():
            t.copy_(saved[key])
        self.write_back()


def rate_scale(progress: float, step: int, decay_from: float = 0.4, warmup: int = 150) -> float:
    """Learning rate factor: linear warm-up by steps, constant, then linear to zero from `decay_from` of the way."""
    down = min(1.0, (1.0 - progress) / (1.0 - decay_from))
    return max(0.0, min(1.0, (step + 1) / warmup, down))
