"""From a reference to a document: shipped names, paths, and `extends:`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path as FilePath
from typing import get_args

from ddtreec.core.errors import Problem, SpecError
from ddtreec.core.paths import data_folder, display
from ddtreec.spec.reader import read_file
from ddtreec.spec.schema import Kind
from ddtreec.spec.source import Document, Place, SourceMap, as_list, merged, problem_at

KINDS: tuple[Kind, ...] = get_args(Kind)
FOLDERS: dict[Kind, str] = {
    "model": "models",
    "drafter": "drafters",
    "quant": "quants",
    "tree": "trees",
    "topology": "topologies",
    "engine": "engines",
}


def shipped(kind: Kind) -> dict[str, FilePath]:
    """Name to file of every spec of `kind` that comes with ddtreec, in order of name."""
    return {path.stem: path for path in sorted((data_folder("specs") / FOLDERS[kind]).glob("*.yaml"))}


def is_path(ref: str) -> bool:
    """Whether a reference means a file rather than a shipped name."""
    return ref.endswith((".yaml", ".yml")) or "/" in ref or ref.startswith(".")


def is_folder(ref: str) -> bool:
    """Whether a reference is the name of a folder here."""
    return _there(FilePath(ref)) and FilePath(ref).is_dir()


def locate(kind: Kind, ref: str, folder: FilePath, place: Place | None = None) -> FilePath:
    """The file that `ref` means, seen from `folder`. Raises SpecError S020 naming what exists."""
    if is_path(ref):
        path = folder / ref
        if _there(path):
            return path
        beside = sorted(p.name for p in path.parent.glob("*.yaml")) if _there(path.parent) else []
        hint = meant(path.name, beside) or (f"files there: {', '.join(beside)}" if beside else "check the path")
        raise SpecError(_missing(f"{kind} spec {_short(display(path))} does not exist", hint, place))
    names = shipped(kind)
    if ref in names:
        return names[ref]
    beside = folder / f"{ref}.yaml"
    hint = meant(ref, names) or f"shipped: {', '.join(names)}; or give a path that ends in .yaml"
    if _there(beside):
        hint = f"for the file write `{ref}.yaml`"
    raise SpecError(_missing(f"no {kind} spec is called `{_short(ref)}`", hint, place))


def read_spec(kind: Kind, path: FilePath) -> Document:
    """The document at `path` with everything it extends merged in. Raises SpecError S001..S007, S020, S021."""
    return _read(kind, path, [])


def _there(path: FilePath) -> bool:
    """Whether `path` exists; a name that no file can have (too long, with a NUL) does not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _short(name: str) -> str:
    return name if len(name) <= 100 else f"{name[:100]}.."


def meant(word: str, known: Iterable[str]) -> str:
    """`did you mean ...?` for the nearest of `known`, or an empty string."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else ""


def _missing(message: str, hint: str, place: Place | None) -> Problem:
    return problem_at(place, "S020", message, help=hint) if place else Problem("S020", message, help=hint)


def _read(kind: Kind, path: FilePath, chain: list[FilePath]) -> Document:
    own = read_file(path)
    if "extends" not in own.data:
        return own
    here = [*chain, path.resolve()]
    base = Document({}, SourceMap({(): own.sources.values[()]}))
    for position, ref in _bases(own):
        place = own.sources.place(position)
        found = locate(kind, ref, path.parent, place)
        if found.resolve() in here:
            loop = [*here[here.index(found.resolve()) :], found]
            message = "specs extend each other in a circle: " + " -> ".join(display(p) for p in loop)
            raise SpecError(problem_at(place, "S021", message, help="remove one `extends:` of the circle"))
        document = _read(kind, found, here)
        if document.data.get("kind", kind) != kind:
            message = f"{display(found)} is of kind {document.data['kind']}, a spec of kind {kind} cannot extend it"
            raise SpecError(problem_at(place, "S014", message, help=f"extend a spec of kind {kind}"))
        base = merged(base, document)
    own.sources.graft(("extends",), SourceMap())
    return merged(base, Document({k: v for k, v in own.data.items() if k != "extends"}, own.sources))


def _bases(own: Document) -> list[tuple[tuple[str | int, ...], str]]:
    value = own.data["extends"]
    if isinstance(value, str):
        return [(("extends",), value)]
    items = as_list(value) or ()
    if items and all(isinstance(item, str) for item in items):
        return [(("extends", i), str(item)) for i, item in enumerate(items)]
    message = "`extends` must be the name or path of a spec, or a list of them"
    raise SpecError(problem_at(own.sources.place(("extends",)), "S012", message, help="e.g. `extends: kimi-k2.6`"))
