"""Exact search for the best way to run one block on ranks. The state is where the live values are placed.

Values that come from outside a block or leave it are replicated, so blocks are independent of each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, Protocol

from ddtreec.artifacts.plan import Mesh
from ddtreec.graph.layer_graph import LayerGraph, Node
from ddtreec.ops.base import At, Op, Strategy, TensorType, placed


class Prices(Protocol):
    """What the search asks: seconds at one operating point."""

    @property
    def at(self) -> At: ...

    def price(self, op: Op, ins: tuple[TensorType, ...]) -> float:
        """Seconds of one launch of `op` on one rank; `ins` are the types on one rank."""
        ...

    def collective(self, kind: str, size: float) -> float:
        """Seconds of a collective of `size` bytes: of the addends of an all-reduce, of the result of an all-gather."""
        ...


def collective_of(placement: str) -> str:
    """The collective that makes a value of this placement replicated."""
    return "all_reduce" if placement == "P" else "all_gather"


@dataclass(frozen=True)
class Block:
    """Consecutive nodes of one block at one layer of a program, with what the search needs to know of outside."""

    graph: LayerGraph
    nodes: tuple[Node, ...]
    escapes: frozenset[str]
    """Values made here that are read outside the block or outlive the step."""
    first: tuple[tuple[bool, ...], ...]
    """For each weight of each node whether no node before it, of any program, holds it too."""

    def types(self, node: Node) -> tuple[TensorType, ...]:
        """Whole types of the inputs of a node."""
        return tuple(self.graph.types[v] for v in node.inputs)

    def signature(self) -> tuple[object, ...]:
        """Equal for blocks that differ in nothing the search looks at."""
        names: dict[str, int] = {}
        rows: list[object] = []
        for node, first in zip(self.nodes, self.first, strict=True):
            for value in (*node.inputs, *node.outputs):
                names.setdefault(value, len(names))
            held = tuple((w.shape, w.packing, w.group, w.role) for w in node.op.weights())
            facts = tuple((k, v) for k, v in node.op.params().items() if k != "layer")
            wires = tuple(names[v] for v in (*node.inputs, *node.outputs))
            escaping = tuple(v in self.escapes for v in node.outputs)
            rows.append((node.op.kind, held, facts, wires, escaping, first, self.types(node)))
        return tuple(rows)

    def answers(self, meshes: Sequence[Mesh]) -> dict[str, tuple[str, ...]]:
        """The layout questions asked in this block, each with the answers that some op of it offers."""
        found: dict[str, dict[str, None]] = {}
        for node in self.nodes:
            for mesh in meshes:
                for strategy in node.op.strategies(self.types(node), mesh):
                    if strategy.question:
                        found.setdefault(strategy.question, {})[strategy.answer] = None
        return {question: tuple(answers) for question, answers in found.items()}


class Step(NamedTuple):
    """What happens at one node: the number of its strategy, and the values made replicated just before it."""

    strategy: int
    gathered: tuple[str, ...]


@dataclass(frozen=True)
class Solution:
    """The best way to run a block under given answers. `seconds` of one pass, weight `bytes` of one rank; one step a
    node, then the values to make replicated at the end. Nodes and values are numbered as in the block."""

    seconds: float
    bytes: int
    steps: tuple[Step, ...]
    last: tuple[str, ...]


class _Path(NamedTuple):
    """A partial solution: a linked list of steps."""

    seconds: float
    bytes: int
    step: Step | None
    before: _Path | None


_State = frozenset[tuple[str, str]]
"""(value, placement) of all live values made in the block; a value may be held in two placements."""


def solve(block: Block, mesh: Mesh, answers: Mapping[str, str], prices: Prices) -> Solution | None:
    """The fastest way under `answers`; None if there is none."""
    alive_until = {v: i for i, node in enumerate(block.nodes) for v in node.inputs}
    alive_until |= dict.fromkeys(block.escapes, len(block.nodes))
    states: dict[_State, _Path] = {frozenset(): _Path(0.0, 0, None, None)}
    for index, node in enumerate(block.nodes):
        offered = node.op.strategies(block.types(node), mesh)
        chosen = [(i, s) for i, s in enumerate(offered) if answers.get(s.question, s.answer) == s.answer]
        costs = [_local_cost(block, node, index, s, mesh, prices) for _, s in chosen]
        after: dict[_State, _Path] = {}
        for state, path in states.items():
            for (number, strategy), (seconds, size) in zip(chosen, costs, strict=True):
                moves = _moves(node.inputs, strategy.ins, state)
                if moves is None:
                    continue
                total = path.seconds + seconds + _seconds(block, moves, prices)
                live = {*state, *((v, "R") for v, _ in moves), *zip(node.outputs, strategy.outs, strict=True)}
                key = frozenset(item for item in live if alive_until.get(item[0], -1) > index)
                if key not in after or total < after[key].seconds:
                    step = Step(number, tuple(v for v, _ in moves))
                    after[key] = _Path(total, path.bytes + size, step, path)
        states = after
    return _best(block, states, prices)


def _best(block: Block, states: Mapping[_State, _Path], prices: Prices) -> Solution | None:
    best: Solution | None = None
    for state, path in states.items():
        moves = _moves(tuple(sorted(block.escapes)), ("R",) * len(block.escapes), state) or ()
        seconds = path.seconds + _seconds(block, moves, prices)
        if best is None or seconds < best.seconds:
            best = Solution(seconds, path.bytes, tuple(_steps(path))[::-1], tuple(v for v, _ in moves))
    return best


def _steps(path: _Path) -> Iterator[Step]:
    here: _Path | None = path
    while here is not None and here.step is not None:
        yield here.step
        here = here.before


def _moves(values: Sequence[str], wanted: Sequence[str], state: _State) -> tuple[tuple[str, str], ...] | None:
    """The (value, placement) pairs to make replicated so that every value is there as wanted; None if impossible.
    Values from outside the block are replicated."""
    moves: dict[tuple[str, str], None] = {}
    for value, want in zip(values, wanted, strict=True):
        held = [p for v, p in state if v == value] or ["R"]
        if want in held:
            continue
        if want != "R":
            return None
        moves[value, held[0]] = None
    return tuple(moves)


def _seconds(block: Block, moves: Sequence[tuple[str, str]], prices: Prices) -> float:
    at, types = prices.at, block.graph.types
    return sum(prices.collective(collective_of(p), float(at.nbytes(types[v]))) for v, p in moves)


def _local_cost(
    block: Block, node: Node, index: int, strategy: Strategy, mesh: Mesh, prices: Prices
) -> tuple[float, int]:
    """Seconds of one launch, and bytes of the weights that no node before holds."""
    ins = tuple(placed(t, p, mesh.ranks) for t, p in zip(block.types(node), strategy.ins, strict=True))
    weights = zip(strategy.op.weights(), block.first[index], strict=True)
    return prices.price(strategy.op, ins), sum(w.bytes for w, first in weights if first)


def combinations(answers: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Every way to answer all questions."""
    for chosen in product(*answers.values()):
        yield dict(zip(answers, chosen, strict=True))
