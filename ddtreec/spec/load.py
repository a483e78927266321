"""From a reference to a checked engine: read, merge, override, validate, cross-check. All errors of a stage at once.

Stages: syntax, references and schema; cross-field. A stage is only reached when the one before it found nothing; of a
spec that cannot be read nothing more is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, cast

from pydantic import ValidationError

from ddtreec import __version__
from ddtreec.core.errors import Loc, Problem, SpecError
from ddtreec.spec import overrides as sets
from ddtreec.spec.explain import problems_of, shown
from ddtreec.spec.find import KINDS, is_folder, is_path, locate, read_spec
from ddtreec.spec.schema import (
    CLASSES,
    DrafterSpec,
    EngineSpec,
    Kind,
    ModelSpec,
    QuantSpec,
    Spec,
    TopologySpec,
    TreeSpec,
)
from ddtreec.spec.source import Document, Path, Place, SourceMap, problem_at

REFERENCES: tuple[Kind, ...] = ("model", "quant", "drafter", "tree", "topology")


@dataclass(frozen=True)
class LoadedSpec:
    """One validated spec and where everything in it was written."""

    spec: Spec
    sources: SourceMap


@dataclass(frozen=True)
class LoadedEngine:
    """An engine and the specs it names, validated and cross-checked. `warnings` are worth saying but stop nothing."""

    engine: EngineSpec
    model: ModelSpec
    quant: QuantSpec
    topology: TopologySpec
    drafter: DrafterSpec | None = None
    tree: TreeSpec | None = None
    sources: Mapping[str, SourceMap] = field(default_factory=dict[str, SourceMap])
    overrides: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()

    def place(self, kind: Kind, path: Path = (), *, key: bool = False) -> Place:
        """Where the value (or the key) at `path` of the `kind` spec was written, with the text of that line."""
        known = self.sources.get(kind)
        return known.place(path, key=key) if known else Place(Loc(f"<{kind}>"))

    def loc(self, kind: Kind, path: Path = (), *, key: bool = False) -> Loc:
        """The location alone, e.g. `loc('model', ('blocks', 'attention', 'ops', 3, 'eps'))`."""
        return self.place(kind, path, key=key).loc

    def problem(
        self, code: str, message: str, kind: Kind, path: Path = (), *, key: bool = False, note: str = "", help: str = ""
    ) -> Problem:
        """A problem that points at `path` of the `kind` spec."""
        return problem_at(self.place(kind, path, key=key), code, message, note=note, help=help)

    def specs(self) -> dict[Kind, Spec]:
        """The specs that are there, by kind."""
        found: dict[Kind, Spec | None] = {kind: getattr(self, kind) for kind in KINDS}
        return {kind: spec for kind, spec in found.items() if spec is not None}

    def resolved(self) -> dict[str, Any]:
        """All specs as plain data with every default filled in and references by name; no paths, stable."""
        specs = self.specs()
        data = {kind: spec.model_dump(mode="json", by_alias=True) for kind, spec in specs.items()}
        for kind in REFERENCES:
            data["engine"][kind] = specs[kind].name if kind in specs else None
        return cast(dict[str, Any], data)


def load_spec(kind: Kind, ref: str | FilePath) -> LoadedSpec:
    """One spec by shipped name or path, validated alone. Raises SpecError."""
    document = read_spec(kind, _entry(kind, ref))
    specs, problems = _validate({kind: document})
    if problems:
        raise SpecError(problems)
    return LoadedSpec(specs[kind], document.sources)


def load_engine(ref: str | FilePath, overrides: Sequence[str] = ()) -> LoadedEngine:
    """The engine at `ref` (a shipped name or a path) with `--set` overrides applied. Raises SpecError."""
    from ddtreec.spec import cross

    specs, documents = _load(ref, overrides)
    sources = {kind: document.sources for kind, document in documents.items()}
    loaded = LoadedEngine(**cast(dict[str, Any], specs), sources=sources, overrides=tuple(overrides))
    problems, warnings = cross.check(loaded)
    if problems:
        raise SpecError(problems)
    return LoadedEngine(
        **cast(dict[str, Any], specs), sources=sources, overrides=tuple(overrides), warnings=tuple(warnings)
    )


def _entry(kind: Kind, ref: str | FilePath) -> FilePath:
    if isinstance(ref, FilePath) or is_path(ref) or is_folder(ref):
        return FilePath(ref)
    return locate(kind, ref, FilePath())


def _load(ref: str | FilePath, texts: Sequence[str]) -> tuple[dict[Kind, Spec], dict[Kind, Document]]:
    wanted = sets.parse(texts)
    engine = read_spec("engine", _entry("engine", ref))
    for override in wanted:
        if override.kind == "engine":
            engine = sets.apply(engine, override)
    if any(o.path == ("drafter",) and o.value is None for o in wanted) and "tree" in engine.data:
        engine = sets.apply(engine, sets.parse(["tree=null"])[0])  # without a drafter there is nothing to verify
    documents: dict[Kind, Document] = {"engine": engine}
    problems: list[Problem] = []
    for kind in REFERENCES:
        try:
            document = _referenced(kind, engine)
            if document is not None:
                documents[kind] = document
        except SpecError as error:
            problems += error.problems
    for override in wanted:
        if override.kind != "engine":
            try:
                _into(documents, override, engine)
            except SpecError as error:
                problems += error.problems
    specs, found = _validate(documents)
    problems += found
    if problems:
        raise SpecError(problems)
    return specs, documents


def _referenced(kind: Kind, engine: Document) -> Document | None:
    """The document that the engine names for `kind`. Other values than strings are left to the schema."""
    ref = engine.data.get(kind)
    if not isinstance(ref, str):
        return None
    place = engine.sources.place((kind,))
    written = place.loc.file
    folder = FilePath() if written.startswith(sets.PREFIX) else FilePath(written).parent
    return read_spec(kind, locate(kind, ref, folder, place))


def _into(documents: dict[Kind, Document], override: sets.Override, engine: Document) -> None:
    document = documents.get(override.kind)
    if document is not None:
        documents[override.kind] = sets.apply(document, override)
    elif engine.data.get(override.kind) is None:
        message = f"the engine names no {override.kind}, so there is nothing to set in it"
        hint = f"name one first, e.g. --set {override.kind}=NAME"
        raise SpecError(problem_at(override.place, "S022", message, help=hint))


def _validate(documents: Mapping[Kind, Document]) -> tuple[dict[Kind, Spec], list[Problem]]:
    specs: dict[Kind, Spec] = {}
    problems: list[Problem] = []
    for kind, document in documents.items():
        found = _head_problems(kind, document, documents.get("engine"))
        if not found:
            try:
                specs[kind] = CLASSES[kind].model_validate(document.data, by_alias=True, by_name=False)
            except ValidationError as error:
                found = problems_of(error, kind, documents)
        problems += found
    return specs, problems


def _head_problems(kind: Kind, document: Document, engine: Document | None) -> list[Problem]:
    """A wrong kind or version makes every other message misleading, so these two come alone."""
    data, sources = document.data, document.sources
    found = data.get("kind", kind)
    if found != kind:
        file = sources.place(()).loc.file
        article = "an" if found == "engine" else "a"
        message = f"{file} is {article} {found} spec, but a spec of kind {kind} is needed here"
        if found not in KINDS:
            message = f"`kind` must be {kind}, found {shown(found)}"
        named = engine is not None and kind in engine.data and kind != "engine"
        note = f"named by `{kind}:` at {engine.sources.place((kind,)).loc}" if engine and named else ""
        hint = "ddtreec check takes an engine spec" if kind == "engine" else f"name a {kind} spec instead"
        return [problem_at(sources.place(("kind",)), "S014", message, note=note, help=hint)]
    version = data.get("version", 1)
    if isinstance(version, int) and version != 1:
        message = f"version {version} of the spec format is not read by ddtreec {__version__}"
        hint = (
            "install a newer ddtreec, or write the spec in version 1"
            if version > 1
            else "the format begins with `version: 1`"
        )
        return [problem_at(sources.place(("version",)), "S015", message, note="it reads version 1", help=hint)]
    return []
