"""Places every program on ranks: picks a strategy for every op, cuts weights, inserts collectives.

Runs third, on whole weights and shapes. Afterwards shapes and weights are those of one rank and collectives are nodes.
Answers to the layout questions hold for all programs at once; blocks are solved exactly (`shard_search`) and repeated
blocks once. It knows prices, not topologies, and does not choose buffers or launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, Protocol

from ddtreec.artifacts.plan import Mesh
from ddtreec.core.errors import FitError, Problem
from ddtreec.graph.layer_graph import LayerGraph, Node
from ddtreec.ops.all_gather import AllGather
from ddtreec.ops.all_reduce import AllReduce
from ddtreec.ops.place import QUESTIONS
from ddtreec.passes.programs import Programs, block_of
from ddtreec.passes.shard_search import Block, Prices, Solution, combinations, solve
from ddtreec.spec.schema import LayoutSpec

Answers = tuple[tuple[str, str], ...]
"""(question, answer) pairs in the order of QUESTIONS."""


class Where(Protocol):
    """Makes a problem that points at a path of the engine spec (`LoadedEngine.problem`)."""

    def __call__(
        self,
        code: str,
        message: str,
        kind: Literal["engine"],
        path: tuple[str | int, ...] = (),
        *,
        note: str = "",
        help: str = "",
    ) -> Problem: ...


@dataclass(frozen=True, slots=True)
class Decision:
    """One layout question: the answer taken, whether the spec pinned it, and for every answer that is possible the
    seconds of the best layout that gives it (all programs once, the other questions free)."""

    question: str
    answer: str
    pinned: bool
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Sharded:
    """The programs on one rank of `mesh`. `placements`: program, value to 'R', 'P' or 'S1'."""

    programs: Programs
    mesh: Mesh
    decisions: tuple[Decision, ...]
    placements: Mapping[str, Mapping[str, str]]
    weight_bytes: int

    @property
    def layout(self) -> dict[str, str]:
        """Answer by question, as the plan keeps it."""
        return {d.question: d.answer for d in self.decisions}


@dataclass
class _Blocks:
    """All blocks of all programs, and the solutions of one of each kind."""

    blocks: list[tuple[Block, int]] = field(default_factory=list[tuple[Block, int]])
    """Each block with the number of its kind."""
    kinds: dict[tuple[object, ...], int] = field(default_factory=dict[tuple[object, ...], int])
    questions: dict[int, dict[str, tuple[str, ...]]] = field(default_factory=dict[int, dict[str, tuple[str, ...]]])
    solutions: dict[tuple[int, Answers], Solution | None] = field(
        default_factory=dict[tuple[int, Answers], "Solution | None"]
    )


def shard(
    programs: Programs,
    ranks: int,
    layout: LayoutSpec,
    prices: Prices,
    fits: Callable[[int], bool] | None = None,
    where: Where | None = None,
) -> Sharded:
    """The fastest layout for `ranks` ranks that keeps the pins of `layout` and, if there is one, `fits` (asked with the
    weight bytes of one rank; if none fits, the smallest is taken). Raises FitError for pins that cannot be kept."""
    meshes = [Mesh(ranks, ep, ranks // ep) for ep in range(1, ranks + 1) if ranks % ep == 0]
    work = _collect(programs, meshes)
    if ranks == 1:
        return _alone(programs, work, layout, meshes[0], prices, where)
    totals = _totals(work, ranks, prices)
    pins = {q: a for q, a in layout.model_dump().items() if a != "auto" and any(q in dict(key) for key in totals)}
    kept = {key: total for key, total in totals.items() if pins.items() <= dict(key).items()}
    if not kept:
        raise FitError(_refusals(work, totals, pins, meshes, where))
    fitting = {key: total for key, total in kept.items() if fits is None or fits(total[1])}
    chosen = min(fitting, key=lambda k: fitting[k]) if fitting else min(kept, key=lambda k: (kept[k][1], kept[k][0]))
    mesh = mesh_of(dict(chosen), ranks)
    graphs, placements = _apply(programs, work, chosen, mesh)
    return Sharded(
        Programs(graphs, programs.ropes), mesh, _decisions(chosen, pins, totals), placements, totals[chosen][1]
    )


def _alone(
    programs: Programs, work: _Blocks, layout: LayoutSpec, mesh: Mesh, prices: Prices, where: Where | None
) -> Sharded:
    """One rank holds everything, which is what every answer means there."""
    totals = _totals(work, 1, prices)
    whole: Answers = tuple((q, "replicated") for q, _ in next(iter(totals)))
    if layout.experts not in ("auto", "replicated", "ep1xtp1"):
        raise FitError(_refusals(work, {whole: totals[whole]}, {"experts": layout.experts}, [mesh], where))
    decisions = tuple(Decision(q, a, False, {a: totals[whole][0]}) for q, a in whole)
    placements = {name: dict.fromkeys(graph.types, "R") for name, graph in programs.graphs.items()}
    return Sharded(programs, mesh, decisions, placements, totals[whole][1])


def mesh_of(answers: Mapping[str, str], ranks: int) -> Mesh:
    """The mesh an answer to 'experts' stands for; without one, all ranks are tp."""
    answer = answers.get("experts", "replicated")
    if answer == "replicated":
        return Mesh(ranks, 1, ranks)
    ep, tp = answer.removeprefix("ep").split("xtp")
    return Mesh(ranks, int(ep), int(tp))


# ---- search -------------------------------------------------------------------------------------------------------


def _collect(programs: Programs, meshes: Sequence[Mesh]) -> _Blocks:
    work = _Blocks()
    held: set[str] = set()
    for graph in programs.graphs.values():
        for block in _blocks(graph, held):
            number = work.kinds.setdefault(block.signature(), len(work.kinds))
            if number not in work.questions:
                work.questions[number] = block.answers(meshes)
            work.blocks.append((block, number))
    return work


def _blocks(graph: LayerGraph, held: set[str]) -> Iterator[Block]:
    for _, group in groupby(graph, key=lambda node: block_of(node.id)):
        nodes = tuple(group)
        inside = {node.id for node in nodes}
        kept = {*graph.outputs, *graph.layer_outputs}
        made = [v for node in nodes for v in node.outputs]
        escapes = frozenset(v for v in made if v in kept or any(r.id not in inside for r in graph.readers(v)))
        yield Block(graph, nodes, escapes, tuple(tuple(_first(node, held)) for node in nodes))


def _first(node: Node, held: set[str]) -> Iterable[bool]:
    for weight in node.op.weights():
        yield weight.id not in held
        held.add(weight.id)


def _totals(work: _Blocks, ranks: int, prices: Prices) -> dict[Answers, tuple[float, int]]:
    """Seconds and weight bytes of one rank for every way to answer all questions that can be done."""
    found: dict[str, dict[str, None]] = {}
    for questions in work.questions.values():
        for question, answers in questions.items():
            found.setdefault(question, {}).update(dict.fromkeys(answers))
    everything = {q: tuple(found[q]) for q in QUESTIONS if q in found}
    count = dict.fromkeys(work.questions, 0)
    example: dict[int, Block] = {}
    for block, number in work.blocks:
        count[number] += 1
        example.setdefault(number, block)
    totals: dict[Answers, tuple[float, int]] = {}
    for answers in combinations(everything):
        seconds, size = 0.0, 0
        for number, block in example.items():
            key = (number, _asked(work, number, answers))
            if key not in work.solutions:
                work.solutions[key] = solve(block, mesh_of(answers, ranks), dict(key[1]), prices)
            solution = work.solutions[key]
            if solution is None:
                break
            seconds += solution.seconds * count[number]
            size += solution.bytes * count[number]
        else:
            totals[tuple(answers.items())] = seconds, size
    return totals


def _asked(work: _Blocks, number: int, answers: Mapping[str, str]) -> Answers:
    return tuple((q, answers[q]) for q in answers if q in work.questions[number])


def _decisions(
    chosen: Answers, pins: Mapping[str, str], totals: Mapping[Answers, tuple[float, int]]
) -> tuple[Decision, ...]:
    result: list[Decision] = []
    for question, answer in chosen:
        seconds: dict[str, float] = {}
        for answers, (total, _) in totals.items():
            other = dict(answers)[question]
            seconds[other] = min(total, seconds.get(other, total))
        result.append(Decision(question, answer, question in pins, seconds))
    return tuple(result)


def _refusals(
    work: _Blocks,
    totals: Mapping[Answers, tuple[float, int]],
    pins: Mapping[str, str],
    meshes: Sequence[Mesh],
    where: Where | None,
) -> list[Problem]:
    """Why no layout keeps the pins: each pin that fails alone, or all of them together."""
    ranks = meshes[0].ranks
    problems: list[Problem] = []
    for question, answer in pins.items():
        possible = list(dict.fromkeys(dict(key)[question] for key in totals))
        if answer in possible:
            continue
        message = f"layout {question}: {answer} cannot be done on {ranks} ranks"
        note = _reason(work, question, answer, meshes)
        hint = f"{question} can be auto, {', '.join(possible)}"
        path = ("layout", question)
        problems.append(
            where("S040", message, "engine", path, note=note, help=hint)
            if where
            else Problem("S040", message, note=note, help=hint)
        )
    if not problems:
        pinned = ", ".join(f"{q}: {a}" for q, a in pins.items())
        message = f"the pins {pinned} cannot be kept together on {ranks} ranks"
        problems.append(where("S040", message, "engine", ("layout",)) if where else Problem("S040", message))
    return problems


def _reason(work: _Blocks, question: str, answer: str, meshes: Sequence[Mesh]) -> str:
    """The first op that stands against an answer, in words, with the place of the op in its spec."""
    ranks = meshes[0].ranks
    if question == "experts":
        mesh = mesh_of({question: answer}, ranks)
        if mesh.ep * mesh.tp != ranks:
            return f"ep {mesh.ep} x tp {mesh.tp} makes {mesh.ep * mesh.tp} ranks, the topology has {ranks}"
        meshes = [mesh]
    for block, number in work.blocks:
        if question not in work.questions[number]:
            continue
        for node in block.nodes:
            if getattr(node.op, "question", "") != question:
                continue
            for mesh in meshes:
                reason = node.op.why_not(answer, mesh)
                if reason:
                    return f"{node.id}: {reason}" + (f" ({node.loc})" if node.loc else "")
    return ""


# ---- rewrite ------------------------------------------------------------------------------------------------------


def _apply(
    programs: Programs, work: _Blocks, chosen: Answers, mesh: Mesh
) -> tuple[dict[str, LayerGraph], dict[str, dict[str, str]]]:
    nodes: dict[str, list[Node]] = {name: [] for name in programs.graphs}
    placements: dict[str, dict[str, str]] = {name: {} for name in programs.graphs}
    for block, number in work.blocks:
        solution = work.solutions[number, _asked(work, number, dict(chosen))]
        assert solution is not None, "only layouts with a solution for every block are totalled"
        name = block.graph.name
        nodes[name] += _rewritten(block, _renamed(block, work, number, solution), mesh, placements[name])
    graphs = {name: graph.replaced(nodes[name]) for name, graph in programs.graphs.items()}
    return graphs, placements


def _renamed(block: Block, work: _Blocks, number: int, solution: Solution) -> Solution:
    """The solution of the first block of a kind in the values of another: the same positions, other names."""
    example = next(b for b, n in work.blocks if n == number)
    if example is block:
        return solution
    names: dict[str, str] = {}
    for theirs, ours in zip(example.nodes, block.nodes, strict=True):
        names.update(zip((*theirs.inputs, *theirs.outputs), (*ours.inputs, *ours.outputs), strict=True))
    steps = tuple(s._replace(gathered=tuple(names[v] for v in s.gathered)) for s in solution.steps)
    return Solution(solution.seconds, solution.bytes, steps, tuple(names[v] for v in solution.last))


def _rewritten(block: Block, solution: Solution, mesh: Mesh, placements: dict[str, str]) -> Iterator[Node]:
    """The nodes one rank runs. A value that some reader needs whole keeps its name for the whole; what the ranks hold
    before the collective is `<value>.part`."""
    gathered = {v for step in solution.steps for v in step.gathered} | set(solution.last)
    makers = {v: node for node in block.nodes for v in node.outputs}
    held: dict[str, str] = {}
    for node, step in zip(block.nodes, solution.steps, strict=True):
        yield from (_collective(makers[v], v, held[v], mesh) for v in step.gathered)
        strategy = node.op.strategies(block.types(node), mesh)[step.strategy]
        ins = tuple(
            f"{v}.part" if v in gathered and want != "R" else v
            for v, want in zip(node.inputs, strategy.ins, strict=True)
        )
        outs = tuple(f"{v}.part" if v in gathered else v for v in node.outputs)
        for value, new, placement in zip(node.outputs, outs, strategy.outs, strict=True):
            held[value] = placements[new] = placement
            if value in gathered:
                placements[value] = "R"
        yield Node(node.id, strategy.op, ins, outs, node.loc)
    yield from (_collective(makers[v], v, held[v], mesh) for v in solution.last)


def _collective(maker: Node, value: str, placement: str, mesh: Mesh) -> Node:
    if placement == "P":
        return Node(f"{maker.id}.all_reduce", AllReduce(), (f"{value}.part",), (value,), maker.loc)
    op = AllGather(int(placement[1:]), mesh.ranks)
    return Node(f"{maker.id}.all_gather", op, (f"{value}.part",), (value,), maker.loc)
