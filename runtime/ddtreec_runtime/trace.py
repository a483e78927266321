"""A generation, round by round: the JSON file and the page that shows it. `Recorder` collects the rounds."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Literal

import msgspec

from ddtreec.core.errors import BundleError, Problem, SpecError

from . import viewer
from .rounds import Round

__all__ = [
    "Recorder",
    "Round",
    "Trace",
    "TraceRound",
    "decode_trace",
    "encode_trace",
    "write_trace",
    "write_viewer",
]

TRACE_FORMAT = 1
"""Raised when a field of the file changes meaning; readers take this number and no other."""


class TraceRound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `Round` in the file, with texts. Fields of `Round` keep their names and meaning.

    `*_piece(s)`: the text of each token alone. The output's text before this round is `text[:text_start]` of the
    trace, its accepted drafts are `text[text_start:bonus_start]`, its next token is `text[bonus_start:text_end]`
    (offsets in code points; a character that tokens share counts where it becomes whole). `output_tokens`: output
    tokens there are after this round, the first one included.
    """

    start: int
    root: int
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    ranks: tuple[int, ...]
    probabilities: tuple[float | None, ...]
    accepted: tuple[int, ...]
    posterior: tuple[int | None, ...]
    next_token: int
    root_piece: str
    pieces: tuple[str, ...]
    posterior_pieces: tuple[str | None, ...]
    next_piece: str
    output_tokens: int
    text_start: int
    bonus_start: int
    text_end: int


class Trace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One generation, round by round. `budget`: tree nodes besides the root; `mode` as `--speculation` says it."""

    format: int
    engine: str
    mode: Literal["tree", "chain", "off"]
    budget: int
    temperature: float
    seed: int | None
    prompt_ids: tuple[int, ...]
    prompt_text: str
    output_ids: tuple[int, ...]
    text: str
    finish_reason: str
    rounds: tuple[TraceRound, ...]

    @property
    def tau(self) -> float:
        """Tokens committed per round as drafted and verified, bonus included; 0 without rounds."""
        return sum(len(r.accepted) for r in self.rounds) / len(self.rounds) if self.rounds else 0.0


@dataclass(slots=True)
class Recorder:
    """Collects rounds: give it to `Engine.generate` as `on_round`, then ask for the `trace`."""

    rounds: list[Round] = field(default_factory=list)

    def __call__(self, record: Round) -> None:
        """Keep one round."""
        self.rounds.append(record)

    def trace(
        self,
        *,
        engine: str,
        mode: Literal["tree", "chain", "off"],
        budget: int,
        prompt_ids: Sequence[int],
        prompt_text: str,
        output_ids: Sequence[int],
        finish_reason: str,
        decode: Callable[[Sequence[int]], str],
        piece: Callable[[int], str],
        text: str | None = None,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Trace:
        """The whole story of one generation.

        output_ids: what was returned, cut at stop or length; what the last rounds committed beyond it has no text.
        decode: output ids to text; piece: one id to its text. text: the text returned, where a stop string made it
        shorter than what the ids decode to. Raises ValueError where the rounds do not lead to
        `output_ids` (a round was dropped).
        """
        if text is None:
            text = decode(output_ids) if output_ids else ""
        committed = [self.rounds[0].root] if self.rounds else []
        told: list[TraceRound] = []
        for number, record in enumerate(self.rounds, start=1):
            if record.root != committed[-1]:
                raise ValueError(f"round {number} starts from token {record.root}, not from {committed[-1]}")
            before = len(committed)
            committed.extend(record.committed)
            ends = (before, len(committed) - 1, len(committed))
            offsets = [_reached(text, decode(output_ids[:end]) if end and output_ids else "") for end in ends]
            told.append(_told(record, piece, min(len(committed), len(output_ids)), offsets))
        if self.rounds and tuple(committed[: len(output_ids)]) != tuple(output_ids):
            raise ValueError("the rounds do not lead to output_ids")
        return Trace(
            format=TRACE_FORMAT,
            engine=engine,
            mode=mode,
            budget=budget,
            temperature=temperature,
            seed=seed,
            prompt_ids=tuple(prompt_ids),
            prompt_text=prompt_text,
            output_ids=tuple(output_ids),
            text=text,
            finish_reason=finish_reason,
            rounds=tuple(told),
        )


def _told(record: Round, piece: Callable[[int], str], output_tokens: int, offsets: Sequence[int]) -> TraceRound:
    return TraceRound(
        **{name: getattr(record, name) for name in Round.__dataclass_fields__},
        root_piece=piece(record.root),
        pieces=tuple(piece(token) for token in record.tokens),
        posterior_pieces=tuple(None if pick is None else piece(pick) for pick in record.posterior),
        next_piece=piece(record.next_token),
        output_tokens=output_tokens,
        text_start=offsets[0],
        bonus_start=offsets[1],
        text_end=offsets[2],
    )


def _reached(text: str, part: str) -> int:
    """Code points of `text` that `part`, decoded from a prefix of its tokens, has for certain."""
    if text.startswith(part):
        return len(part)
    # A cut character decodes to U+FFFD, which the whole text does not have there.
    same = (mine == other for mine, other in zip(text, part, strict=False))
    return sum(1 for _ in takewhile(bool, same))


def encode_trace(trace: Trace) -> bytes:
    """Trace to JSON text ending with a newline; the same trace gives the same bytes. Text is UTF-8, never NaN."""
    return msgspec.json.encode(trace) + b"\n"


def decode_trace(data: bytes, source: str = "trace") -> Trace:
    """JSON text to Trace; `source` names it in errors.

    Raises SpecError on what is no trace, BundleError on a trace of another format number.
    """
    try:
        head = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        number = msgspec.json.decode(head.get("format", b"null"), type=int)
    except msgspec.DecodeError as error:
        raise _no_trace(source, error) from error
    if number != TRACE_FORMAT:
        raise BundleError(
            Problem(
                "T002",
                f"{source} is a trace of format {number}; this ddtreec reads format {TRACE_FORMAT}",
                help="record it again with this version, or read it with the one that wrote it",
            )
        )
    try:
        return msgspec.json.decode(data, type=Trace)
    except msgspec.DecodeError as error:
        raise _no_trace(source, error) from error


def _no_trace(source: str, error: Exception) -> SpecError:
    return SpecError(Problem("T001", f"{source} is no trace: {error}", help="make one with `ddtreec trace`"))


def write_trace(path: str | Path, trace: Trace) -> None:
    """Write the JSON file; it appears whole or not at all. Raises SpecError where it cannot be written."""
    _write(Path(path), encode_trace(trace))


def write_viewer(path: str | Path, trace: Trace) -> None:
    """Write one HTML page that shows the trace and needs nothing else; it appears whole or not at all.

    Raises SpecError where it cannot be written.
    """
    page = viewer.page(f"{trace.engine} trace", encode_trace(trace).decode())
    _write(Path(path), page.encode())


def _write(path: Path, data: bytes) -> None:
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # mkstemp makes private files; what we write is as public as any other file of this user.
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(path, error) from error
        raise


def _unwritable(path: Path, error: OSError) -> SpecError:
    reason = error.strerror or str(error)
    return SpecError(Problem("T003", f"cannot write {path}: {reason}", help="name a file in a folder you can write to"))
