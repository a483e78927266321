"""Whole generations on the device's kernels, with tables for a target and a drafter, against the CPU's loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from ddtreec.artifacts.plan import Tree as TreePolicy
from ddtreec.emit.cuda import round_ends, round_pick, round_tree
from ddtreec_runtime import generation
from ddtreec_runtime.generation import Generation, Job, RoundReport, run_job
from ddtreec_runtime.sampling import SamplingParams
from tests.emulated.emulator import missing
from tests.emulated.rounds import Round, sizes_for
from tests.emulated.test_round_walk import record
from tests.golden.test_loop_trace import ARRAYS, CASES, RecordedDrafter, TableTarget
from tests.golden.test_loop_trace import record as recorded

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
MODES = {None: 0, "chain": 1, "tree": 2}
PAGE, LAYERS, WIDTH = 4, 2, 8


@dataclass(frozen=True)
class Sequence_:
    """One sequence of a batch: what to generate, and the drafter's logits [L, V] for (round, anchor, position)."""

    job: Job
    draft: Callable[[int, int, int], Tensor]
    heed_stops: bool = True

    @property
    def start(self) -> int:
        return len(self.job.prompt)


class Device:
    """Slots that run rounds. The target is `table`: logits depend on the last token. Latents and features of a row are
    its token, so that caches tell what was kept."""

    def __init__(self, table: Tensor, block: int, nodes: int, stops: Sequence[int], slots: int, context: int):
        self.table, self.group = table, nodes + 1
        self.sizes = sizes_for(block, nodes, table.shape[1], features=8)
        self.pages = -(-(context + nodes + 1) // PAGE)
        tokens = slots * self.pages * PAGE
        self.at = Round(self.sizes, slots, (LAYERS, tokens, WIDTH), self.pages)
        arrays = self.at.operands
        self.kernels = {
            "begin_draft": round_tree.begin_draft(self.sizes, 0, arrays),
            "begin_plain": round_tree.begin_plain(arrays),
            "top_tokens": round_tree.top_tokens(self.sizes),
            "build_tree": round_tree.build_tree(self.sizes, arrays),
            "pick": round_pick.pick(self.sizes, arrays),
            "pick_greedy": round_pick.pick_greedy(self.sizes, arrays),
            "walk": round_ends.walk(self.sizes, stops, arrays),
            "compact": round_ends.compact(self.sizes, self.pages, PAGE, arrays),
            "gather_features": round_ends.gather_features(self.sizes, arrays),
        }
        self.slots = slots
        self.at["pages"].copy_(torch.randperm(slots * self.pages).view(slots, self.pages))
        self.context: list[list[tuple[int, int]]] = [[] for _ in range(slots)]
        self.records: list[list[dict[str, object]]] = [[] for _ in range(slots)]

    def run(self, sequences: Sequence[Sequence_]) -> None:
        """All sequences to their ends, one a slot."""
        at = self.at
        for slot, s in enumerate(sequences):
            law = s.job.params
            at.admit(slot, limit=s.job.limit, room=self.pages * PAGE, budget=s.job.budget, mode=MODES[s.job.mode],
                     heed_stops=int(s.heed_stops), temperature=law.temperature, top_p=law.top_p, top_k=law.top_k,
                     seed=law.seed, request=s.job.request, length=s.start - 1, anchor=s.job.prompt[-1],
                     produced=0)  # fmt: skip
            for position, token in enumerate(s.job.prompt):
                self._latent(slot, position)[:] = token
            self.context[slot] = [(token, position) for position, token in enumerate(s.job.prompt)]
        self._launch("begin_plain", 1)
        self._verify(1)
        self._read()
        number = 0
        while (at["status"] == 1).any():
            self._round(sequences, number)
            number += 1
            assert number < 200

    def _launch(self, kind: str, group: int) -> None:
        self.at.launch(self.kernels[kind], self.slots, group)

    def _latent(self, slot: int, token: int) -> Tensor:
        page = int(self.at["pages"][slot, token // PAGE])
        return self.at["latent"].view(torch.int16)[:, page * PAGE + token % PAGE]

    def _verify(self, group: int) -> None:
        """The target's step and the walk. Padding rows get logits that are no numbers."""
        at = self.at
        logits = torch.full((self.slots * group, self.table.shape[1]), float("nan"))
        for slot in range(self.slots):
            start = int(at["committed"][slot])
            for i in range(int(at["valid"][slot])):
                row = slot * group + i
                token = int(at["tokens"][row])
                logits[row] = self.table[token]
                self._latent(slot, start + i)[:] = token
                at["features"].view(torch.int16)[row] = token
        at.put("logits", logits)
        self._launch("pick_greedy" if not at["temperature"].any() else "pick", group)
        self._launch("walk", group)

    def _round(self, sequences: Sequence[Sequence_], number: int) -> None:
        at, block = self.at, self.sizes.block
        self._launch("begin_draft", self.group)
        drafts = torch.full((self.slots, block - 1, self.table.shape[1]), float("nan"))
        for slot, s in enumerate(sequences):
            if at["valid"][slot]:
                assert at["valid"][slot] == block
                first, start = slot * block, int(at["committed"][slot])
                assert at["tokens"][first + 1 : first + block].tolist() == [0] * (block - 1)
                assert at["positions"][first : first + block].tolist() == list(range(start, start + block))
                found = s.draft(number, int(at["tokens"][first]), start)
                drafts[slot] = -float("inf")
                drafts[slot, : len(found)] = found
        at.put("draft_logits", drafts)
        self._launch("top_tokens", self.group)
        self._launch("build_tree", self.group)
        self._verify(self.group)
        self._launch("compact", self.group)
        self._launch("gather_features", self.group)
        for slot in range(self.slots):
            rows = slice(slot * block, slot * block + int(at["valid"][slot]))
            tokens = at["context_features"].view(torch.int16)[slot, : rows.stop - rows.start, 0].tolist()
            self.context[slot] += list(zip(tokens, at["positions"][rows].tolist(), strict=True))
        self._read()

    def _read(self) -> None:
        """New records, and whether the caches hold what they say."""
        for slot in range(self.slots):
            written = int(self.at["rounds"][slot])
            if written > len(self.records[slot]):
                self.records[slot].append(record(self.at, slot, written - 1))
            if self.at["status"][slot] == 1:
                assert [position for _, position in self.context[slot]] == list(range(self.at["length"][slot]))
            for token, position in self.context[slot]:
                assert (self._latent(slot, position) == token).all()


@pytest.mark.parametrize("case", CASES)
def test_the_recorded_rounds_of_the_reference(case: str) -> None:
    """Verify rows, trees, accepted paths and whose features entered the context, round by round."""
    count, block = int(ARRAYS[f"{case}n_rounds"]), int(ARRAYS[f"{case}block_size"])
    budget = int(ARRAYS[f"{case}budget"])
    budget = block - 1 if budget < 0 else budget
    prompt, wanted = ARRAYS[f"{case}prompt"].tolist(), int(ARRAYS[f"{case}max_new_tokens"])
    stops = ARRAYS[f"{case}stop_ids"].tolist()
    table = torch.from_numpy(ARRAYS[f"{case}target_table"])

    def draft(number: int, anchor: int, position: int) -> Tensor:
        if number >= count:  # behind the reference's last round
            return torch.zeros(0, table.shape[1])
        assert anchor == recorded(case, number, "block_ids")[0]
        return torch.from_numpy(recorded(case, number, "draft_logits"))

    device = Device(table, block, max(1, budget), stops, 1, len(prompt) + wanted + 2 * block)
    job = Job(prompt, wanted + block, SamplingParams(), TreePolicy("t", "ddtree", budget, block - 1), "tree", budget)
    device.run([Sequence_(job, draft)])
    first, *rounds = device.records[0]
    output = [*first["committed"], *(token for r in rounds for token in r["committed"])]
    stop = next((n for n, token in enumerate(output, 1) if token in stops), wanted)
    assert prompt + output[: min(stop, wanted)] == ARRAYS[f"{case}output_ids"].tolist()
    assert len(rounds) >= count - 1
    for n, told in enumerate(rounds[:count]):
        positions = recorded(case, n, "verify_positions").tolist()
        assert told["tokens"] == recorded(case, n, "verify_ids").tolist()
        assert told["start"] == positions[0]
        assert told["parents"] == recorded(case, n, "parents").tolist()
        assert told["accepted"] == recorded(case, n, "accepted").tolist()


def cpu(s: Sequence_, table: np.ndarray, block: int, stops: Sequence[int]) -> tuple[Generation, list[RoundReport]]:
    """The same generation by the CPU's loop."""
    target = TableTarget(table)
    reports: list[RoundReport] = []

    class Drafter(RecordedDrafter):
        def draft(self, anchor: int) -> Tensor:
            return s.draft(len(reports), anchor, target.committed)

    def accept(ids: list[int]) -> tuple[int, bool]:
        keep = next((n for n, token in enumerate(ids, 1) if s.heed_stops and token in stops), len(ids))
        return keep, s.heed_stops and ids[keep - 1] in stops

    return run_job(s.job, target, Drafter(target, [], block), accept, reports.append), reports


@pytest.mark.parametrize("seed", range(3))
def test_eight_sequences_of_every_kind_at_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees, chains and plain decoding, greedy and drawn, budgets, lengths and stop tokens, all different: every
    sequence gives the text, the trees, the paths and the end that the CPU gives it alone, scoring drafts by the
    drafter's law alone as the device does."""
    monkeypatch.setattr(generation, "foresee", lambda *_: None)
    rng = np.random.default_rng(seed)
    vocab, block, nodes, stops = 23, 5, 12, (3, 11)
    table = (rng.normal(size=(vocab, vocab)) * 1.5).astype(np.float32)
    policy = TreePolicy("t", "ddtree", nodes, block - 1)
    guesses = torch.from_numpy(table)

    def drafter(salt: int, good: float) -> Callable[[int, int, int], Tensor]:
        def draft(number: int, anchor: int, position: int) -> Tensor:
            noise = torch.Generator().manual_seed(1000 * salt + position)
            rows = torch.randn(block - 1, vocab, generator=noise)
            token = anchor
            for j in range(block - 1):
                rows[j] += good * guesses[token]
                token = int(guesses[token].argmax())
            return rows

        return draft

    laws = [SamplingParams(), SamplingParams(0.8, seed=seed), SamplingParams(1.2, top_k=7, top_p=0.9, seed=99)]
    sequences = []
    for slot in range(8):
        mode = ("tree", "chain", "tree", None, "tree", "tree", "chain", "tree")[slot]
        budget = 0 if mode is None else int(rng.integers(1, nodes + 1))
        prompt = rng.integers(0, vocab, size=int(rng.integers(2, 9))).tolist()
        limit = (1, 2, 3, 30, 40, 17, 25, 33)[(slot + seed) % 8]
        job = Job(prompt, limit, laws[int(rng.integers(0, 3))], policy, mode, budget, request=slot)
        sequences.append(Sequence_(job, drafter(slot, float(rng.random() * 2)), heed_stops=slot % 3 != 0))
    device = Device(guesses, block, nodes, stops, 8, 64)
    device.run(sequences)
    deep = 0
    for slot, s in enumerate(sequences):
        done, reports = cpu(s, table, block, stops)
        first, *rounds = device.records[slot]
        output = [token for r in (first, *rounds) for token in r["committed"][: r["kept"]]]
        assert output == done.output_ids
        assert {2: "stop", 3: "length"}[int(device.at["status"][slot])] == done.finish_reason
        assert [r["path"] for r in rounds] == done.accepted_per_round
        for told, report in zip(rounds, reports, strict=True):
            assert told["tokens"] == [report.root, *report.tree.tokens.tolist()]
            assert told["parents"] == report.tree.parents.tolist()
            assert (told["accepted"], told["next"]) == (report.accepted, report.next_token)
            assert told["start"] == report.start
            np.testing.assert_allclose(told["scores"][1:], report.tree.scores, atol=1e-5)
            deep = max(deep, len(report.accepted))
    assert deep > 2
