"""The decode loop against recorded rounds of the public implementation, with a table for a target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from ddtreec.artifacts.plan import Tree as TreePolicy
from ddtreec_runtime.generation import Job, RoundReport, run_job
from ddtreec_runtime.sampling import SamplingParams
from tests.golden.ragged import load, prefixes

ARRAYS = load("ddtree/loop_trace.npz")
CASES = prefixes(ARRAYS, "target_table")


class TableTarget:
    """Next-token logits depend on the last token alone. Keeps what a cache would hold: (token, position) per row."""

    max_rows = 1024
    room = 10**6

    def __init__(self, table: np.ndarray):
        self.table = torch.from_numpy(table)
        self.cache: list[tuple[int, int]] = []
        self.step_rows: list[tuple[int, int]] = []
        self.hidden: Tensor | None = None

    @property
    def committed(self) -> int:
        return len(self.cache)

    def prefill(self, tokens: Sequence[int]) -> Iterator[tuple[range, Tensor]]:
        # Two chunks, so that chunked features are part of the test.
        cut = len(tokens) // 2
        for part in (tokens[:cut], tokens[cut:]):
            start = self.committed
            self.step_rows = [(token, start + n) for n, token in enumerate(part)]
            self.cache += self.step_rows
            yield range(start, self.committed), self.table[list(part[-1:])]

    def step(self, tokens: Tensor, positions: Tensor, hidden: Tensor | None) -> Tensor:
        self.step_rows = list(zip(tokens.tolist(), positions.tolist(), strict=True))
        self.hidden = hidden
        return self.table[tokens.long()]

    def commit(self, accepted: Sequence[int]) -> None:
        self.cache += [self.step_rows[row] for row in accepted]


class RecordedDrafter:
    """Gives the recorded logits and notes what it was asked and fed."""

    def __init__(self, target: TableTarget, rounds: Sequence[Tensor], block: int):
        self.target = target
        self.rounds = iter(rounds)
        self.block = block
        self.fed: list[tuple[int, int]] = []
        self.calls: list[tuple[int, list[tuple[int, int]]]] = []

    def extend(self, rows: Sequence[int]) -> None:
        self.fed += [self.target.step_rows[row] for row in rows]

    def draft(self, anchor: int) -> Tensor:
        self.calls.append((anchor, self.fed))
        self.fed = []
        return next(self.rounds)


def record(case: str, number: int, name: str) -> np.ndarray:
    return ARRAYS[f"{case}r{number}_{name}"]


@pytest.mark.parametrize("case", CASES)
def test_rounds(case: str) -> None:
    count, block = int(ARRAYS[f"{case}n_rounds"]), int(ARRAYS[f"{case}block_size"])
    budget = int(ARRAYS[f"{case}budget"])
    budget = block - 1 if budget < 0 else budget
    prompt, wanted = ARRAYS[f"{case}prompt"].tolist(), int(ARRAYS[f"{case}max_new_tokens"])
    stops = set(ARRAYS[f"{case}stop_ids"].tolist())
    target = TableTarget(ARRAYS[f"{case}target_table"])
    logits = [torch.from_numpy(record(case, n, "draft_logits")) for n in range(count)]
    drafter = RecordedDrafter(target, logits, block)
    output: list[int] = []
    verified: list[tuple[RoundReport, list[tuple[int, int]], list[int], Tensor | None]] = []

    def accept(ids: list[int]) -> tuple[int, bool]:
        keep = next((n for n, token in enumerate(ids, 1) if token in stops), len(ids))
        output.extend(ids[:keep])
        # The reference goes on until the committed tokens, without the last bonus, are as many as wanted.
        return keep, len(output) > wanted or output[-1] in stops

    def listen(report: RoundReport) -> None:
        positions = [position for _, position in target.cache]
        verified.append((report, target.step_rows, positions, target.hidden))

    # The limit is the test's: the reference drafts whole blocks to the end, ours drafts no deeper than is wanted.
    job = Job(prompt, wanted + block, SamplingParams(), TreePolicy("t", "ddtree", budget, block - 1), "tree", budget)
    run_job(job, target, drafter, accept, listen)

    assert prompt + output[:wanted] == ARRAYS[f"{case}output_ids"].tolist()
    assert len(verified) <= count
    for n, (report, rows, cached, hidden) in enumerate(verified):
        if budget:  # without a budget nothing is drafted, here
            _check_draft(case, n, *drafter.calls[n])
        assert [token for token, _ in rows] == record(case, n, "verify_ids").tolist()
        assert [position for _, position in rows] == record(case, n, "verify_positions").tolist()
        assert cached + [p for _, p in rows] == record(case, n, "target_cache_positions").tolist()
        assert report.tree.parents.tolist() == record(case, n, "parents").tolist()
        assert report.tree.depths.tolist() == record(case, n, "depths").tolist()
        assert report.accepted == record(case, n, "accepted").tolist()
        if hidden is not None:
            assert torch.equal(~hidden.squeeze(1), torch.from_numpy(report.tree.visibility))
    assert len(drafter.calls) == (len(verified) if budget else 0)
    lengths = ARRAYS[f"{case}acceptance_lengths"].tolist()
    assert [len(report.accepted) for report, *_ in verified] == lengths[: len(verified)]
    # The reference does not look at the first token: it may run one round more, and nothing else.
    assert len(verified) == count or output[0] in stops


def _check_draft(case: str, n: int, anchor: int, fed: list[tuple[int, int]]) -> None:
    """The anchor, and WHICH tokens' features entered the context since the last draft, at which positions."""
    assert anchor == record(case, n, "block_ids")[0]
    positions = record(case, n, "draft_positions").tolist()
    tags = record(case, n, "ctx_token_tags").tolist()
    assert fed == [(int(token - 2) // 10, position) for (token, _), position in zip(tags, positions, strict=False)]
    assert len(fed) == len(tags)
    start = fed[-1][1] + 1
    assert positions[len(tags) :] == list(range(start, start + len(positions) - len(tags)))


@pytest.mark.parametrize("case", CASES)
def test_output_with_the_real_limit(case: str) -> None:
    """The tree shrinks towards the end; the text is the same."""
    prompt, wanted = ARRAYS[f"{case}prompt"].tolist(), int(ARRAYS[f"{case}max_new_tokens"])
    stops, block = set(ARRAYS[f"{case}stop_ids"].tolist()), int(ARRAYS[f"{case}block_size"])
    table = ARRAYS[f"{case}target_table"]
    noise = torch.Generator().manual_seed(5)

    class Noisy(RecordedDrafter):
        def draft(self, anchor: int) -> Tensor:
            return torch.randn(block - 1, table.shape[1], generator=noise)

    target = TableTarget(table)
    output: list[int] = []

    def accept(ids: list[int]) -> tuple[int, bool]:
        keep = next((n for n, token in enumerate(ids, 1) if token in stops), len(ids))
        output.extend(ids[:keep])
        return keep, output[-1] in stops

    job = Job(prompt, wanted, SamplingParams(), TreePolicy("t", "ddtree", 16, block - 1), "tree", 16)
    done = run_job(job, target, Noisy(target, [], block), accept)
    assert prompt + done.output_ids == ARRAYS[f"{case}output_ids"].tolist()
    assert len(done.output_ids) <= wanted
