"""YAML text to plain data with places. YAML 1.2 scalars only: `no` is a word, `010` and `1_000` are not numbers.

PyYAML is used up to its node graph; the values are made here, so that no YAML 1.1 rule can slip in and
every key and value keeps file, line and column.
"""

from __future__ import annotations

import math
import re
from pathlib import Path as FilePath
from typing import Any

import yaml

from ddtreec.core.errors import Loc, Problem, SpecError
from ddtreec.core.paths import display
from ddtreec.spec.source import Data, Document, Path, Place, SourceMap, as_map, problem_at

MAX_NODES = 200_000
"""Values one file may hold once aliases are expanded: an alias bomb ends here."""
MAX_DEPTH = 50
"""Collections one inside the other; specs need seven."""
MAX_SHOWN = 200
"""Longer lines are not repeated in messages."""

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONSTANTS = {"": None, "~": None} | {
    spelled: value
    for word, value in (("null", None), ("true", True), ("false", False))
    for spelled in (word, word.capitalize(), word.upper())
}


def composer_class(base: Any) -> Any:
    """A PyYAML loader that tags scalars 'plain' or 'quoted'; anything else in a tag was written by the person."""

    class Composer(base):
        def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
            if kind is yaml.ScalarNode:
                return "plain" if implicit[0] else "quoted"
            return "collection"

    return Composer


_Composer: Any = composer_class(getattr(yaml, "CBaseLoader", yaml.BaseLoader))
"""libyaml where PyYAML has it: five times faster."""


