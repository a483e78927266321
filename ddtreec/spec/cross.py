"""Checks between fields and between specs, of facts alone: token ids, drafter contract, tree, limits, topology.

What an op's fields mean, and whether blocks and values chain, is checked where the graph is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ddtreec.core.errors import Problem
from ddtreec.core.units import parse_bytes, parse_rate
from ddtreec.spec.cross_split import split_problems, split_warnings
from ddtreec.spec.schema import MAX_LAYERS, MOST_ROWS, DrafterSpec, Kind, ModelSpec, StackItem
from ddtreec.spec.source import Path, dotted

if TYPE_CHECKING:
    from ddtreec.spec.load import LoadedEngine

LEAST_ARCH = 90
"""Of CUDA kernels: launches that wait for their predecessor themselves."""


def check(loaded: LoadedEngine) -> tuple[list[Problem], list[Problem]]:
    """Everything that is wrong, and everything that is only strange, in the order of the checks."""
    checks = (
        _size_problems,
        _token_problems,
        _pair_problems,
        _drafter_problems,
        _limit_problems,
        _topology_problems,
        _cuda_problems,
        split_problems,
    )
    problems = [problem for each in checks for problem in each(loaded)]
    return problems, [*_unused(loaded), *split_warnings(loaded)]


def layer_count(stack: Sequence[StackItem]) -> int:
    """Layers of a stack: its repeats together."""
    return sum(item.repeat or 0 for item in stack)


def size_of(spec: ModelSpec | DrafterSpec, value: object) -> int | None:
    """A dim by name or number; None where it is neither."""
    if isinstance(value, bool):
        return None
    return value if isinstance(value, int) else spec.dims.get(value) if isinstance(value, str) else None


def _embedding(model: ModelSpec, field: str) -> tuple[int, Path] | None:
    """Size and place of `rows` or `cols` of the model's embedding."""
    for name, block in model.blocks.items():
        for index, op in enumerate(block.ops):
            size = size_of(model, op.fields.get(field)) if op.op == "embedding" else None
            if size is not None:
                word = op.fields[field]
                return size, ("dims", word) if isinstance(word, str) else ("blocks", name, "ops", index, field)
    return None


def _size_problems(loaded: LoadedEngine) -> Iterator[Problem]:
    """More layers than any such model has: they would be planned for minutes."""
    stacks: list[tuple[Kind, str, Sequence[StackItem]]] = [("model", "stack", loaded.model.stack)]
    if loaded.drafter is not None:
        stacks.append(("drafter", "context", loaded.drafter.context))
        stacks.append(("drafter", "draft", loaded.drafter.draft))
    for kind, field, stack in stacks:
        layers = layer_count(stack)
        if layers > MAX_LAYERS:
            message = f"{layers} layers are more than the {MAX_LAYERS} that are planned for"
            yield loaded.problem("S013", message, kind, (field,), help="check the `repeat` of each item")


def _token_problems(loaded: LoadedEngine) -> Iterator[Problem]:
    vocab = _embedding(loaded.model, "rows")
    if vocab is None:
        return
    tokens = loaded.model.tokens
    ids: list[tuple[Path, int | None]] = [(("tokens", "eos", i), token) for i, token in enumerate(tokens.eos)]
    for path, token in [*ids, (("tokens", "bos"), tokens.bos), (("tokens", "pad"), tokens.pad)]:
        if token is not None and token >= vocab[0]:
            message = f"token {token} is outside of the vocabulary of {vocab[0]}"
            yield loaded.problem("S033", message, "model", path, note=_note(loaded, "model", vocab[1], vocab[0]))
    if not tokens.eos:
        hint = "name at least one token that ends a text"
        yield loaded.problem("S033", "without `eos` generation would never end", "model", ("tokens", "eos"), help=hint)


