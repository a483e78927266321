"""Prompts from the command line: text, a file, token ids, or a JSONL file of many."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ddtreec.core.errors import CheckpointError, Loc, Problem, SpecError

if TYPE_CHECKING:
    from ddtreec_runtime import Engine
    from ddtreec_runtime.text import Tokenizer

WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
"""A token id as it may be written; more digits are no id of any vocabulary."""

SHAPES = 'each line is {"prompt": "text"}, {"prompt_ids": [1, 2, 3]} or "text"'


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as text or as token ids; `loc` is where it was read."""

    text: str | None = None
    ids: tuple[int, ...] = ()
    loc: Loc | None = None

    def fitting(self, engine: Engine, weights: Path) -> list[int]:
        """Token ids that `engine` takes. Raises as `encode`, and SpecError R001..R003 at the place of the prompt."""
        ids = self.encode(engine.tokenizer, weights)
        try:
            return engine.check_prompt(ids)
        except SpecError as error:
            raise SpecError([replace(problem, loc=self.loc) for problem in error.problems]) from None

    def encode(self, tokenizer: Tokenizer | None, weights: Path) -> list[int]:
        """Token ids. Raises SpecError R021 for a text without a tokenizer, R001 for an empty one."""
        if self.text is None:
            return list(self.ids)
        if tokenizer is None:
            raise CheckpointError(
                Problem(
                    "R021",
                    "the checkpoint has no tokenizer.json, so text cannot be read",
                    Loc(str(weights)),
                    help="give --prompt-ids 1,2,3, or put the checkpoint's tokenizer.json there",
                )
            )
        ids = tokenizer.encode(self.text)
        if not ids:
            raise SpecError(Problem("R001", "the prompt is empty", self.loc, help="give at least one token"))
        return ids


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object of a JSONL file; one of prompt and prompt_ids is given. text: what the ids say, for people alone."""

    prompt: str | None = None
    prompt_ids: tuple[int, ...] | None = None
    text: str | None = None


def read_prompts(text: str | None, file: Path | None, ids: str | None, many: Path | None) -> list[Prompt]:
    """The prompts that were asked for. Raises SpecError R020 unless there is exactly one source, R022 unreadable."""
    sources = {"--prompt": text, "--prompt-file": file, "--prompt-ids": ids, "--prompts": many}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) != 1:
        said = f"{' and '.join(given)} are given together" if given else "there is no prompt"
        raise SpecError(Problem("R020", said, help=f"give one of {', '.join(sources)}"))
    if text is not None:
        return [Prompt(text=text)]
    if ids is not None:
        return [Prompt(ids=parse_ids(ids))]
    if file is not None:
        return [Prompt(text=read_text(file), loc=Loc(str(file)))]
    assert many is not None
    # Not splitlines: JSON strings may hold U+2028 and its like as they are.
    lines = enumerate(read_text(many).split("\n"), start=1)
    found = [parse_line(line, Loc(str(many), number)) for number, line in lines if line.strip()]
    if not found:
        raise SpecError(Problem("R022", "there is no prompt in this file", Loc(str(many)), help=SHAPES))
    return found


def read_text(path: Path) -> str:
    """Text of a file, of stdin for '-'. Raises SpecError R022."""
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        problem = Problem("R022", f"cannot read the prompt: {error.strerror}", Loc(str(path)), help="name a text file")
    except UnicodeDecodeError as error:
        found = f"the prompt is not UTF-8 at byte {error.start}"
        problem = Problem("R022", found, Loc(str(path)), help="save it as UTF-8")
    raise SpecError(problem)


def parse_ids(text: str) -> tuple[int, ...]:
    """'1,2,3' to ids. Raises SpecError R003 on what is no number, R001 on nothing."""
    parts = [part.strip() for part in text.replace(" ", ",").split(",") if part.strip()]
    if not parts:
        raise SpecError(Problem("R001", "the prompt is empty", help="give numbers with commas: --prompt-ids 1,2,3"))
    for part in parts:
        if not WHOLE.fullmatch(part):
            way = "give numbers with commas: --prompt-ids 1,2,3"
            raise SpecError(Problem("R003", f"--prompt-ids: '{part[:40]}' is no token id", help=way))
    return tuple(int(part) for part in parts)


def parse_line(line: str, loc: Loc) -> Prompt:
    """One line of a JSONL file. Raises SpecError R022."""
    try:
        value = msgspec.json.decode(line, type=str | Line)
    except msgspec.ValidationError as error:
        raise SpecError(Problem("R022", f"this line is no prompt: {error}", loc, line, help=SHAPES)) from None
    except msgspec.DecodeError as error:
        raise SpecError(Problem("R022", f"this line is no JSON: {error}", loc, line, help=SHAPES)) from None
    if isinstance(value, str):
        return Prompt(text=value, loc=loc)
    if (value.prompt is None) == (value.prompt_ids is None):
        found = "this line is no prompt: one of prompt and prompt_ids is needed"
        raise SpecError(Problem("R022", found, loc, line, help=SHAPES))
    return Prompt(value.prompt, value.prompt_ids or (), loc)
