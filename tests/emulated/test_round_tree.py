"""Trees of the device against those of the CPU, node for node."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from ddtreec.emit.cuda import round_tree
from ddtreec_runtime.tree import Tree, build_tree, chain_tree
from tests.emulated.emulator import missing
from tests.emulated.rounds import Round, sizes_for

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
GOLDEN = Path(__file__).parents[1] / "data" / "ddtree"
INF = float("inf")


class Trees:
    """Runs build_tree for several drafts at once, one a slot."""

    def __init__(self, rows: int, nodes: int, top: int, slots: int = 4):
        self.sizes = sizes_for(rows + 1, nodes, top)
        self.round = Round(self.sizes, slots)
        self.draft = round_tree.build_tree(self.sizes, self.round.operands)
        self.slots = slots

    def __call__(self, drafts: list[tuple[np.ndarray, np.ndarray, dict[str, float]]], costs: np.ndarray | None = None,
                 group: int | None = None) -> list[Tree]:  # fmt: skip
        """Trees of drafts (log-probs [L, K], ids [L, K], what the slot says of itself)."""
        group = group or self.sizes.nodes + 1
        most = 128 // group
        trees: list[Tree] = []
        for start in range(0, len(drafts), min(most, self.slots)):
            step = drafts[start : start + min(most, self.slots)]
            self.launch(step, costs, group)
            trees += [self._tree(slot, group) for slot in range(len(step))]
        return trees

    def launch(self, drafts: list[tuple[np.ndarray, np.ndarray, dict[str, float]]], costs: np.ndarray | None,
               group: int) -> None:  # fmt: skip
        """One step, a slot a draft."""
        at = self.round
        at["round_cost"].zero_()
        if costs is not None:
            at["round_cost"][: len(costs)] = torch.from_numpy(costs)
        for slot, (logprobs, ids, facts) in enumerate(drafts):
            rows, top = logprobs.shape
            at["top_logprobs"][slot] = -INF
            at["top_tokens"][slot] = 0
            at["top_logprobs"][slot, :rows, :top] = torch.from_numpy(logprobs)
            at["top_tokens"][slot, :rows, :top] = torch.from_numpy(ids.astype(np.int32))
            at.admit(slot, **({"length": 40 + slot, "limit": rows + 2} | facts))
        at.launch(self.draft, len(drafts), group)

    def _tree(self, slot: int, group: int) -> Tree:
        """What the slot's rows say, checked against each other."""
        at = self.round
        n = int(at["nodes"][slot])
        rows = slice(slot * group, slot * group + n + 1)
        padding = range(slot * group + n + 1, (slot + 1) * group)
        start, anchor = int(at["length"][slot]), int(at["anchor"][slot])
        tree = Tree.from_parents(at["tokens"][rows][1:], at["parents"][rows])
        assert at["valid"][slot] == n + 1
        assert at["committed"][slot] == start
        assert at["tokens"][rows.start] == anchor
        assert at["positions"][rows].tolist() == [start, *(start + tree.depths).tolist()]
        masks = [int.from_bytes(m.numpy().tobytes(), "little") for m in at["masks"][rows]]
        assert masks == list(tree.ancestor_bits)
        assert at["out_index"][: (slot + 1) * group].tolist() == list(range((slot + 1) * group))
        for row in padding:
            assert (at["positions"][row], at["tokens"][row], at["parents"][row]) == (start, anchor, -1)
            mask = int.from_bytes(at["masks"][row].numpy().tobytes(), "little")
            assert mask == 1 << (row - slot * group)
        ranks, scores = at["ranks"][rows], at["scores"][rows]
        assert (int(ranks[0]), float(scores[0])) == (-1, 0.0)
        return Tree(tree.tokens, tree.parents, tree.depths, ranks[1:].numpy().copy(), scores[1:].numpy().copy())


def same(found: Tree, expected: Tree) -> None:
    """Node for node, scores bit for bit."""
    for field in ("tokens", "parents", "depths", "ranks", "scores"):
        np.testing.assert_array_equal(getattr(found, field), getattr(expected, field), field)


