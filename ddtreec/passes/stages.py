"""Each pass as the driver runs it: what it takes from the state, what it puts there, its verifier and its dump."""

from __future__ import annotations

from dataclasses import replace

from ddtreec.artifacts.plan import Program, Value
from ddtreec.core.units import parse_bytes
from ddtreec.graph.printer import dump
from ddtreec.ops.base import At
from ddtreec.passes import absorb as absorbing
from ddtreec.passes import cost as costing
from ddtreec.passes import expand as expanding
from ddtreec.passes import fit, fuse_verify, shard_verify
from ddtreec.passes import fuse as fusing
from ddtreec.passes import memory as placing
from ddtreec.passes import schedule as scheduling
from ddtreec.passes import shard as sharding
from ddtreec.passes import verify as general
from ddtreec.passes.lower import lower
from ddtreec.passes.programs import Programs, all_weights, caches
from ddtreec.passes.state import Placed, Schedule, State
from ddtreec.spec.load import LoadedEngine
from ddtreec.spec.schema import MOST_ROWS

COST_CONTEXT = 8192
"""Tokens of context at which steps are priced, or the limit where that is smaller."""

DECISION_ROWS = 8
"""Rows at which layouts are compared, or budget + 1 where that is smaller: at one sequence the best trees are small."""

COST_ROWS = 64
"""Steps are priced up to this many rows even where the tree is smaller: it shows what another budget would cost."""

DETAIL_ROWS = (1, 8)
"""Rows for which the plan lists every launch."""


def programs_of(state: State) -> Programs:
    """The programs, which every pass after expand has."""
    assert state.programs is not None
    return state.programs


def point(state: State, rows: int, out_rows: int) -> At:
    """An operating point of this engine."""
    engine = state.loaded.engine
    return At(rows, out_rows, min(COST_CONTEXT, engine.limits.context), placing.ITEMSIZE[engine.dtype])


# ---- graph passes -------------------------------------------------------------------------------------------------


def expand(state: State) -> State:
    """Specs to typed graphs. Raises SpecError."""
    return replace(state, programs=expanding.expand(state.loaded))


def absorb(state: State) -> State:
    """MLA attends to its latents."""
    return replace(state, programs=programs_of(state).mapped(absorbing.absorb))


def shard(state: State) -> State:
    """The fastest layout that fits and keeps the pins. Raises FitError for pins that cannot be kept."""
    loaded, programs = state.loaded, programs_of(state)
    tree = scheduling.tree_policy(loaded)
    rows = min(DECISION_ROWS, tree.budget + 1)
    prices = costing.make_pricer(loaded.topology, point(state, rows, rows))
    room = parse_bytes(loaded.topology.device.memory) - fit.besides_weights(loaded, caches(programs), room_of(loaded))
    room = int(room / fit.unpacking(all_weights(programs), loaded))
    done = sharding.shard(
        programs, loaded.topology.devices, loaded.engine.layout, prices, lambda size: size <= room, loaded.problem
    )
    layout = layout_words(done, rows)
    return replace(state, programs=done.programs, mesh=done.mesh, layout=layout, placements=done.placements)


def layout_words(done: sharding.Sharded, rows: int) -> dict[str, str]:
    """Each answer with its reason: the pin, or what one step of all programs is predicted to take under each answer."""
    if done.mesh.ranks == 1:
        return {decision.question: f"{decision.answer} (one rank)" for decision in done.decisions}
    words: dict[str, str] = {}
    for decision in done.decisions:
        times = {answer: f"{seconds * 1e3:.3f} ms" for answer, seconds in decision.seconds.items()}
        mine = times.pop(decision.answer, "no price")
        others = ", ".join(f"{answer} {time}" for answer, time in times.items())
        why = "pinned by the engine spec; " if decision.pinned else ""
        other = f"instead of {others}" if others else "nothing else is possible"
        words[decision.question] = f"{decision.answer} ({why}{mine} at {rows} rows, {other})"
    return words


def fuse(state: State) -> State:
    """Nodes to launches."""
    return replace(state, programs=programs_of(state).mapped(fusing.fuse))


def verify_fuse(before: State, after: State) -> None:
    """Raises VerifyError."""
    old, new = programs_of(before), programs_of(after)
    general.verify("fuse", new, old)
    for name, graph in new.graphs.items():
        fuse_verify.verify(old.graphs[name], graph)


def verify_shard(before: State, after: State) -> None:
    """Raises VerifyError."""
    general.verify("shard", programs_of(after))
    shard_verify.verify(programs_of(before), programs_of(after), after.mesh)


def dump_shard(state: State) -> str:
    """Mesh and answers, then a line a node with placements."""
    mesh = state.mesh
    head = [f"mesh of {mesh.ranks}: ep {mesh.ep} x tp {mesh.tp}", *(f"{q}: {a}" for q, a in state.layout.items())]
    graphs = programs_of(state).graphs.items()
    return "\n".join(["\n".join(head) + "\n", *(dump(g, state.placements.get(name)) for name, g in graphs)])


