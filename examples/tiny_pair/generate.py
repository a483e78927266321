"""Batched continuation by the target with a latent cache: regenerated text for the drafter, and evaluation."""

from __future__ import annotations

import torch
from torch import Tensor

from model import Target


def advance(logits: Tensor, noise: Tensor, temperature: Tensor) -> Tensor:
    """Next ids [B] by the Gumbel-max rule from uniform `noise` [B, V]; a temperature [B] of zero leaves the argmax."""
    gumbel = -torch.log(-torch.log(noise.clamp(1e-12, 1 - 1e-7)))
    return (logits + temperature.unsqueeze(-1) * gumbel).argmax(-1)


class Generator:
    """Continues batches of prompts of one size; greedy and sampled rows may share a batch."""

    def __init__(self, model: Target, compiled: bool = False) -> None:
        self.model = model
        self.step = torch.compile(model.step, dynamic=False) if compiled else model.step
        self.advance = torch.compile(advance, dynamic=False) if compiled else advance

    @torch.no_grad()
    def prefill(self, prompts: Tensor, total: int, chunk: int = 1024) -> tuple[list[Tensor], Tensor]:
        """Caches of `total` places, one a layer, holding the prompts [B, P], and the logits behind them [B, V]."""
        cfg, batch, dtype = self.model.cfg, len(prompts), self.model.norm.weight.dtype
        shape = (batch, total, cfg.kv_lora_rank + cfg.qk_rope_head_dim)
        caches = [torch.zeros(shape, dtype=dtype, device=prompts.device) for _ in range(cfg.num_hidden_layers)]
        heads = []
        for start in range(0, batch, chunk):
            trace = self.model(prompts[start : start + chunk], keep_latents=True)
            for cache, latent in zip(caches, trace.latents, strict=True):
                cache[start : start + chunk, : prompts.shape[1]] = latent
            heads.append(self.model.logits(trace.last[:, -1]))
        return caches, torch.cat(heads)

    @torch.no_grad()
    def run(
        self, prompts: Tensor, count: int, temperature: Tensor, gen: torch.Generator, gaps: list[Tensor] | None = None
    ) -> Tensor:
        """prompts [B, P] int64 -> continuation [B, count] int64.

        `temperature` [B] float32. Draws come from `gen`, one uniform for each row, step and vocabulary entry. The
        distance of the two largest logits at each step, [B], is appended to `gaps`.
        """
        length = prompts.shape[1]
        caches, logits = self.prefill(prompts, length + count)
        places = torch.arange(length + count, device=prompts.device)
        tokens = []
        for index in range(count):
            noise = torch.rand(logits.shape, generator=gen, device=logits.device)
            tokens.append(self.advance(logits, noise, temperature))
            if gaps is not None:
                top = logits.topk(2, -1).values
                gaps.append(top[:, 0] - top[:, 1])
            if index + 1 < count:
                logits = self.step(tokens[-1], caches, places[length + index : length + index + 1])
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
