"""One sequence of a batch: its request, and what becomes of the tokens that the device commits."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from ddtreec_runtime.backends.cuda.record import BROKEN, Record
from ddtreec_runtime.generation import Clock, Generation, Job, take
from ddtreec_runtime.output import Output
from ddtreec_runtime.rounds import Round
from ddtreec_runtime.sampling import NonFiniteLogits


class Answer:
    """`job` in, `done` out; `hear` takes the records of its slot."""

    def __init__(self, job: Job, output: Output, on_round: Callable[[Round], None] | None = None):
        self.job = job
        self.output = output
        self.done = Generation(prompt_ids=list(job.prompt))
        self._on_round = on_round
        self._began = perf_counter()
        self._clock = Clock(self.done.profile)

    def begin(self) -> None:
        """The prefill starts now."""
        self._began = perf_counter()
        self._clock = Clock(self.done.profile)

    def hear(self, record: Record) -> bool:
        """Takes a round: the first is the prefill's pick. Whether the sequence shall end.

        Raises NonFiniteLogits where the target's logits gave no token.
        """
        if record.status == BROKEN:
            raise NonFiniteLogits(*record.fault)
        first = record.number == 1
        self._clock.lap("prefill" if first else "rounds")
        if first:
            self.done.prefill_s = perf_counter() - self._began
        else:
            self.done.rounds += 1
            self.done.accepted_per_round.append(len(record.accepted))
            if self._on_round is not None:
                self._on_round(record.round())
        ended = take(self.done, record.committed, self.job, self.output.accept)
        self._clock.lap("text")
        self.done.decode_s = perf_counter() - self._began - self.done.prefill_s
        return ended
