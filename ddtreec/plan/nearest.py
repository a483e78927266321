"""Where an engine does not fit its devices: the nearest engines that do, each with the `--set` that makes it.

Every way out that is named was tried: the passes ran on it and it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ddtreec.core.errors import FitError, Problem
from ddtreec.passes.fit import DOES_NOT_FIT
from ddtreec.spec.load import LoadedEngine
from ddtreec.spec.schema import LayoutSpec

COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of devices to try."""
TRIES = 2
"""More devices that are tried: a pass over a large model takes a third of a second."""

Fits = Callable[[LoadedEngine], bool]


def with_ways_out(error: FitError, loaded: LoadedEngine, fits: Fits) -> FitError:
    """The same error, its help naming what else would fit; other errors as they are."""
    return FitError([_widened(p, loaded, fits) if p.code == DOES_NOT_FIT else p for p in error.problems])


def _widened(problem: Problem, loaded: LoadedEngine, fits: Fits) -> Problem:
    ways = [f"--set {text} fits" for text, engine in _tries(loaded) if fits(engine)]
    if not ways:
        return problem
    return replace(problem, help="; or ".join([problem.help, *_short(ways)]))


def _short(ways: list[str]) -> list[str]:
    """One number of devices is enough."""
    more = [way for way in ways if "topology.devices" in way]
    return [way for way in ways if way not in more[1:]]


def _tries(loaded: LoadedEngine) -> Iterator[tuple[str, LoadedEngine]]:
    """Changed engines with the argument that changes them, the smallest change first."""
    engine, topology = loaded.engine, loaded.topology
    pinned = [name for name in LayoutSpec.model_fields if getattr(engine.layout, name) != "auto"]
    if pinned:
        text = " --set ".join(f"layout.{name}=auto" for name in pinned)
        yield text, _changed(loaded, layout=LayoutSpec())
    if engine.dtype != "bfloat16":
        yield "dtype=bfloat16", _changed(loaded, dtype="bfloat16")
    if loaded.drafter is not None:
        bare = _changed(loaded, drafter=None, tree=None)
        yield "drafter=null", replace(bare, drafter=None, tree=None)
    if topology.link is not None:
        for count in [n for n in COUNTS if n > topology.devices][:TRIES]:
            more = topology.model_copy(update={"devices": count})
            yield f"topology.devices={count}", replace(loaded, topology=more)


def _changed(loaded: LoadedEngine, **fields: Any) -> LoadedEngine:
    return replace(loaded, engine=loaded.engine.model_copy(update=fields))
