"""What pydantic rejects, said with places: unknown keys at the key, bad values at the value, gaps at the mapping."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ddtreec.core.errors import Problem
from ddtreec.spec.find import KINDS, meant
from ddtreec.spec.schema import CLASSES, Kind, OpSpec
from ddtreec.spec.source import Data, Document, Path, as_list, as_map, dotted, problem_at

Documents = Mapping[Kind, Document]

RUN_OPTIONS = ("seed", "temperature", "top_p", "top_k", "stop", "max_new_tokens", "prompt", "speculation")
"""What people look for in a spec and is an option of `ddtreec run`."""

_WORDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a string",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "none_required": "null",
}
_LIMITS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def problems_of(error: ValidationError, kind: Kind, documents: Documents) -> list[Problem]:
    """One problem for each path that pydantic complains about, in the order of the text."""
    document = documents[kind]
    grouped: dict[Path, list[Any]] = {}
    for item in error.errors(include_url=False):
        path, rest = _in_data(item["loc"], document.data)
        if item["type"] in ("missing", "extra_forbidden") or rest == ("[key]",):
            path = (*path, *rest[:1]) if item["type"] == "missing" else path
        grouped.setdefault(path, []).append(item)
    meant_by_typos = {
        (*path[:-1], _near(path, kind)) for path, items in grouped.items() if items[0]["type"] == "extra_forbidden"
    }
    problems = [
        _problem(path, items, kind, documents)
        for path, items in grouped.items()
        if items[0]["type"] != "missing" or path not in meant_by_typos
    ]
    return sorted(problems, key=lambda p: (p.loc.line, p.loc.col) if p.loc else (0, 0))


def shown(value: Data) -> str:
    """A value as a person wrote it, or what it is when it is long."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, tuple):
        return "a list"
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def step_into(annotation: Any, part: str | int) -> Any:
    """The annotation one key or index deeper, or None where there is no such thing."""
    for option in options(annotation):
        origin, args = get_origin(option), get_args(option)
        if isinstance(part, int) and origin is tuple:
            return args[0] if Ellipsis in args else args[part] if part < len(args) else None
        if isinstance(part, str) and origin is dict:
            return args[1]
        if isinstance(part, str) and isinstance(option, type) and issubclass(option, BaseModel):
            return fields_of(option).get(part)
    return None


