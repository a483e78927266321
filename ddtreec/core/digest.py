"""SHA-256 of bytes, files and plain data."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any


def of_bytes(data: bytes) -> str:
    """Hexadecimal SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def of_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes. Raises OSError when it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical_json(data: Any) -> bytes:
    """JSON with sorted keys and no spaces: equal data gives equal bytes. Raises ValueError on NaN and infinity."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def of_data(data: Any) -> str:
    """Hexadecimal SHA-256 of the canonical JSON of `data` (dicts, lists, strings, numbers, booleans, None)."""
    return of_bytes(canonical_json(data))
