"""The runtime: loads a bundle and its weights, drafts, verifies and streams. `from ddtreec_runtime import Engine`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddtreec_runtime.engine import Engine
    from ddtreec_runtime.generation import Generation

__all__ = ["Engine", "Generation"]


def __getattr__(name: str) -> object:
    """Loads `Engine` and `Generation` when first asked for, so that `ddtreec_runtime.tree` needs none of it."""
    if name == "Engine":
        from ddtreec_runtime.engine import Engine

        return Engine
    if name == "Generation":
        from ddtreec_runtime.generation import Generation

        return Generation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
