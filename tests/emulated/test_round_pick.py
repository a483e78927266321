"""Best tokens, greedy picks and draws of the device against the CPU's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from ddtreec.emit.cuda import round_pick, round_tree
from ddtreec_runtime.sampling import SamplingParams, pick
from ddtreec_runtime.tree import build_tree, build_tree_from_logits, top_logprobs
from tests.emulated.emulator import missing
from tests.emulated.rounds import Round, sizes_for
from tests.emulated.test_round_tree import Trees, same

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
GOLDEN = Path(__file__).parents[1] / "data" / "ddtree"
INF, NAN = float("inf"), float("nan")
TYPES = {"float": torch.float32, "ddt::bf16": torch.bfloat16}


def row_of(kind: str, vocab: int, generator: torch.Generator) -> Tensor:
    """One row of logits, float32 [V]."""
    x = torch.randn(vocab, generator=generator)
    if kind == "peaked":
        return x * 8
    if kind == "flat":
        return x * 1e-3
    if kind == "ties":
        return (x * 2).round()
    if kind == "zeros":
        return torch.where(x > 0, 0.0, -0.0)
    if kind == "masked":
        return x.masked_fill(x < x.quantile(0.8), -INF)
    if kind == "huge":
        return x * 3e4
    if kind == "rising":
        return torch.arange(vocab) / 7
    if kind == "falling":
        return torch.arange(vocab) / -7
    if kind == "lonely":
        return torch.full((vocab,), -INF).index_fill(0, torch.tensor([vocab // 2]), 3.0)
    return x * 3


KINDS = ("plain", "peaked", "flat", "ties", "zeros", "masked", "huge", "rising", "falling", "lonely")


def best_tokens(logits: Tensor, nodes: int, logit: str = "float") -> tuple[np.ndarray, np.ndarray]:
    """Log-probs and ids by the device, for logits [L, V] of one slot."""
    rows, vocab = logits.shape
    sizes = sizes_for(rows + 1, nodes, vocab, logit)
    at = Round(sizes, 1)
    at.put("draft_logits", logits.to(TYPES[logit]).unsqueeze(0))
    at.launch(round_tree.top_tokens(sizes), group=1)
    return at["top_logprobs"][0].numpy().copy(), at["top_tokens"][0].numpy().copy()


@pytest.mark.parametrize("logit", TYPES)
@pytest.mark.parametrize(("vocab", "nodes"), [(2, 3), (100, 16), (4096, 8), (5001, 127), (9000, 64), (12344, 1)])
def test_best_tokens(vocab: int, nodes: int, logit: str) -> None:
    """The same tokens in the same order; log-probs to two units in the last place of the row's logsumexp, the only
    thing that is summed in another order."""
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.stack([row_of(kind, vocab, generator) for kind in KINDS]).to(TYPES[logit]).float()
    logprobs, ids = best_tokens(logits, nodes, logit)
    wanted, order = top_logprobs(logits, nodes)
    np.testing.assert_array_equal(ids, order)
    unit = np.spacing(np.abs(torch.logsumexp(logits, 1).numpy()))[:, None]
    with np.errstate(invalid="ignore"):
        difference = np.where(logprobs == wanted, 0, np.abs(logprobs - wanted))
    assert (difference <= 2 * np.maximum(unit, np.spacing(np.abs(logits.max(1)[0].numpy()))[:, None])).all()
    assert (logprobs <= 0).all()


def test_rows_that_are_no_numbers() -> None:
    """NaN or +inf anywhere put NaN among the log-probs, a row of -inf alone stays -inf: what tree builders go by."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.stack([row_of("plain", 9000, generator) for _ in range(5)])
    logits[0, 8999] = NAN
    logits[1, 17] = INF
    logits[2] = -INF
    logits[3, :4096] = -INF
    logits[3, 5000] = -NAN
    logprobs, _ = best_tokens(logits, 8)
    wanted, _ = top_logprobs(logits, 8)
    assert np.isnan(wanted).any(axis=1).tolist() == [True, True, False, True, False]
    assert np.isnan(logprobs).all(axis=1).tolist() == [True, True, False, True, False]
    np.testing.assert_array_equal(logprobs[2], wanted[2])


def test_golden_logits() -> None:
    """24 cases end to end: the tree of the device's best tokens is the CPU's tree of the same log-probs in all of them,
    and of the logits themselves wherever no near tie leaves it to rounding."""
    data = np.load(GOLDEN / "logits.npz", allow_pickle=False)
    cases = sorted({name.split("_")[0] for name in data.files if name.endswith("_logits")})
    equal = 0
    for case in cases:
        logits, budget = torch.from_numpy(data[f"{case}_logits"]), min(int(data[f"{case}_budget"]), 127)
        if budget == 0 or len(logits) == 0:
            continue
        logprobs, ids = best_tokens(logits, budget)
        tree = Trees(len(logits), budget, logprobs.shape[1], 1)([(logprobs, ids, {})])[0]
        same(tree, build_tree(logprobs, ids, budget))
        gaps = min(float(data[f"{case}_order_gap"]), float(data[f"{case}_boundary_gap"]))
        if gaps > 1e-4:
            np.testing.assert_array_equal(tree.tokens, build_tree_from_logits(logits, budget).tokens, case)
            equal += 1
    assert len(cases) == 24
    assert equal >= 10


# ---- picks ----


