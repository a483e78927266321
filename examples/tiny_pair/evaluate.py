"""Acceptance lengths of a target and its drafter on held-out prompts, with the exact DDTree construction.

    python evaluate.py --target DIR --drafter DIR --prompts heldout.jsonl --out results.json

Speculative decoding commits exactly the target's own text, so the text is generated first (greedy, and sampled at
temperature 0.8) and the rounds are replayed on it: at each anchor the drafter's logits give the best-first tree, and the
accepted length is the depth to which the text stays inside the tree. tau = tokens committed / verify passes, the bonus
token included.
"""

from __future__ import annotations

import argparse
import heapq
import json
import multiprocessing
import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from drafter import Drafter, block_tokens, dense_attend
from export import load_drafter, load_target
from generate import Generator, loops
from model import Target

BUDGETS = (4, 7, 8, 12, 16, 24, 32, 64)


@torch.no_grad()
def draft_logprobs(target: Target, drafter: Drafter, ids: Tensor, first: int, last: int, stride: int = 32) -> Tensor:
    """Log-probabilities [B, anchors, block - 1, V] float32 for anchors at `first` .. `last` - 1 of ids [B, T]."""
    block = drafter.cfg.block_size
    streams = target(ids).streams
    features = torch.cat([streams[i] for i in drafter.cfg.target_layer_ids], -1)
    out = []
    for begin in range(first, last, stride):
        anchors = torch.arange(begin, min(begin + stride, last), device=ids.device)
        context = int(anchors[-1])
        rows = target.embed_tokens(block_tokens(ids[:, anchors], block))
        positions = (anchors[:, None] + torch.arange(block, device=ids.device)).flatten()
        states = drafter(features[:, :context], rows, positions, dense_attend(anchors, context, block))
        states = states.unflatten(1, (len(anchors), block))[:, :, 1:]
        out.append(target.logits(states).log_softmax(-1))
    return torch.cat(out, 1)


def path_order(logprobs: list[list[int]], ranks: list[int], budget: int) -> list[int]:
    """For each depth d the place (1-based) at which the best-first search takes the node ranks[:d + 1].

    `logprobs` [L][K] are sorted rows in fixed point (integers), so that sums are exact. A missing node gets budget + 1.
    Ties go to the smaller rank path.
    """
    depth, width = len(logprobs), len(logprobs[0])
    wanted = {tuple(ranks[: d + 1]): d for d in range(depth)}
    found = [budget + 1] * depth
    heap: list[tuple[int, tuple[int, ...]]] = [(-logprobs[0][0], (0,))]
    for place in range(1, budget + 1):
        if not heap:
            break
        score, path = heapq.heappop(heap)
        hit = wanted.get(path)
        if hit is not None:
            found[hit] = place
            if hit + 1 == depth:
                break
        level, rank = len(path) - 1, path[-1]
        if rank + 1 < width:
            heapq.heappush(heap, (score + logprobs[level][rank] - logprobs[level][rank + 1], (*path[:-1], rank + 1)))
        if level + 1 < depth:
            heapq.heappush(heap, (score - logprobs[level + 1][0], (*path, 0)))
    return found


