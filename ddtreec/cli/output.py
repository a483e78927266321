"""Where the verbs that look put what they say: standard output or a file, and names that nobody knows."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddtreec.core.errors import Loc, Problem, SpecError
from ddtreec.core.paths import display


def deliver(text: str, out: Path | None) -> None:
    """Writes `text` to the file `out` (and says so on stderr), or to standard output. Raises SpecError C001."""
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        hint = "make the folder first" if not out.absolute().parent.is_dir() else "name another file with -o"
        raise SpecError(
            Problem("C001", f"cannot write the file: {error.strerror or error}", Loc(display(out)), help=hint)
        ) from None
    print(f"wrote {display(out)}, {len(text.encode()) / 1e3:.0f} kB", file=sys.stderr)


def as_json(data: Any) -> str:
    """Plain data as indented JSON ending with a newline."""
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def schema_json(verb: str, data: Mapping[str, Any], version: int = 1) -> str:
    """What `ddtreec VERB --json` prints: the data behind `"schema": "ddtreec.VERB/VERSION"`. The version is raised
    where a key goes away or changes meaning; new keys do not raise it."""
    return as_json({"schema": f"ddtreec.{verb}/{version}", **data})


def unknown_name(what: str, name: str, known: Sequence[str], note: str = "", where: str = "") -> SpecError:
    """C002: nothing is called so, with the nearest names; where there are none, all if they are few, else `where`."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        hint = f"did you mean {' or '.join(f'`{word}`' for word in near)}?"
    else:
        hint = f"known: {', '.join(known)}" if len(known) <= 16 else where or f"known: {known[0]} .. {known[-1]}"
    return SpecError(Problem("C002", f"there is no {what} `{name}`", note=note, help=hint))
