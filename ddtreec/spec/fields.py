"""The fields of all specs as a person asks for them: `tree.budget`, `limits.context`, `layout.experts`.

Types, ranges and defaults come from the models, meaning from `notes`. `json_schema` is the same for editors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ddtreec import __version__
from ddtreec.spec.find import FOLDERS, KINDS, shipped
from ddtreec.spec.notes import NOTES, Note, note
from ddtreec.spec.schema import CLASSES, Ident, Kind, Name, OpSpec

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class FieldFacts:
    """One field. `path` as in `--set`, names of one's own (a dim, a block) left out; `default` is None where it has
    none (`required`) or where it is null."""

    kind: Kind
    path: str
    model: str
    name: str
    type: str
    required: bool
    default: Any
    choices: tuple[str, ...]
    note: Note


def all_fields() -> dict[str, FieldFacts]:
    """Every field by full path, its kind first: 'tree.budget', 'engine.limits.context'."""
    found: dict[str, FieldFacts] = {}
    for kind in KINDS:
        for facts in _walk(kind, CLASSES[kind], (kind,)):
            found.setdefault(facts.path, facts)
    return found


def lookup(name: str) -> list[FieldFacts]:
    """The fields that `name` may mean: its full path, or the end of one (`budget`, `limits.context`). Numbers of lists
    and names of one's own in between are skipped, so that a path of `--set` is understood."""
    known = all_fields()
    for wanted in dict.fromkeys((name, _plain(name, known))):
        if wanted in known:
            return [known[wanted]]
        ends = [facts for path, facts in known.items() if path.endswith("." + wanted)]
        engine = [facts for facts in ends if facts.path == f"engine.{wanted}"]
        if ends:
            return engine or ends
    return []


def _plain(name: str, known: Mapping[str, FieldFacts]) -> str:
    """The path without numbers of lists and names of one's own; '' where a word is left that no field has there."""
    words = name.split(".")
    path = words[0] if words[0] in KINDS else "engine"
    for word in words[1:] if words[0] in KINDS else words:
        if f"{path}.{word}" in known:
            path = f"{path}.{word}"
        elif path not in known or not known[path].type.startswith(("a list of", "a mapping of")):
            return ""
    return path


def _walk(kind: Kind, cls: type[BaseModel], path: tuple[str, ...]) -> Iterator[FieldFacts]:
    for name, info in cls.model_fields.items():
        written = info.alias or name
        here = (*path, written)
        default = None if info.default is PydanticUndefined else info.default
        yield FieldFacts(
            kind, ".".join(here), cls.__name__, written, type_words(info), info.is_required(), plain(default),
            _choices(cls.__name__, written), note(cls.__name__, written),
        )  # fmt: skip
        for inner in _models(info.annotation):
            yield from _walk(kind, inner, here)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models inside an annotation: itself, members of unions, items of tuples, values of dicts."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for inner in get_args(annotation):
        yield from _models(inner)


def _choices(model: str, field: str) -> tuple[str, ...]:
    """Shipped names where a field refers to a spec."""
    if model == "EngineSpec" and field in FOLDERS:
        return tuple(shipped(field))
    return ()


