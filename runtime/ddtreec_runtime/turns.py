"""One call at a time: two in one engine would mix their sequences in its buffers."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from ddtreec.core.errors import Problem, SpecError

P = ParamSpec("P")
R = TypeVar("R")


class Busy(Protocol):
    """What has a lock that is held while it works."""

    turn: threading.Lock


B = TypeVar("B", bound=Busy)


def alone(method: Callable[Concatenate[B, P], R]) -> Callable[Concatenate[B, P], R]:
    """A method that refuses (SpecError R016) to begin while its object is in another call, of any thread."""

    @functools.wraps(method)
    def run(self: B, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self.turn.acquire(blocking=False):
            way = "wait for it, or load a second engine; a listener must not call the engine that it listens to"
            raise SpecError(Problem("R016", "this engine is in the middle of another call", help=way))
        try:
            return method(self, *args, **kwargs)
        finally:
            self.turn.release()

    return run
