"""How many CPU threads a step is worth, and running with that many.

Threads of one matrix product wait for each other, spinning, at its end. For a matrix of a few hundred kilobytes that
costs about what the second thread saves, and when another program holds a core it costs a time slice of the scheduler,
again and again: two threads on a busy two-core machine took 15 to 35 times as long as one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import torch

from ddtreec.artifacts.plan import Plan

BYTES_A_THREAD = 2**20
"""A thread more for every so many bytes of the mean matrix that a product reads."""

P = ParamSpec("P")
R = TypeVar("R")


class Threaded(Protocol):
    """What has a number of threads."""

    @property
    def threads(self) -> int:
        """Threads to compute with."""
        ...


S = TypeVar("S", bound=Threaded)


def automatic(plan: Plan, itemsize: int, most: int) -> int:
    """Threads for a plan: one for every BYTES_A_THREAD of the mean matrix of the target's products, 1 to `most`.

    `itemsize`: bytes of a weight in memory. Of experts the matrices of one expert count.
    """
    shapes = {weight.id: weight.shape for weight in plan.weights}
    target = next(program for program in plan.programs if program.name == "target")
    used = [shapes[name] for call in target.calls if call.kernel != "embedding" for name in call.weights]
    matrices = [math.prod(shape[-2:]) * itemsize for shape in used if len(shape) > 1]
    mean = sum(matrices) / len(matrices) if matrices else 0
    return max(1, min(most, int(mean // BYTES_A_THREAD)))


@contextmanager
def using(threads: int) -> Iterator[None]:
    """Torch's number of threads, put back at the end: it belongs to the whole process."""
    before = torch.get_num_threads()
    if before != threads:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        if before != threads:
            torch.set_num_threads(before)


def computing(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method that runs without gradients and with the threads of its object."""

    @functools.wraps(method)
    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with torch.inference_mode(), using(self.threads):
            return method(self, *args, **kwargs)

    return run
