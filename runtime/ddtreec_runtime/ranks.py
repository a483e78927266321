"""Virtual ranks: N step functions of one process run in lockstep and meet at every collective."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from types import SimpleNamespace

from torch import Tensor

from ddtreec.core.errors import VerifyError

Request = tuple[str, tuple[Tensor, ...], tuple[Tensor, ...], Mapping[str, int | float | str | bool | None]]
"""(collective, outs, ins, params) as a step function yields it."""

StepRun = Generator[Request, None, None]


def drive(runs: Sequence[StepRun], kernels: SimpleNamespace) -> None:
    """Run one step of every rank to its end.

    Each rank runs until it yields a collective; when all have, the collective is executed for all of them at once, in
    rank order, and they go on. Raises VerifyError when ranks disagree on what comes next.
    """
    while True:
        requests = [next(run, None) for run in runs]
        names = [request[0] if request else "the end" for request in requests]
        if len(set(names)) > 1:
            raise VerifyError("emit", names[0], f"ranks wait for different things: {', '.join(names)}")
        if requests[0] is None:
            return
        meeting = [request for request in requests if request is not None]
        kernel = getattr(kernels, names[0])
        for index in range(len(meeting[0][1])):
            kernel([r[1][index] for r in meeting], [r[2][index] for r in meeting], **meeting[0][3])
