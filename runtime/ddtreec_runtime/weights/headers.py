"""Reads the header of one safetensors file, and nothing else of it.

Format (safetensors 0.8): u64 little-endian header length, a JSON object
`{name: {dtype, shape, data_offsets}}` with an optional `__metadata__`, then the raw little-endian data, which the
offsets (relative to the end of the header) must cover without holes or overlaps.

Problem codes: K001 unreadable, K005 empty, K006 another kind of file, K007 bad header, K008 truncated or too long,
K009 offsets that contradict shape and dtype.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from ddtreec.core.errors import Loc, Problem

from .sniff import misfit

MAX_HEADER = 100_000_000
"""Bytes; the limit of the reference implementation."""

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
"""Bits of one element per dtype name. Other names are accepted unchecked: the audit refuses them where needed."""

_REFETCH = "fetch the file again (compare its size with the source)"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies: `file` (name inside the checkpoint directory), bytes `begin` .. `end` of that file."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class FileHeader:
    """All tensors of one file in the order of its header, and the file's size in bytes."""

    tensors: dict[str, TensorInfo]
    size: int


class _BadHeader(ValueError):
    """The JSON of a header is not a safetensors header; the text says why."""


def read_header(path: Path) -> tuple[FileHeader | None, list[Problem]]:
    """Header of the safetensors file `path`, and every problem found in it.

    The header is None when it cannot be read at all. Never raises for what the file holds.
    """
    loc = Loc(str(path))
    try:
        size = path.stat().st_size
        wrong = misfit(path, size)
        if wrong is not None:
            return None, [wrong]
        with path.open("rb") as handle:
            first = handle.read(8)
            length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
            body = handle.read(length) if length <= MAX_HEADER else b""
    except OSError as error:
        return None, [Problem("K001", f"cannot read '{path.name}': {error.strerror or error}", loc)]
    if size < 8:
        return None, [_truncated(path, f"it has {size} bytes, and the header's length alone takes 8")]
    if length > MAX_HEADER:
        text = f"'{path.name}' says its header takes {length} bytes; no safetensors header is that large"
        return None, [Problem("K007", text, loc, help="this is not a safetensors file: fetch it again")]
    if len(body) < length:
        return None, [_truncated(path, f"its header takes {length} bytes, and only {len(body)} follow")]
    try:
        tensors = _parse(path.name, body)
    except _BadHeader as error:
        return None, [Problem("K007", f"'{path.name}' has a damaged header: {error}", loc, help=_REFETCH)]
    return FileHeader(tensors, size), _check_data(path, tensors, 8 + length, size)


def _parse(file: str, body: bytes) -> dict[str, TensorInfo]:
    try:
        raw = json.loads(body.decode("utf-8"), object_pairs_hook=_no_repeats)
    except _BadHeader:
        raise
    except (ValueError, RecursionError) as error:
        raise _BadHeader(f"it is not JSON ({str(error)[:120]})") from None
    if not isinstance(raw, dict):
        raise _BadHeader("it is not a JSON object")
    start = 8 + len(body)
    return {name: _entry(file, name, value, start) for name, value in raw.items() if name != "__metadata__"}


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        seen: set[str] = set()
        again = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise _BadHeader(f"the key '{again}' stands in it twice")
    return out


def _entry(file: str, name: str, value: object, start: int) -> TensorInfo:
    if not isinstance(value, dict):
        raise _BadHeader(f"the entry of '{name}' is not an object")
    dtype, shape, offsets = (value.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str):
        raise _BadHeader(f"'{name}' has no dtype")
    if not _naturals(shape):
        raise _BadHeader(f"'{name}' has no usable shape ({shape!r})"[:200])
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _BadHeader(f"'{name}' has no usable data_offsets ({offsets!r})"[:200])
    return TensorInfo(file, dtype, tuple(shape), start + offsets[0], start + offsets[1])


def _naturals(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_data(path: Path, tensors: dict[str, TensorInfo], start: int, size: int) -> list[Problem]:
    """Offsets against shapes, against each other and against the file's size."""
    problems: list[Problem] = []
    odd = [name for name, info in tensors.items() if _wants(info) not in (None, info.end - info.begin)]
    if odd:
        info = tensors[odd[0]]
        problems.append(
            _offsets(
                path,
                f"data_offsets of '{odd[0]}' span {info.end - info.begin} bytes, but {info.dtype} "
                f"{list(info.shape)} takes {_wants(info)}" + _others(odd),
            )
        )
    end, last = start, ""
    for name, info in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if info.begin != end:
            kind = "overlaps" if info.begin < end else f"leaves a hole of {info.begin - end} bytes after"
            before = f"'{last}'" if last else "the header"
            problems.append(_offsets(path, f"the data of '{name}' {kind} {before}"))
            break
        end, last = info.end, name
    end = max((info.end for info in tensors.values()), default=start)
    if end > size:
        cut = [name for name, info in tensors.items() if info.end > size]
        problems.append(
            _truncated(path, f"{end - size} of {end} bytes are missing; '{cut[0]}' is cut or absent" + _others(cut))
        )
    elif end < size:
        text = f"'{path.name}' is {size - end} bytes longer than its header says"
        problems.append(Problem("K008", text, Loc(str(path)), help=_REFETCH))
    return problems


def _wants(info: TensorInfo) -> int | None:
    """Bytes that shape and dtype ask for; None for a dtype this reader does not know."""
    width = BITS.get(info.dtype)
    return None if width is None else math.prod(info.shape) * width // 8


def _others(names: list[str]) -> str:
    return f" (and {len(names) - 1} more tensors)" if len(names) > 1 else ""


def _truncated(path: Path, why: str) -> Problem:
    return Problem("K008", f"'{path.name}' is truncated: {why}", Loc(str(path)), help=_REFETCH)


def _offsets(path: Path, text: str) -> Problem:
    return Problem("K009", f"'{path.name}': {text}", Loc(str(path)), help="write the file again with safetensors")
