"""Fast checks of the training project's parts on tiny random sizes (CPU)."""

from __future__ import annotations

import itertools
import random
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

from checkpoint import load_state, save_state  # noqa: E402
from choose import best, between  # noqa: E402
from corpus import Deduplicator, licence_of, signature  # noqa: E402
from drafter import Drafter, DrafterConfig, dense_attend  # noqa: E402
from evaluate import draft_logprobs, path_order  # noqa: E402
from export import export_drafter, export_target, load_drafter, load_target  # noqa: E402
from generate import Generator, loops  # noqa: E402
from model import MASK, Target, TargetConfig  # noqa: E402
from optim import Optimizer, Rates  # noqa: E402
from quant import fake_quantise, pack, quantise, unpack  # noqa: E402
from train_drafter import SPARE, Batches, Written, regenerate  # noqa: E402
from train_drafter import Step as DraftStep  # noqa: E402
from train_target import Step, Windows  # noqa: E402

SMALL = TargetConfig(
    hidden_size=64, num_hidden_layers=3, intermediate_size=64, n_routed_experts=4, num_experts_per_tok=2,
    moe_intermediate_size=32, num_attention_heads=2, q_lora_rank=32, kv_lora_rank=32,
)  # fmt: skip
DRAFT = DrafterConfig(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    intermediate_size=64, num_target_layers=3, target_layer_ids=(0, 1),
)  # fmt: skip


@pytest.fixture
def target() -> Target:
    model = Target(SMALL)
    model.init_weights(0)
    return model


@pytest.fixture
def drafter() -> Drafter:
    model = Drafter(DRAFT)
    model.init_weights(1)
    return model


