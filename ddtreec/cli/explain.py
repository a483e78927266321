"""`ddtreec explain`: a node of an engine, a field of a spec, a kind of op, or the code of a message."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ddtreec.cli.common import guarded
from ddtreec.cli.output import as_json as json_text
from ddtreec.cli.output import unknown_name
from ddtreec.core.errors import Problem, SpecError

if TYPE_CHECKING:
    from ddtreec.spec.fields import FieldFacts
    from ddtreec.spec.load import LoadedEngine

SCHEMA = "ddtreec.explain/1"
WITHOUT_ENGINE = "to explain a node, name its engine: ddtreec explain L03.moe.experts tiny-k2-cpu"
CODE = re.compile(r"[A-Za-z]\d{3}")


@click.command("explain", short_help="Explain a node, a field of a spec, an op, or an error code.")
@click.argument("name")
@click.argument("engine", required=False)
@click.option("--set", "overrides", multiple=True, metavar="A.B=C", help="Override one value of the specs; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@guarded
def explain(name: str, engine: str | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Explain NAME: a node of ENGINE, a field of a spec (with ENGINE also its value there), a kind of op, or a code.

    \b
    Examples:
      ddtreec explain L03.moe.experts tiny-k2-cpu-x2
      ddtreec explain tree.budget
      ddtreec explain linear
      ddtreec explain S010
    """
    told = _told(name, engine, overrides)
    sys.stdout.write(json_text(told[0]) if as_json else told[1])


