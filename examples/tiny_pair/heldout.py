"""Pick the held-out prompts: one a file, starting at a line start, as token ids and text.

    python heldout.py --text corpus/heldout.txt --tokenizer tokenizer.json --out heldout.jsonl
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from tokenizer import documents


def main() -> None:
    """Command line entry."""
    from tokenizers import Tokenizer

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=256)
    parser.add_argument("--length", type=int, default=128, help="tokens a prompt")
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    tok = Tokenizer.from_file(str(args.tokenizer))
    rng = np.random.default_rng(args.seed)
    docs = [doc.decode() for doc in documents(args.text)]
    rows = []
    for index in rng.permutation(len(docs)):
        doc = docs[index]
        starts = [0, *(i + 1 for i, ch in enumerate(doc) if ch == "\n" and doc[i + 1 : i + 2].strip())]
        starts = [s for s in starts if len(doc) - s > 8 * args.length]
        if not starts:
            continue
        start = int(rng.choice(starts))
        ids = tok.encode(doc[start : start + 10 * args.length], add_special_tokens=False).ids[: args.length]
        text = tok.decode(ids)
        # a prompt must survive a round trip, so that text and ids mean the same
        if len(ids) == args.length and tok.encode(text, add_special_tokens=False).ids == ids:
            rows.append({"prompt_ids": ids, "text": text})
        if len(rows) == args.count:
            break
    args.out.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    print(f"{args.out}: {len(rows)} prompts, {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
