"""Decoding on the device: prefill, then rounds that the host replays one ahead and reads one behind.

A round is one graph: draft, tree, verify, pick, walk, compaction, context. Nothing in it waits for the host, and the
host waits for no call: what was committed comes through a ring in pinned memory that `walk` writes and the host polls.
All sequences of a batch begin together and take the slots 0, 1, ..; one that ends leaves its slot idle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddtreec.artifacts.record import RING, Layout
from ddtreec.core.errors import BundleError, Problem, VerifyError
from ddtreec_runtime.backends.cuda.answer import Answer
from ddtreec_runtime.backends.cuda.driver import Launch
from ddtreec_runtime.backends.cuda.machine import Machine
from ddtreec_runtime.backends.cuda.record import CANCELLED, RUNS, Record
from ddtreec_runtime.backends.cuda.steps import DeviceProgram, Shape
from ddtreec_runtime.drafting import Mode
from ddtreec_runtime.generation import Job
from ddtreec_runtime.program import Homes

AHEAD = 2
"""Rounds under way at most: the one whose record is awaited, and the next."""
SPINS = 2000
"""Looks at the ring before the host asks whether the device still works, and then sleeps a little between looks."""

PREFILLS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Rows of a slot in a prefill step: each is bound once."""

MODES: dict[Mode | None, int] = {None: 0, "chain": 1, "tree": 2}

RoundKey = tuple[int, int, bool, str]
"""What tells rounds apart: slots, rows a slot, whether they draft, and the kernel that picks."""