def _pair_problems(loaded: LoadedEngine) -> Iterator[Problem]:
    if loaded.tree is not None and loaded.drafter is None:
        hint = "add `drafter:`, or remove `tree:` to run without speculation"
        yield loaded.problem("S036", "a tree, but no drafter to grow it", "engine", ("tree",), key=True, help=hint)
    if loaded.drafter is not None and loaded.tree is None:
        hint = "add `tree:` (ddtree-16, or chain), or remove `drafter:` to run without speculation"
        yield loaded.problem("S036", "a drafter, but no tree", "engine", ("drafter",), key=True, help=hint)


def _drafter_problems(loaded: LoadedEngine) -> Iterator[Problem]:
    drafter, model = loaded.drafter, loaded.model
    if drafter is None:
        return
    layers = layer_count(model.stack)
    rows, cols = _embedding(model, "rows"), _embedding(model, "cols")
    has = (
        ("layers", "{} layers", (layers, ("stack",))),
        ("hidden", "hidden size {}", cols),
        ("vocab", "{} tokens", rows),
    )
    for field, words, found in has:
        wanted = getattr(drafter.target, field)
        if found is not None and found[0] != wanted:
            message = f"{drafter.name} was trained for a target of {words.format(wanted)}, "
            message += f"{model.name} has {words.format(found[0])}"
            note = _note(loaded, "model", found[1], found[0])
            hint = "name the drafter of this model"
            yield loaded.problem("S034", message, "drafter", ("target", field), note=note, help=hint)
    yield from _tap_problems(loaded, drafter, layers)
    yield from _mask_problems(loaded, drafter)
    yield from _tau_problems(loaded, drafter)


def _tap_problems(loaded: LoadedEngine, drafter: DrafterSpec, layers: int) -> Iterator[Problem]:
    for index, tap in enumerate(drafter.taps):
        if tap >= layers:
            message = f"tap {tap} is not a layer of {loaded.model.name}, which has layers 0 to {layers - 1}"
            hint = "taps count from 0 and read the output of the layer"
            yield loaded.problem("S035", message, "drafter", ("taps", index), help=hint)
        elif tap in drafter.taps[:index]:
            first = loaded.loc("drafter", ("taps", drafter.taps.index(tap)))
            message = f"layer {tap} is tapped twice"
            yield loaded.problem("S035", message, "drafter", ("taps", index), note=f"first at {first}")
    if not drafter.taps:
        yield loaded.problem("S035", "a drafter needs at least one tap", "drafter", ("taps",))


def _mask_problems(loaded: LoadedEngine, drafter: DrafterSpec) -> Iterator[Problem]:
    mask, tokens = drafter.mask_token, loaded.model.tokens
    vocab = _embedding(loaded.model, "rows")
    if vocab is not None and mask >= vocab[0]:
        message = f"mask token {mask} is outside of the vocabulary of {vocab[0]}"
        note = _note(loaded, "model", vocab[1], vocab[0])
        yield loaded.problem("S033", message, "drafter", ("mask_token",), note=note)
    roles = [("eos", token) for token in tokens.eos] + [("bos", tokens.bos), ("pad", tokens.pad)]
    for role, token in roles:
        if token == mask:
            message = f"mask token {mask} is also the {role} token of {loaded.model.name}"
            note = f"tokens.{role} at {loaded.loc('model', ('tokens', role))}"
            hint = "use the id the drafter was trained with"
            yield loaded.problem("S033", message, "drafter", ("mask_token",), note=note, help=hint)


def _tau_problems(loaded: LoadedEngine, drafter: DrafterSpec) -> Iterator[Problem]:
    """A round commits one token at least, and at most its tree's nodes and one; `plan` reads between the points."""
    if drafter.expected_tau is None:
        return
    points = drafter.expected_tau.points
    if not points:
        hint = "measure them with `ddtreec bench --tau`, or leave `expected_tau` away"
        yield loaded.problem("S045", "`expected_tau` has no points", "drafter", ("expected_tau", "points"), help=hint)
    for index, (nodes, tau) in enumerate(points):
        at: Path = ("expected_tau", "points", index)
        if index and nodes <= points[index - 1][0]:
            message = f"the points of `expected_tau` must grow in nodes: {nodes} follows {points[index - 1][0]}"
            yield loaded.problem("S045", message, "drafter", (*at, 0), help="sort them, and give each budget once")
        if not 1 <= tau <= nodes + 1:
            message = f"a tau of {tau:g} with a tree of {nodes} nodes cannot be"
            yield loaded.problem("S045", message, "drafter", (*at, 1), help=f"a round commits 1 to {nodes + 1} tokens")


