"""The resolved specs of an engine: every leaf with where it was set, as YAML, and back from the data of a bundle."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from ddtreec.core.errors import Loc
from ddtreec.spec.find import KINDS
from ddtreec.spec.load import LoadedEngine
from ddtreec.spec.schema import CLASSES
from ddtreec.spec.source import Data, Path, SourceMap
from ddtreec.spec.text import value as yaml_value

DEFAULT = "default"
"""Origin of a leaf that nobody wrote."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value of the resolved specs. `path` begins with the kind; `origin` is a place, a `--set`, or 'default'."""

    path: Path
    value: Data
    origin: str

    @property
    def dotted(self) -> str:
        """The path as in `--set`; items of lists that have an id go by it."""
        return ".".join(map(str, self.path))


def leaves(loaded: LoadedEngine) -> list[Leaf]:
    """Every leaf in the order of the schema; lists of plain values are leaves, items with an `id` go by that."""
    found: list[Leaf] = []
    for kind, data in loaded.resolved().items():
        sources = loaded.sources.get(kind, SourceMap())
        for path, named, value in _walk(data, (), (kind,)):
            found.append(Leaf(named, value, origin(sources, path)))
    return found


def origin(sources: SourceMap, path: Path) -> str:
    """Where the value at `path` was set: 'file:line', '--set a.b=c', or 'default'."""
    place = sources.values.get(path)
    if place is None:
        return DEFAULT
    loc: Loc = place.loc
    return f"{loc.file}:{loc.line}" if loc.line else loc.file


def _walk(data: Data, path: Path, named: Path) -> Iterator[tuple[Path, Path, Data]]:
    if isinstance(data, Mapping) and data:
        for key, item in cast("Mapping[str, Any]", data).items():
            yield from _walk(item, (*path, key), (*named, key))
    elif isinstance(data, list) and any(isinstance(item, Mapping) for item in cast("list[Any]", data)):
        for index, item in enumerate(cast("list[Any]", data)):
            yield from _walk(item, (*path, index), (*named, item.get("id", index)))
    else:
        yield path, named, data


def text(loaded: LoadedEngine, origins: bool = False, kinds: Sequence[str] = ()) -> str:
    """The resolved specs as YAML documents, one a kind, every default filled in; with `origins` a comment behind each
    leaf says where it was set."""
    documents: list[str] = []
    for kind, data in loaded.resolved().items():
        if kinds and kind not in kinds:
            continue
        sources = loaded.sources.get(kind, SourceMap())
        lines = [(line, origin(sources, path) if origins and path else "") for line, path in _lines(data, (), 0)]
        width = min(max((len(line) for line, told in lines if told), default=0), 72)
        documents.append("".join(f"{line:<{width}}  # {told}\n" if told else f"{line}\n" for line, told in lines))
    return "---\n".join(documents)


def _lines(data: Mapping[str, Data], path: Path, indent: int) -> Iterator[tuple[str, Path]]:
    """Lines of block YAML with the path of the leaf they end in ('()' where a line opens a mapping or list)."""
    pad = " " * indent
    for key, item in data.items():
        here = (*path, key)
        if isinstance(item, Mapping) and item:
            yield f"{pad}{key}:", ()
            yield from _lines(cast("Mapping[str, Any]", item), here, indent + 2)
        elif isinstance(item, list) and any(isinstance(x, Mapping) for x in cast("list[Any]", item)):
            yield f"{pad}{key}:", ()
            for index, entry in enumerate(cast("list[Any]", item)):
                inner = list(_lines(entry, (*here, index), indent + 4))
                first, rest = inner[0], inner[1:]
                yield f"{pad}  - {first[0].lstrip()}", first[1]
                yield from rest
        else:
            yield f"{pad}{key}: {yaml_value(item)}", here


def from_resolved(data: Mapping[str, Any], overrides: Sequence[str] = ()) -> LoadedEngine:
    """The engine of resolved data (spec.json of a bundle). Nothing in it has a place. Raises ValueError where it is not
    such data."""
    specs: dict[str, Any] = {}
    for kind in KINDS:
        if kind in data:
            try:
                specs[kind] = CLASSES[kind].model_validate_json(json.dumps(data[kind]))
            except ValidationError as error:
                raise ValueError(f"{kind}: {error.error_count()} values that this ddtreec does not read") from None
    missing = [kind for kind in ("engine", "model", "quant", "topology") if kind not in specs]
    if missing:
        raise ValueError(f"no {missing[0]} in it")
    return LoadedEngine(**specs, overrides=tuple(overrides))
