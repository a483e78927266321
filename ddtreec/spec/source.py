"""Plain data that remembers where each key and value was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from ddtreec.core.errors import Loc, Problem

Path = tuple[str | int, ...]
Data = Any
"""dict[str, Data] | tuple[Data, ...] | str | int | float | bool | None."""


def as_map(data: Data) -> dict[str, Data] | None:
    """The data when it is a mapping, else None."""
    return cast(dict[str, Data], data) if isinstance(data, dict) else None


def as_list(data: Data) -> tuple[Data, ...] | None:
    """The data when it is a list, else None."""
    return tuple(cast(tuple[Data, ...], data)) if isinstance(data, tuple | list) else None


class Place(NamedTuple):
    """A location and the line of text found there."""

    loc: Loc
    text: str = ""


@dataclass(slots=True)
class SourceMap:
    """For each path into a tree: where its value stands and, in mappings, where its key stands."""

    values: dict[Path, Place] = field(default_factory=dict[Path, Place])
    keys: dict[Path, Place] = field(default_factory=dict[Path, Place])

    def place(self, path: Path, *, key: bool = False) -> Place:
        """The place of the value (or key) at `path`, else of its nearest ancestor that is known."""
        wanted = self.keys if key else self.values
        for length in range(len(path), -1, -1):
            found = wanted.get(path[:length]) or self.values.get(path[:length])
            if found is not None:
                return found
        raise KeyError(path)

    def graft(self, path: Path, other: SourceMap, at: Path = ()) -> None:
        """Take over every place that `other` knows at and below `at`, as places at and below `path`."""
        for mine, theirs in ((self.values, other.values), (self.keys, other.keys)):
            for known in [p for p in mine if p[: len(path)] == path]:
                del mine[known]
            for known, place in theirs.items():
                if known[: len(at)] == at:
                    mine[path + known[len(at) :]] = place


@dataclass(frozen=True, slots=True)
class Document:
    """One spec as read: its data and where everything in it came from."""

    data: dict[str, Data]
    sources: SourceMap


def problem_at(place: Place, code: str, message: str, *, note: str = "", help: str = "") -> Problem:
    """A problem whose caret stands at `place`."""
    return Problem(code, message, place.loc, place.text, note, help)


def dotted(path: Path) -> str:
    """A path as written in `--set`: `blocks.attention.ops.3.eps`."""
    return ".".join(map(str, path))


def merged(base: Document, over: Document) -> Document:
    """`over` laid on `base`: mappings merge, everything else replaces, null deletes what the base has."""
    sources = SourceMap(dict(base.sources.values), dict(base.sources.keys))
    data = _merge(base.data, over.data, (), sources, over.sources)
    sources.values[()] = over.sources.values[()]
    return Document(data, sources)


def _merge(base: dict[str, Data], over: dict[str, Data], path: Path, sources: SourceMap, new: SourceMap) -> Data:
    result = dict(base)
    for key, value in over.items():
        here = (*path, key)
        mine, theirs = as_map(result.get(key)), as_map(value)
        if value is None and key in result:
            del result[key]
            sources.graft(here, SourceMap())
        elif mine is not None and theirs is not None:
            result[key] = _merge(mine, theirs, here, sources, new)
            sources.values[here], sources.keys[here] = new.values[here], new.keys[here]
        else:
            result[key] = value
            sources.graft(here, new, here)
    return result
