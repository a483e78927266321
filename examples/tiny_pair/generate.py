"""Batched continuation by the target with a latent cache: regenerated text for the drafter, and evaluation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from model import Target, run_step


def advance(states: Tensor, head: Tensor, noise: Tensor, temperature: Tensor) -> Tensor:
    """Next ids [B] by the Gumbel-max rule from uniform `noise` [B, V]; a temperature [B] of zero leaves the argmax."""
    logits = F.linear(states, head).float()
    gumbel = -torch.log(-torch.log(noise.clamp(1e-12, 1 - 1e-7)))
    return (logits + temperature.unsqueeze(-1) * gumbel).argmax(-1)


class Generator:
    """Continues batches of prompts of one size; greedy and sampled rows may share a batch."""

    def __init__(self, model: Target, compiled: bool = False) -> None:
        self.model = model
        self.run_step = torch.compile(run_step, dynamic=False) if compiled else run_step
        self.advance = torch.compile(advance, dynamic=False) if compiled else advance

    @torch.no_grad()
    def prefill(self, prompts: Tensor, total: int, chunk: int = 1024) -> tuple[list[Tensor], Tensor]:
        """Caches of `total` places, one a layer, holding the prompts [B, P], and the last states [B, H]."""
        cfg, batch, dtype = self.model.cfg, len(prompts), self.model.norm.weight.dtype
        shape = (batch, total, cfg.kv_lora_rank + cfg.qk_rope_head_dim)
        caches = [torch.zeros(shape, dtype=dtype, device=prompts.device) for _ in range(cfg.num_hidden_layers)]
        ends = []
        for start in range(0, batch, chunk):
            trace = self.model(prompts[start : start + chunk], keep_latents=True)
            for cache, latent in zip(caches, trace.latents, strict=True):
                cache[start : start + chunk, : prompts.shape[1]] = latent
            ends.append(trace.last[:, -1])
        return caches, torch.cat(ends)

    @torch.no_grad()
    def run(
        self, prompts: Tensor, count: int, temperature: Tensor, gen: torch.Generator, gaps: list[Tensor] | None = None
    ) -> Tensor:
        """prompts [B, P] int64 -> continuation [B, count] int64.

        `temperature` [B] float32. Draws come from `gen`, one uniform for each row, step and vocabulary entry. The
        distance of the two largest logits at each step, [B], is appended to `gaps`.
        """
        length, head = prompts.shape[1], self.model.lm_head.weight
        caches, states = self.prefill(prompts, length + count)
        places = torch.arange(length + count, device=prompts.device)
        tokens = []
        for index in range(count):
            noise = torch.rand(len(states), len(head), generator=gen, device=states.device)
            tokens.append(self.advance(states, head, noise, temperature))
            if gaps is not None:
                top = self.model.logits(states).topk(2, -1).values
                gaps.append(top[:, 0] - top[:, 1])
            if index + 1 < count:
                place = places[length + index : length + index + 1]
                states = self.model.step(tokens[-1], caches, place, self.run_step)
        return torch.stack(tokens, 1)


def loops(ids: Tensor, longest: int = 32, run: int = 32) -> Tensor:
    """bool [B, T]: whether the text up to a token repeats itself.

    A token is in a loop of period p when the last max(p, `run`) tokens up to it all equal those p before.
    """
    out = torch.zeros_like(ids, dtype=torch.bool)
    place = torch.arange(ids.shape[1], device=ids.device)
    for period in range(1, min(longest, ids.shape[1] - 1) + 1):
        same = torch.zeros_like(out)
        same[:, period:] = ids[:, period:] == ids[:, :-period]
        broken = torch.where(same, -1, place).cummax(1).values  # the last place where the period breaks
        out |= place - broken >= max(period, run)
    return out
