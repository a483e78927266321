"""The DFlash drafter at run time: its context follows the committed tokens, one block pass gives a tree of guesses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from ddtreec.artifacts.plan import Tree as TreePolicy
from ddtreec_runtime.foresight import Foresight, expected
from ddtreec_runtime.program import BoundProgram
from ddtreec_runtime.state import every_row
from ddtreec_runtime.target import NO_ROWS
from ddtreec_runtime.tree import Tree, build_tree, chain_tree, top_logprobs

Mode = Literal["tree", "chain"]


class DraftSource(Protocol):
    """What the loop needs of a drafter; `Drafter` is the real one."""

    block: int
    """Slots of a block, the anchor included."""

    def extend(self, rows: Sequence[int]) -> None:
        """Append the features of these rows of the target's last step to the context, in this order."""
        ...

    def draft(self, anchor: int) -> Tensor:
        """Logits [block - 1, V]; row j scores the token j + 1 places behind the anchor."""
        ...


class Drafter:
    """Context and block programs over one sequence.

    The context holds the features of committed tokens only. `length` counts them: it is the position of the anchor.
    """

    def __init__(self, context: BoundProgram, block_program: BoundProgram, block: int, mask_token: int):
        self.block = block
        self.length = 0
        self._context = context
        self._block = block_program
        self._features = context.inputs["features"]
        self._tokens = block_program.inputs["tokens"]
        self._tokens[:block] = mask_token
        self._guesses = torch.arange(1, block)

    def extend(self, rows: Sequence[int]) -> None:
        """See DraftSource. The features buffer is overwritten where rows are not 0, 1, 2.."""
        count = len(rows)
        if any(row != place for place, row in enumerate(rows)):
            self._features[:count] = self._features.index_select(0, torch.tensor(list(rows)))
        positions = torch.arange(self.length, self.length + count)
        for state in self._context.states:
            state.begin(self._context.inputs, positions, committed=self.length, out_index=NO_ROWS)
        self._context.run()
        self.length += count

    def feed(self, features: Tensor) -> None:
        """Append kept features [n, taps * hidden], as `extend` does those of the last step."""
        for part in features.split(self._context.program.max_rows):
            self._features[: len(part)] = part
            self.extend(range(len(part)))

    def draft(self, anchor: int) -> Tensor:
        """See DraftSource. The result is a view that the next draft overwrites."""
        self._tokens[0] = anchor
        positions = every_row(self.block) + self.length
        for state in self._block.states:
            state.begin(self._block.inputs, positions, committed=self.length, out_index=self._guesses)
        self._block.run()
        return self._block.output("logits")

    def reset(self) -> None:
        """Forget the sequence."""
        self.length = 0
        for state in self._context.states:
            if state.context is not None:
                state.context.crop(0)


def propose(logits: Tensor, mode: Mode, budget: int, policy: TreePolicy, known: Foresight | None = None) -> Tree:
    """The tree of at most `budget` nodes for draft logits [L, V]; an empty tree where L or the budget is 0.

    'tree' is best-first with the plan's cost-aware stop; 'chain' is the best token of each row. Tokens are scored by
    the drafter's log-probs or, where the numbers that they will be drawn with are `known`, by what these say as well
    (see `foresight`). NaN gives no guesses: a broken drafter costs speed, never a wrong token.
    """
    if logits.shape[0] == 0 or budget == 0:
        return chain_tree(())

    def best(rows: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
        return top_logprobs(rows, k) if known is None else expected(rows, known, k)

    if mode == "chain":
        logprobs, ids = best(logits[:budget], 1)
        if not (logprobs[:, 0] > float("-inf")).all():
            return chain_tree(())
        return chain_tree(ids[:, 0], logprobs[:, 0])
    logprobs, ids = best(logits, budget)
    cost = policy.verify_cost or None
    return build_tree(logprobs, ids, budget, verify_cost=cost, draft_cost=policy.draft_cost if cost else 0.0)
