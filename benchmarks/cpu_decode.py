"""CPU decode speed beside Hugging Face `generate`: same checkpoint, prompts, threads, tokens, one run, interleaved.

    python -m benchmarks.cpu_decode [--checkpoint DIR --drafter DIR] [--threads 2] [--prompts 8] [--tokens 128]

Times are whole calls (prefill and decode). Every mode takes each prompt in turn before the next prompt starts, so that
a busy moment of the machine hits all of them; the ratio is of the medians over prompts. Limits: `off` is not slower
than `generate`, and what is not a model step (tree, walk, bookkeeping) stays below 15 % of a tree round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import torch

from benchmarks.hugging_face import Peer
from benchmarks.record import table, write
from ddtreec.driver import compile_engine
from ddtreec.spec.init import Request, init
from ddtreec_runtime import Engine

ROOT = Path(__file__).resolve().parent.parent
PAIR = ROOT / "models" / "tiny-pair"
MODEL_PHASES = ("prefill", "draft", "verify", "context")
"""Phases of a generation that run the model's step programs; all others are bookkeeping."""


def build(checkpoint: Path, drafter: Path | None, eps: float | None, folder: Path) -> Path:
    """Specs from the checkpoint, then the bundle: what a user does by `init` and `compile`."""
    init(Request(checkpoint, folder / "spec", drafter, "cpu", None, None, eps, False))
    out = folder / "bundle"
    compile_engine(folder / "spec" / "engine.yaml", (), "bundle", out)
    return out


def read_prompts(path: Path, count: int, length: int) -> list[list[int]]:
    """The first `count` prompts of a JSONL file of `{"prompt_ids": [...]}`, each cut to `length` tokens."""
    lines = path.read_text().splitlines()[:count]
    return [json.loads(line)["prompt_ids"][:length] for line in lines]


def main() -> None:
    """Measure, print, write `results/cpu_decode_<threads>t.json`; exit 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=PAIR / "target")
    parser.add_argument("--drafter", type=Path, default=PAIR / "drafter")
    parser.add_argument("--prompt-file", type=Path, default=PAIR / "heldout.jsonl")
    parser.add_argument("--latent-norm-eps", type=float, default=1e-5, help="of q_a and kv_a norms, both engines")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    prompts = read_prompts(args.prompt_file, args.prompts, args.prompt_tokens)
    peer = Peer(args.checkpoint, args.latent_norm_eps)
    seconds: dict[str, list[float]] = {}
    shares: list[float] = []
    taus: dict[str, list[float]] = {}
    differing = 0
    with tempfile.TemporaryDirectory() as folder:
        bundle = build(args.checkpoint, args.drafter, args.latent_norm_eps, Path(folder))
        modes = [("off", {"speculation": "off"}), ("chain", {"speculation": "chain"})]
        modes += [(f"tree {n}", {"speculation": "tree", "budget": n}) for n in (4, 8, 16)]
        with Engine.load(bundle, args.checkpoint, args.drafter, threads=args.threads) as engine:
            for warm in (True, False):
                for prompt in prompts[:1] if warm else prompts:
                    reference, taken = peer.generate(prompt, args.tokens)
                    if not warm:
                        seconds.setdefault("transformers", []).append(taken)
                    for name, how in modes:
                        start = perf_counter()
                        done = engine.generate(prompt, max_new_tokens=args.tokens, **how)
                        taken = perf_counter() - start
                        if warm:
                            continue
                        seconds.setdefault(name, []).append(taken * args.tokens / len(done.output_ids))
                        taus.setdefault(name, []).append(done.tau)
                        differing += done.output_ids != reference[: len(done.output_ids)]
                        if name == "tree 16":
                            model = sum(done.profile.get(phase, 0.0) for phase in MODEL_PHASES)
                            shares.append(1 - model / sum(done.profile.values()))
    base = statistics.median(seconds["transformers"])
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    rows = [
        (name, f"{args.tokens / taken:.0f}", f"{base / taken:.2f}x", f"{statistics.mean(taus.get(name, [1.0])):.2f}")
        for name, taken in medians.items()
    ]
    print(table(("mode", "tokens/s", "ratio", "tau"), rows))
    share = statistics.median(shares)
    print(f"outside model steps, of a tree-16 generation: {share:.1%}")
    print(f"outputs that differ from transformers: {differing} of {len(prompts) * len(modes)}")
    write(
        f"cpu_decode_{args.threads}t",
        f"python -m benchmarks.cpu_decode --threads {args.threads} --prompts {args.prompts} --tokens {args.tokens}",
        {
            "threads": args.threads,
            "torch": torch.__version__,
            "modes": [
                {
                    "name": name,
                    "tokens_per_s": round(args.tokens / taken, 1),
                    "ratio_to_transformers": round(base / taken, 3),
                    "tau": round(statistics.mean(taus[name]), 3) if name in taus else None,
                }
                for name, taken in medians.items()
            ],
            "share_outside_model_steps_tree16": round(share, 4),
            "outputs_differing": differing,
        },
    )
    if medians["off"] > base or share > 0.15:
        sys.exit("missed: off slower than generate, or more than 15 % of a round outside the model")


if __name__ == "__main__":
    main()