def golden_cases() -> list[tuple[int, int, int, np.ndarray, np.ndarray, dict[str, np.ndarray]]]:
    data = np.load(GOLDEN / "trees.npz", allow_pickle=False)
    arrays = {name: data[name] for name in data.files}
    cases = []
    for case in range(len(arrays["case_budget"])):

        def part(name: str, case: int = case) -> np.ndarray:
            off = arrays[f"{name}_off"]
            return arrays[name][off[case] : off[case + 1]]

        rows, top = int(arrays["case_depth_limit"][case]), int(arrays["case_k_stored"][case])
        want = {name: part(name) for name in ("tokens", "depths", "ranks", "parents", "scores")}
        budget = int(arrays["case_budget"][case])
        cases.append((case, rows, budget, part("top_logprobs").reshape(rows, top),
                      part("top_token_ids").reshape(rows, top), want))  # fmt: skip
    return cases


def test_all_golden_trees() -> None:
    """371 trees of the public reference implementation, budgets above 127 cut to it (a tree's beginning is a tree)."""
    groups = itertools.groupby(sorted(golden_cases(), key=lambda c: (c[1], c[2])), key=lambda c: (c[1], c[2]))
    seen = 0
    for (rows, budget), group in groups:
        cases = list(group)
        if rows == 0:
            continue
        nodes = max(1, min(budget, 127))
        trees = Trees(rows, nodes, max(1, nodes))
        found = trees([(c[3][:, :nodes], c[4][:, :nodes], {"budget": min(budget, nodes)}) for c in cases])
        for tree, (case, _, _, logprobs, _, want) in zip(found, cases, strict=True):
            n = min(len(want["tokens"]), nodes)
            assert len(tree) == n, (case, budget)
            for name, got in (("tokens", tree.tokens), ("depths", tree.depths), ("ranks", tree.ranks)):
                np.testing.assert_array_equal(got, want[name][:n], f"case {case}: {name}")
            np.testing.assert_array_equal(tree.parents, want["parents"][: n + 1], f"case {case}: parents")
            np.testing.assert_array_equal(tree.scores, want["scores"][:n], f"case {case}: scores")
            assert logprobs.shape[0] == rows
            seen += 1
    assert seen == 371


# ---- random drafts ----


