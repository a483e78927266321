"""Train the byte-level BPE tokenizer, and turn the corpus into token arrays.

    python tokenizer.py train  --text corpus/train.txt --out tokenizer.json
    python tokenizer.py encode --text corpus/train.txt[.xz] --tokenizer tokenizer.json --out train.npy
"""

from __future__ import annotations

import argparse
import lzma
import multiprocessing
import os
import subprocess
from pathlib import Path

import numpy as np

from model import BOS, EOS, MASK, PAD

SPECIAL = {"<|bos|>": BOS, "<|eos|>": EOS, "<|mask|>": MASK, "<|pad|>": PAD}


def read_text(path: Path) -> bytes:
    """The file's bytes; `.xz` through the parallel command line tool where there is one."""
    if path.suffix != ".xz":
        return path.read_bytes()
    try:
        return subprocess.run(["xz", "-dc", "-T0", str(path)], check=True, capture_output=True).stdout
    except FileNotFoundError:
        return lzma.decompress(path.read_bytes())


def documents(path: Path) -> list[bytes]:
    """The NUL-ended documents of a corpus file."""
    return [doc for doc in read_text(path).split(b"\0") if doc]


def train(text: Path, out: Path, sample_mb: float) -> None:
    """Trains 4092 entries (256 bytes and merges) on a sample spread over the corpus; writes `tokenizer.json`."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    docs = documents(text)
    stride = max(1, round(sum(map(len, docs)) / (sample_mb * 1e6)))
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=BOS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), max_token_length=24, show_progress=False
    )
    tok.train_from_iterator((doc.decode() for doc in docs[::stride]), trainer)
    tok.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    if {name: tok.token_to_id(name) for name in SPECIAL} != SPECIAL:
        raise SystemExit("the sample is too small for 4092 merges: special tokens moved")
    tok.save(str(out), pretty=False)
    print(f"{out}: {out.stat().st_size} bytes, sample of {len(docs[::stride])} documents")


def encode_part(job: tuple[str, list[bytes]]) -> np.ndarray:
    """Tokens of some documents, each followed by EOS."""
    from tokenizers import Tokenizer

    tok = Tokenizer.from_file(job[0])
    parts = []
    for doc in job[1]:
        parts.append(np.array([*tok.encode(doc.decode(), add_special_tokens=False).ids, EOS], dtype=np.uint16))
    return np.concatenate(parts)


def encode(text: Path, tokenizer: Path, out: Path) -> None:
    """Tokenises all documents in a fixed shuffled order into one uint16 array."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    docs = documents(text)
    order = np.random.default_rng(1).permutation(len(docs))
    jobs = [(str(tokenizer), [docs[i] for i in part]) for part in np.array_split(order, max(1, len(docs) // 200))]
    with multiprocessing.get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        parts = pool.map(encode_part, jobs, chunksize=1)
    tokens = np.concatenate(parts)
    part = out.with_suffix(".part.npy")
    np.save(part, tokens)
    part.rename(out)  # a training run may be waiting for the whole file
    size = sum(map(len, docs))
    print(f"{out}: {len(tokens) / 1e6:.1f} M tokens from {size / 1e6:.1f} MB, {size / len(tokens):.2f} bytes a token")


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("train")
    one.add_argument("--text", type=Path, required=True)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--sample-mb", type=float, default=60.0)
    two = commands.add_parser("encode")
    two.add_argument("--text", type=Path, required=True)
    two.add_argument("--tokenizer", type=Path, required=True)
    two.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.command == "train":
        train(args.text, args.out, args.sample_mb)
    else:
        encode(args.text, args.tokenizer, args.out)


if __name__ == "__main__":
    main()
