"""A Hugging Face checkpoint folder as `init` sees it: JSON files with positions, and the names of the tensors."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ddtreec.core.errors import CheckpointError, Loc, Problem
from ddtreec.core.paths import display

INDEX = "model.safetensors.index.json"
MAX_HEADER = 1 << 30
_SHARD = re.compile(r"-[0-9]+-of-[0-9]+\.safetensors$")


@dataclass(slots=True)
class Config:
    """One JSON object of a checkpoint, with the problems found in it so far. `part` is the key it lies under."""

    file: str
    text: str
    data: dict[str, Any]
    part: str = ""
    problems: list[Problem] = field(default_factory=list[Problem])

    def loc(self, key: str) -> tuple[Loc, str]:
        """Where `key` stands, and that line."""
        start = self.text.find(f'"{self.part}"') if self.part else 0
        match = re.compile(rf'"{re.escape(key)}"\s*:').search(self.text, max(start, 0))
        if match is None:
            return Loc(self.file), ""
        before = self.text[: match.start()]
        line = before.count("\n") + 1
        return Loc(self.file, line, match.start() - before.rfind("\n")), self.text.splitlines()[line - 1]

    def refuse(self, key: str, message: str, help: str = "", code: str = "S050") -> None:
        """Record a problem at `key`."""
        loc, source = self.loc(key)
        self.problems.append(Problem(code, message, loc, source, help=help))

    def report(self, code: str, message: str, *, note: str = "", help: str = "") -> None:
        """Record a problem of the whole checkpoint."""
        self.problems.append(Problem(code, message, Loc(self.file), note=note, help=help))

    def whole(self, key: str, default: int | None = None, least: int = 1, most: int | None = None) -> int:
        """A whole number from `least` to `most`; a problem and `least` when it is not there or not one."""
        value = self.data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least or (most and value > most):
            span = f"of at least {least}" if most is None else f"from {least} to {most}"
            self._bad(key, f"a whole number {span}", value)
            return least
        return value

    def real(self, key: str, default: float | None = None, *, positive: bool = True) -> float:
        """A finite number, positive unless said."""
        value = self.data.get(key, default)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or (positive and value <= 0):  # JSON in Python knows NaN and Infinity
            self._bad(key, "a positive number" if positive else "a finite number", value)
            return 1.0
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.data.get(key, default)
        if not isinstance(value, bool):
            self._bad(key, "true or false", value)
            return default
        return value

    def word(self, key: str, default: str) -> str:
        """A string; null counts as absent."""
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self._bad(key, "a string", value)
            return default
        return value

    def inside(self, key: str) -> Config | None:
        """The object under `key`, sharing this one's problems; None when absent or null."""
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._bad(key, "an object", value)
            return None
        return Config(self.file, self.text, cast(dict[str, Any], value), key, self.problems)

    def _bad(self, key: str, wanted: str, value: Any) -> None:
        if key not in self.data:
            where = f" of `{self.part}`" if self.part else ""
            hint = "add the key, or write the spec by hand"
            self.report("S051", f"the key `{key}`{where} is missing", help=hint)
        else:
            self.refuse(key, f"`{key}` must be {wanted}, found {json.dumps(value)}", code="S051")


def read_config(path: Path) -> Config:
    """The object in a JSON file. Raises CheckpointError S051."""
    name = display(path)
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        reason = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        hint = "init reads a Hugging Face checkpoint folder with its config.json"
        raise CheckpointError(Problem("S051", f"{name} {reason}", help=hint)) from None
    except UnicodeDecodeError:
        raise CheckpointError(Problem("S051", f"{name} is not UTF-8 text")) from None
    try:
        data: Any = json.loads(text)
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1] if text else ""
        loc = Loc(name, error.lineno, error.colno)
        raise CheckpointError(Problem("S051", f"not valid JSON: {error.msg}", loc, line)) from None
    except (ValueError, RecursionError):  # what Python itself limits: digits of a number, depth
        message = "not usable JSON: a number of thousands of digits, or lists within lists without end"
        raise CheckpointError(Problem("S051", message, Loc(name), help="fetch the file again")) from None
    if not isinstance(data, dict):
        raise CheckpointError(Problem("S051", "not a JSON object", Loc(name)))
    return Config(name, text, cast(dict[str, Any], data))


def tensor_names(folder: Path) -> frozenset[str]:
    """The names in the index or, without one, in the headers of *.safetensors; empty when there are no weights.

    Raises CheckpointError S051 for an index or a header that cannot be read.
    """
    index = folder / INDEX
    if index.exists():
        weights = read_config(index).inside("weight_map")
        if weights is None:
            raise CheckpointError(Problem("S051", "the index has no `weight_map`", Loc(display(index))))
        return frozenset(weights.data)
    names: set[str] = set()
    for path in _weight_files(folder):
        names.update(_header(path))
    names.discard("__metadata__")
    return frozenset(names)


def _weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights when no index says so: other safetensors may lie beside them."""
    whole = folder / "model.safetensors"
    if whole.exists() or whole.is_symlink():
        return [whole]
    found = sorted(folder.glob("*.safetensors"))
    return [path for path in found if _SHARD.search(path.name)] or found


def _header(path: Path) -> Sequence[str]:
    name = display(path)
    try:
        with path.open("rb") as file:
            start = file.read(8)
            size = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            raw = file.read(size) if 2 <= size <= MAX_HEADER else b""
    except OSError as error:
        gone = path.is_symlink() and not path.exists()
        reason = "is a link to a file that is not there" if gone else f"cannot be read: {error.strerror}"
        raise CheckpointError(Problem("S051", f"{name} {reason}", help="fetch the file again")) from None
    if start.startswith(b"version "):
        message = f"{name} is a Git LFS pointer, not weights"
        raise CheckpointError(Problem("S051", message, help="fetch the file itself (git lfs pull)"))
    if not 2 <= size <= MAX_HEADER:
        raise CheckpointError(Problem("S051", f"{name} has no safetensors header", help="fetch the file again"))
    try:
        data: Any = json.loads(raw)
        return list(data.keys())
    except (ValueError, AttributeError, RecursionError):
        message = f"the safetensors header of {name} is cut off or damaged"
        raise CheckpointError(Problem("S051", message, help="fetch the file again")) from None


def some(items: Iterable[object], count: int = 3) -> str:
    """The first few of `items`, sorted, and how many more there are."""
    known = sorted(items, key=lambda item: (not isinstance(item, int), item if isinstance(item, int) else 0, str(item)))
    return ", ".join(map(str, known[:count])) + (f" and {len(known) - count} more" if len(known) > count else "")
