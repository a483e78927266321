"""Titles of the codes of specs and of `init`, from the one table in `core.codes`."""

from __future__ import annotations

from ddtreec.core.codes import CODES

TITLES: dict[str, str] = {code: entry.title for code, entry in CODES.items() if code.startswith("S")}
