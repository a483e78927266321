"""Checks that need more than one field, and only specs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtreec.core.errors import Problem

if TYPE_CHECKING:
    from ddtreec.spec.load import LoadedEngine


def check(loaded: LoadedEngine) -> tuple[list[Problem], list[Problem]]:
    """Everything that is wrong, and everything that is only strange."""
    return [], []