class Picks:
    """Runs pick or pick_greedy on rows of logits, `group` of them a slot."""

    def __init__(self, vocab: int, logit: str = "float", slots: int = 4):
        self.sizes = sizes_for(8, 16, vocab, logit)
        self.at = Round(self.sizes, slots)
        self.greedy = round_pick.pick_greedy(self.sizes, self.at.operands)
        self.draws = round_pick.pick(self.sizes, self.at.operands)

    def __call__(self, logits: Tensor, slots: int, *, greedy: bool = False, valid: int | None = None) -> list[int]:
        """Picks of the rows. Slots are admitted before."""
        group = len(logits) // slots
        self.at.put("logits", logits.to(TYPES[self.sizes.logit]))
        self.at["valid"][:] = group if valid is None else valid
        self.at["picks"][:] = 12345678
        self.at.launch(self.greedy if greedy else self.draws, slots, group)
        return self.at["picks"][: len(logits)].tolist()


@pytest.mark.parametrize("logit", TYPES)
@pytest.mark.parametrize("vocab", [2, 100, 4097, 12344])
def test_the_most_probable_token(vocab: int, logit: str) -> None:
    generator = torch.Generator().manual_seed(vocab)
    picks = Picks(vocab, logit)
    for slot in range(2):
        picks.at.admit(slot)
    logits = torch.stack([row_of(kind, vocab, generator) for kind in KINDS]).to(TYPES[logit]).float()
    wanted = pick(logits, (), SamplingParams())
    assert picks(logits, 2, greedy=True) == wanted
    assert picks(logits, 2) == wanted  # temperature 0 among slots that draw


@pytest.mark.parametrize("greedy", [True, False])
def test_faults_instead_of_tokens_and_padding_left_alone(greedy: bool) -> None:
    generator = torch.Generator().manual_seed(2)
    logits = torch.stack([row_of("plain", 5000, generator) for _ in range(6)])
    logits[0, 4999] = NAN
    logits[1, 3] = -NAN
    logits[2, 4097] = INF
    logits[3] = -INF
    logits[5] = NAN
    picks = Picks(5000)
    picks.at.admit(0, temperature=0.0 if greedy else 0.7)
    found = picks(logits, 1, greedy=greedy, valid=5)
    assert found[:4] == [-1, -1, -2, -3]
    assert found[4] >= 0
    assert found[5] == 12345678


LAWS = [
    SamplingParams(0.8, seed=11),
    SamplingParams(1.0, top_k=1, seed=3),
    SamplingParams(0.6, top_k=40, seed=5),
    SamplingParams(1.3, top_p=0.9, seed=2**64 - 1),
    SamplingParams(0.7, top_k=50, top_p=0.95, seed=2**40 + 7),
    SamplingParams(1e-30, top_p=0.5, seed=1),
    SamplingParams(100.0, top_p=0.999, seed=6),
    SamplingParams(1.0, top_k=2500, top_p=0.7, seed=8),
    SamplingParams(0.9, top_p=1e-9, seed=9),
]


@pytest.mark.parametrize("vocab", [3, 100, 5001, 12344])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_draws(vocab: int, law: SamplingParams) -> None:
    """Token for token: the borders that rounding could move are hit by one draw in about 1e12."""
    generator = torch.Generator().manual_seed(vocab)
    picks = Picks(vocab)
    signed = law.seed - 2**64 if law.seed >> 63 else law.seed
    requests = (0, 2**35 + 1)
    for slot, request in enumerate(requests):
        picks.at.admit(
            slot, temperature=law.temperature, top_k=law.top_k, top_p=law.top_p, seed=signed, request=request
        )
    for round_ in range(2):
        logits = torch.stack([row_of(kind, vocab, generator) for kind in KINDS])
        group = len(logits) // 2
        positions = torch.randint(0, 200_000, (len(logits),), generator=generator)
        picks.at["positions"][: len(logits)] = positions
        wanted: list[int] = []
        for slot, request in enumerate(requests):
            rows = slice(slot * group, (slot + 1) * group)
            wanted += pick(logits[rows], (positions[rows] + 1).tolist(), law, request)
        assert picks(logits, 2) == wanted, round_


@pytest.mark.parametrize("law", [LAWS[0], LAWS[4]], ids=str)
def test_draws_from_bfloat16(law: SamplingParams) -> None:
    generator = torch.Generator().manual_seed(4)
    picks = Picks(9000, "ddt::bf16")
    picks.at.admit(0, temperature=law.temperature, top_k=law.top_k, top_p=law.top_p, seed=law.seed)
    logits = torch.stack([row_of(kind, 9000, generator) for kind in KINDS]).bfloat16().float()
    positions = torch.arange(100, 100 + len(logits))
    picks.at["positions"][: len(logits)] = positions
    assert picks(logits, 1) == pick(logits, (positions + 1).tolist(), law)


def test_a_cut_that_needs_many_passes() -> None:
    """Equal logits throughout, and all good tokens in the hands of one thread: nothing is missed or taken twice."""
    vocab = 40_000
    flat = torch.zeros(vocab)
    crowd = torch.full((vocab,), -50.0)
    for piece in range(0, vocab, 512 * 4):
        crowd[piece : piece + 4] = torch.arange(4) / 64
    picks = Picks(vocab)
    law = SamplingParams(1.0, top_p=0.83, seed=4)
    picks.at.admit(0, temperature=1.0, top_p=0.83, seed=4)
    logits = torch.stack([flat, crowd, flat, crowd])
    picks.at["positions"][:4] = torch.arange(4) * 1000
    assert picks(logits, 1) == pick(logits, [1, 1001, 2001, 3001], law)
    law = SamplingParams(1.0, top_k=17_001, seed=5)
    picks.at.admit(0, temperature=1.0, top_k=17_001, seed=5)
    assert picks(logits, 1) == pick(logits, [1, 1001, 2001, 3001], law)
