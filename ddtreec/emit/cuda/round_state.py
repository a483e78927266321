"""What the kernels of a round share: sizes, device arrays, the record that the host reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ddtreec.artifacts.kernels import Dim, StateArray
from ddtreec.artifacts.plan import Plan
from ddtreec.artifacts.record import RING, Layout
from ddtreec.core.errors import Problem, SpecError
from ddtreec.emit.cuda.base import Param

SLOTS, ROWS = Dim(by=("slots",)), Dim(by=("rows",))

WARP = 32

CHUNK = 4096
"""Tokens of the vocabulary that one block looks at."""

MOST_BLOCK = 32
"""Slots of a draft block: one warp looks after a path."""

C_TYPES = {
    "int32": "int",
    "uint32": "ddt::u32",
    "int64": "ddt::u64",
    "float32": "float",
    "float64": "double",
    "bfloat16": "ddt::bf16",
}
"""Element types of state arrays in kernels; int64 arrays hold bits of unsigned numbers."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the kernels of a round are made for.

    block: B, slots of a draft block, 1 without drafter; nodes: N, most nodes besides the root, 0 without drafter;
    logit, draft_logit: element types of logits; features: width of a row of them.
    """

    block: int
    nodes: int
    vocab: int
    logit: str
    draft_logit: str
    features: int

    @property
    def top(self) -> int:
        """K, tokens that are kept of a draft row: a node has less than N better siblings."""
        return min(self.nodes, self.vocab)

    @property
    def record(self) -> Layout:
        """Where things are in a record."""
        return Layout(self.block, self.nodes)


def sizes_of(plan: Plan) -> Sizes:
    """Sizes of the round of a plan. Raises SpecError (S066) for a draft block without kernel."""
    drafter = plan.drafter
    if drafter is not None and drafter.block > MOST_BLOCK:
        raise SpecError(
            Problem(
                "S066",
                f"the drafter '{drafter.name}' has blocks of {drafter.block} tokens, CUDA kernels take {MOST_BLOCK}",
                help=f"set block_size to {MOST_BLOCK} or less in the drafter's spec; a smaller one needs no training",
            )
        )
    programs = {program.name: program for program in plan.programs}
    logits = {name: {v.id: v for v in program.values}.get("logits") for name, program in programs.items()}
    types = {
        name: "float" if value is not None and value.dtype == "float32" else "ddt::bf16"
        for name, value in logits.items()
    }
    return Sizes(
        block=drafter.block if drafter else 1,
        nodes=plan.tree.budget if drafter else 0,
        vocab=plan.model.vocab,
        logit=types["target"],
        draft_logit=types.get("draft_block", types["target"]),
        features=len(drafter.taps) * plan.model.hidden if drafter else 0,
    )


def round_state(sizes: Sizes) -> dict[str, StateArray]:
    """The arrays of the round besides those that programs have anyway, by name. All begin as zeros.

    Set when a sequence is admitted: limit (most output tokens), room (tokens that its pages hold), budget (nodes it may
    use), mode (0 off, 1 chain, 2 tree), heed_stops, temperature, top_p, top_k, seed, request; length = tokens in the
    cache, anchor = the token behind them, produced = output tokens so far, rounds = records written, and last status
    (0 idle, 1 runs, 2 stopped, 3 full length, 4 broken logits, the host's own from 5 on). round_cost[m], one for all:
    cost of a round of m nodes for the cost-aware stop, zeros switch it off. The others are the kernels' own.
    """
    slots = ("slots",)
    shapes: list[tuple[str, str, tuple[int | str, ...]]] = [
        *((name, "int32", slots) for name in ("limit", "room", "budget", "mode", "heed_stops", "top_k")),
        *((name, "float64", slots) for name in ("temperature", "top_p")),
        *((name, "int64", slots) for name in ("seed", "request")),
        *((name, "int32", slots) for name in ("length", "anchor", "produced", "status", "rounds")),
        ("tokens", "int32", ("rows",)),
        ("nodes", "int32", slots),
        ("parents", "int32", ("rows",)),
        ("ranks", "int32", ("rows",)),
        ("scores", "float64", ("rows",)),
        ("picks", "int32", ("rows",)),
        ("accepted", "int32", ("slots", sizes.block)),
        ("accepted_count", "int32", slots),
    ]
    if sizes.nodes:
        draft = sizes.block - 1
        shapes += [
            ("round_cost", "float64", (sizes.nodes + 1,)),
            ("broken_drafts", "int32", slots),
            ("top_logprobs", "float32", ("slots", draft, sizes.top)),
            ("top_tokens", "int32", ("slots", draft, sizes.top)),
            ("context_features", "bfloat16", ("slots", sizes.block, sizes.features)),
        ]
    return {name: StateArray(name, dtype, shape) for name, dtype, shape in shapes}


def values_of_programs(sizes: Sizes) -> dict[str, StateArray]:
    """Arrays that the kernels of the round name and others own: values of the target and of draft_block, and the ring
    of records in the host's memory."""
    logit = {"float": "float32", "ddt::bf16": "bfloat16"}
    values = [
        StateArray("logits", logit[sizes.logit], ("out_rows", sizes.vocab)),
        StateArray("ring", "int32", ("slots", RING, sizes.record.words)),
    ]
    if sizes.nodes:
        values += [
            StateArray("draft_logits", logit[sizes.draft_logit], ("slots", sizes.block - 1, sizes.vocab)),
            StateArray("features", "bfloat16", ("rows", sizes.features)),
        ]
    return {array.name: array for array in values}


@dataclass(frozen=True, slots=True)
class Operands:
    """Parameters of stages by the names of the arrays behind them."""

    arrays: Mapping[str, StateArray]

    def reads(self, *names: str) -> tuple[Param, ...]:
        """Arrays that a stage reads."""
        return tuple(Param(f"const {C_TYPES[self.arrays[n].dtype]}*", n, f"state:{n}") for n in names)

    def writes(self, *names: str) -> tuple[Param, ...]:
        """Arrays that a stage writes."""
        return tuple(Param(f"{C_TYPES[self.arrays[n].dtype]}*", n, f"state:{n}") for n in names)


def whole(symbol: str) -> Param:
    """A symbol of the launch."""
    return Param("int", symbol, f"int:{symbol}")


def label(logit: str) -> str:
    """What a kernel's name says of its logits."""
    return "f32" if logit == "float" else "bf16"