class Decoder:
    """Rounds of one machine. `captures`: rounds run as graphs; without, launch by launch, with the same results."""

    def __init__(self, machine: Machine):
        plan = machine.plan
        self.machine = machine
        self.captures = True
        self.listen: Callable[[int, Record], None] | None = None
        """Hears every record of every slot, for measurements."""
        self.forbid_waits = False
        """Makes torch refuse, while rounds run, whatever would block the host."""
        self.rounds_run = self.waits_in_rounds = 0
        """Rounds put into the stream so far, and how often the host was blocked by a call while they ran."""
        self.block = plan.drafter.block if plan.drafter is not None else 1
        self.layout = Layout(self.block, plan.tree.budget if plan.drafter is not None else 0)
        self.ring = machine.ring(RING, self.layout.words)
        self._seen = self.ring.numpy()
        self._kernels = {name.partition("__")[0]: name for name in machine.table.round}
        self._target = machine.programs["target"]
        self._rounds: dict[RoundKey, list[Launch]] = {}
        self._graphs: dict[RoundKey, Any] = {}
        self._from_target = self._from_round = None
        if machine.drafting:
            self._from_target = self._context_program(machine.kept["target"]["features"])
            self._from_round = self._context_program(machine.arrays["context_features"].flatten(0, 1))
        self._fill_costs()

    def close(self) -> None:
        """Waits for the rounds under way and frees their graphs."""
        self.machine.driver.wait()
        for graph in self._graphs.values():
            self.machine.driver.forget(graph)
        self._graphs.clear()

    # ---- a batch ----

    def run(self, answers: Sequence[Answer]) -> None:
        """Generates all of them at once; each hears the records of its slot, in order.

        Raises BundleError B040 when the device fails, NonFiniteLogits when a row of logits gives no token.
        """
        jobs = [answer.job for answer in answers]
        with self.machine.driver.ordered():
            self._admit(jobs)
            for answer in answers:
                answer.begin()
            self._prefill([job.prompt for job in jobs], any(job.mode for job in jobs))
            self._first(jobs)
            waits = self.machine.driver.waits
            with refusing_waits(self.forbid_waits):
                self._decode(answers)
            self.waits_in_rounds += self.machine.driver.waits - waits

    @property
    def most_sequences(self) -> int:
        """Sequences that may be in one batch: as many as have caches, and rows in every step of a round."""
        target, programs = self._target.program, self.machine.programs
        most = min(int(self.machine.arrays["status"].shape[0]), target.max_rows, target.max_out_rows)
        if not self.machine.drafting:
            return most
        draft, context = programs["draft_block"].program, programs["draft_context"].program
        guesses = draft.max_out_rows // max(1, self.block - 1)
        return max(1, min(most, draft.max_rows // self.block, guesses, context.max_rows // self.block))

    def _admit(self, jobs: Sequence[Job]) -> None:
        """What the kernels must know of each sequence. Nothing is under way here."""
        arrays = self.machine.arrays
        self.machine.driver.wait()  # records and arrays of an earlier batch that was cut short
        self._seen[:] = 0
        room = arrays["pages"].shape[1] * self.machine.plan.limits.page
        columns = {
            "limit": [r.limit for r in jobs],
            "room": [room for _ in jobs],
            "budget": [r.budget if r.mode else 0 for r in jobs],
            "mode": [MODES[r.mode] for r in jobs],
            "heed_stops": [int(r.heed_stops) for r in jobs],
            "temperature": [r.params.temperature for r in jobs],
            "top_p": [r.params.top_p for r in jobs],
            "top_k": [r.params.top_k for r in jobs],
            "seed": [_signed(r.params.seed) for r in jobs],
            "request": [r.request for r in jobs],
            "length": [len(r.prompt) - 1 for r in jobs],
            "anchor": [r.prompt[-1] for r in jobs],
            "produced": [0 for _ in jobs],
            "rounds": [0 for _ in jobs],
            "status": [RUNS for _ in jobs],
        }
        for name, column in columns.items():
            if name in arrays:  # plain decoding needs no budget and the like
                arrays[name].zero_()
                arrays.put(name, torch.tensor(column, dtype=arrays[name].dtype))

    # ---- prefill ----

    def _prefill(self, prompts: Sequence[Sequence[int]], drafting: bool) -> None:
        """Commits all prompts, the last chunk of each in the same step; leaves logits of the last tokens. `drafting`:
        their features go to the drafter's context."""
        slots, longest = len(prompts), max(map(len, prompts))
        group = self._chunk_group(slots, longest)
        chunks = -(-longest // group)
        for chunk in range(chunks):
            ends = [max(0, len(prompt) - (chunks - 1 - chunk) * group) for prompt in prompts]
            starts = [max(0, end - group) for end in ends]
            last = chunk == chunks - 1
            self._fill_chunk(prompts, starts, ends, group, last)
            driver = self.machine.driver
            driver.run(self._target.launches(Shape(slots, group, slots if last else 0)))
            if drafting and self._from_target is not None:
                driver.run(self._from_target.launches(Shape(slots, group, 0)))

    def _chunk_group(self, slots: int, longest: int) -> int:
        """Rows a slot of a prefill step: all that fit, or a few sizes that shorter prompts are padded to."""
        most = min(self.machine.plan.limits.chunk, self._target.program.max_rows // slots)
        return min((size for size in PREFILLS if longest <= size <= most), default=most)

    def _fill_chunk(
        self, prompts: Sequence[Sequence[int]], starts: list[int], ends: list[int], group: int, last: bool
    ) -> None:
        """The step arrays for tokens [start, end) of each prompt; rows behind them are padding."""
        slots, arrays = len(prompts), self.machine.arrays
        tokens = np.zeros((slots, group), dtype=np.int32)
        positions = np.zeros((slots, group), dtype=np.int32)
        for slot, (prompt, start, end) in enumerate(zip(prompts, starts, ends, strict=True)):
            tokens[slot, : end - start] = prompt[start:end]
            positions[slot, : end - start] = np.arange(start, end)
        counts = [end - start for start, end in zip(starts, ends, strict=True)]
        self._target.homes.inputs["tokens"][: slots * group] = torch.from_numpy(tokens.reshape(-1))
        arrays.put("positions", torch.from_numpy(positions.reshape(-1)))
        arrays.put("committed", torch.tensor(starts))
        arrays.put("valid", torch.tensor(counts))
        arrays.put("masks", torch.from_numpy(np.tile(causal_words(group), (slots, 1))))
        if last:
            arrays.put("out_index", torch.tensor([slot * group + count - 1 for slot, count in enumerate(counts)]))

    def _first(self, jobs: Sequence[Job]) -> None:
        """Picks the first output token of every sequence from the logits that the prefill left."""
        slots, pick = len(jobs), self._pick(jobs)
        shape = Shape(slots, 1, slots)
        self.machine.driver.run([launch for kind in ("begin_plain", pick, "walk") for launch in self._one(kind, shape)])

    # ---- rounds ----

    def _decode(self, answers: Sequence[Answer]) -> None:
        slots = len(answers)
        running = dict.fromkeys(range(slots), 0)  # slot: records read
        play = self._player([answer.job for answer in answers])
        made = 0
        while running:
            # The first record is the prefill's: round n writes record n + 1.
            while made < min(running.values()) + AHEAD - 1:
                play()
                made += 1
            for slot in list(running):
                record = self._await(slot, running[slot] + 1)
                running[slot] += 1
                if self.listen is not None:
                    self.listen(slot, record)
                ended, cancelled = record.status != RUNS, answers[slot].hear(record)
                if cancelled and not ended:
                    self.machine.arrays["status"][slot : slot + 1].fill_(CANCELLED)
                if cancelled or ended:
                    del running[slot]
        self.rounds_run += made

    def _player(self, jobs: Sequence[Job]) -> Callable[[], None]:
        """What puts the round of these sequences into the stream."""
        driver, slots = self.machine.driver, len(jobs)
        speculative = any(r.mode for r in jobs)
        most = max((r.budget for r in jobs if r.mode), default=0)
        group = self._verify_group(slots, most) if speculative else 1
        key = (slots, group, speculative, self._pick(jobs))
        if key not in self._rounds:
            self._rounds[key] = self._round(Shape(slots, group, slots * group), speculative, key[3])
        launches = self._rounds[key]
        if not self.captures:
            return lambda: driver.run(launches)
        if key not in self._graphs:
            name = f"the round of {slots} sequences with {group} rows each"
            self._graphs[key] = driver.capture(lambda: driver.run(launches), name)
        graph = self._graphs[key]
        return lambda: driver.replay(graph)

    def _verify_group(self, slots: int, budget: int) -> int:
        """Rows a slot of a verify step: the smallest bucket that holds the tree, cut to what a step takes."""
        most = min(self._target.program.max_rows, self._target.program.max_out_rows) // slots
        wanted = min((b for b in self.machine.plan.buckets if b > budget), default=budget + 1)
        return max(1, min(wanted, most))

    def _round(self, shape: Shape, speculative: bool, pick: str) -> list[Launch]:
        """The launches of one round, in order."""
        if not speculative:
            return [*self._one("begin_plain", shape), *self._target.launches(shape), *self._many((pick, "walk"), shape)]
        assert self._from_round is not None
        draft = Shape(shape.slots, self.block, shape.slots * (self.block - 1))
        return [
            *self._one("begin_draft", shape),
            *self.machine.programs["draft_block"].launches(draft),
            *self._many(("top_tokens", "build_tree"), shape),
            *self._target.launches(shape),
            *self._many((pick, "walk", "compact", "gather_features"), shape),
            *self._from_round.launches(Shape(shape.slots, self.block, 0)),
        ]

    @staticmethod
    def _pick(jobs: Sequence[Job]) -> str:
        return "pick_greedy" if all(r.params.greedy for r in jobs) else "pick"

    def _many(self, kinds: Sequence[str], shape: Shape) -> list[Launch]:
        return [launch for kind in kinds for launch in self._one(kind, shape)]

    def _one(self, kind: str, shape: Shape) -> list[Launch]:
        """The launches of a kernel of the round."""
        if kind not in self._kernels:
            raise VerifyError("emit", kind, "kernels.json has no such kernel of the round")
        return self.machine.binder.bind(self._kernels[kind], (), {}, shape.symbols, self.machine.arrays)

    def _await(self, slot: int, number: int) -> Record:
        """Record `number` of a slot, as soon as it is whole. Asks no call of the device to end."""
        place = self._seen[slot, (number - 1) % RING]
        looks = 0
        while place[0] != number:
            looks += 1
            if looks > SPINS:
                if self.machine.driver.idle() and place[0] != number:
                    raise BundleError(
                        Problem(
                            "B040",
                            f"the device is idle and round {number} of slot {slot} left no record",
                            help="run `ddtreec verify BUNDLE`, and report it with what it says",
                        )
                    )
                time.sleep(5e-6)
        return Record.read(place, self.layout)

    # ---- what never changes ----

    def _context_program(self, features: Tensor) -> DeviceProgram:
        """The drafter's context program reading features from here."""
        program = self.machine.programs["draft_context"]
        homes = Homes({"features": features}, program.homes.arena, program.homes.kept)
        return program.at(homes)

    def _fill_costs(self) -> None:
        """Costs of the cost-aware stop; zeros switch it off."""
        tree, arrays = self.machine.plan.tree, self.machine.arrays
        if tree.verify_cost and "round_cost" in arrays:
            costs = torch.tensor(tree.verify_cost, dtype=torch.float64) + tree.draft_cost
            arrays["round_cost"][: len(costs)] = costs


@contextmanager
def refusing_waits(refuse: bool) -> Iterator[None]:
    """While open, torch raises where it would block the host for the device."""
    before = torch.cuda.get_sync_debug_mode() if refuse else 0
    if refuse:
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if refuse:
            torch.cuda.set_sync_debug_mode(before)


def causal_words(rows: int) -> np.ndarray:
    """int32 [rows, 4]: row i sees rows 0..i of its slot."""
    seen = np.tri(rows, 128, dtype=np.uint8)
    return np.packbits(seen, axis=1, bitorder="little").view(np.int32)


def _signed(seed: int) -> int:
    """A uint64 as the int64 of the same bits."""
    return seed - 2**64 if seed >> 63 else seed