def random_draft(rng: np.random.Generator, rows: int, top: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Sorted log-probs float32 [rows, top] and ids. Ties and stairs: whole steps, so that many sums are equal."""
    spread = {"flat": 0.1, "wide": 4.0, "ties": 1.0, "stairs": 1.0, "zeros": 0.0, "gaps": 2.0}
    logits = rng.normal(size=(rows, top)) * spread[kind]
    if kind == "ties":
        logits = np.round(logits)
    if kind == "stairs":
        logits = np.cumsum(logits > 0, axis=1) / 2 + rng.integers(1, 3, size=(rows, 1)) / 2
    logprobs = -np.abs(logits).astype(np.float32) - np.float32(0.5 if kind in ("ties", "stairs") else 0.01)
    if kind == "gaps":
        logprobs[rng.random(size=logprobs.shape) < 0.5] = -np.inf
    logprobs = -np.sort(-logprobs, axis=1)
    ids = np.stack([rng.permutation(10 * top)[:top] for _ in range(rows)])
    return logprobs, ids


@pytest.mark.parametrize(
    ("rows", "nodes", "top"),
    [(1, 1, 1), (7, 16, 16), (7, 64, 64), (3, 14, 2), (15, 32, 32), (7, 127, 127), (31, 40, 40), (2, 5, 3)],
)
def test_random_trees(rows: int, nodes: int, top: int) -> None:
    """Equal to the CPU's for every kind of draft, every budget of a run and every depth that is still wanted."""
    rng = np.random.default_rng(rows * 1000 + nodes)
    trees = Trees(rows, nodes, top)
    drafts, wanted = [], []
    for kind in ("flat", "wide", "ties", "stairs", "zeros", "gaps"):
        for _ in range(6 if nodes < 64 else 20):
            logprobs, ids = random_draft(rng, rows, top, kind)
            budget, depth = (int(rng.integers(0, n + 1)) if rng.random() < 0.6 else n for n in (nodes, rows))
            drafts.append((logprobs, ids, {"budget": budget, "limit": depth + 2}))
            wanted.append(build_tree(logprobs[:depth], ids[:depth], budget))
    for found, tree in zip(trees(drafts), wanted, strict=True):
        same(found, tree)
    assert max(map(len, wanted)) == nodes


def test_scores_that_differ_by_less_than_float32_resolves_are_told_apart() -> None:
    """One step of the fixed point between two paths: float32 sums would tie and take the wrong one."""
    step = np.float32(2.0**-30)
    first = np.array([[-1.0, -1.0 - 2 * step], [-4.0, -9.0]], dtype=np.float32)
    trees = Trees(2, 4, 2)
    ids = np.array([[5, 6], [7, 8]])
    same(trees([(first, ids, {})])[0], build_tree(first, ids, 4))


def test_a_group_and_pages_bound_the_tree() -> None:
    rng = np.random.default_rng(3)
    logprobs, ids = random_draft(rng, 4, 8, "wide")
    trees = Trees(4, 8, 8, slots=3)
    facts = [{"length": 10, "room": 10 + room} for room in (1, 2, 6)]
    found = trees([(logprobs, ids, f) for f in facts], group=5)
    for tree, budget in zip(found, (0, 1, 4), strict=True):
        same(tree, build_tree(logprobs, ids, budget))


@pytest.mark.parametrize("where", [(0, 0), (3, 2), (6, 0)])
def test_nan_gives_the_root_alone_and_is_counted(where: tuple[int, int]) -> None:
    """Also in a row deeper than the budget reaches, as on the CPU; not in one that is not wanted any more."""
    rng = np.random.default_rng(5)
    logprobs, ids = random_draft(rng, 7, 4, "wide")
    good = logprobs.copy()
    logprobs[where[0], where[1] :] = np.nan
    trees = Trees(7, 4, 4, slots=3)
    found = trees([(logprobs, ids, {}), (good, ids, {}), (logprobs, ids, {"limit": where[0] + 2})])
    same(found[0], build_tree(logprobs, ids, 4))
    same(found[1], build_tree(good, ids, 4))
    same(found[2], build_tree(logprobs[: where[0]], ids[: where[0]], 4))
    assert trees.round["broken_drafts"].tolist() == [1, 0, 0]


def test_chains() -> None:
    rng = np.random.default_rng(6)
    trees = Trees(7, 9, 9, slots=6)
    drafts, wanted = [], []
    for budget, limit, bad in ((9, 100, None), (3, 100, None), (9, 5, None), (9, 100, (2, np.nan)), (9, 100, (2, -INF)),
                               (2, 100, (2, -INF))):  # fmt: skip
        logprobs, ids = random_draft(rng, 7, 9, "wide")
        if bad:
            logprobs[bad[0]] = bad[1]
        n = min(budget, 7, limit - 2)
        broken = bad is not None and bad[0] < n
        drafts.append((logprobs, ids, {"budget": budget, "limit": limit, "mode": 1}))
        wanted.append(chain_tree(()) if broken else chain_tree(ids[:n, 0], logprobs[:n, 0]))
    for found, tree in zip(trees(drafts), wanted, strict=True):
        same(found, tree)
    assert trees.round["broken_drafts"].tolist() == [0, 0, 0, 1, 0, 0]


def test_the_cost_aware_stop_of_the_reference() -> None:
    """16 golden cases, budgets cut to 127."""
    data = np.load(GOLDEN / "cost_aware.npz", allow_pickle=False)
    cases = sorted({name.split("_")[0] for name in data.files if name.endswith("_Cv")})
    for case in cases:
        logprobs, ids = data[f"{case}_top_logprobs"], data[f"{case}_top_token_ids"]
        budget = min(int(data[f"{case}_max_budget"]), 127)
        costs = data[f"{case}_Cv"][: budget + 1] + data[f"{case}_Cd"]
        tree = Trees(len(logprobs), budget, budget, 1)([(logprobs[:, :budget], ids[:, :budget], {})], costs)[0]
        n = int(data[f"{case}_n_nodes"])
        if n <= budget:
            np.testing.assert_array_equal(tree.tokens, data[f"{case}_tokens"], case)
            np.testing.assert_array_equal(tree.parents, data[f"{case}_parents"], case)
        else:
            assert len(tree) == budget
    assert len(cases) == 16


def test_random_costs() -> None:
    rng = np.random.default_rng(8)
    trees = Trees(7, 24, 24)
    lengths = set()
    for _ in range(12):
        costs = np.cumsum(rng.random(25) ** 4) + rng.random() * 8 + 0.1
        drafts = [random_draft(rng, 7, 24, kind) for kind in ("flat", "wide", "ties", "gaps")]
        for found, (logprobs, ids) in zip(trees([(*d, {}) for d in drafts], costs), drafts, strict=True):
            tree = build_tree(logprobs, ids, 24, verify_cost=costs)
            same(found, tree)
            lengths.add(len(tree))
    assert len(lengths) > 5


def test_a_rate_that_only_stays_equal_stops() -> None:
    """Certain tokens at a price that grows as the expected tokens do: no node is worth it; a cent less, and all are."""
    logprobs, ids = np.zeros((3, 1), dtype=np.float32), np.array([[4], [5], [6]])
    trees = Trees(3, 3, 3, 1)
    costs = np.array([1.0, 2.0, 3.0, 4.0])
    for price in (costs, costs * [1, 0.99, 0.98, 0.97]):
        tree = build_tree(logprobs, ids, 3, verify_cost=price)
        same(trees([(logprobs, ids, {})], price)[0], tree)
    assert len(build_tree(logprobs, ids, 3, verify_cost=costs)) == 0
    assert len(tree) == 3


def test_a_slot_that_does_not_run_takes_no_part() -> None:
    rng = np.random.default_rng(9)
    logprobs, ids = random_draft(rng, 7, 8, "wide")
    trees = Trees(7, 8, 8)
    trees.launch([(logprobs, ids, {"status": status}) for status in (0, 2, 3, 4)], None, 9)
    assert trees.round["valid"].tolist() == [0, 0, 0, 0]
    assert trees.round["committed"].tolist() == [0, 0, 0, 0]
    assert not trees.round["positions"][: 4 * 9].any()


def test_begin_draft_and_begin_plain() -> None:
    sizes = sizes_for(8, 4, 100)
    at = Round(sizes, 3)
    for slot, status in enumerate((1, 3, 1)):
        at.admit(slot, status=status, length=50 + slot, anchor=10 + slot)
    at.launch(round_tree.begin_draft(sizes, 99, at.operands), group=5)
    assert at["tokens"][:24].tolist() == [10, *[99] * 7, 11, *[99] * 7, 12, *[99] * 7]
    assert at["positions"][:24].tolist() == [*range(50, 58), *range(8), *range(52, 60)]
    assert at["out_index"][:21].tolist() == [*range(1, 8), *range(9, 16), *range(17, 24)]
    assert at["committed"].tolist() == [50, 0, 52]
    assert at["valid"].tolist() == [8, 0, 8]

    at.launch(round_tree.begin_plain(at.operands))
    assert at["tokens"][:3].tolist() == [10, 11, 12]
    assert at["positions"][:3].tolist() == [50, 0, 52]
    assert at["committed"].tolist() == [50, 0, 52]
    assert at["valid"].tolist() == [1, 0, 1]
    assert at["masks"][:3].tolist() == [[1, 0, 0, 0]] * 3
    assert at["out_index"][:3].tolist() == [0, 1, 2]
    assert at["nodes"].tolist() == [0, 0, 0]
    assert at["parents"][:3].tolist() == at["ranks"][:3].tolist() == [-1, -1, -1]