def options(annotation: Any) -> Iterator[Any]:
    """The members of a union, without Annotated; the annotation itself when it is none."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from options(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for member in get_args(annotation):
            yield from options(member)
    else:
        yield annotation


def fields_of(cls: type[BaseModel]) -> dict[str, Any]:
    """Key as written in YAML to annotation."""
    return {field.alias or name: field.annotation for name, field in cls.model_fields.items()}


def _in_data(loc: tuple[str | int, ...], data: Data) -> tuple[Path, Path]:
    """The part of a pydantic location that exists in the data, and the rest (union members, missing keys)."""
    path: list[str | int] = []
    for i, part in enumerate(loc):
        mapping, items = as_map(data), as_list(data)
        if mapping is not None and part in mapping:
            data = mapping[str(part)]
        elif items is not None and isinstance(part, int) and part < len(items):
            data = items[part]
        else:
            return tuple(path), loc[i:]
        path.append(part)
    return tuple(path), ()


def _value(data: Data, path: Path) -> Data:
    for part in path:
        data = data[part]
    return data


def _problem(path: Path, items: list[Any], kind: Kind, documents: Documents) -> Problem:
    document, item = documents[kind], items[0]
    if item["type"] == "missing":
        return _missing(path, kind, document)
    if item["type"] == "extra_forbidden":
        return _unknown(path, kind, documents)
    value = _value(document.data, path)
    place = document.sources.place(path)
    name = _full(kind, path)
    if item["loc"][-1] == "[key]":
        hint = "use letters, digits and underscores"
        return problem_at(document.sources.place(path, key=True), "S013", f"`{name}` is not a proper name", help=hint)
    expected = list(dict.fromkeys(_WORDS[i["type"]] for i in items if i["type"] in _WORDS))
    if len(expected) == len(dict.fromkeys(i["type"] for i in items)):
        message = f"`{name}` must be {' or '.join(expected)}, found {shown(value)}"
        hint = _type_help(value, expected)
        if name in KINDS and isinstance(value, dict | tuple):
            hint = "name a shipped spec, or give the path of a .yaml file"
        return problem_at(place, "S012", message, help=hint)
    item = next(i for i in items if i["type"] not in _WORDS)
    message, hint = _range(name, item, value)
    return problem_at(place, "S013", message, help=hint)


def _range(name: str, item: Any, value: Data) -> tuple[str, str]:
    context: dict[str, Any] = item.get("ctx", {})
    if item["type"] == "literal_error":
        choices = [c.strip("'") for c in re.split(r", | or ", str(context["expected"]))]
        message = f"`{name}` must be {' or '.join(choices)}, found {shown(value)}"
        if len(choices) == 1:
            return message, f"write {name.rpartition('.')[2]}: {choices[0]}"
        return message, (meant(value, choices) if isinstance(value, str) else "") or f"see: ddtreec explain {name}"
    if item["type"] in _LIMITS:
        key, words = _LIMITS[item["type"]]
        return f"`{name}` must be {words} {context[key]}, found {shown(value)}", ""
    if item["type"] == "too_long":
        return f"`{name}` must have {context['max_length']} items at most, found {context['actual_length']}", ""
    if item["type"] == "string_pattern_mismatch":
        return f"`{name}` cannot be {shown(value)}", _pattern_help(str(context["pattern"]))
    return f"`{name}`: {item['msg']}, found {shown(value)}", ""


def _pattern_help(pattern: str) -> str:
    if "ep[0-9]" in pattern:
        return "write auto, replicated or epAxtpB with A * B = devices, e.g. ep2xtp4"
    if pattern.startswith("^[a-z0-9]"):
        return "a name has small letters, digits, `.`, `_` and `-`"
    return "use letters, digits and underscores, beginning with a letter"


def _type_help(value: Data, expected: list[str]) -> str:
    if isinstance(value, bool) and "a string" in expected:
        return "quote it"
    if not isinstance(value, str):
        if isinstance(value, float) and value.is_integer() and "a whole number" in expected:
            return f"write {int(value)}"
        return "quote it" if "a string" in expected and isinstance(value, int | float) else ""
    if "true or false" in expected and value.lower() in ("yes", "no", "on", "off"):
        return f"write {'true' if value.lower() in ('yes', 'on') else 'false'}: `{value}` is a word in YAML 1.2"
    if any("number" in word for word in expected):
        plain = value.replace("_", "").replace(",", "")
        if re.fullmatch(r"[-+]?[0-9]+", plain):
            return f"write {int(plain)}, without leading zeros, separators or quotes"
        if re.fullmatch(r"0[xXoO][0-9a-fA-F]+", value):
            return "write the number in decimal"
        return "write a bare number, without unit or quotes"
    return ""


def _full(kind: Kind, path: Path) -> str:
    """The path as `--set` takes it."""
    return dotted(path if kind == "engine" else (kind, *path))


def _missing(path: Path, kind: Kind, document: Document) -> Problem:
    parent, key = path[:-1], path[-1]
    if isinstance(key, int):
        message = f"`{_full(kind, parent)}` must have {key + 1} items at least"
        return problem_at(document.sources.place(parent), "S012", message, help=f"see: ddtreec explain {kind}")
    removed = document.sources.keys.get(path)
    place = removed or document.sources.place(parent, key=bool(parent))
    where = f" of `{_full(kind, parent)}`" if parent else f" of the {kind} spec"
    hint = "add `version: 1`" if key == "version" else f"add `{key}:`"
    return problem_at(place, "S011", f"the key `{key}`{where} is missing", help=hint)


def _unknown(path: Path, kind: Kind, documents: Documents) -> Problem:
    document, key = documents[kind], str(path[-1])
    place = document.sources.place(path, key=True)
    inside = f"`{_full(kind, path[:-1])}`" if len(path) > 1 else f"{'an' if kind == 'engine' else 'a'} {kind} spec"
    homes: list[tuple[Kind, Path]] = [
        (k, p) for k in (kind, *KINDS) for p in _homes(CLASSES[k], key) if (k, p) != (kind, path)
    ]
    if homes and key not in ("name", "kind", "version"):
        home, at = homes[0]
        owner = _owner(home, at[:-1], kind)
        message = f"`{key}` does not belong in {inside}; it belongs {owner}"
        return problem_at(place, "S016", message, note=_twin(home, at, documents), help="move it there")
    near = _near(path, kind)
    if key in RUN_OPTIONS and not near:
        hint = f"it is asked for at each run: ddtreec run --{key.replace('_', '-')}"
        return problem_at(place, "S016", f"`{key}` does not belong in {inside}", help=hint)
    hint = f"did you mean `{near}`?" if near else f"known keys: {', '.join(_known(path, kind))}"
    return problem_at(place, "S010", f"unknown key `{key}` in {inside}", help=hint)


def _known(path: Path, kind: Kind) -> list[str]:
    """The keys that the mapping around `path` knows."""
    annotation: Any = CLASSES[kind]
    for part in path[:-1]:
        annotation = step_into(annotation, part)
    return [k for o in options(annotation) if isinstance(o, type) and issubclass(o, BaseModel) for k in fields_of(o)]


def _near(path: Path, kind: Kind) -> str:
    """The known key that an unknown one may have been meant for, or an empty string."""
    return next(iter(difflib.get_close_matches(str(path[-1]), _known(path, kind), n=1, cutoff=0.6)), "")


def _owner(home: Kind, parent: Path, kind: Kind) -> str:
    """Where a key belongs, in words."""
    if home == kind:
        return f"under `{_full(kind, parent)}`" if parent else "at the top level"
    if home == "engine":
        return f"under `{dotted(parent)}` of the engine spec" if parent else "in the engine spec"
    return f"under `{dotted((home, *parent))}`"


def _homes(cls: type[BaseModel], key: str, path: Path = ()) -> list[Path]:
    """Every place below `cls` whose mapping knows `key`; ops are left out, their fields are their own."""
    if cls is OpSpec:
        return []
    found: list[Path] = []
    for name, annotation in fields_of(cls).items():
        if name == key:
            found.append((*path, name))
        for option in options(annotation):
            inner = option
            wild: Path = ()
            while get_origin(inner) in (dict, tuple):
                inner = next(iter(options(get_args(inner)[-1 if get_origin(inner) is dict else 0])))
                wild = (*wild, "*")
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                found += _homes(inner, key, (*path, name, *wild))
    return sorted(found, key=len)


def _twin(home: Kind, path: Path, documents: Documents) -> str:
    """What that key says where it belongs, if it is there already."""
    document = documents.get(home)
    if document is None or path not in document.sources.values:
        return ""
    key = dotted(path if home == "engine" else (home, *path))
    return f"{key} = {shown(_value(document.data, path))} ({document.sources.place(path).loc})"
