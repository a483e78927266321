"""The end of a round on the device: walk, record, compaction, features; against golden walks and by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ddtreec.artifacts.record import RING
from ddtreec.emit.cuda import round_ends
from ddtreec_runtime.tree import Tree
from tests.emulated.emulator import missing
from tests.emulated.rounds import Round, sizes_for

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
GOLDEN = Path(__file__).parents[1] / "data" / "ddtree"


def put_tree(at: Round, slot: int, group: int, tree: Tree, picks: np.ndarray) -> None:
    """What build_tree and pick leave."""
    n, first = len(tree), slot * group
    at["nodes"][slot] = n
    at["tokens"][first] = at["anchor"][slot]
    at["committed"][slot] = at["length"][slot]
    for name, values in (("tokens", tree.tokens), ("ranks", tree.ranks), ("scores", tree.scores)):
        at[name][first + 1 : first + n + 1] = torch.from_numpy(np.asarray(values))
    at["ranks"][first] = at["parents"][first] = -1
    at["parents"][first : first + n + 1] = torch.from_numpy(tree.parents)
    at["picks"][first : first + n + 1] = torch.from_numpy(np.asarray(picks, dtype=np.int32))
    # Padding that would lead astray where it is not left out: children of the root with every pick.
    rest = slice(first + n + 1, first + group)
    at["parents"][rest] = 0
    at["tokens"][rest] = int(picks[0])


def record(at: Round, slot: int, place: int = 0) -> dict[str, object]:
    """A record of the ring, by name."""
    words, layout = at["ring"][slot, place], at.sizes.record
    n, m = int(words[3]), int(words[4])
    lists = words[layout.lists : layout.lists + 4 * (at.sizes.nodes + 1)].view(4, -1)[:, : n + 1].tolist()
    head = dict(
        zip(("number", "start", "root", "nodes", "path", "next", "kept", "status"), words[:8].tolist(), strict=True)
    )
    scores = words[layout.scores : layout.words].view(torch.float64)[: n + 1].tolist()
    return head | dict(zip(("tokens", "parents", "ranks", "picks"), lists, strict=True)) | {
        "committed": words[layout.committed : layout.committed + m].tolist(),
        "accepted": words[layout.accepted : layout.accepted + m].tolist(),
        "scores": scores,
    }  # fmt: skip


def tree_of(parents: list[int], tokens: list[int]) -> Tree:
    """A tree with ranks and scores to be recognised by."""
    made = Tree.from_parents(torch.tensor(tokens, dtype=torch.int32), parents)
    n = len(tokens)
    return Tree(made.tokens, made.parents, made.depths, np.arange(n, dtype=np.int32), -np.arange(n) / 3.0)


def test_golden_walks() -> None:
    """All walks of the reference through trees of up to 127 nodes and blocks of up to 32."""
    trees, walks = (np.load(GOLDEN / f"{name}.npz", allow_pickle=False) for name in ("trees", "verify"))
    arrays = {name: trees[name] for name in trees.files} | {f"w_{name}": walks[name] for name in walks.files}

    def part(name: str, case: int) -> np.ndarray:
        off = arrays[f"{name}_off"]
        return arrays[name][off[case] : off[case + 1]]

    done = 0
    by_size: dict[int, list[int]] = {}
    for case, tree in enumerate(arrays["w_tree_case"].tolist()):
        n = int(arrays["case_n_nodes"][tree])
        if n <= 127:
            by_size.setdefault(max(16, 1 << n.bit_length()) - 1, []).append(case)
    for nodes, cases in by_size.items():
        sizes = sizes_for(32, nodes, 10)
        slots = 128 // (nodes + 1)
        at = Round(sizes, slots)
        draft = round_ends.walk(sizes, (), at.operands)
        for begin in range(0, len(cases), slots):
            step = cases[begin : begin + slots]
            for slot, case in enumerate(step):
                tree = int(arrays["w_tree_case"][case])
                n = int(arrays["case_n_nodes"][tree])
                facts = Tree(*(part(name, tree).astype(t) for name, t in (("tokens", np.int32), ("parents", np.int32),
                             ("depths", np.int32), ("ranks", np.int32), ("scores", np.float64))))  # fmt: skip
                assert len(facts) == n
                at.admit(slot, length=1000 + case)
                put_tree(at, slot, nodes + 1, facts, part("w_posterior", case))
            at.launch(draft, len(step), nodes + 1)
            for slot, case in enumerate(step):
                accepted, bonus = part("w_accepted", case).tolist(), int(arrays["w_next_token"][case])
                m = len(accepted)
                assert at["accepted"][slot, :m].tolist() == accepted
                assert at["accepted_count"][slot] == m
                assert (at["anchor"][slot], at["length"][slot]) == (bonus, 1000 + case + m)
                assert at["produced"][slot] == 1 + m
                tree = int(arrays["w_tree_case"][case])
                told = record(at, slot)
                tokens = part("tokens", tree).tolist()
                assert told["committed"] == [*(tokens[a - 1] for a in accepted[1:]), bonus]
                assert told["accepted"] == accepted
                assert told["tokens"] == [7, *tokens]
                assert told["picks"] == part("w_posterior", case).tolist()
                assert told["parents"] == part("parents", tree).tolist()
                assert told["ranks"] == [-1, *part("ranks", tree).tolist()]
                assert told["scores"] == [0.0, *part("scores", tree).tolist()]
                assert (told["number"], told["start"], told["root"]) == (1, 1000 + case, 7)
                assert (told["next"], told["kept"], told["status"]) == (bonus, m, 1)
                done += 1
    assert done == 1326


BRANCH = tree_of([-1, 0, 0, 2, 3, 1], [10, 20, 30, 40, 50])
"""Root with children 1 (token 10) and 2 (20); 2 - 3 (30) - 4 (40); 1 - 5 (50)."""
PATH = [20, 1, 30, 40, 77, 2]
"""Picks that lead to 0, 2, 3, 4 and the next token 77."""


@pytest.mark.parametrize(
    ("facts", "kept", "status"),
    [
        ({}, 4, 1),
        ({"limit": 5}, 4, 3),  # exactly what is wanted
        ({"limit": 4}, 3, 3),
        ({"limit": 2}, 1, 3),
        ({"room": 104}, 4, 3),  # no row left behind the committed ones
        ({"room": 105}, 4, 1),
        ({"anchor": 30}, 4, 1),  # stop tokens that are no output of this round do not count
    ],
)
def test_length_and_pages_end_a_sequence(facts: dict[str, int], kept: int, status: int) -> None:
    check_end((), facts, kept, status)


@pytest.mark.parametrize(
    ("stops", "facts", "kept", "status"),
    [
        ((20,), {}, 1, 2),
        ((30, 5), {}, 2, 2),
        ((77,), {}, 4, 2),
        ((7, 10, 50), {}, 4, 1),  # the root and what was not accepted
        ((40, 30), {"heed_stops": 0}, 4, 1),
        ((40,), {"limit": 3}, 2, 3),  # cut by length before the stop token
        ((40,), {"limit": 4}, 3, 2),  # both at once: stopped
    ],
)
def test_stop_tokens_end_a_sequence(stops: tuple[int, ...], facts: dict[str, int], kept: int, status: int) -> None:
    check_end(stops, facts, kept, status)


def check_end(stops: tuple[int, ...], facts: dict[str, int], kept: int, status: int) -> None:
    """PATH through BRANCH: what is kept, and that nothing moves on where the sequence ends."""
    sizes = sizes_for(6, 7, 10)
    at = Round(sizes, 2)
    draft = round_ends.walk(sizes, stops, at.operands)
    at.admit(0, length=100, **{"anchor": 7} | facts)
    at.admit(1, status=0)
    put_tree(at, 0, 8, BRANCH, np.array(PATH))
    at["accepted_count"][:] = 9
    at.launch(draft, 2, 8)
    told = record(at, 0)
    assert (told["kept"], told["status"]) == (kept, status)
    assert told["committed"] == [20, 30, 40, 77]
    assert told["accepted"] == [0, 2, 3, 4]
    assert at["status"].tolist() == [status, 0]
    assert at["produced"][0] == 1 + kept
    goes_on = status == 1
    assert at["length"][0] == (104 if goes_on else 100)
    assert at["anchor"][0] == (77 if goes_on else facts.get("anchor", 7))
    assert at["accepted_count"].tolist() == [4 if goes_on else 0, 0]
    assert not at["ring"][1].any()
    assert at["rounds"].tolist() == [1, 0]

    before = {name: array.clone() for name, array in at.arrays.items()}
    if not goes_on:  # later rounds change nothing
        at.launch(draft, 2, 8)
        assert all(torch.equal(before[n], at[n]) for n in ("ring", "rounds", "length", "anchor", "produced", "status"))


@pytest.mark.parametrize(
    ("picks", "temperature", "row"),
    [
        ([20, -2, 30, 40, 77, 2], 0.0, 1),  # greedy: any row, the first of them
        ([20, 1, 30, -1, 77, -3], 0.0, 3),
        ([20, -2, 30, 40, 77, -1], 0.5, None),  # draws: rows off the path are not asked
        ([20, 1, 30, -3, 77, 2], 0.5, 3),
        ([-1, 1, 30, 40, 77, 2], 0.5, 0),
        ([20, 1, 30, 40, -2, 2], 0.5, 4),
    ],
)
def test_broken_logits_commit_nothing(picks: list[int], temperature: float, row: int | None) -> None:
    sizes = sizes_for(6, 7, 10)
    at = Round(sizes, 1)
    at.admit(0, length=100, temperature=temperature)
    put_tree(at, 0, 8, BRANCH, np.array(picks))
    at.launch(round_ends.walk(sizes, (), at.operands), 1, 8)
    told = record(at, 0)
    assert told["picks"] == picks
    if row is None:
        assert (told["status"], told["kept"], at["length"][0]) == (1, 4, 104)
        return
    assert (told["status"], told["kept"], told["next"]) == (4, 0, row)
    assert (at["status"][0], at["length"][0], at["anchor"][0], at["produced"][0]) == (4, 100, 7, 1)
    assert at["accepted_count"][0] == 0


def test_the_ring_goes_round() -> None:
    """Record n lies at place n % RING; records that were not due keep theirs."""
    sizes = sizes_for(1, 0, 10)
    at = Round(sizes, 1)
    draft = round_ends.walk(sizes, (), at.operands)
    at.admit(0, length=5)
    for n in range(RING + 3):
        put_tree(at, 0, 1, tree_of([-1], []), np.array([1000 + n]))
        at.launch(draft, 1, 1)
    numbers = at["ring"][0, :, 0].tolist()
    assert numbers == [RING + 1, RING + 2, RING + 3, *range(4, RING + 1)]
    told = record(at, 0, 2)
    assert (told["number"], told["start"], told["root"], told["next"]) == (
        RING + 3,
        5 + RING + 2,
        1000 + RING + 1,
        1000 + RING + 2,
    )


@pytest.mark.parametrize("width", [576, 36, 10, 7])
def test_accepted_latents_move_through_scattered_pages(width: int) -> None:
    """Every layer of every slot as `compaction` has it; nothing else is touched."""
    rng = np.random.default_rng(width)
    sizes = sizes_for(12, 20, 10)
    layers, page, pages, slots = 3, 4, 9, 4
    tokens = slots * pages * page
    at = Round(sizes, slots, (layers, tokens, width), pages)
    draft = round_ends.compact(sizes, pages, page, at.operands)
    bits = torch.from_numpy(rng.integers(-(2**15), 2**15, size=(layers, tokens, width), dtype=np.int16))
    at["latent"].view(torch.int16).copy_(bits)
    order = rng.permutation(slots * pages).reshape(slots, pages)
    at["pages"].copy_(torch.from_numpy(order.astype(np.int32)))
    wanted = bits.clone()
    for slot, accepted in enumerate(([0, 2, 3, 5, 6, 9, 10, 14, 15, 17, 19, 20], [0, 1, 2], [0, 1, 5], [])):
        start = int(rng.integers(0, 14))
        at["committed"][slot] = start
        at["accepted"][slot, : len(accepted)] = torch.tensor(accepted, dtype=torch.int32)
        at["accepted_count"][slot] = len(accepted)
        places = [int(order[slot][t // page]) * page + t % page for t in range(pages * page)]
        for j, node in enumerate(accepted):
            wanted[:, places[start + j]] = bits[:, places[start + node]]
    at.launch(draft, slots, 21)
    assert torch.equal(at["latent"].view(torch.int16), wanted)


def test_golden_compaction() -> None:
    """The reference's caches, keys and values side by side as one latent of whole pages."""
    data = np.load(GOLDEN / "compact.npz", allow_pickle=False)
    cases = sorted({name.split("_")[0] for name in data.files if name.endswith("_keep")})
    for case in cases:
        past, keep = int(data[f"{case}_past"]), data[f"{case}_keep"].tolist()
        before, after = (
            np.concatenate([data[f"{case}_{kv}_{when}"].transpose(0, 2, 1, 3).reshape(*shape) for kv in "kv"], axis=2)
            for when in ("before", "after")
            for shape in [(data[f"{case}_k_{when}"].shape[0], data[f"{case}_k_{when}"].shape[2], -1)]
        )
        layers, tokens, width = before.shape
        sizes = sizes_for(max(2, len(keep)), 127, 10)
        room = -(-tokens // 16) * 16
        at = Round(sizes, 1, (layers, room, width), room // 16)
        at["latent"].view(torch.int16)[:, :tokens] = torch.from_numpy(before.astype(np.int16))
        at["pages"][0] = torch.arange(room // 16)
        at["committed"][0] = past
        at["accepted"][0, : len(keep)] = torch.tensor(keep, dtype=torch.int32)
        at["accepted_count"][0] = len(keep)
        at.launch(round_ends.compact(sizes, room // 16, 16, at.operands), 1, 128)
        found = at["latent"].view(torch.int16)[:, : past + len(keep)].numpy()
        np.testing.assert_array_equal(found, after.astype(np.int16), case)
    assert len(cases) >= 8


@pytest.mark.parametrize("features", [24, 9216, 14])
def test_features_of_the_path(features: int) -> None:
    sizes = sizes_for(5, 11, 10, features=features)
    at = Round(sizes, 3)
    at["features"].view(torch.int16).copy_(
        torch.arange(128 * features, dtype=torch.int32).view(128, -1).to(torch.int16)
    )
    at["context_features"].fill_(-1)
    at["committed"][:] = torch.tensor([30, 40, 50])
    at["accepted"][0, :4] = torch.tensor([0, 3, 4, 11])
    at["accepted"][2, :1] = 0
    at["accepted_count"][:] = torch.tensor([4, 0, 1])
    at.launch(round_ends.gather_features(sizes, at.operands), 3, 12)
    got, given = at["context_features"].view(torch.int16), at["features"].view(torch.int16)
    assert torch.equal(got[0, :4], given[[0, 3, 4, 11]])
    assert torch.equal(got[2, 0], given[24])
    assert at["valid"].tolist() == [4, 0, 1]
    assert at["positions"][:15].tolist() == [30, 31, 32, 33, 30, *[40] * 5, *[50] * 5]
    assert at["committed"].tolist() == [30, 40, 50]
