"""`--set a.b=c`: parsed, typed by the schema, and laid on the documents after everything else.

A path whose first word is model, quant, drafter, tree or topology goes into the spec that the engine names; the word
alone replaces the reference. Every other path is the engine's. In lists, an item is meant by its number or its `id`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ddtreec.core.errors import Loc, Problem, SpecError
from ddtreec.spec.explain import options, shown, step_into
from ddtreec.spec.find import KINDS, meant
from ddtreec.spec.reader import read_value
from ddtreec.spec.schema import CLASSES, Kind
from ddtreec.spec.source import Data, Document, Path, Place, SourceMap, as_list, as_map, dotted

PREFIX = "--set "


@dataclass(frozen=True, slots=True)
class Override:
    """One `--set`: the kind of spec it goes into, the path there, and the value as text and as YAML reads it."""

    text: str
    kind: Kind
    path: Path
    raw: str
    value: Data
    sources: SourceMap

    @property
    def place(self) -> Place:
        """Where messages point."""
        return Place(Loc(PREFIX + self.text))


def parse(texts: Sequence[str]) -> tuple[Override, ...]:
    """The overrides in order. Raises SpecError S022 (and S003..S006 for the value) with every problem."""
    found: list[Override] = []
    problems: list[Problem] = []
    for text in texts:
        try:
            found.append(_parse(text))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return tuple(found)


def _parse(text: str) -> Override:
    name, equals, raw = text.partition("=")
    parts = tuple(name.strip().split("."))
    if not equals or not all(parts):
        message = f"`{text}` is not of the form path=value"
        raise SpecError(Problem("S022", message, Loc(PREFIX + text), help="e.g. --set tree.budget=16"))
    value, sources = read_value(raw, PREFIX + text)
    kind: Kind | None = next((k for k in KINDS if k == parts[0] and len(parts) > 1), None)
    return Override(text, kind or "engine", parts[1:] if kind else parts, raw.strip(), value, sources)


def apply(document: Document, override: Override) -> Document:
    """The document with one value replaced, added, or (null) removed. Raises SpecError S022."""
    sources = SourceMap(dict(document.sources.values), dict(document.sources.keys))
    data = _Setter(override, sources).set(document.data, CLASSES[override.kind], override.path, ())
    return Document(data, sources)


class _Setter:
    def __init__(self, override: Override, sources: SourceMap) -> None:
        self.override, self.sources = override, sources

    def set(self, data: Data, annotation: Any, rest: Path, path: Path) -> Data:
        """`data` (at `path`) with the value put at `rest` below it."""
        if not rest:
            return self._value(annotation, path)
        if (items := as_list(data)) is not None:
            index = self._index(items, str(rest[0]), path)
            item = self.set(items[index], step_into(annotation, index), rest[1:], (*path, index))
            return (*items[:index], item, *items[index + 1 :])
        mapping = as_map(data)
        if mapping is None:
            raise self._error(f"`{self._name(path)}` is {shown(data)}, there is nothing below it")
        key = str(rest[0])
        here = (*path, key)
        removes = len(rest) == 1 and self.override.value is None and key in mapping and "op" not in mapping
        if removes:
            self.sources.graft(here, SourceMap())
            self.sources.keys[here] = self.override.place  # who removed it, should it be missed
            return {k: v for k, v in mapping.items() if k != key}
        known = key in mapping
        value = self.set(mapping.get(key, {}), step_into(annotation, key), rest[1:], here)
        self.sources.keys[here] = self.override.place
        if not known:
            self.sources.values.setdefault(here, self.override.place)
        return {**mapping, key: value}

    def _value(self, annotation: Any, path: Path) -> Data:
        """The value as the schema wants it: text stays text where the schema says string."""
        self.sources.graft(path, self.override.sources)
        for known in [p for p in self.sources.values if p[: len(path)] == path]:
            self.sources.values[known] = self.override.place
        kinds = list(options(annotation))
        value = self.override.value
        if str in kinds and not {int, float, bool} & set(kinds) and isinstance(value, int | float):
            return self.override.raw
        return value

    def _index(self, items: tuple[Data, ...], word: str, path: Path) -> int:
        ids = [str((as_map(item) or {}).get("id", "")) for item in items]
        if word in ids:
            return ids.index(word)
        if word.isdecimal() and int(word) < len(items):
            return int(word)
        names = [name for name in ids if name]
        hint = meant(word, names) or (f"items: {', '.join(names)}" if names else f"items are 0 to {len(items) - 1}")
        raise self._error(f"`{self._name(path)}` has no item `{word}`", hint)

    def _name(self, path: Path) -> str:
        kind = self.override.kind
        return dotted(path if kind == "engine" else (kind, *path))

    def _error(self, message: str, hint: str = "") -> SpecError:
        return SpecError(Problem("S022", message, self.override.place.loc, help=hint))
