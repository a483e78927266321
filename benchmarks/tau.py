"""Tau of the shipped pair: the whole evaluation, from the committed weights, by one command.

    python -m benchmarks.tau [--limit N] [--jobs 2] [--threads N]

Compiles the pair with a tree of 64, measures (see `ddtreec bench --tau`), and writes `benchmarks/results/tau.json`,
`docs/images/tau.png`, `docs/images/tau.svg` and `docs/tau.md`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.record import RESULTS
from benchmarks.tau_page import PAGE, render
from ddtreec import __version__
from ddtreec.cli.prompts import read_prompts
from ddtreec.driver import compile_engine
from ddtreec.spec.init import Request, init
from ddtreec_runtime.bench import plot
from ddtreec_runtime.bench.measure import Settings, Source, measure
from ddtreec_runtime.bench.record import stamp
from ddtreec_runtime.bench.report import encode
from ddtreec_runtime.bench.table import notes, tables

ROOT = Path(__file__).resolve().parent.parent
PAIR = ROOT / "models" / "tiny-pair"
IMAGES = ROOT / "docs" / "images"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=PAIR / "target")
    parser.add_argument("--drafter", type=Path, default=PAIR / "drafter")
    parser.add_argument("--prompts", type=Path, default=PAIR / "heldout.jsonl")
    parser.add_argument("--latent-norm-eps", type=float, default=1e-5, help="of q_a and kv_a norms")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--threads", type=int, help="of the engine; by default what its matrices are worth")
    parser.add_argument("--dry", action="store_true", help="print alone, write nothing")
    args = parser.parse_args()
    named = (f" --limit {args.limit}" if args.limit else "") + (f" --threads {args.threads}" if args.threads else "")
    command = f"python -m benchmarks.tau --jobs {args.jobs}{named}"
    prompts = [list(one.ids) for one in read_prompts(None, None, None, args.prompts)[: args.limit]]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        init(Request(args.checkpoint, out / "spec", args.drafter, "cpu", "ddtree-64", latent_eps=args.latent_norm_eps))
        compile_engine(out / "spec" / "engine.yaml", (), "bundle", out / "bundle")
        source = Source(out / "bundle", args.checkpoint, args.drafter, "float32", args.threads)
        with source.load() as engine:
            settings = Settings(args.tokens, speed_prompts=6, jobs=args.jobs)
            report = measure(engine, source, prompts, settings, stamp(command, __version__), _progress)
    print("\n\n".join(table.plain() for table in tables(report)))
    print("\n" + "\n".join(notes(report)))
    if args.dry:
        return
    RESULTS.mkdir(exist_ok=True)
    IMAGES.mkdir(exist_ok=True)
    (RESULTS / "tau.json").write_bytes(encode(report))
    for ending in plot.ENDINGS:
        plot.write(report, IMAGES / f"tau{ending}")
    PAGE.write_text(render(report))


def _progress(done: int, total: int, what: str) -> None:
    if done == total or done % max(1, total // 10) == 0:
        print(f"{what}: {done} of {total}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
