"""`ddtreec run`: generate with a bundle. Text goes to stdout as it is committed, everything else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddtreec.cli import generating
from ddtreec.cli.colour import paint
from ddtreec.cli.common import INTERRUPTED, guarded
from ddtreec.cli.progress import Style, reporting
from ddtreec.cli.progress import option as progress_option
from ddtreec.cli.prompts import Prompt, read_prompts

if TYPE_CHECKING:
    from ddtreec_runtime import Engine, Generation
    from ddtreec_runtime.rounds import Round

NO_DRAFTS = "the bundle has a drafter, but --drafter-weights is not given: speculation is off"
RESULT_KEYS = (
    "prompt_ids", "output_ids", "text", "finish_reason", "rounds", "tau", "accepted_per_round", "prefill_s", "decode_s",
    "tokens_per_s",
)  # fmt: skip
"""Keys of a `--json` object, in order."""


@click.command(short_help="Generate text with a bundle.")
@generating.options
@click.option(
    "--prompts",
    type=click.Path(path_type=Path),
    help='Many prompts, one JSON a line: {"prompt": "text"}, {"prompt_ids": [1, 2]} or "text".',
)
@click.option("--show-tree", is_flag=True, help="Draw each round's draft tree and the accepted path on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a prompt instead of the text.")
@progress_option
@guarded
def run(
    bundle: Path | None,
    weights: Path | None,
    drafter_weights: Path | None,
    prompt: str | None,
    prompt_file: Path | None,
    prompt_ids: str | None,
    prompts: Path | None,
    dtype: str | None,
    threads: int | None,
    show_tree: bool,
    as_json: bool,
    progress: Style,
    **options: Any,
) -> None:
    """Generate with BUNDLE, a folder that `ddtreec compile` wrote. The checkpoint's own tokenizer.json is used.
    Without BUNDLE the small trained pair that ships with ddtreec runs.

    \b
    Examples:
      ddtreec run --prompt "def add(a, b):" --show-tree
      ddtreec run demo/tiny --weights tiny/target --drafter-weights tiny/drafter --prompt "def add(a, b):"
      ddtreec run demo/tiny --weights tiny/target --prompt-ids 17,4,9 --max-new-tokens 32 --json
      ddtreec run demo/tiny --weights tiny/target --prompts prompts.jsonl --temperature 0.8 --seed 7 --stop $'\\n\\n'
    """
    asked = read_prompts(prompt, prompt_file, prompt_ids, prompts)

    from ddtreec_runtime import Engine

    generating.refuse_early(options)
    with generating.source(bundle, weights, drafter_weights) as source:
        with reporting(progress, "loading") as report:
            engine = Engine.load(
                source.bundle, source.weights, source.drafter, dtype=dtype, progress=report, threads=threads
            )
        warn(engine.warnings)
        with engine:
            if engine.plan.drafter and not engine.drafts and options["speculation"] is options["budget"] is None:
                print(f"note: {NO_DRAFTS}", file=sys.stderr)
            encoded = [one.fitting(engine, source.weights) for one in asked]
            for ids in encoded:
                Shown(engine, as_json, show_tree).generate(ids, options)


@dataclass
class Shown:
    """One generation and what is printed of it."""

    engine: Engine
    as_json: bool
    show_tree: bool = False
    ids: list[int] = field(default_factory=list[int])
    pieces: list[str] = field(default_factory=list[str])

    def generate(self, prompt: list[int], options: dict[str, Any]) -> None:
        """Generate and print; on Ctrl-C what is there stays and the exit code is 130."""
        try:
            done = self.engine.generate(prompt, on_tokens=self.take, on_round=self._drawing(), **options)
        except KeyboardInterrupt:
            self._interrupted(prompt)
            sys.exit(INTERRUPTED)
        if self.as_json:
            print(json.dumps({key: getattr(done, key) for key in RESULT_KEYS}, ensure_ascii=False), flush=True)
        else:
            print("".join(self.pieces) if self._text_last() else "", flush=True)
        print(summary(done), file=sys.stderr)

    def take(self, ids: list[int], text: str) -> None:
        """Show a run of committed tokens."""
        if self.engine.tokenizer is None:
            text = ("," if self.ids else "") + ",".join(map(str, ids))
        self.ids += ids
        self.pieces.append(text)
        if self.as_json or self._text_last():
            return
        sys.stdout.write(text)
        sys.stdout.flush()

    def _text_last(self) -> bool:
        """Whether trees and text would mix on one terminal, so that the text waits for the end."""
        return self.show_tree and sys.stdout.isatty() and sys.stderr.isatty()

    def _drawing(self) -> Callable[[Round], None] | None:
        """What draws each round, None where nobody asked."""
        if not self.show_tree:
            return None
        from ddtreec_runtime.show import TokenPieces, TreePrinter

        return TreePrinter(TokenPieces(self.engine.tokenizer))

    def _interrupted(self, prompt: list[int]) -> None:
        if self.as_json:
            text = None if self.engine.tokenizer is None else "".join(self.pieces)
            known = {"prompt_ids": prompt, "output_ids": self.ids, "text": text, "finish_reason": "interrupted"}
            print(json.dumps({key: known.get(key) for key in RESULT_KEYS}, ensure_ascii=False), flush=True)
        else:
            print("".join(self.pieces) if self._text_last() else "", flush=True)
        print(f"interrupted after {len(self.ids)} tokens", file=sys.stderr)


def warn(lines: tuple[str, ...], most: int = 5) -> None:
    """Say on stderr what is strange about the checkpoints: the first few lines, and how many more there are."""
    for line in lines[:most]:
        print(paint(f"warning: {line}", sys.stderr), file=sys.stderr)
    if len(lines) > most:
        print(f"  and {len(lines) - most} more kinds of tensors that nothing reads", file=sys.stderr)


def summary(done: Generation) -> str:
    """One line about a generation."""
    speed = f"{done.tokens_per_s:.1f} tokens/s" if done.decode_s and len(done.output_ids) > 1 else "no decode rounds"
    rounds = f", {done.rounds} rounds, tau {done.tau:.2f}" if done.rounds else ""
    return f"{len(done.output_ids)} tokens, {done.finish_reason}, prefill {done.prefill_s:.2f} s, {speed}{rounds}"


__all__ = ["Prompt", "run"]