def verify_expand(before: State, after: State) -> None:
    """Raises VerifyError."""
    general.verify("expand", programs_of(after))


def verify_absorb(before: State, after: State) -> None:
    """Raises VerifyError."""
    old, new = programs_of(before), programs_of(after)
    general.verify("absorb", new, old)
    for name, graph in new.graphs.items():
        absorbing.verify(old.graphs[name], graph)


def dump_graphs(state: State) -> str:
    """A line a node, program after program."""
    return "\n".join(dump(graph) for graph in programs_of(state).graphs.values())


# ---- schedule -----------------------------------------------------------------------------------------------------


def schedule(state: State) -> State:
    """Row buckets, and the calls of each program in launch order."""
    backend = state.loaded.topology.backend
    tree = scheduling.tree_policy(state.loaded)
    lowered = {name: lower(graph, backend) for name, graph in programs_of(state).graphs.items()}
    launches = {name: scheduling.launches(calls, backend) for name, (_, calls) in lowered.items()}
    buckets = scheduling.row_buckets(tree.budget, state.loaded.engine.limits.chunk)
    return replace(state, schedule=Schedule(tree, buckets, launches, lowered))


def _schedule(state: State) -> Schedule:
    assert state.schedule is not None
    return state.schedule


def verify_schedule(before: State, state: State) -> None:
    """Raises VerifyError."""
    done = _schedule(state)
    for name, launches in done.launches.items():
        chunk = state.loaded.engine.limits.chunk
        scheduling.verify(done.buckets, done.tree.budget, chunk, launches, done.lowered[name][1])


def dump_schedule(state: State) -> str:
    """Buckets, then a line a launch."""
    done = _schedule(state)
    lines = [f"buckets {' '.join(map(str, done.buckets))}"]
    for name, launches in done.launches.items():
        lines.append(f"program {name}: {len(launches)} launches")
        for number, launch in enumerate(launches):
            mark = "link" if launch.collective else "early" if launch.early else "-"
            lines.append(f"{number:5d}  {mark:5}  {launch.node}  {' '.join(launch.kernels)}")
    return "\n".join(lines) + "\n"


# ---- memory -------------------------------------------------------------------------------------------------------


def room_of(loaded: LoadedEngine) -> fit.Room:
    """What sets the size of caches and scratch."""
    limits, drafter = loaded.engine.limits, loaded.drafter
    rows = scheduling.tree_policy(loaded).budget + 1
    block = drafter.block_size if drafter else 0
    return fit.Room(limits.context, limits.sequences, limits.page, rows, block, max(limits.chunk, block))


