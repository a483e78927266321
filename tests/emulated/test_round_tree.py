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
            trees += self._step(drafts[start : start + min(most, self.slots)], costs, group)
        return trees

    def _step(self, drafts: list[tuple[np.ndarray, np.ndarray, dict[str, float]]], costs: np.ndarray | None,
              group: int) -> list[Tree]:  # fmt: skip
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
        return [self._tree(slot, group) for slot in range(len(drafts))]

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
    assert seen > 300
