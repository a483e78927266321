"""What a spec may write in one field of an op, and how it is read: numbers or names of dims, lists of them, words,
tensor names. A field never computes; it turns what is written into a checked Python value or a `Fault`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast


class Fault(Exception):
    """One thing wrong with one field: where inside the op (`field`, '' for the whole op), what, and a way out."""

    def __init__(self, message: str, field: str = "", help: str = "", code: str = ""):
        self.field, self.help, self.code = field, help, code
        super().__init__(message)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A way out for a mistyped name: the nearest known one, or all of them if they are few, else ''."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"known: {', '.join(names)}" if 0 < len(names) <= 16 else ""


def written(value: object) -> str:
    """A value as a person would recognise it."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(written, cast("Iterable[object]", value))) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else repr(value)


@dataclass(frozen=True, slots=True)
class Names:
    """What a field may refer to: dims with their sizes, and rope tables."""

    dims: Mapping[str, int]
    tables: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """Base of all fields. An optional field that is not written has the value `default`."""

    what: ClassVar[str] = ""
    optional: bool = False
    default: Any = None

    def read(self, value: Any, names: Names) -> Any:
        """The checked value. Raises Fault."""
        raise NotImplementedError

    def refuse(self, value: object) -> Fault:
        """The fault of a value of the wrong type."""
        return Fault(f"expected {self.what}, not {written(value)}", code="S012")


@dataclass(frozen=True, slots=True)
class Size(Field):
    """A positive integer or the name of a dim; with `zero`, 0 is allowed too (it switches something off), and with
    `nullable` null stands for 0."""

    what: ClassVar[str] = "a size (a positive integer or the name of a dim)"
    zero: bool = False
    nullable: bool = False

    def read(self, value: Any, names: Names) -> int:
        if value is None and self.nullable:
            return 0
        if isinstance(value, str):
            if value not in names.dims:
                hint = did_you_mean(value, names.dims) or "define it under dims"
                raise Fault(f"undefined dim '{value}'", help=hint, code="S032")
            return names.dims[value]
        if not isinstance(value, int) or isinstance(value, bool) or value < (0 if self.zero else 1):
            raise self.refuse(value)
        return value


@dataclass(frozen=True, slots=True)
class Sizes(Field):
    """A list of sizes; a single size is a list of one."""

    what: ClassVar[str] = "a list of sizes"

    def read(self, value: Any, names: Names) -> tuple[int, ...]:
        items = list(cast("Iterable[Any]", value)) if isinstance(value, (list, tuple)) else [value]
        if not items:
            raise self.refuse(items)
        return tuple(Size().read(item, names) for item in items)


@dataclass(frozen=True, slots=True)
class Number(Field):
    """A positive finite number."""

    what: ClassVar[str] = "a positive number"

    def read(self, value: Any, names: Names) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise self.refuse(value)
        return float(value)


@dataclass(frozen=True, slots=True)
class Flag(Field):
    """true or false."""

    what: ClassVar[str] = "true or false"

    def read(self, value: Any, names: Names) -> bool:
        if not isinstance(value, bool):
            raise self.refuse(value)
        return value


@dataclass(frozen=True, slots=True)
class Word(Field):
    """One of a few words."""

    words: tuple[str, ...] = ()

    def read(self, value: Any, names: Names) -> str:
        if not isinstance(value, str):
            raise Fault(f"expected one of {', '.join(self.words)}, not {written(value)}", code="S012")
        if value not in self.words:
            raise Fault(
                f"'{value}' is none of {', '.join(self.words)}", help=did_you_mean(value, self.words), code="S013"
            )
        return value


@dataclass(frozen=True, slots=True)
class Table(Field):
    """The name of a rope table."""

    what: ClassVar[str] = "the name of a table under ropes"

    def read(self, value: Any, names: Names) -> str:
        if not isinstance(value, str):
            raise self.refuse(value)
        if value not in names.tables:
            hint = did_you_mean(value, names.tables) or "define it under ropes"
            raise Fault(f"undefined rope table '{value}'", help=hint, code="S032")
        return value


@dataclass(frozen=True, slots=True)
class Tensor(Field):
    """A checkpoint tensor name; `{layer}` is filled in later, `{expert}` must be there exactly where `per_expert`.
    With `nullable`, null says that there is no such tensor."""

    what: ClassVar[str] = "a tensor name"
    per_expert: bool = False
    nullable: bool = False

    def read(self, value: Any, names: Names) -> str | None:
        if value is None and self.nullable:
            return None
        if not isinstance(value, str) or not value.strip():
            raise self.refuse(value)
        found = re.findall(r"\{([^{}]*)\}", value)
        if "{" in re.sub(r"\{[^{}]*\}", "", value) or "}" in re.sub(r"\{[^{}]*\}", "", value):
            raise Fault(f"unbalanced braces in the tensor name '{value}'", code="S042")
        for name in found:
            if name not in ("layer", "expert"):
                raise Fault(f"unknown placeholder '{{{name}}}'", help="known: {layer}, {expert}", code="S042")
        if self.per_expert and "expert" not in found:
            hint = "write {expert} where the number stands"
            raise Fault(f"'{value}' names one tensor for all experts", help=hint, code="S042")
        if not self.per_expert and "expert" in found:
            raise Fault("{expert} stands only in the weights of an experts op", code="S042")
        return value
