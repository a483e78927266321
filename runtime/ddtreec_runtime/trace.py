"""What happened in each round of a generation: the record, the JSON file and the page that shows it.

The generation loop makes one `Round` per round, after the walk and before the next draft, and only if somebody
listens:

    if on_round is not None:
        on_round(Round.of(tree, start=start, root=root, accepted=accepted, posterior=posterior, next_token=next_token))

with `tree` the verified `Tree`, `start` the absolute position of the root, `posterior` the target's pick per node
(None where the walk did not ask) and `(accepted, next_token)` what `verify_walk` returned. With speculation off the
tree is empty, `accepted` is [0] and every token is a round of its own. The root of the first round is the first
output token (the prefill's pick); every later root is the next token of the round before.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from ddtreec.core.errors import BundleError, Problem, SpecError

TRACE_FORMAT = 1
"""Raised when a field of the file changes meaning; readers take this number and no other."""

_VIEWER = Path(__file__).parent / "viewer"


@dataclass(frozen=True, slots=True)
class Round:
    """One round: a draft tree of n nodes, what the target picked, what was accepted.

    Node 0 is the root, the last committed token; nodes 1..n are the drafts in the order of the tree.

    start          absolute position of the root (tokens before it)
    root           token id of node 0
    tokens         [n] token ids of nodes 1..n
    parents        [n + 1] parent of nodes 0..n; parents[0] = -1, parents[i] < i
    depths         [n] depth of nodes 1..n, from 1; a node stands at position start + depth
    ranks          [n] place of the token in its row of the draft, from 0; -1 where unknown
    probabilities  [n] the drafter's probability of the whole path from the root to nodes 1..n; None where unknown
    accepted       nodes of the accepted path, the root (0) first
    posterior      [n + 1] token the target picks after nodes 0..n; None where it was not asked
    next_token     the token behind the accepted path (the bonus), root of the next round

    Raises ValueError where lengths do not match, a parent does not come first, a depth is not its parent's plus one
    or `accepted` is no path from the root.
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

    def __post_init__(self) -> None:
        n = len(self.tokens)
        lengths = (len(self.parents), len(self.depths), len(self.ranks), len(self.probabilities), len(self.posterior))
        if lengths != (n + 1, n, n, n, n + 1):
            raise ValueError(
                f"a round of {n} tokens has {lengths} parents, depths, ranks, probabilities and posterior picks; "
                f"{(n + 1, n, n, n, n + 1)} are needed"
            )
        levels = (0, *self.depths)
        for node, parent in enumerate(self.parents):
            if node == 0 and parent != -1:
                raise ValueError(f"parents[0] is {parent}; the root comes first, with parent -1")
            if node and not 0 <= parent < node:
                raise ValueError(f"parents[{node}] is {parent}; a parent comes before its children, so 0..{node - 1}")
            if node and levels[node] != levels[parent] + 1:
                raise ValueError(f"node {node} has depth {levels[node]} under a parent of depth {levels[parent]}")
        if self.accepted[:1] != (0,):
            raise ValueError(f"accepted is {self.accepted}; it starts with the root, node 0")
        for above, node in zip(self.accepted, self.accepted[1:], strict=False):
            if not 0 < node <= n or self.parents[node] != above:
                raise ValueError(f"accepted node {node} is no child of node {above}")

    @classmethod
    def of(
        cls,
        tree: Any,
        *,
        start: int,
        root: int,
        accepted: Iterable[int],
        posterior: Iterable[int | None],
        next_token: int,
    ) -> Round:
        """The record of one verified `Tree` (tokens, parents, depths, ranks, scores); `start` is the root's position.

        NaN scores become probability None, negative picks become None.
        """
        return cls(
            start=int(start),
            root=int(root),
            tokens=tuple(int(token) for token in tree.tokens),
            parents=tuple(int(parent) for parent in tree.parents),
            depths=tuple(int(depth) for depth in tree.depths),
            ranks=tuple(int(rank) for rank in tree.ranks),
            probabilities=tuple(None if math.isnan(score) else math.exp(min(float(score), 0.0)) for score in tree.scores),
            accepted=tuple(int(node) for node in accepted),
            posterior=tuple(None if pick is None or pick < 0 else int(pick) for pick in posterior),
            next_token=int(next_token),
        )

    @property
    def committed(self) -> tuple[int, ...]:
        """Tokens this round adds to the output: the accepted drafts, then the next token."""
        return (*(self.tokens[node - 1] for node in self.accepted[1:]), self.next_token)

    def step_probability(self, node: int) -> float | None:
        """The drafter's probability of this node's own token in its row (1..n); None where unknown."""
        path, parent = self.probabilities[node - 1], self.parents[node]
        above = 1.0 if parent == 0 else self.probabilities[parent - 1]
        if path is None or above is None:
            return None
        return min(path / above, 1.0) if above > 0 else 0.0


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
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Trace:
        """The whole story of one generation.

        output_ids: what was returned, cut at stop or length; what the last rounds committed beyond it has no text.
        decode: output ids to text; piece: one id to its text. Raises ValueError where the rounds do not lead to
        `output_ids` (somebody dropped a round).
        """
        text = decode(output_ids) if output_ids else ""
        committed = [self.rounds[0].root] if self.rounds else []
        told: list[TraceRound] = []
        for number, record in enumerate(self.rounds, start=1):
            if record.root != committed[-1]:
                raise ValueError(f"round {number} starts from token {record.root}, but token {committed[-1]} was committed")
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
    return len(os.path.commonprefix([text, part]))


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
        raise SpecError(
            Problem("T001", f"{source} is no trace: {error}", help="make one with `ddtreec trace`")
        ) from error
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
        raise SpecError(Problem("T001", f"{source} is no trace: {error}", help="make one with `ddtreec trace`")) from error


def write_trace(path: str | Path, trace: Trace) -> None:
    """Write the JSON file; it appears whole or not at all. Raises SpecError where it cannot be written."""
    _write(Path(path), encode_trace(trace))


def write_viewer(path: str | Path, trace: Trace) -> None:
    """Write one HTML page that shows the trace and needs nothing else; it appears whole or not at all.

    Raises SpecError where it cannot be written.
    """
    _write(Path(path), viewer_page(trace).encode("utf-8", "replace"))


def viewer_page(trace: Trace) -> str:
    """The viewer with the trace inside, as HTML text.

    The trace is data in a JSON script block, and the page's policy lets only our one script run: whatever a token
    says stays text.
    """
    style = (_VIEWER / "viewer.css").read_text("utf-8")
    script = (_VIEWER / "viewer.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "policy": f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'",
        "title": html.escape(f"{trace.engine} trace"),
        "style": style,
        "data": json_for_html(encode_trace(trace).decode()),
        "script": script,
    }
    page = (_VIEWER / "viewer.html").read_text("utf-8")
    head, *rest = page.split("{{")
    # One pass: what is put in is never searched for slots again.
    return head + "".join(parts[name] + tail for name, tail in (chunk.split("}}", 1) for chunk in rest))


def json_for_html(text: str) -> str:
    """JSON text that no HTML parser can leave early: <, > and & (only ever in strings) become escapes.

    Raises ValueError on what is no JSON.
    """
    json.loads(text)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


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
