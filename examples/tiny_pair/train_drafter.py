"""Train the drafter on text that the exported target writes, then export it.

    python train_drafter.py --target DIR --tokens train.npy --out DIR --state DIR --minutes 9 --progress 0 0.6
    python train_drafter.py --target DIR --tokens train.npy --out DIR --state DIR --minutes 6 --progress 0.6 1
    python train_drafter.py --target DIR --tokens train.npy --out DIR --warm DIR --soft --heats 0 0.8 0.8 --minutes 5

First the target continues prompts from the corpus (greedy and sampled rows). Then sequences of `--length` tokens are
cut into blocks of eight: each block's first token is its anchor, so every position is one draft row, and a random shift
of the cut makes each epoch see other anchors. Features come from the same INT4-rounded target that is shipped. A share
of steps uses long windows of plain corpus text, so that the drafter works at long contexts too. The loss is cross
entropy with D-PACE weights: the weight of a row is the expected acceptance that hangs on it. With `--soft` the label of
a sampled row is the target's whole distribution at that row's temperature, instead of the one token that was drawn.
`--warm DIR` starts from the weights of an exported drafter, with fresh moments.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from checkpoint import load_state, save_state
from drafter import Attend, Drafter, DrafterConfig, dense_attend, flex_attend, run_draft_layer
from export import export_drafter, load_drafter, load_target
from generate import Generator, loops
from model import MASK, Target, run_layer
from optim import Optimizer, Rates, rate_scale
from torch import Tensor
from train_target import Windows, load_tokens

SPARE = 8
PROMPT_LENGTHS = (64, 128, 192)
HEATS = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.8, 0.8, 0.8, 1.0)
CORPUS_HEAT = 0.8
"""The temperature of soft labels on corpus text."""
LOOP_WEIGHT = 0.1
SMOOTH = 0.5


@dataclass(frozen=True)
class Written:
    """What the target wrote: texts [N, length + SPARE] int16, weights uint8 (tenths) likewise, temperatures [N]."""

    texts: Tensor
    weights: Tensor
    heats: Tensor


def regenerate(
    target: Target,
    tokens: Tensor,
    length: int,
    batch: int,
    until: float,
    seed: int,
    compiled: bool,
    heats: Sequence[float] = HEATS,
) -> Written:
    """Continuations of random places of `tokens` until the clock says `until`; rows take the temperatures in turn."""
    gen = torch.Generator(device=tokens.device).manual_seed(seed)
    writer = Generator(target, compiled)
    heat = torch.tensor(heats, device=tokens.device).repeat(batch // len(heats) + 1)[:batch]
    total, texts, weights, turn = length + SPARE, [], [], 0
    while not texts or time.time() < until:
        size = PROMPT_LENGTHS[turn % len(PROMPT_LENGTHS)]
        turn += 1
        starts = torch.randint(len(tokens) - size, (batch,), generator=gen, device=tokens.device)
        prompts = tokens[starts[:, None] + torch.arange(size, device=tokens.device)].long()
        text = torch.cat((prompts, writer.run(prompts, total - size, heat, gen)), 1)
        weight = torch.where(loops(text), LOOP_WEIGHT, 1.0)
        texts.append(text.to(torch.int16))
        weights.append((weight * 10).to(torch.uint8))
    return Written(torch.cat(texts), torch.cat(weights), heat.repeat(turn))


def pace_loss(
    states: Tensor, head: Tensor, labels: Tensor, weight: Tensor, teacher: Tensor | None, heat: Tensor
) -> tuple[Tensor, Tensor]:
    """D-PACE loss, and the mean probability of the label at each depth [L].

    states [B, blocks, L, H], labels and weight [B, blocks, L]. With p the probability of the label, the chance to reach
    depth d is the product of (1 - a) p + a; a row weighs the sum of these from its depth on. Where `teacher` is given,
    the target's logits at the labels [B, blocks, L, V], rows of sequences with a `heat` [B] above 0 pay the cross
    entropy against softmax(teacher / heat); the others, and all rows without it, against the label.
    """
    logits = F.linear(states, head).float()
    cost = F.cross_entropy(logits.flatten(0, 2), labels.flatten(), reduction="none").view(labels.shape)
    prob = torch.exp(-cost.detach())
    if teacher is not None:
        warm = heat.view(-1, 1, 1)
        wanted = (teacher.float() / warm.clamp(min=0.1).unsqueeze(-1)).softmax(-1)
        cost = torch.where(warm > 0, logits.logsumexp(-1) - (wanted * logits).sum(-1), cost)
    reach = ((1 - SMOOTH) * prob + SMOOTH).cumprod(-1)
    pace = reach.flip(-1).cumsum(-1).flip(-1) * weight
    return (cost * pace).sum() / pace.sum(), prob.flatten(0, 1).mean(0)


class Step:
    """One training loss: features from the frozen target, the drafter, the D-PACE loss; compiled piece by piece.

    `soft`: sampled rows learn the target's distribution instead of the token drawn.
    """

    def __init__(
        self, target: Target, drafter: Drafter, attends: dict[int, Attend], compiled: bool, soft: bool = False
    ) -> None:
        self.target, self.drafter, self.attends, self.soft = target, drafter, attends, soft
        self.run_target = torch.compile(run_layer, dynamic=False) if compiled else run_layer
        self.run_draft = torch.compile(run_draft_layer, dynamic=False) if compiled else run_draft_layer
        self.loss = torch.compile(pace_loss, dynamic=False) if compiled else pace_loss

    def __call__(self, ids: Tensor, weight: Tensor, heat: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and label probabilities for ids [B, T] written at temperature heat [B]; label weights weight [B, T].

        A block starts at every `block_size`-th token.
        """
        block, length = self.drafter.cfg.block_size, ids.shape[1]
        place, head = torch.arange(length, device=ids.device), self.target.lm_head.weight
        teacher = None
        with torch.no_grad():
            trace = self.target(ids, run=self.run_target)
            features = torch.cat([trace.streams[i] for i in self.drafter.cfg.target_layer_ids], -1)
            if self.soft:  # the state before a token is the one that its distribution comes from
                before = trace.last.unflatten(1, (-1, block))[:, :, :-1]
                teacher = F.linear(before, head)
            rows = self.target.embed_tokens(torch.where(place % block == 0, ids, MASK))
            weight = weight * (place >= 2 * block)
        states = self.drafter(features, rows, place, self.attends[length], self.run_draft)
        parts = (t.unflatten(1, (-1, block))[:, :, 1:] for t in (states, ids, weight))
        states, labels, weight = (part.contiguous() for part in parts)
        return self.loss(states, head, labels, weight, teacher, heat)