def plain(value: Any) -> Any:
    """A default as it would be written."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value


# ---- types in words -----------------------------------------------------------------------------------------------


def type_words(info: FieldInfo) -> str:
    """The type of a field and its bounds: 'a whole number, at least 1, at most 127'."""
    return ", ".join([_words(info.annotation), *_bounds(info.metadata)])


def _bounds(metadata: Any) -> Iterator[str]:
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from _bounds(item.metadata)
        elif isinstance(item, annotated_types.Gt):
            yield f"greater than {item.gt}"
        elif isinstance(item, annotated_types.Ge):
            yield f"at least {item.ge}"
        elif isinstance(item, annotated_types.Lt):
            yield f"less than {item.lt}"
        elif isinstance(item, annotated_types.Le):
            yield f"at most {item.le}"
        elif isinstance(getattr(item, "pattern", None), str):
            yield f"of the form {item.pattern}"


def _words(annotation: Any) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation in (Ident, Name):
        return "a name"
    if origin is Annotated:
        return ", ".join([_words(args[0]), *_bounds(args[1:])])
    if origin is Literal:
        return " or ".join(json.dumps(a) if isinstance(a, int) else str(a) for a in args)
    if origin in (Union, UnionType):
        return " or ".join(_words(a) for a in args)
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return f"a list of {_words(args[0]).removeprefix('a ')}"
        return f"[{', '.join(_words(a) for a in args)}]"
    if origin is dict:
        return f"a mapping of names to {_words(args[1]).removeprefix('a ')}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a mapping"
    return _PLAIN_WORDS.get(annotation, "a value")


_PLAIN_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a string",
    type(None): "null",
}


# ---- JSON Schema --------------------------------------------------------------------------------------------------


def json_schema(kind: Kind, ops: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one kind of spec. `ops`: for each kind of op the schema of its fields.

    With `extends` at the top nothing is required and null deletes, down to the next list: a base holds the rest.
    """
    schema = CLASSES[kind].model_json_schema(by_alias=True)
    definitions = schema.pop("$defs", {})
    _describe(schema, CLASSES[kind].__name__)
    for name, inner in definitions.items():
        _describe(inner, name)
    if "OpSpec" in definitions:
        definitions["OpSpec"] = _op_schema(definitions["OpSpec"], ops)
    required = schema.pop("required", [])
    properties = schema.pop("properties")
    reference = {"type": "string", "examples": list(shipped(kind))[:1]}
    properties["extends"] = {
        "description": "One spec or several to begin with: mappings merge, everything else is replaced, null deletes.",
        "anyOf": [reference, {"type": "array", "items": reference, "minItems": 1}],
    }
    strict = {name: {k: v for k, v in field.items() if k not in SHOWN} for name, field in properties.items()}
    shown = {name: {k: v for k, v in field.items() if k in SHOWN} for name, field in properties.items()}
    return {
        "$schema": SCHEMA_DIALECT,
        "$id": f"urn:ddtreec:{kind}:1",
        "$comment": f"written by ddtreec {__version__}",
        "title": f"ddtreec {kind} spec",
        "description": " ".join((CLASSES[kind].__doc__ or "").split()),
        "type": "object",
        "additionalProperties": False,
        "properties": shown,
        "if": {"required": ["extends"]},
        "then": {"properties": _overlaid(properties)},
        "else": {"required": required, "properties": strict},
        "$defs": definitions | {f"{OVERLAY}{name}": _overlay(inner) for name, inner in definitions.items()},
    }


OVERLAY = "Overlay"
"""Before the name of a definition: the same for a spec that extends another."""


def _overlay(schema: dict[str, Any]) -> dict[str, Any]:
    """A definition of which a part may be written."""
    rest = {key: value for key, value in schema.items() if key != "required"}
    return {**rest, "properties": _overlaid(schema["properties"])} if "properties" in rest else rest


def _overlaid(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties whose mappings may be parts and whose values may be null."""
    return {name: {"anyOf": [_parted(field), {"type": "null"}]} for name, field in properties.items()}


def _parted(field: Any) -> Any:
    """A schema with its references to definitions turned to overlays, except inside lists, which are replaced whole."""
    if isinstance(field, list):
        return [_parted(item) for item in cast("list[Any]", field)]
    if not isinstance(field, dict):
        return field
    known = cast("dict[str, Any]", field)
    if known.get("type") == "array":
        return known
    start = "#/$defs/"
    return {
        key: start + OVERLAY + value.removeprefix(start) if key == "$ref" else _parted(value)
        for key, value in known.items()
        if key not in SHOWN
    }


def _describe(schema: dict[str, Any], model: str) -> None:
    schema.pop("title", None)
    if "description" in schema:
        schema["description"] = " ".join(schema["description"].split())
    for name, field in schema.get("properties", {}).items():
        field.pop("title", None)
        if model not in NOTES and name not in ("version", "name", "kind"):
            continue
        told = note(model, name)
        field["description"] = told.text + (f" Unit: {told.unit}." if told.unit else "")
        if told.example is not None:
            field["examples"] = [told.example]
        if told.unit:
            field["x-unit"] = told.unit


def _op_schema(schema: dict[str, Any], ops: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """An op is one of the known kinds, each with its own fields and no others."""
    shared = schema["properties"]
    common = {name: shared[name] for name in OP_FIELDS}
    return {
        "description": schema["description"],
        "type": "object",
        "required": ["id", "op"],
        "properties": {"op": {**shared["op"], "enum": list(ops)}},
        "oneOf": [
            {
                "title": name,
                "description": op["description"],
                "properties": {**common, **op["properties"], "op": {"const": name}},
                "required": op["required"],
                "additionalProperties": False,
            }
            for name, op in ops.items()
        ],
    }


SHOWN = ("description", "examples", "x-unit", "default")
"""What an editor shows of a property, whether it extends another spec or not."""

OP_FIELDS = tuple(info.alias or name for name, info in OpSpec.model_fields.items())
"""The fields that every op has."""
