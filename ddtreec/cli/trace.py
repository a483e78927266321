"""`ddtreec trace`: generate once and keep every round, as JSON and as a page to step through."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click

from ddtreec.artifacts.plan import Plan
from ddtreec.cli import generating
from ddtreec.cli.common import guarded
from ddtreec.cli.prompts import read_prompts
from ddtreec.core.errors import Problem, SpecError

Tried = Literal["tree", "chain", "off"]


@click.command(short_help="Generate once and keep every round.")
@generating.options
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The JSON file to write.")
@click.option("--html", type=click.Path(path_type=Path), help="The page to write: one file that needs no network.")
@guarded
def trace(
    bundle: Path | None,
    weights: Path | None,
    drafter_weights: Path | None,
    prompt: str | None,
    prompt_file: Path | None,
    prompt_ids: str | None,
    dtype: str | None,
    output: Path | None,
    html: Path | None,
    **options: Any,
) -> None:
    """Generate with BUNDLE and record each round: draft tree, probabilities, accepted path, text so far. Without BUNDLE
    the small trained pair that ships with ddtreec runs.

    \b
    Examples:
      ddtreec trace --prompt "class Queue:" --html trace.html
      ddtreec trace demo/tiny --weights tiny/target --drafter-weights tiny/drafter --prompt-ids 1,2,3 -o trace.json
    """
    if output is None and html is None:
        raise SpecError(Problem("T010", "nothing to write", help="give -o trace.json, --html trace.html or both"))
    for path in (output, html):
        if path is not None and not path.absolute().parent.is_dir():
            # Said before the weights load, not after.
            raise SpecError(
                Problem("T003", f"cannot write {path}: there is no such folder", help="make the folder first")
            )
    asked = read_prompts(prompt, prompt_file, prompt_ids, None)[0]

    from ddtreec_runtime import Engine
    from ddtreec_runtime.show.pieces import TokenPieces
    from ddtreec_runtime.trace import Recorder, write_trace, write_viewer

    generating.refuse_early(options)
    recorder = Recorder()
    with (
        generating.source(bundle, weights, drafter_weights) as source,
        Engine.load(source.bundle, source.weights, source.drafter, dtype=dtype) as engine,
    ):
        tokenizer, plan = engine.tokenizer, engine.plan
        ids = asked.encode(tokenizer, source.weights)
        generation = engine.generate(ids, on_round=recorder, **options)
        mode, budget = _tried(plan, options["speculation"], options["budget"], engine.drafts)
    pieces = TokenPieces(tokenizer)

    def decode(tokens: Sequence[int]) -> str:
        return " ".join(map(pieces, tokens)) if tokenizer is None else tokenizer.decode(tokens)

    record = recorder.trace(
        engine=plan.engine,
        mode=mode,
        budget=budget,
        prompt_ids=ids,
        prompt_text=decode(ids) if asked.text is None else asked.text,
        output_ids=generation.output_ids,
        finish_reason=generation.finish_reason,
        decode=decode,
        piece=pieces,
        text=generation.text,
        temperature=options["temperature"],
        seed=options["seed"] if options["temperature"] > 0 else None,
    )
    if output is not None:
        write_trace(output, record)
    if html is not None:
        write_viewer(html, record)
    written = " and ".join(str(path) for path in (output, html) if path is not None)
    click.echo(f"{len(record.rounds)} rounds, tau {record.tau:.2f}: wrote {written}", err=True)


def _tried(plan: Plan, speculation: str | None, budget: int | None, drafts: bool) -> tuple[Tried, int]:
    """What was tried in each round, and with how many nodes besides the root at most."""
    if plan.drafter is None or not drafts or speculation == "off":
        return "off", 0
    mode: Tried = "chain" if speculation == "chain" or (speculation is None and plan.tree.mode == "chain") else "tree"
    most = plan.drafter.block - 1 if mode == "chain" else plan.tree.budget
    return mode, most if budget is None else min(budget, most)
