"""Train the target for a number of minutes, and export it with INT4 experts.

    python train_target.py --tokens train.npy --heldout heldout.npy --tokenizer tokenizer.json --out DIR --minutes 8.5

A phase covers part of the schedule: `--progress 0 1` is all of it; `--progress 0 0.5` and then `--progress 0.5 1` with
the same `--state DIR` do the same work in two phases, the second going on from the first's checkpoint.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from checkpoint import load_state, save_state
from export import export_target
from model import Moe, Target, TargetConfig, run_layer
from optim import Optimizer, Rates, rate_scale
from quant import fake_quantise

QUANTISE_FROM = 0.7
BIAS_RATE = 1e-3


def load_tokens(path: Path, device: str) -> Tensor:
    """The token array on the device, int16 (ids stay below 4096)."""
    return torch.from_numpy(np.load(path).astype(np.int16)).to(device)


class Windows:
    """Windows of a token stream in random order: every epoch shifts the grid and draws a new permutation."""

    def __init__(self, tokens: Tensor, length: int, batch: int, seed: int) -> None:
        self.tokens, self.length, self.batch = tokens, length, batch
        self.gen = torch.Generator().manual_seed(seed)
        self.starts = torch.empty(0, dtype=torch.int64)
        self.epochs = 0.0

    def next(self) -> Tensor:
        """int64 [batch, length]."""
        if len(self.starts) < self.batch:
            shift = int(torch.randint(self.length, (1,), generator=self.gen))
            count = (len(self.tokens) - shift) // self.length
            order = torch.randperm(count, generator=self.gen)
            self.starts = (order * self.length + shift).to(self.tokens.device)
        now, self.starts = self.starts[: self.batch], self.starts[self.batch :]
        self.epochs += self.batch * self.length / len(self.tokens)
        return self.tokens[now[:, None] + torch.arange(self.length, device=now.device)].long()


def head_loss(states: Tensor, head: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy of labels [N] at states [N, H]."""
    return F.cross_entropy(F.linear(states, head).float(), labels)