def _limit_problems(loaded: LoadedEngine) -> Iterator[Problem]:
    limits, model = loaded.engine.limits, loaded.model
    if limits.context > model.positions:
        message = f"a context of {limits.context} tokens, but {model.name} was made for {model.positions}"
        note = _note(loaded, "model", ("positions",), model.positions)
        hint = f"at most {model.positions}"
        yield loaded.problem("S037", message, "engine", ("limits", "context"), note=note, help=hint)
    for field in ("chunk", "page"):
        value = getattr(limits, field)
        if value > limits.context:
            message = f"a {field} of {value} tokens is more than the context of {limits.context}"
            path: Path = ("limits", field)
            # a default has no place of its own: then the context is what the person wrote
            written = field in limits.model_fields_set
            at = path if written else ("limits", "context")
            hint = (
                f"at most {limits.context}" if written else f"{value} is the default: add `{field}: {limits.context}`"
            )
            note = _note(loaded, "engine", ("limits", "context"), limits.context)
            yield loaded.problem("S037", message, "engine", at, note=note, help=hint)
    tree = loaded.tree
    if tree is not None and tree.mode == "ddtree" and tree.budget + 1 > limits.context:
        message = f"a tree of {tree.budget} nodes and its root do not fit a context of {limits.context} tokens"
        note = _note(loaded, "engine", ("limits", "context"), limits.context)
        hint = f"a budget of at most {limits.context - 1}"
        yield loaded.problem("S036", message, "tree", ("budget",), note=note, help=hint)


def _topology_problems(loaded: LoadedEngine) -> Iterator[Problem]:
    topology, device = loaded.topology, loaded.topology.device
    sizes: list[tuple[Path, str | None]] = [
        (("device", name), getattr(device, name)) for name in ("memory", "reserved", "shared_memory", "l2")
    ]
    points: list[tuple[Path, Sequence[tuple[str, object]]]] = [(("device", "read_rate"), device.read_rate)]
    if topology.link is not None:
        points += [(("link", name), getattr(topology.link, name)) for name in ("all_reduce_us", "all_gather_us")]
    elif topology.devices > 1:
        message = f"{topology.devices} devices, but no `link` between them"
        yield loaded.problem("S011", message, "topology", ("devices",), help="add `link:` with the collectives")
    good = True
    for path, size in [*sizes, *(((*path, i, 0), point[0]) for path, row in points for i, point in enumerate(row))]:
        for problem in _unit(loaded, path, size, parse_bytes):
            good = False
            yield problem
    for i, (_, rate) in enumerate(device.read_rate):
        yield from _unit(loaded, ("device", "read_rate", i, 1), rate, parse_rate)
    if not good:
        return
    if parse_bytes(device.reserved) >= parse_bytes(device.memory):
        message = f"{device.reserved} of {device.memory} are reserved, nothing is left"
        yield loaded.problem("S041", message, "topology", ("device", "reserved"))
    for path, row in points:
        counts = [parse_bytes(str(point[0])) for point in row]
        if not counts or sorted(set(counts)) != counts:
            message = f"the points of `{dotted(path)}` must grow in bytes, one at least"
            yield loaded.problem("S041", message, "topology", path)


