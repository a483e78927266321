"""Choose between the old drafter, the new one and weights between them, on prompts of its own; then try the chosen one.

    python choose.py --target DIR --old DIR --new DIR --choose-on dev.jsonl --prompts heldout.jsonl --out DIR

A drafter that gains at temperature 0.8 may lose under greedy decoding, and weights on the line between a network and
its fine-tuned self often lose less than they gain. So drafters at some places of that line are measured on the prompts
of `--choose-on`, and the one with the largest sum of chain and tree-16 tau at temperature 0.8 is taken, of those that
stay within `--loss` of the old one's greedy tau on prompts that do not loop. The held-out prompts only tell, for the
old and the chosen one. Writes the chosen drafter and `results.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from drafter import Drafter
from evaluate import measure, print_table
from export import export_drafter, load_drafter, load_target
from model import Target
from torch import Tensor

MARKS = ("chain7", "tree16")
Results = dict[str, dict[str, object]]


def between(old: Drafter, new: Drafter, share: float) -> Drafter:
    """The drafter whose weights are (1 - share) old + share new, rounded to bfloat16 as an export is."""
    out = Drafter(old.cfg)
    first, second = old.state_dict(), new.state_dict()
    mixed = {name: first[name].float().lerp(second[name].float(), share).bfloat16() for name in first}
    out.load_state_dict(mixed)
    return out.to(next(old.parameters()).device).eval()


def table(target: Target, drafter: Drafter, prompts: Tensor, count: int, seed: int) -> Results:
    """What `evaluate.py` writes: tau at temperatures 0 and 0.8."""
    return {f"temperature {heat}": measure(target, drafter, prompts, count, heat, seed)[0] for heat in (0.0, 0.8)}


def gain(results: Results) -> float:
    """Chain and tree-16 tau at temperature 0.8, together."""
    return sum(results["temperature 0.8"]["all"][mark] for mark in MARKS)  # type: ignore[index]


def best(tried: dict[float, Results], loss: float) -> float:
    """The share with the largest gain whose greedy tau is within `loss` of that of share 0, the old drafter.

    Greedy tau is that of prompts that do not loop, chain and tree 16 each.
    """

    def greedy(share: float, mark: str) -> float:
        return tried[share]["temperature 0.0"]["non_looping"][mark]  # type: ignore[index]

    kept = [share for share in tried if all(greedy(share, mark) >= greedy(0.0, mark) - loss for mark in MARKS)]
    return max(kept, key=lambda share: gain(tried[share]))


def read_prompts(path: Path, limit: int, device: str) -> Tensor:
    """Prompt ids [N, P] of a file of `heldout.py`."""
    rows = [json.loads(line)["prompt_ids"] for line in path.read_text().splitlines()][:limit]
    return torch.tensor(rows, device=device)


def main() -> None:
    """Command line entry."""
    began = time.time()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--old", type=Path, required=True)
    parser.add_argument("--new", type=Path, required=True)
    parser.add_argument("--choose-on", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shares", type=float, nargs="+", default=(0.0, 0.5, 1.0))
    parser.add_argument("--loss", type=float, default=0.05)
    parser.add_argument("--limit", type=int, default=512)
    parser.add_argument("--count", type=int, default=128)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if 0.0 not in args.shares:
        parser.error("--shares must contain 0, the old drafter")
    target = load_target(args.target, device=args.device)
    old, new = (load_drafter(path, device=args.device) for path in (args.old, args.new))
    own, held = (read_prompts(path, args.limit, args.device) for path in (args.choose_on, args.prompts))
    tried: dict[float, Results] = {}
    for share in args.shares:
        tried[share] = table(target, between(old, new, share), own, args.count, args.seed)
        print(f"share {share:g} of the new weights, after {time.time() - began:.0f} s", flush=True)
        print_table(tried[share])
    share = best(tried, args.loss)
    chosen = between(old, new, share)
    export_drafter(chosen, args.out)
    log = {"chosen": share, "choose_on": {str(place): results for place, results in tried.items()}, "heldout": {}}
    for name, drafter in (("old", old), ("chosen", chosen)):
        log["heldout"][name] = table(target, drafter, held, args.count, args.seed)
        print(f"held-out prompts, {name} (share {share:g} chosen), after {time.time() - began:.0f} s", flush=True)
        print_table(log["heldout"][name])
        (args.out / "results.json").write_text(json.dumps(log, indent=1) + "\n")


if __name__ == "__main__":
    main()