def sizes_of(state: State) -> dict[str, placing.Sizes]:
    """Most rows of each program. The target's head serves a whole tree, and up to 64 prompt rows when logits of a
    prompt are asked for; the context program a whole chunk or the accepted part of a block.

    On a GPU a step takes the trees, or the blocks, of several sequences, as many as have MOST_ROWS together, and the
    context program may read features of whole trees; the CPU backend decodes one sequence after the other.
    """
    engine, room = state.loaded.engine, room_of(state.loaded)
    chunk, itemsize = engine.limits.chunk, placing.ITEMSIZE[engine.dtype]
    cuda = state.loaded.topology.backend == "cuda"
    together = room.sequences if cuda else 1

    def all_of(rows: int) -> int:
        return rows * max(1, min(together, MOST_ROWS // rows)) if rows else 0

    trees, blocks = all_of(room.tree_rows), all_of(room.block)
    most = {
        "target": (max(*_schedule(state).buckets, trees), max(trees, min(chunk, 64))),
        "draft_context": (max(chunk, blocks, trees if cuda else 0), 0),
        "draft_block": (blocks, blocks),
    }
    return {name: placing.Sizes(*most[name], itemsize) for name in programs_of(state).graphs}


def memory(state: State) -> State:
    """Offsets of every value, the memory table, and whether it fits. Raises FitError."""
    programs, sizes, room = programs_of(state), sizes_of(state), room_of(state.loaded)
    placed: list[Program] = []
    for name, (values, calls) in _schedule(state).lowered.items():
        graph = programs.graphs[name]
        layers = tuple(graph.layer_outputs)
        placed.append(placing.place_program(name, values, calls, _outputs(graph.outputs, values), sizes[name], layers))
    weights, kept = all_weights(programs), caches(programs)
    table = fit.memory_table(state.loaded, weights, kept, placed, sizes, room)
    device = parse_bytes(state.loaded.topology.device.memory)
    itemsize = placing.ITEMSIZE[state.loaded.engine.dtype]
    context = fit.largest_context(table, kept, room, itemsize, device, state.loaded.model.positions)
    sequences = fit.most_sequences(table, kept, room, itemsize, device)
    free = fit.check_fit(state.loaded, table, context, sequences)
    return replace(state, placed=Placed(tuple(placed), sizes, weights, kept, room, table, device, free, context))


def _outputs(names: tuple[str, ...], values: tuple[Value, ...]) -> tuple[str, ...]:
    """Outputs that have a place of their own (taps write columns of one buffer, tokens have no data)."""
    known = {value.id for value in values if value.home in ("arena", "persistent")}
    return tuple(name for name in names if name in known)


def _placed(state: State) -> Placed:
    assert state.placed is not None
    return state.placed


def verify_memory(before: State, state: State) -> None:
    """Raises VerifyError."""
    done, programs = _placed(state), programs_of(state)
    for program in done.programs:
        outputs = _outputs(programs.graphs[program.name].outputs, program.values)
        placing.verify(program, outputs, done.sizes[program.name])
    fit.verify(done.table, done.weights, state.loaded.topology.backend, placing.ITEMSIZE[state.loaded.engine.dtype])


def dump_memory(state: State) -> str:
    """The memory table, then a line a value: place, bytes, type."""
    done = _placed(state)
    lines = ["memory of one rank, bytes", *(f"{row.bytes:14d}  {row.purpose}" for row in done.table)]
    for program in done.programs:
        sizes = done.sizes[program.name]
        lines.append(f"program {program.name}: up to {program.max_rows} rows, arena {program.arena_bytes}")
        for value in program.values:
            shape = ", ".join(map(str, value.shape))
            where = {"arena": f"arena {value.offset}", "alias": f"in {value.parent} at {value.start}"}
            place = where.get(value.home, value.home)
            lines.append(f"  {value.id}  {value.dtype}[{shape}]  {place}  {sizes.value_bytes(value)}")
    return "\n".join(lines) + "\n"


# ---- cost ---------------------------------------------------------------------------------------------------------


def cost(state: State) -> State:
    """Steps of all buckets, launches in detail, and the tree's cost table where it is asked for."""
    rates = costing.Rates.of(state.loaded.topology)
    done, room = _schedule(state), _placed(state).room
    costed = {name: costing.Costed(graph, rates) for name, graph in programs_of(state).graphs.items()}

    def target_at(rows: int) -> At:
        verify = rows <= max(room.tree_rows, COST_ROWS)
        return point(state, rows, rows if verify else 1)  # a prefill chunk asks for the logits of its last row

    every = sorted({*done.buckets, *(rows for rows in scheduling.ROW_COUNTS if rows <= COST_ROWS)})
    target = tuple(costed["target"].step(target_at(rows)) for rows in every)
    block = point(state, room.block, room.block)
    drafts = tuple(costed[name].step(block) for name in ("draft_context", "draft_block") if name in costed)
    detail = {
        name: tuple(tuple(program.nodes(target_at(rows))) for rows in DETAIL_ROWS) for name, program in costed.items()
    }
    costs = costing.Costs(target, drafts, DETAIL_ROWS, detail)
    tree = done.tree
    if state.loaded.tree is not None and state.loaded.tree.cost_aware and tree.budget:
        table = costing.verify_costs((step for step in target if step.at.rows in done.buckets), tree.budget)
        tree = type(tree)(tree.name, tree.mode, tree.budget, tree.depth, table, costs.draft_seconds)
    return replace(state, costs=costs, schedule=replace(done, tree=tree))


def verify_cost(before: State, state: State) -> None:
    """Raises VerifyError."""
    assert state.costs is not None
    costing.verify((*state.costs.target, *state.costs.drafts))


def dump_cost(state: State) -> str:
    """A line a launch at each detailed row count, then a line a step."""
    assert state.costs is not None
    lines: list[str] = []
    for name, columns in state.costs.detail.items():
        for rows, nodes in zip(state.costs.rows, columns, strict=True):
            lines.append(f"program {name} at {rows} rows: node, weight and cache bytes, FLOPs, floor and predicted us")
            lines += [
                f"  {n.node}  {n.cost.weight_bytes:.0f}  {n.cost.cache_bytes:.0f}  {n.cost.flops:.0f}  "
                f"{n.floor * 1e6:.3f}  {n.predicted * 1e6:.3f}"
                for n in nodes
            ]
    lines.append("steps: program, rows, context, bytes, FLOPs, floor ms, predicted ms")
    lines += [
        f"  {s.program}  {s.at.rows}  {s.at.context}  {s.cost.bytes:.0f}  {s.cost.flops:.0f}  {s.floor * 1e3:.4f}  "
        f"{s.predicted * 1e3:.4f}"
        for s in (*state.costs.target, *state.costs.drafts)
    ]
    return "\n".join(lines) + "\n"