class Batches:
    """Draft batches: regenerated sequences, and now and then a long window of corpus text."""

    def __init__(self, written: Written, corpus: Windows, rows: int, long_every: int, seed: int) -> None:
        self.written, self.corpus = written, corpus
        self.size = written.texts.shape[1] - SPARE
        self.batch, self.long_every = rows // self.size, long_every
        self.gen = torch.Generator().manual_seed(seed)
        self.order = torch.empty(0, dtype=torch.int64)
        self.count, self.epochs = 0, 0.0

    def next(self) -> tuple[Tensor, Tensor, Tensor]:
        """ids int64 [B, T], label weights float32 [B, T] and temperatures float32 [B]."""
        self.count += 1
        texts, weights, heats = self.written.texts, self.written.weights, self.written.heats
        if self.long_every and self.count % self.long_every == 0:
            ids = self.corpus.next()
            return ids, torch.ones(ids.shape, device=ids.device), heats.new_full((len(ids),), CORPUS_HEAT)
        if len(self.order) < self.batch:
            self.order = torch.randperm(len(texts), generator=self.gen).to(texts.device)
        now, self.order = self.order[: self.batch], self.order[self.batch :]
        self.epochs += self.batch / len(texts)
        shift = int(torch.randint(SPARE, (1,), generator=self.gen))
        part = slice(shift, shift + self.size)
        return texts[now, part].long(), weights[now, part].float() / 10, heats[now]