def draw(*shape: int) -> torch.Tensor:
    return torch.randint(0, 4000, shape, generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def test_cached_step_equals_full_pass(target: Target) -> None:
    ids = draw(3, 24)
    full = target(ids).last
    caches, state = Generator(target).prefill(ids[:, :10], 24)
    torch.testing.assert_close(state, full[:, 9])
    for place in range(10, 24):
        state = target.step(ids[:, place], caches, torch.tensor([place]))
        torch.testing.assert_close(state, full[:, place])


@torch.no_grad()
def test_router_takes_top_k_of_score_plus_bias(target: Target) -> None:
    moe = target.layers[1].mlp
    moe.bias.copy_(torch.tensor([0.5, 0.0, -0.5, 0.1]))
    h = torch.randn(7, 64, generator=torch.Generator().manual_seed(0))
    weight = moe.route(h)
    score = torch.sigmoid(h @ moe.router.T)
    for row, got in zip(score, weight, strict=True):
        chosen = (row + moe.bias).topk(2).indices
        assert set(got.nonzero().flatten().tolist()) == set(chosen.tolist())
        torch.testing.assert_close(got[chosen], 2.0 * row[chosen] / row[chosen].sum())


@torch.no_grad()
def test_training_rows_equal_evaluation_rows(target: Target, drafter: Drafter) -> None:
    """A block trained inside a whole sequence sees exactly what it sees when drafting."""
    ids = draw(2, 64)
    place = torch.arange(64)
    streams = target(ids).streams
    rows = target.embed_tokens(torch.where(place % 8 == 0, ids, MASK))
    attend = dense_attend(torch.arange(0, 64, 8), 64, 8)
    states = drafter(torch.cat([streams[i] for i in (0, 1)], -1), rows, place, attend)
    trained = target.logits(states.unflatten(1, (8, 8))[:, :, 1:]).log_softmax(-1)
    drafted = draft_logprobs(target, drafter, ids, 8, 40, stride=5)
    for block in (1, 2, 4):
        torch.testing.assert_close(drafted[:, 8 * block - 8], trained[:, block], atol=1e-5, rtol=1e-5)


def test_draft_loss_does_not_see_its_labels(target: Target, drafter: Drafter) -> None:
    """Changing the tokens behind the last anchor changes labels only: the states of that block stay."""
    ids = draw(1, 32)
    other = ids.clone()
    other[:, 25:] = (ids[:, 25:] + 1) % 4000
    step = DraftStep(target, drafter, {32: dense_attend(torch.arange(0, 32, 8), 32, 8)}, compiled=False)
    kept: list[torch.Tensor] = []
    step.loss = lambda states, head, labels, *rest: (kept.append(states), labels)  # type: ignore[assignment]
    labels = [step(x, torch.ones(1, 32), torch.zeros(1))[1] for x in (ids, other)]
    torch.testing.assert_close(kept[0], kept[1])
    assert not torch.equal(labels[0], labels[1])


def test_soft_labels_are_the_targets_distribution_at_the_rows_temperature(target: Target, drafter: Drafter) -> None:
    """The loss equals one computed row by row; sequences at temperature 0 keep the token as their label."""
    ids, heat = draw(2, 32), torch.tensor([0.0, 0.8])
    step = DraftStep(target, drafter, {32: dense_attend(torch.arange(0, 32, 8), 32, 8)}, compiled=False, soft=True)
    kept: list[torch.Tensor] = []
    whole = step.loss
    step.loss = lambda *given: (kept.append(given[0]), whole(*given))[1]  # type: ignore[assignment]
    loss, _ = step(ids, torch.ones(2, 32), heat)
    logits = target.logits(target(ids).last).detach()
    drafts = target.logits(kept[0].detach()).log_softmax(-1).detach()
    total = weights = 0.0
    for row in range(2):
        for block in range(2, 4):
            reach, costs, chance = [], [], 1.0
            for depth in range(7):
                place = 8 * block + 1 + depth
                label = drafts[row, block, depth, ids[row, place]]
                wanted = (logits[row, place - 1] / 0.8).softmax(-1)
                costs.append(float(-(wanted * drafts[row, block, depth]).sum() if heat[row] > 0 else -label))
                chance *= 0.5 * float(label.exp()) + 0.5
                reach.append(chance)
            pace = [sum(reach[depth:]) for depth in range(7)]
            total += sum(cost * w for cost, w in zip(costs, pace, strict=True))
            weights += sum(pace)
    assert float(loss.detach()) == pytest.approx(total / weights, rel=1e-4)


def test_texts_keep_their_temperatures_through_the_batches(target: Target) -> None:
    tokens = draw(400).to(torch.int16)
    written = regenerate(target, tokens, 72 + 128, 5, 0.0, 7, compiled=False, heats=(0.0, 0.8))
    assert written.heats.tolist() == pytest.approx([0.0, 0.8, 0.0, 0.8, 0.0])
    # Greedy rows are the target's best tokens behind their prompts, sampled ones are not.
    logits = target.logits(target(written.texts.long()).last)[:, 63:-1]
    same = (logits.argmax(-1) == written.texts[:, 64:]).float().mean(1)
    assert (same[::2] > 0.99).all() and (same[1::2] < 0.5).all()
    numbered = Written(torch.arange(6).repeat(16 + SPARE, 1).T.short(), torch.full((6, 16 + SPARE), 10).byte(),
                       torch.arange(6) / 10)  # fmt: skip
    batches = Batches(numbered, Windows(tokens, 32, 2, 0), 48, long_every=2, seed=0)
    ids, weight, heat = batches.next()
    assert ids.shape == weight.shape == (3, 16) and (weight == 1).all()
    torch.testing.assert_close(ids[:, 0] / 10, heat)
    ids, _, heat = batches.next()
    assert ids.shape == (2, 32) and heat.tolist() == pytest.approx([0.8, 0.8])


def test_the_choice_takes_the_largest_gain_that_keeps_greedy(drafter: Drafter) -> None:
    def told(greedy: float, sampled: float) -> dict:
        marks = ("chain7", "tree16")
        return {"temperature 0.0": {"non_looping": dict.fromkeys(marks, greedy)},
                "temperature 0.8": {"all": dict.fromkeys(marks, sampled)}}  # fmt: skip

    assert best({0.0: told(4.5, 2.5), 0.5: told(4.46, 2.6), 1.0: told(4.4, 2.7)}, 0.05) == 0.5
    assert best({0.0: told(4.5, 2.5), 0.5: told(4.46, 2.6), 1.0: told(4.46, 2.7)}, 0.05) == 1.0
    assert best({0.0: told(4.5, 2.5), 1.0: told(4.9, 2.4)}, 0.05) == 0.0
    other = Drafter(DRAFT)
    other.init_weights(2)
    mixed = between(drafter, other, 0.25).state_dict()
    for name, tensor in drafter.state_dict().items():
        wanted = 0.75 * tensor + 0.25 * other.state_dict()[name]
        torch.testing.assert_close(mixed[name], wanted.bfloat16().float())


def test_best_first_order_equals_sorting_all_paths() -> None:
    rng = random.Random(0)
    for _ in range(60):
        depth, width = 4, 5
        rows = [sorted((rng.choice([-1, -5, -10, -20, -33]) for _ in range(width)), reverse=True) for _ in range(depth)]
        paths = [p for d in range(1, depth + 1) for p in itertools.product(range(width), repeat=d)]
        paths.sort(key=lambda p: (-sum(rows[i][r] for i, r in enumerate(p)), p))
        places = {p: i + 1 for i, p in enumerate(paths)}
        ranks = [rng.randrange(3) for _ in range(depth)]
        want = [min(places[tuple(ranks[: d + 1])], 17) for d in range(depth)]
        assert path_order(rows, ranks, 16) == want


def test_loops_marks_repetition_only() -> None:
    text = torch.tensor([[1, 2, 3] * 20 + [9, 8, 7, 6]])
    marked = loops(text)[0]
    assert not marked[:34].any() and marked[34:60].all() and not marked[60:].any()


def test_packing_round_trip() -> None:
    q, scale = quantise(torch.randn(64, 64, generator=torch.Generator().manual_seed(0)))
    assert int(q.min()) == -8 and int(q.max()) == 7 and scale.shape == (64, 2)
    assert torch.equal(unpack(pack(q)), q)
    assert pack(torch.arange(-8, 8).view(1, 16))[0].tolist() == [0x76543210, 0xFEDCBA98 - 2**32]


def test_training_lowers_the_loss_and_checkpoints_restore(target: Target, tmp_path: Path) -> None:
    optim = Optimizer(target, Rates())
    step, ids, losses = Step(target, compiled=False), draw(2, 65), []
    for index in range(6):
        loss, _ = step(ids)
        losses.append(float(loss.detach()))
        loss.backward()
        optim.step(1.0, fake_quantise if index > 3 else None)
    assert losses[-1] < losses[0] - 0.5
    save_state(tmp_path, optim.state_dict(), {"progress": 0.5})
    restored = load_state(tmp_path, "cpu")
    assert restored is not None and restored[1] == {"progress": 0.5}
    for key, tensor in optim.state_dict().items():
        assert torch.equal(restored[0][key], tensor)


def test_export_reads_back_as_the_fake_quantised_model(target: Target, drafter: Drafter, tmp_path: Path) -> None:
    optim = Optimizer(target, Rates())
    export_target(target, tmp_path / "target")
    target.cast(torch.bfloat16)
    optim.write_back(fake_quantise)
    loaded = load_target(tmp_path / "target", torch.bfloat16)
    for name, tensor in target.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    export_drafter(drafter, tmp_path / "drafter")
    assert load_drafter(tmp_path / "drafter").cfg == drafter.cfg


@pytest.mark.parametrize(
    ("metadata", "kept"),
    [
        ("License-Expression: MIT", True),
        ("License-Expression: Apache-2.0 OR BSD-3-Clause", True),
        ("License-Expression: MIT AND GPL-3.0-only", False),
        ("Classifier: License :: OSI Approved :: MIT License", True),
        ("Classifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)", False),
        ("License: BSD 3-Clause License", True),
        ("Name: nothing-said", False),
    ],
)
def test_licences(metadata: str, kept: bool) -> None:
    assert (licence_of(metadata + "\n") is not None) is kept


def test_near_duplicates_are_dropped() -> None:
    lines = [f"value_{i} = compute({i}, factor={i * 7})" for i in range(80)]
    known = Deduplicator()
    assert known.is_new(signature("\n".join(lines)))
    assert not known.is_new(signature("\n".join(lines[:78])))
    assert known.is_new(signature("\n".join(f"other_{line}" for line in lines)))
