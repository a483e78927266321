"""Drive the whole training project, or one phase of it.

    python run.py --work DIR                 # every phase in order
    python run.py --work DIR --phase target  # one phase

corpus and tokenizer need a network and CPUs only; target and the drafter phases need one H200-class GPU for at most
nine minutes each. Files of finished phases stay in DIR, so a phase can be run again or on another machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent


def python(script: str, *words: str | Path) -> list[str]:
    """The command line of one of our scripts."""
    return [sys.executable, str(HERE / script), *map(str, words)]


def commands(work: Path) -> dict[str, list[list[str]]]:
    """The command lines of each phase, in order."""
    corpus, tok, target = work / "corpus", work / "tokenizer.json", work / "target"
    train, held, prompts = work / "train.npy", work / "heldout.npy", work / "heldout.jsonl"
    names = (HERE / "packages.txt").read_text().split()
    wheels = work / "wheels"
    download = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-d", str(wheels)]
    draft = ["--target", target, "--tokens", train, "--out", work / "drafter", "--state", work / "drafter-state"]
    own = work / "choose.jsonl"
    return {
        "corpus": [
            [*download, *names],
            python("corpus.py", "--wheels", wheels, "--stdlib", sysconfig.get_path("stdlib"), "--cap-mb", "6.5",
                   "--thin-after-mb", "314.5728", "--thin-keep", "0.11", "--out", corpus),
        ],
        "tokenizer": [
            python("tokenizer.py", "train", "--text", corpus / "train.txt", "--out", tok, "--sample-mb", "30"),
            python("tokenizer.py", "encode", "--text", corpus / "train.txt", "--tokenizer", tok, "--out", train),
            python("tokenizer.py", "encode", "--text", corpus / "heldout.txt", "--tokenizer", tok, "--out", held),
            python("heldout.py", "--text", corpus / "heldout.txt", "--tokenizer", tok, "--out", prompts),
            python("heldout.py", "--text", corpus / "train.txt", "--tokenizer", tok, "--out", own, "--count", "512"),
        ],
        "target": [
            python("train_target.py", "--tokens", train, "--heldout", held, "--tokenizer", tok, "--out", target,
                   "--state", work / "target-state", "--minutes", "7.7"),
        ],
        "drafter-1": [
            python("train_drafter.py", *draft, "--minutes", "9.2", "--generate-minutes", "1.3",
                   "--progress", "0", "0.66"),
        ],
        "drafter-2": [
            python("train_drafter.py", *draft, "--minutes", "4.15", "--generate-minutes", "0.6",
                   "--progress", "0.66", "1"),
        ],
        "drafter-3": [
            python("train_drafter.py", "--target", target, "--tokens", train, "--out", work / "drafter-3",
                   "--warm", work / "drafter", "--soft", "--heats", *["0"] * 3, *["0.8"] * 7,
                   "--muon", "0.01", "--adam", "0.0015", "--decay-from", "0.2", "--long-every", "10",
                   "--minutes", "5.2", "--generate-minutes", "0.67"),
            python("choose.py", "--target", target, "--old", work / "drafter", "--new", work / "drafter-3",
                   "--choose-on", own, "--prompts", prompts, "--out", work / "chosen"),
        ],
        "evaluate": [
            python("evaluate.py", "--target", target, "--drafter", work / "chosen", "--prompts", prompts,
                   "--out", work / "results.json"),
            python("export.py", "check", "--target", target, "--drafter", work / "chosen"),
        ],
    }  # fmt: skip


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--phase", choices=list(commands(Path())))
    parser.add_argument("--dry-run", action="store_true", help="print the command lines only")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    for phase, lines in commands(args.work).items():
        if args.phase in (None, phase):
            for line in lines:
                print(f"[{phase}]", *line, flush=True)
                if not args.dry_run:
                    subprocess.run(line, check=True)


if __name__ == "__main__":
    main()