class Step:
    """The training loss, with the layer and the head compiled each on its own (a fraction of the compile time)."""

    def __init__(self, model: Target, compiled: bool) -> None:
        self.model = model
        self.run = torch.compile(run_layer, dynamic=False) if compiled else run_layer
        self.head = torch.compile(head_loss, dynamic=False) if compiled else head_loss

    def __call__(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Mean loss of the next tokens in ids [B, T + 1], and the expert loads [MoE layers, E]."""
        trace = self.model(ids[:, :-1], run=self.run)
        loss = self.head(trace.last.flatten(0, 1), self.model.lm_head.weight, ids[:, 1:].flatten())
        return loss, torch.stack(trace.loads)


@torch.no_grad()
def heldout_loss(model: Target, tokens: Tensor, length: int, limit: int = 512) -> float:
    """Mean loss in nats a token over up to `limit` windows of the held-out stream."""
    count = min(limit, (len(tokens) - 1) // length)
    total = 0.0
    for start in range(0, count, 32):
        rows = torch.arange(start, min(start + 32, count), device=tokens.device)[:, None] * length
        ids = tokens[rows + torch.arange(length + 1, device=tokens.device)].long()
        total += float(Step(model, compiled=False)(ids)[0]) * len(ids)
    return total / count


def main() -> None:
    """Command line entry."""
    began = time.time()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=Path, required=True)
    parser.add_argument("--heldout", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--state", type=Path, help="checkpoint directory: read if present, written at the end")
    parser.add_argument("--minutes", type=float, default=8.5, help="wall clock of the phase, compiling included")
    parser.add_argument("--progress", type=float, nargs=2, default=(0.0, 1.0), metavar=("FROM", "TO"))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--muon", type=float, default=Rates.muon)
    parser.add_argument("--adam", type=float, default=Rates.adam)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()

    cuda = args.device.startswith("cuda")
    cfg = TargetConfig()
    model = Target(cfg)
    model.init_weights(args.seed)
    model.to(args.device)
    optim = Optimizer(model, Rates(args.muon, args.adam))
    model.cast(torch.bfloat16)
    biases = [m.bias for m in model.modules() if isinstance(m, Moe)]
    seen = 0
    saved = load_state(args.state, args.device) if args.state else None
    if saved is not None:
        optim.load_state_dict(saved[0])
        for index, bias in enumerate(biases):
            bias.copy_(saved[0][f"router_bias.{index}"])
        seen = int(saved[1]["tokens"])
    step_loss = Step(model, not args.no_compile)
    step_loss(torch.randint(0, 4000, (args.batch, args.length + 1), device=args.device))[0].backward()  # compiles
    model.zero_grad(set_to_none=True)
    while not (args.tokens.exists() and args.heldout.exists()):  # the tokenizer may still be at work beside us
        time.sleep(0.2)
    windows = Windows(load_tokens(args.tokens, args.device), args.length + 1, args.batch, args.seed + optim.steps)
    heldout = load_tokens(args.heldout, args.device)

    log: list[dict[str, float]] = []
    first, last = args.progress
    clock, progress, done = 0.0, first, 0
    loss = torch.zeros(())
    deadline = began + args.minutes * 60 - (12 if cuda else 0)
    while progress < last:
        loss, loads = step_loss(windows.next())
        loss.backward()
        quantised = progress >= QUANTISE_FROM
        scale = rate_scale(progress, optim.steps)
        optim.step(scale, fake_quantise if quantised else None)
        for bias, load in zip(biases, loads, strict=True):
            bias.add_(torch.sign(load.float().mean() - load), alpha=BIAS_RATE * min(1.0, scale))
        seen += args.batch * args.length
        done += 1
        if done % 10 == 3:  # the clock starts after the compiled steps
            if cuda:
                torch.cuda.synchronize()
            now = time.time()
            if not clock:
                clock, seen_at_clock = now, seen
                print(f"compiled after {now - began:.0f} s", flush=True)
            progress = first + (last - first) * min(1.0, (now - clock) / max(1e-3, deadline - clock))
            if done % 250 == 3 or progress >= last:
                rate = (seen - seen_at_clock) / max(1e-3, now - clock)
                row = {"step": optim.steps, "progress": round(progress, 4), "loss": round(float(loss.detach()), 4),
                       "mtok": round(seen / 1e6, 1), "mtok_s": round(rate / 1e6, 3), "epochs": round(windows.epochs, 2),
                       "scale": round(scale, 3), "max_load": round(float((loads / loads.float().mean()).max()), 2),
                       "s": round(now - began, 1)}  # fmt: skip
                log.append(row)
                print(row, flush=True)

    facts = {"tokens": float(seen), "steps": float(optim.steps), "progress": last}
    optim.write_back()
    plain = heldout_loss(model, heldout, args.length)
    optim.write_back(fake_quantise)
    packed = heldout_loss(model, heldout, args.length)
    print(f"held-out loss: {plain:.4f} bfloat16, {packed:.4f} INT4 experts")
    masters = Target(cfg).to(args.device)
    masters.load_state_dict(model.state_dict())
    optim_view = Optimizer(masters, optim.rates)
    optim_view.state = optim.state
    optim_view.write_back()
    export_target(masters, args.out, args.tokenizer)
    summary = {"config": cfg.as_dict(), "heldout_bf16": plain, "heldout_int4": packed, **facts, "log": log,
               "batch": args.batch, "length": args.length, "rates": vars(optim.rates), "seed": args.seed,
               "seconds": round(time.time() - began, 1)}  # fmt: skip
    (args.out / "train_log.json").write_text(json.dumps(summary, indent=1))
    if args.state:
        tensors = optim.state_dict() | {f"router_bias.{i}": b for i, b in enumerate(biases)}
        save_state(args.state, tensors, facts)
    print(f"done after {time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