def read_file(path: FilePath) -> Document:
    """The one mapping in the file at `path`. Raises SpecError S001..S007 with every problem found."""
    name = display(path)
    try:
        raw = path.read_bytes()
    except IsADirectoryError:
        inside = sorted(p.name for p in path.glob("*.yaml"))
        hint = f"name a file in it: {', '.join(inside)}" if inside else "name a .yaml file"
        raise SpecError(Problem("S001", f"{name} is a folder, not a spec file", help=hint)) from None
    except FileNotFoundError:
        beside = sorted(p.name for p in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        hint = f"files there: {', '.join(beside)}" if beside else "check the path"
        raise SpecError(Problem("S001", f"{name} does not exist", help=hint)) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else "no file can have this name"
        raise SpecError(Problem("S001", f"{name[:200]} cannot be read: {reason}", help="check the path")) from None
    return read_text(_decoded(raw, name), name)


def read_text(text: str, name: str) -> Document:
    """The one mapping in `text`; `name` stands for the file in messages. Raises SpecError S003..S007."""
    lines = [line if len(line) <= MAX_SHOWN else "" for line in text.splitlines()]
    _refuse_tabs(lines, name)
    builder = _Builder(name, lines)
    node = _compose(text, name, lines)
    if node is None:
        raise SpecError(Problem("S007", "the file is empty", Loc(name), help=_FIRST_LINES))
    data = as_map(builder.build(node, ()))
    if not builder.problems and data is None:
        builder.report("S007", "a spec is a mapping of names to values", builder.place(node), help=_FIRST_LINES)
    if builder.problems or data is None:
        raise SpecError(builder.problems)
    return Document(data, builder.sources)


def read_value(text: str, name: str) -> tuple[Data, SourceMap]:
    """One value as written after `=` in --set: a scalar, `[a, b]` or `{a: b}`. Raises SpecError."""
    builder = _Builder(name, [])
    try:
        node = _compose(text, name, [])
        data = None if node is None else builder.build(node, ())
        if builder.problems:
            raise SpecError(builder.problems)
    except SpecError as error:
        flat = [Problem(p.code, p.message, Loc(name), "", p.note, p.help) for p in error.problems]
        raise SpecError(flat) from None
    return data, builder.sources


_FIRST_LINES = "a spec begins with `kind:`, `version: 1` and `name:`"


def scalar(text: str) -> int | float | bool | str | None:
    """The value of an unquoted YAML 1.2 scalar. Raises ValueError on NaN, infinity and floats out of range."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _LEADING_ZERO.fullmatch(text):
        return text
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"`{text}` is not a finite number")
    if _FLOAT.fullmatch(text):
        value = float(text)
        if math.isinf(value):
            raise ValueError(f"`{text}` is beyond the range of a 64-bit float")
        return value
    return text


def _decoded(raw: bytes, name: str) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SpecError(Problem("S002", "the file is UTF-16", Loc(name, 1, 1), help="save it as UTF-8 without BOM"))
    if raw.startswith(b"\xef\xbb\xbf"):
        message = "the file begins with a byte order mark (BOM)"
        raise SpecError(Problem("S002", message, Loc(name, 1, 1), help="save it as UTF-8 without BOM"))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8")) + 1
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8"
        raise SpecError(Problem("S002", message, Loc(name, line, column), help="save the file as UTF-8")) from None
    for number, line in enumerate(text.split("\n"), 1):
        for column, char in enumerate(line, 1):
            if (char < " " and char not in "\t\r") or char == "\x7f":
                message = f"control character 0x{ord(char):02x} in the text"
                raise SpecError(Problem("S002", message, Loc(name, number, column), help="remove it"))
    return text


def _refuse_tabs(lines: list[str], name: str) -> None:
    problems: list[Problem] = []
    for number, line in enumerate(lines, 1):
        indent = line[: len(line) - len(line.lstrip())]
        if "\t" in indent and line.strip():
            column = indent.index("\t") + 1
            loc = Loc(name, number, column)
            problems.append(Problem("S003", "a tab in the indentation", loc, line, help="indent with spaces"))
    if problems:
        raise SpecError(problems)


def _compose(text: str, name: str, lines: list[str]) -> Any:
    try:
        return _Composer(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        source = lines[line - 1] if 0 < line <= len(lines) else ""
        code, message, hint = _explain_yaml(error.problem or error.context or "not valid YAML", error.context or "")
        raise SpecError(Problem(code, message, Loc(name, line, column), source, help=hint)) from None
    except yaml.YAMLError as error:  # reader errors carry a position of their own
        raise SpecError(Problem("S003", f"not valid YAML: {str(error).splitlines()[0]}", Loc(name))) from None
    except RecursionError:
        raise SpecError(Problem("S003", f"nested more than {MAX_DEPTH} deep", Loc(name))) from None


def _explain_yaml(problem: str, context: str) -> tuple[str, str, str]:
    if "another document" in problem or "single document" in context:
        return "S007", "a second document begins here", "one spec a file: remove the `---`"
    if "undefined alias" in problem:
        return "S005", problem, "define the anchor (`&name`) before the alias, or write the value out"
    if "nesting depth" in problem:
        return "S003", f"nested more than {MAX_DEPTH} deep", ""
    if "mapping values are not allowed" in problem:
        return "S003", problem, "quote a value that contains `: `, or check the indentation"
    where = f" ({context})" if context else ""
    return "S003", f"{problem}{where}", ""


class _Builder:
    """Nodes to plain data; collects problems and places."""

    def __init__(self, name: str, lines: list[str]) -> None:
        self.name, self.lines = name, lines
        self.sources = SourceMap()
        self.problems: list[Problem] = []
        self._open: list[int] = []
        self._count = 0

    def place(self, node: Any) -> Place:
        """Where `node` begins."""
        line: int = node.start_mark.line
        text = self.lines[line] if line < len(self.lines) else ""
        return Place(Loc(self.name, line + 1, node.start_mark.column + 1), text)

    def report(self, code: str, message: str, place: Place, *, note: str = "", help: str = "") -> None:
        self.problems.append(problem_at(place, code, message, note=note, help=help))

    def build(self, node: Any, path: Path) -> Data:
        """The value of `node`, its places recorded under `path`."""
        place = self.place(node)
        self.sources.values[path] = place
        self._count += 1
        if id(node) in self._open:
            self.report("S005", "an alias that contains itself", place, help="write the value out")
            return None
        if len(self._open) > MAX_DEPTH:
            self.report("S003", f"nested more than {MAX_DEPTH} deep", place)
            return None
        if self._count > MAX_NODES:
            if self._count == MAX_NODES + 1:
                self.report("S005", f"more than {MAX_NODES} values once aliases are expanded", place)
            return None
        if node.tag not in ("plain", "quoted", "collection"):
            hint = "quote the value instead: specs know no tags"
            self.report("S005", f"the tag `{_short(node.tag)}` is not used in specs", place, help=hint)
            return None
        self._open.append(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return tuple(self.build(item, (*path, i)) for i, item in enumerate(node.value))
            return self._scalar(node, place)
        finally:
            self._open.pop()

    def _scalar(self, node: Any, place: Place) -> Data:
        if node.tag == "quoted":
            return node.value
        try:
            return scalar(node.value)
        except ValueError as error:
            self.report("S006", str(error), place, help="write a finite number")
            return None

    def _mapping(self, node: Any, path: Path) -> dict[str, Data]:
        result: dict[str, Data] = {}
        for key_node, value_node in node.value:
            place = self.place(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self.report("S007", "a key must be a name", place)
                continue
            key: str = key_node.value
            if key == "<<" and key_node.tag == "plain":
                self.report("S005", "merge keys (`<<`) are not used in specs", place, help="use `extends:`")
                continue
            if key in result:
                first = self.sources.keys[(*path, key)].loc
                hint = "keep one of the two"
                self.report("S004", f"`{key}` is written twice", place, note=f"first at {first}", help=hint)
                continue
            self.sources.keys[(*path, key)] = place
            result[key] = self.build(value_node, (*path, key))
        return result


def _short(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")
