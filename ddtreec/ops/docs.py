"""What a spec may write about each kind of op, in words and as JSON Schema. Read off the ops, nothing is said twice."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from ddtreec.ops import SPEC_OPS
from ddtreec.ops.fields import Field, Flag, Number, Size, Sizes, Tensor, Word


@dataclass(frozen=True, slots=True)
class FieldDoc:
    """One field of an op. `default` is what it is when it is not written (only if it may be left out)."""

    name: str
    what: str
    optional: bool
    default: Any


def op_text(kind: str) -> str:
    """What an op of this kind does: shapes and meaning. Raises KeyError for a kind that a spec cannot name."""
    return inspect.cleandoc(SPEC_OPS[kind].__doc__ or "")


def op_fields(kind: str) -> tuple[FieldDoc, ...]:
    """The fields of an op besides id, op, in and out."""
    spec = SPEC_OPS[kind].SPEC or {}
    return tuple(FieldDoc(name, what(field), field.optional, field.default) for name, field in spec.items())


def what(field: Field) -> str:
    """What a field holds, in words."""
    if isinstance(field, Word):
        return "one of " + ", ".join(field.words)
    if isinstance(field, Tensor):
        words = "a tensor name with {expert}" if field.per_expert else "a tensor name"
        return f"{words}, or null" if field.nullable else words
    if isinstance(field, Size):
        return field.what + (", or null" if field.nullable else "") + (", or 0" if field.zero else "")
    return field.what


def op_schemas() -> dict[str, dict[str, Any]]:
    """For each kind of op a spec may name: description, properties and required fields, as JSON Schema."""
    result: dict[str, dict[str, Any]] = {}
    for kind, op in SPEC_OPS.items():
        spec = op.SPEC or {}
        required = [name for name, field in spec.items() if not field.optional]
        properties = {name: _schema(field) for name, field in spec.items()}
        result[kind] = {
            "description": " ".join(op_text(kind).split()),
            "properties": properties,
            "required": ["id", "op", *required],
        }
    return result


def _schema(field: Field) -> dict[str, Any]:
    told = {"description": what(field)}
    size: dict[str, Any] = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]}
    if isinstance(field, Size):
        low = {"type": "integer", "minimum": 0 if field.zero else 1}
        options = [low, {"type": "string"}] + ([{"type": "null"}] if field.nullable else [])
        return {**told, "anyOf": options}
    if isinstance(field, Sizes):
        return {**told, "anyOf": [*size["anyOf"], {"type": "array", "items": size, "minItems": 1}]}
    if isinstance(field, Number):
        return {**told, "type": "number", "exclusiveMinimum": 0}
    if isinstance(field, Flag):
        return {**told, "type": "boolean"}
    if isinstance(field, Word):
        return {**told, "enum": list(field.words)}
    nullable = isinstance(field, Tensor) and field.nullable
    return {**told, "type": ["string", "null"] if nullable else "string"}