def _cuda_problems(loaded: LoadedEngine) -> Iterator[Problem]:
    """What CUDA kernels are written for: bfloat16, steps of at most MOST_ROWS rows, devices whose limits are known."""
    if loaded.topology.backend != "cuda":
        return
    engine, drafter, device = loaded.engine, loaded.drafter, loaded.topology.device
    if engine.dtype != "bfloat16":
        message = f"CUDA kernels compute in bfloat16, not in {engine.dtype}"
        hint = "write dtype: bfloat16; the CPU backend (--set topology=cpu) takes every dtype"
        yield loaded.problem("S044", message, "engine", ("dtype",), help=hint)
    if engine.limits.chunk > MOST_ROWS:
        message = f"a chunk of {engine.limits.chunk} rows, CUDA kernels take at most {MOST_ROWS} rows a step"
        hint = f"at most {MOST_ROWS}"
        yield loaded.problem("S044", message, "engine", ("limits", "chunk"), help=hint)
    if drafter is not None and drafter.block_size > MOST_ROWS:
        message = f"a block of {drafter.block_size} rows, CUDA kernels take at most {MOST_ROWS} rows a step"
        hint = f"a drafter of at most {MOST_ROWS}"
        yield loaded.problem("S044", message, "drafter", ("block_size",), help=hint)
    for field in ("arch", "sms", "shared_memory"):
        if getattr(device, field) is None:
            message = f"a topology of CUDA devices without `{field}`, which CUDA kernels are made for"
            hint = {"arch": "e.g. arch: sm_90", "sms": "e.g. sms: 132", "shared_memory": "e.g. shared_memory: 99KiB"}
            yield loaded.problem("S044", message, "topology", ("device",), key=True, help=hint[field])
    if device.arch is not None and not re.fullmatch(r"sm_[0-9]{2,3}", device.arch):
        hint = "the compute capability without its dot, e.g. sm_90 or sm_120"
        yield loaded.problem("S044", f"`{device.arch}` is no CUDA arch", "topology", ("device", "arch"), help=hint)
    elif device.arch is not None and int(device.arch.removeprefix("sm_")) < LEAST_ARCH:
        message = f"CUDA kernels need sm_{LEAST_ARCH} or newer, not {device.arch}"
        hint = f"a device of compute capability {LEAST_ARCH / 10} or newer"
        yield loaded.problem("S044", message, "topology", ("device", "arch"), help=hint)


def _unit(loaded: LoadedEngine, path: Path, text: object, parse: object) -> Iterator[Problem]:
    try:
        if isinstance(text, str):
            parse_rate(text) if parse is parse_rate else parse_bytes(text)
    except ValueError as error:
        yield loaded.problem("S041", f"`{dotted(path)}`: {error}", "topology", path)


def _unused(loaded: LoadedEngine) -> Iterator[Problem]:
    """Dims, ropes and blocks that nothing names."""
    graphs: list[tuple[Kind, ModelSpec | DrafterSpec, Sequence[StackItem]]] = [
        ("model", loaded.model, loaded.model.stack)
    ]
    if loaded.drafter is not None:
        graphs.append(("drafter", loaded.drafter, (*loaded.drafter.context, *loaded.drafter.draft)))
    for kind, spec, stack in graphs:
        named: set[object] = {table.dim for table in spec.ropes.values()}
        for block in spec.blocks.values():
            for op in block.ops:
                for value in op.fields.values():
                    named.update(value if isinstance(value, tuple) else (value,))
        blocks = {name for item in stack for name in (item.block, *item.blocks)}
        for section, known, used in (
            ("dims", spec.dims, named),
            ("ropes", spec.ropes, named),
            ("blocks", spec.blocks, blocks),
        ):
            for name in known:
                if name not in used:
                    code = "S030" if section == "blocks" else "S032"
                    message = f"`{section}.{name}` is not used"
                    yield loaded.problem(code, message, kind, (section, name), key=True, help="remove it")


def _note(loaded: LoadedEngine, kind: Kind, path: Path, value: object) -> str:
    name = dotted(path if kind == "engine" else (kind, *path))
    shown = f"{name} has {value} layers" if path == ("stack",) else f"{name} = {value}"
    return f"{shown} ({loaded.loc(kind, path)})"
