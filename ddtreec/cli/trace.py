"""`ddtreec trace`: generate once and keep every round, as JSON and as a page to step through."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

import click

from ddtreec.artifacts.plan import Plan
from ddtreec.cli.common import guarded
from ddtreec.core.errors import CheckpointError, Loc, Problem, SpecError


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--weights", type=click.Path(path_type=Path), required=True, help="Checkpoint directory of the target.")
@click.option("--drafter-weights", type=click.Path(path_type=Path), help="Checkpoint directory of the drafter.")
@click.option("--prompt", help="The prompt as text.")
@click.option("--prompt-file", type=click.Path(path_type=Path), help="A file whose whole text is the prompt.")
@click.option("--prompt-ids", help="The prompt as token ids: 1,2,3.")
@click.option("--max-new-tokens", type=click.IntRange(min=1), default=128, show_default=True)
@click.option("--temperature", type=click.FloatRange(min=0), default=0.0, show_default=True, help="0 is greedy.")
@click.option("--top-p", type=click.FloatRange(min=0, max=1, min_open=True), default=1.0, show_default=True)
@click.option("--top-k", type=click.IntRange(min=0), default=0, show_default=True, help="0 is off.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--stop", multiple=True, help="Text that ends the output; may be repeated.")
@click.option("--speculation", type=click.Choice(["tree", "chain", "off"]), default="tree", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The JSON file to write.")
@click.option("--html", type=click.Path(path_type=Path), help="The page to write: one file that needs no network.")
@guarded
def trace(
    bundle: Path,
    weights: Path,
    drafter_weights: Path | None,
    prompt: str | None,
    prompt_file: Path | None,
    prompt_ids: str | None,
    max_new_tokens: int,
    temperature: float,
    top_p: float,
    top_k: int,
    seed: int,
    stop: tuple[str, ...],
    speculation: str,
    output: Path | None,
    html: Path | None,
) -> None:
    """Generate with BUNDLE and record each round: draft tree, probabilities, accepted path, text so far.

    Write the record with -o trace.json, and --html trace.html for a page that steps through it.

    \b
    Example:
      ddtreec trace demo/tiny --weights tiny/target --drafter-weights tiny/drafter --prompt "def f(" --html trace.html
    """
    if output is None and html is None:
        raise SpecError(Problem("T010", "nothing to write", help="give -o trace.json, --html trace.html or both"))
    for path in (output, html):
        if path is not None and not path.absolute().parent.is_dir():
            # Said before the weights load, not after.
            raise SpecError(
                Problem("T003", f"cannot write {path}: there is no such folder", help="make the folder first")
            )
    text = _prompt_text(prompt, prompt_file, prompt_ids)

    from ddtreec_runtime import Engine
    from ddtreec_runtime.show.pieces import TokenPieces
    from ddtreec_runtime.text import Tokenizer
    from ddtreec_runtime.trace import Recorder, write_trace, write_viewer

    tokenizer = Tokenizer.from_dir(weights)
    if tokenizer is None and (text is not None or stop):
        raise CheckpointError(
            Problem(
                "T011",
                f"{weights} has no tokenizer.json, so text cannot be read or written",
                Loc(str(weights)),
                help="give --prompt-ids 1,2,3 and no --stop, or put the checkpoint's tokenizer.json there",
            )
        )
    pieces = TokenPieces(tokenizer)
    ids = _ids(prompt_ids) if text is None or tokenizer is None else tokenizer.encode(text)
    recorder = Recorder()
    engine = cast(Any, Engine).load(bundle, weights, drafter_weights)
    try:
        generation: Any = engine.generate(
            ids,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            seed=seed,
            stop=stop,
            speculation=speculation,
            on_round=recorder,
        )
        plan: Plan = engine.plan
    finally:
        engine.close()

    def decode(tokens: Sequence[int]) -> str:
        return " ".join(map(pieces, tokens)) if tokenizer is None else tokenizer.decode(tokens)

    mode, budget = _tried(plan, speculation)
    record = recorder.trace(
        engine=plan.engine,
        mode=mode,
        budget=budget,
        prompt_ids=ids,
        prompt_text=decode(ids) if text is None else text,
        output_ids=generation.output_ids,
        finish_reason=generation.finish_reason,
        decode=decode,
        piece=pieces,
        text=None if tokenizer is None else generation.text,
        temperature=temperature,
        seed=seed if temperature > 0 else None,
    )
    if output is not None:
        write_trace(output, record)
    if html is not None:
        write_viewer(html, record)
    written = " and ".join(str(path) for path in (output, html) if path is not None)
    click.echo(f"{len(record.rounds)} rounds, tau {record.tau:.2f}: wrote {written}", err=True)


def _tried(plan: Plan, speculation: str) -> tuple[Literal["tree", "chain", "off"], int]:
    """What was tried in each round, and with how many nodes besides the root at most."""
    if plan.drafter is None or speculation == "off":
        return "off", 0
    if speculation == "chain":
        return "chain", plan.drafter.block - 1
    return "tree", plan.tree.budget


def _prompt_text(prompt: str | None, prompt_file: Path | None, prompt_ids: str | None) -> str | None:
    """The prompt's text, None where ids were given. Raises SpecError unless exactly one of the three is there."""
    given = [name for name, value in _named(prompt, prompt_file, prompt_ids) if value is not None]
    if len(given) != 1:
        said = f"{' and '.join(given)} are given together" if given else "there is no prompt"
        raise SpecError(Problem("T012", said, help="give one of --prompt, --prompt-file and --prompt-ids"))
    if prompt_file is None:
        return prompt
    try:
        return prompt_file.read_bytes().decode("utf-8")
    except OSError as error:
        raise SpecError(
            Problem("T013", f"cannot read the prompt: {error.strerror}", Loc(str(prompt_file)), help="name a text file")
        ) from None
    except UnicodeDecodeError as error:
        raise SpecError(
            Problem(
                "T013", f"the prompt is not UTF-8 at byte {error.start}", Loc(str(prompt_file)), help="save it as UTF-8"
            )
        ) from None


def _named(prompt: str | None, prompt_file: Path | None, prompt_ids: str | None) -> list[tuple[str, object]]:
    return [("--prompt", prompt), ("--prompt-file", prompt_file), ("--prompt-ids", prompt_ids)]


def _ids(text: str | None) -> list[int]:
    """`1,2,3` to ids. Raises SpecError on what is no number."""
    ids: list[int] = []
    for part in (text or "").split(","):
        try:
            ids.append(int(part))
        except ValueError:
            raise SpecError(
                Problem(
                    "T014", f"--prompt-ids: '{part.strip()}' is no token id", help="give numbers with commas: 1,2,3"
                )
            ) from None
    return ids
