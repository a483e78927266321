"""`ddtreec run`: generate with a bundle. Text goes to stdout as it is committed, everything else to stderr."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddtreec.cli.common import INTERRUPTED, guarded
from ddtreec.cli.progress import Style, reporting
from ddtreec.cli.progress import option as progress_option
from ddtreec.cli.prompts import Prompt, read_prompts

if TYPE_CHECKING:
    from ddtreec_runtime import Engine, Generation

RESULT_KEYS = (
    "prompt_ids", "output_ids", "text", "finish_reason", "rounds", "tau", "accepted_per_round", "prefill_s", "decode_s",
    "tokens_per_s",
)  # fmt: skip
"""Keys of a `--json` object, in order."""


@click.command(short_help="Generate text with a bundle.")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--weights", type=click.Path(path_type=Path), required=True, help="Checkpoint directory of the target.")
@click.option("--drafter-weights", type=click.Path(path_type=Path), help="Checkpoint directory of the DFlash drafter.")
@click.option("--prompt", help="The prompt as text.")
@click.option("--prompt-file", type=click.Path(path_type=Path), help="A file whose whole text is the prompt.")
@click.option("--prompt-ids", metavar="1,2,3", help="The prompt as token ids; needs no tokenizer.")
@click.option(
    "--prompts",
    type=click.Path(path_type=Path),
    help='Many prompts, one JSON a line: {"prompt": "text"}, {"prompt_ids": [1, 2]} or "text".',
)
@click.option("--max-new-tokens", type=click.IntRange(min=1), default=128, show_default=True)
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy, e.g. 0.8 draws.")
@click.option("--top-p", type=float, default=1.0, show_default=True, help="Draw among the best that reach this share.")
@click.option("--top-k", type=int, default=0, show_default=True, help="Draw among the k best, e.g. 40; 0 is off.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed draws the same text.")
@click.option("--stop", multiple=True, metavar="TEXT", help="Text that ends the output; repeatable.")
@click.option("--speculation", type=click.Choice(["tree", "chain", "off"]), help="[default: what the bundle says]")
@click.option("--budget", type=int, help="Tree nodes besides the root, e.g. 8.  [default: what the bundle says]")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float64"]), help="[default: what the bundle says]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a prompt instead of the text.")
@progress_option
@guarded
def run(
    bundle: Path,
    weights: Path,
    drafter_weights: Path | None,
    prompt: str | None,
    prompt_file: Path | None,
    prompt_ids: str | None,
    prompts: Path | None,
    dtype: str | None,
    as_json: bool,
    progress: Style,
    **options: Any,
) -> None:
    """Generate with BUNDLE, a folder that `ddtreec compile` wrote. The checkpoint's own tokenizer.json is used.

    \b
    Examples:
      ddtreec run demo/tiny --weights tiny/target --drafter-weights tiny/drafter --prompt "def add(a, b):"
      ddtreec run demo/tiny --weights tiny/target --prompt-ids 17,4,9 --max-new-tokens 32 --json
      ddtreec run demo/tiny --weights tiny/target --prompts prompts.jsonl --temperature 0.8 --seed 7 --stop "\\n\\n"
    """
    asked = read_prompts(prompt, prompt_file, prompt_ids, prompts)

    from ddtreec_runtime import Engine

    refuse_early(options)
    with reporting(progress, "loading") as report:
        engine = Engine.load(bundle, weights, drafter_weights, dtype=dtype, progress=report)
    with engine:
        encoded = [one.encode(engine.tokenizer, weights) for one in asked]
        for ids in encoded:
            Shown(engine, as_json).generate(ids, options)


def refuse_early(options: dict[str, Any]) -> None:
    """Says what is wrong with sampling and stop strings before the weights load, not after."""
    from ddtreec_runtime.sampling import SamplingParams
    from ddtreec_runtime.text import StopStrings

    SamplingParams(options["temperature"], options["top_p"], options["top_k"], options["seed"])
    StopStrings(options["stop"])


@dataclass
class Shown:
    """One generation and what is printed of it."""

    engine: Engine
    as_json: bool
    ids: list[int] = field(default_factory=list[int])
    pieces: list[str] = field(default_factory=list[str])

    def generate(self, prompt: list[int], options: dict[str, Any]) -> None:
        """Generate and print; on Ctrl-C what is there stays and the exit code is 130."""
        try:
            done = self.engine.generate(prompt, on_tokens=self.take, **options)
        except KeyboardInterrupt:
            self._interrupted(prompt)
            sys.exit(INTERRUPTED)
        if self.as_json:
            print(json.dumps({key: getattr(done, key) for key in RESULT_KEYS}, ensure_ascii=False), flush=True)
        else:
            print(flush=True)
        print(summary(done), file=sys.stderr)

    def take(self, ids: list[int], text: str) -> None:
        """Show a run of committed tokens."""
        first = not self.ids
        self.ids += ids
        self.pieces.append(text)
        if self.as_json:
            return
        if self.engine.tokenizer is None:
            text = ("" if first else ",") + ",".join(map(str, ids))
        sys.stdout.write(text)
        sys.stdout.flush()

    def _interrupted(self, prompt: list[int]) -> None:
        if self.as_json:
            text = None if self.engine.tokenizer is None else "".join(self.pieces)
            known = {"prompt_ids": prompt, "output_ids": self.ids, "text": text, "finish_reason": "interrupted"}
            print(json.dumps({key: known.get(key) for key in RESULT_KEYS}, ensure_ascii=False), flush=True)
        else:
            print(flush=True)
        print(f"interrupted after {len(self.ids)} tokens", file=sys.stderr)


def summary(done: Generation) -> str:
    """One line about a generation."""
    speed = f"{done.tokens_per_s:.1f} tokens/s" if done.decode_s and len(done.output_ids) > 1 else "no decode rounds"
    rounds = f", {done.rounds} rounds, tau {done.tau:.2f}" if done.rounds else ""
    return f"{len(done.output_ids)} tokens, {done.finish_reason}, prefill {done.prefill_s:.2f} s, {speed}{rounds}"


__all__ = ["Prompt", "run"]