def ranked(logprobs: Tensor, text: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Sorted top rows in fixed point, int64 [B, A, L, K], and the ranks of the true tokens, int64 [B, A, L].

    `logprobs` [B, A, L, V] for anchors 0 .. A - 1 of the continuations `text` [B, >= A + L]. A rank of K means absent.
    """
    anchors, depth = logprobs.shape[1:3]
    values, tokens = logprobs.topk(max(BUDGETS), -1)
    place = torch.arange(anchors, device=text.device)[:, None] + torch.arange(1, depth + 1, device=text.device)
    hits = tokens == text[:, place].unsqueeze(-1)
    ranks = torch.where(hits.any(-1), hits.float().argmax(-1), values.shape[-1])
    return (values.double() * 2**32).round().long().cpu().numpy(), ranks.cpu().numpy()


def accepted_lengths(rows: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Accepted drafts for the chain and each budget, int [1 + len(BUDGETS)], of one anchor (see `ranked`)."""
    path = ranks.tolist()
    chain = next((d for d, rank in enumerate(path) if rank), len(path))
    order = path_order(rows.tolist(), path, max(BUDGETS))
    trees = [next((d for d, place in enumerate(order) if place > budget), len(order)) for budget in BUDGETS]
    return np.array([chain, *trees])


def replay(rows: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Rounds needed and tokens committed, int [2, 1 + len(BUDGETS)], for one prompt: rows [A, L, K], ranks [A, L]."""
    known: dict[int, np.ndarray] = {}
    result = np.zeros((2, 1 + len(BUDGETS)), dtype=np.int64)
    for column in range(1 + len(BUDGETS)):
        place = 0  # the anchor: token 0 comes from the prompt's own pass
        while place < len(rows) - 1:
            if place not in known:
                known[place] = accepted_lengths(rows[place], ranks[place])
            step = int(known[place][column]) + 1
            place += step
            result[:, column] += (1, step)
    return result


def tau_row(pairs: np.ndarray) -> dict[str, float]:
    """Pooled tau from [prompts, 2, columns]."""
    total = pairs.sum(0)
    names = ["chain7", *(f"tree{b}" for b in BUDGETS)]
    return {name: round(float(total[1, i] / total[0, i]), 3) for i, name in enumerate(names)}


def measure(
    target: Target, drafter: Drafter, prompts: Tensor, count: int, temperature: float, seed: int
) -> tuple[dict[str, object], np.ndarray, Tensor]:
    """tau over prompts [B, P] for `count` tokens each; also [B, 2, columns] and the continuations."""
    gen = torch.Generator(device=prompts.device).manual_seed(seed)
    depth = drafter.cfg.block_size - 1
    length = prompts.shape[1]
    heat = torch.full((len(prompts),), temperature, device=prompts.device)
    text = Generator(target).run(prompts, count + depth, heat, gen)
    whole = torch.cat((prompts, text), 1)
    pairs: list[np.ndarray] = []
    workers = len(os.sched_getaffinity(0))
    with multiprocessing.get_context("fork").Pool(workers) as pool:  # the tree search is plain Python
        for start in range(0, len(prompts), 16):
            part = slice(start, start + 16)
            logprobs = draft_logprobs(target, drafter, whole[part], length, length + count)
            pairs += pool.starmap(replay, zip(*ranked(logprobs, text[part]), strict=True))
    table = np.stack(pairs)
    looping = loops(text[:, :count])[:, -1].cpu().numpy()
    result: dict[str, object] = {"all": tau_row(table), "prompts": len(table)}
    if temperature == 0:
        result |= {"non_looping": tau_row(table[~looping]), "non_looping_prompts": int((~looping).sum())}
    return result, table, text


def print_table(results: dict[str, dict[str, object]]) -> None:
    """The tau table as Markdown."""
    names = ["chain7", *(f"tree{b}" for b in BUDGETS)]
    print("| | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 1))
    for label, result in results.items():
        for part in ("all", "non_looping"):
            row = result.get(part)
            if isinstance(row, dict):
                print(f"| {label} {part} | " + " | ".join(f"{row[name]:.2f}" for name in names) + " |")


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=256)
    parser.add_argument("--count", type=int, default=128)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    began = time.time()
    target, drafter = load_target(args.target, device=args.device), load_drafter(args.drafter, device=args.device)
    rows = [json.loads(line) for line in args.prompts.read_text().splitlines()][: args.limit]
    prompts = torch.tensor([row["prompt_ids"] for row in rows], device=args.device)
    results = {}
    for temperature in (0.0, 0.8):
        results[f"temperature {temperature}"] = measure(
            target, drafter, prompts, args.count, temperature, args.seed
        )[0]
    print_table(results)
    print(f"{len(prompts)} prompts of {prompts.shape[1]} tokens, {args.count} new tokens; {time.time() - began:.0f} s")
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