def main() -> None:
    """Command line entry."""
    began = time.time()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--tokens", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--warm", type=Path, help="an exported drafter to start from")
    parser.add_argument("--soft", action="store_true", help="sampled rows learn the target's distribution")
    parser.add_argument("--heats", type=float, nargs="+", default=HEATS, help="temperatures of the text, in turn")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--generate-minutes", type=float, default=1.5)
    parser.add_argument("--progress", type=float, nargs=2, default=(0.0, 1.0), metavar=("FROM", "TO"))
    parser.add_argument("--length", type=int, default=384)
    parser.add_argument("--rows", type=int, default=131072, help="draft rows a step")
    parser.add_argument("--write-batch", type=int, default=8192)
    parser.add_argument("--long-every", type=int, default=8, help="every n-th step uses long corpus windows; 0: never")
    parser.add_argument("--long-length", type=int, default=2048)
    parser.add_argument("--muon", type=float, default=0.02)
    parser.add_argument("--adam", type=float, default=0.003)
    parser.add_argument("--decay-from", type=float, default=0.4, help="progress at which the rates begin to fall")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--dense", action="store_true", help="dense masks instead of flex attention")
    args = parser.parse_args()

    cuda, dtype = args.device.startswith("cuda"), torch.bfloat16
    deadline = began + args.minutes * 60 - (5 if cuda else 0)
    target = load_target(args.target, dtype, args.device).requires_grad_(False)
    if args.warm:
        drafter = load_drafter(args.warm, device=args.device).train()
    else:
        drafter = Drafter(DrafterConfig(num_target_layers=target.cfg.num_hidden_layers))
        drafter.init_weights(args.seed)
        drafter.to(args.device)
    optim = Optimizer(drafter, Rates(args.muon, args.adam))
    for p in drafter.parameters():
        p.data = p.data.to(dtype)
    saved = load_state(args.state, args.device) if args.state else None
    if saved is not None:
        optim.load_state_dict(saved[0])
        print(f"going on from step {optim.steps}")
    tokens = load_tokens(args.tokens, args.device)
    seed = args.seed + optim.steps
    until = time.time() + args.generate_minutes * 60
    compiled = not args.no_compile
    written = regenerate(target, tokens, args.length, args.write_batch, until, seed, compiled, args.heats)
    print(f"wrote {written.texts.numel() / 1e6:.1f} M tokens by {time.time() - began:.0f} s, "
          f"{float((written.weights < 10).float().mean()):.2f} of them in loops", flush=True)  # fmt: skip
    corpus = Windows(tokens, args.long_length, max(1, args.rows // args.long_length), seed)
    batches = Batches(written, corpus, args.rows, args.long_every, seed)
    block = drafter.cfg.block_size
    attends: dict[int, Attend] = {}
    for size in {args.length, args.long_length}:
        starts = torch.arange(0, size, block, device=args.device)
        attends[size] = dense_attend(starts, size, block) if args.dense else flex_attend(size, block, args.device)
    step_loss = Step(target, drafter, attends, compiled, args.soft)

    log: list[dict[str, object]] = []
    first, last = args.progress
    clock, progress, done, rows_seen, at_clock = 0.0, first, 0, 0, 0
    warm = args.long_every + 3  # both lengths are compiled by then
    while progress < last:
        ids, weight, heat = batches.next()
        loss, prob = step_loss(ids, weight, heat)
        loss.backward()
        optim.step(rate_scale(progress, optim.steps, args.decay_from))
        rows_seen += ids.numel()
        done += 1
        if done % 10 == 3 and done >= warm:
            if cuda:
                torch.cuda.synchronize()
            now = time.time()
            if not clock:
                clock, at_clock = now, rows_seen
                print(f"compiled after {now - began:.0f} s", flush=True)
            progress = first + (last - first) * min(1.0, (now - clock) / max(1e-3, deadline - clock))
            if done % 250 == 3 or progress >= last:
                row = {"step": optim.steps, "progress": round(progress, 4), "loss": round(float(loss.detach()), 4),
                       "prob": [round(float(x), 3) for x in prob], "mrows": round(rows_seen / 1e6, 1),
                       "mrows_s": round((rows_seen - at_clock) / max(1e-3, now - clock) / 1e6, 3),
                       "epochs": round(batches.epochs, 2), "s": round(now - began, 1)}  # fmt: skip
                log.append(row)
                print(row, flush=True)

    export_drafter(drafter, args.out)
    summary = {"steps": optim.steps, "rows": rows_seen, "written_tokens": written.texts.numel(), "progress": last,
               "log": log,
               "length": args.length, "rows_a_step": args.rows, "rates": vars(optim.rates),
               "heats": list(args.heats), "soft": args.soft, "decay_from": args.decay_from,
               "seconds": round(time.time() - began, 1)}  # fmt: skip
    (args.out / "train_log.json").write_text(json.dumps(summary, indent=1))
    if args.state:
        save_state(args.state, optim.state_dict(), {"progress": last, "steps": float(optim.steps)})
    print(f"done after {time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
