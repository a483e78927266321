"""The format number of a file of a bundle, read before its fields are: another version may have others."""

from __future__ import annotations

import msgspec


def format_of(data: bytes) -> int | None:
    """The whole number under 'format' of a JSON object, None where there is none. Raises msgspec.DecodeError."""
    found: object = msgspec.json.decode(data, type=dict[str, object]).get("format")
    return found if isinstance(found, int) else None