def _told(name: str, engine: str | None, overrides: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    """The explanation as data and as text. Raises SpecError C002 and C003."""
    from ddtreec.ops import SPEC_OPS
    from ddtreec.spec.fields import lookup
    from ddtreec.spec.load import load_engine

    if CODE.fullmatch(name):
        return _code(name.upper())
    fields = lookup(name)
    if name in SPEC_OPS:
        return _op(name, [facts.path for facts in fields])
    if len(fields) > 1:
        paths = ", ".join(facts.path for facts in fields)
        raise SpecError(Problem("C003", f"`{name}` means several fields", note=paths, help="write more of the path"))
    if fields:
        loaded = load_engine(engine, overrides) if engine else None
        return _field(name, fields[0], loaded)
    if engine is not None:
        return _node(name, engine, overrides)
    raise unknown_name("field, op or code", name, [*_field_names(), *SPEC_OPS], where=WITHOUT_ENGINE)


def _field_names() -> list[str]:
    """Paths as people write them: those of the engine also without its name."""
    from ddtreec.spec.fields import all_fields

    paths = list(all_fields())
    return [*paths, *(path.removeprefix("engine.") for path in paths if path.startswith("engine."))]


def _code(code: str) -> tuple[dict[str, Any], str]:
    from ddtreec.core.codes import CODES, FAMILIES

    entry = CODES.get(code)
    if entry is None:
        raise unknown_name("code", code, list(CODES))
    family = FAMILIES[code[0]]
    lines = [
        f"{code}: {entry.title}",
        "",
        f"  rule     {entry.rule}",
        f"  cause    {entry.cause}",
        f"  fix      {entry.fix}",
        f"  example  {entry.example}",
        "",
        f"  {code[0]} codes: {family}",
    ]
    data = {"schema": SCHEMA, "what": "code", "code": code, "family": family, **entry._asdict()}
    return data, "\n".join(lines) + "\n"


def _field(name: str, facts: FieldFacts, loaded: LoadedEngine | None) -> tuple[dict[str, Any], str]:
    told = facts.note
    default = "it must be written" if facts.required else json.dumps(facts.default)
    lines = [facts.path, "", f"  {told.text}", "", f"  type     {facts.type}"]
    lines += [f"  unit     {told.unit}"] if told.unit else []
    lines.append(f"  default  {default}")
    lines += [f"  shipped  {', '.join(facts.choices)}"] if facts.choices else []
    written = _written(facts)
    lines += [f"  example  {written}"] if told.example is not None else []
    values = list(_values(name, facts, loaded)) if loaded else []
    if loaded is not None:
        lines += ["", f"  in {loaded.engine.name}"]
        lines += [f"    {path}: {json.dumps(value)}   ({origin})" for path, value, origin in values[:20]] or [
            "    not there"
        ]
        lines += [f"    and {len(values) - 20} more"] if len(values) > 20 else []
    data = {
        "schema": SCHEMA,
        "what": "field",
        "path": facts.path,
        "meaning": told.text,
        "type": facts.type,
        "unit": told.unit or None,
        "required": facts.required,
        "default": facts.default,
        "shipped": list(facts.choices),
        "example": told.example,
        "values": [{"path": path, "value": value, "origin": origin} for path, value, origin in values],
    }
    return data, "\n".join(lines) + "\n"


def _written(facts: FieldFacts) -> str:
    from ddtreec.spec.text import value

    shown = f"{facts.name}: {value(facts.note.example)}"
    path = facts.path.removeprefix("engine.")
    scalar = not isinstance(facts.note.example, dict | list)
    plain = scalar and facts.model in (
        "TreeSpec",
        "LimitsSpec",
        "LayoutSpec",
        "EngineSpec",
        "TopologySpec",
        "DeviceSpec",
    )
    return shown + (
        f"   or   --set {path}={facts.note.example}" if plain and facts.name not in ("kind", "name") else ""
    )


def _values(name: str, facts: FieldFacts, loaded: LoadedEngine) -> Iterator[tuple[str, Any, str]]:
    """The leaves of an engine that are this field: the very path if one was asked for, else all that match."""
    from ddtreec.spec.resolved import leaves

    words = facts.path.split(".")
    for leaf in leaves(loaded):
        mine = [str(part) for part in leaf.path]
        exact = leaf.dotted in (name, f"engine.{name}")
        if exact or (mine[0] == words[0] and mine[-1] == words[-1] and _inside(words, mine) and name not in mine):
            yield leaf.dotted, leaf.value, leaf.origin


def _inside(words: list[str], path: list[str]) -> bool:
    """Whether the words stand in the path in this order."""
    rest = iter(path)
    return all(word in rest for word in words)


def _op(kind: str, fields_too: list[str]) -> tuple[dict[str, Any], str]:
    from ddtreec.ops.docs import op_fields, op_text

    fields = op_fields(kind)
    width = max((len(f.name) for f in fields), default=0)
    lines = [f"op {kind}", "", *(f"  {line}".rstrip() for line in op_text(kind).splitlines()), ""]
    lines += ["  fields besides id, op, in and out"] if fields else ["  no fields besides id, op, in and out"]
    for f in fields:
        rest = f" (may be left out: {json.dumps(f.default)})" if f.optional else ""
        lines.append(f"    {f.name:<{width}}  {f.what}{rest}")
    lines += ["", *(f"  there is also a field of this name: {path}" for path in fields_too)] if fields_too else []
    told = [{"name": f.name, "what": f.what, "optional": f.optional, "default": f.default} for f in fields]
    data = {"schema": SCHEMA, "what": "op", "op": kind, "meaning": op_text(kind), "fields": told}
    return data, "\n".join(lines) + "\n"


def _node(name: str, engine: str, overrides: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    import msgspec

    from ddtreec import driver
    from ddtreec.plan.explain import find, names, story
    from ddtreec.plan.explain_text import node_text
    from ddtreec.plan.view import rounded
    from ddtreec.spec.load import load_engine

    states = driver.states_until(load_engine(engine, overrides), "fuse")
    found = find(states, name)
    if not found:
        raise unknown_name("node, field, op or code", name, [*names(states), *_field_names()],
                           where=f"`ddtreec graph {engine}` lists the nodes")  # fmt: skip
    told = story(states, found)
    data = {"what": "node", **msgspec.to_builtins(told)}
    plain = rounded(data)
    assert isinstance(plain, dict)
    return {"schema": SCHEMA, **plain}, node_text(told, states["fuse"].mesh.ranks)
