"""The walk of expand over one stack: blocks to nodes, local names to values. Collects every mistake it meets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ddtreec.artifacts.plan import Rope, Weight
from ddtreec.core.errors import Loc, Problem
from ddtreec.graph.layer_graph import Node
from ddtreec.ops.base import Op, TensorType
from ddtreec.ops.build import build, read_fields
from ddtreec.ops.experts import Experts
from ddtreec.ops.fields import Fault, Names, did_you_mean
from ddtreec.ops.mla_attention import MlaAttention
from ddtreec.ops.place import Place
from ddtreec.ops.router import Router
from ddtreec.passes.ropes import rope_table
from ddtreec.spec.schema import BlockSpec, DrafterSpec, ModelSpec, OpSpec, QuantSpec, RopeSpec, StackItem

Path = tuple[str | int, ...]
MAX_ROPE = 1 << 16
"""Size of a rope table: its numbers stand in the plan, and a mistyped size must not fill the memory."""
SpecKind = Literal["model", "drafter"]


class Where(Protocol):
    """Makes a problem that points at a path of a spec (`LoadedEngine.problem`)."""

    def __call__(
        self,
        code: str,
        message: str,
        kind: SpecKind,
        path: Path = (),
        *,
        key: bool = False,
        note: str = "",
        help: str = "",
    ) -> Problem: ...


@dataclass
class Specs:
    """One spec as the walks need it: dims, rope tables, fields of every op read once, problems found so far."""

    kind: SpecKind
    spec: ModelSpec | DrafterSpec
    quant: QuantSpec
    where: Where
    problems: dict[Problem, None]
    shared: Mapping[str, Weight] | None = field(default_factory=dict[str, Weight])
    ropes: dict[str, RopeSpec] = field(default_factory=dict[str, RopeSpec])
    known: dict[Weight, Weight] = field(default_factory=dict[Weight, Weight])
    read: dict[tuple[str, int], dict[str, Any] | None] = field(default_factory=dict[Any, Any])

    locs: dict[Path, Loc | None] = field(default_factory=dict[Path, "Loc | None"])

    def __post_init__(self) -> None:
        self.names = Names(self.spec.dims, self.spec.ropes)
        for name, table in self.spec.ropes.items():
            dim = self.spec.dims.get(table.dim) if isinstance(table.dim, str) else table.dim
            if dim is None:
                hint = did_you_mean(str(table.dim), self.spec.dims)
                self.add("S032", f"undefined dim '{table.dim}'", ("ropes", name, "dim"), help=hint)
            elif dim % 2 or dim < 2:
                self.add("S061", f"a rope table turns pairs, {dim} is no even size", ("ropes", name, "dim"))
            elif dim > MAX_ROPE:
                text = f"a rope table of {dim} values a head is more than the {MAX_ROPE} that are planned for"
                self.add("S061", text, ("ropes", name, "dim"))
            else:
                self.ropes[name] = table.model_copy(update={"dim": dim})
        for name, block in self.spec.blocks.items():
            ids: set[str] = set()
            for index, op in enumerate(block.ops):
                path = ("blocks", name, "ops", index)
                if op.id in ids:
                    text = f"block '{name}' has two ops with the id '{op.id}'"
                    self.add("S030", text, (*path, "id"), help="give the second another id")
                ids.add(op.id)
                self.read[name, index] = self._read(path, op)

    def add(
        self, code: str, message: str, path: Path, *, key: bool = False, help: str = "", kind: SpecKind | None = None
    ) -> None:
        """Note a problem; the same one is noted once, however many layers have it."""
        self.problems[self.where(code, message, kind or self.kind, path, key=key, help=help)] = None

    def loc(self, path: Path) -> Loc | None:
        """Where `path` was written."""
        if path not in self.locs:
            self.locs[path] = self.where("", "", self.kind, path).loc
        return self.locs[path]

    def fault(self, path: Path, op: OpSpec, fault: Fault) -> None:
        """Note what a field of an op at `path` complains about."""
        code = fault.code or "S061"
        at = (*path, fault.field) if fault.field else path
        self.add(code, f"{op.id}: {fault}", at, key=code == "S010", help=fault.help)

    def _read(self, path: Path, op: OpSpec) -> dict[str, Any] | None:
        values, faults = read_fields(op, self.names)
        for fault in faults:
            self.fault(path, op, fault)
        broken = any(isinstance(v, str) and v in self.spec.ropes and v not in self.ropes for v in values.values())
        return None if faults or broken else values

    def rope_tables(self) -> dict[str, Rope]:
        """All tables under their names in the plan."""
        prefix = "" if self.kind == "model" else "draft."
        return {prefix + name: rope_table(table, int(table.dim)) for name, table in self.ropes.items()}


class Walk:
    """Goes through one stack from its inputs. `nodes` grow as the blocks are met; `current` are the values that pass
    from block to block, None where one could not be made because of a mistake that is already noted."""

    def __init__(self, specs: Specs, stack: str, letter: str, outside: str, inputs: Mapping[str, TensorType]):
        self.specs, self.stack, self.letter, self.outside = specs, stack, letter, outside
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = dict(inputs)
        self.makers: dict[str, Node] = {}
        self.current: tuple[str | None, ...] = tuple(inputs)
        self.layer_outputs: list[str] = []
        self.scopes: set[str] = set()
        self.lost = False
        """The last block is unknown, and so is what reaches the next one."""

    def layers(self, items: Sequence[StackItem]) -> Iterator[int]:
        """Expand everything; yields each layer's number right after its last block."""
        number = 0
        repeated = sum(item.repeat or 0 for item in items) > 1
        for index, item in enumerate(items):
            path = (self.stack, index)
            if (item.block is None) == (item.repeat is None) or bool(item.blocks) != (item.repeat is not None):
                self.specs.add("S030", "a stack item is either one 'block', or 'repeat' and 'blocks'", path)
                continue
            if item.block is not None:
                self._block(item.block, (*path, "block"), -1, False)
            for _ in range(item.repeat or 0):
                for position, name in enumerate(item.blocks):
                    self._block(name, (*path, "blocks", position), number, repeated)
                if self.current and self.current[0] is not None:
                    self.layer_outputs.append(self.current[0])
                yield number
                number += 1

    def finish(self, name: str) -> str | None:
        """The program's single output, renamed to `name`; None with a problem noted where there is no such thing."""
        if self.lost:
            return None
        if not any(item.repeat for item in getattr(self.specs.spec, self.stack)):
            text = "the stack has no layers: a `repeat` with `blocks` is needed"
            self.specs.add("S030", text, (self.stack,))
            return None
        if len(self.current) != 1:
            text = f"the stack ends with {len(self.current)} values, but it must end with {name}"
            self.specs.add("S030", text, (self.stack, len(getattr(self.specs.spec, self.stack)) - 1))
        value = self.current[0] if self.current else None
        if value is None or value not in self.makers:
            return None
        if value in self.layer_outputs:
            text = f"the stack ends inside the layers, but a block behind them must give {name}"
            self.specs.add("S030", text, (self.stack, len(getattr(self.specs.spec, self.stack)) - 1))
            return None
        last = (self.stack, len(getattr(self.specs.spec, self.stack)) - 1)
        if len(self.types[value].shape) != 2 or self.types[value].dtype != "compute":
            text = f"the stack ends with {self.types[value]}, but it must end with {name}: one row of scores a token"
            self.specs.add("S062", text, last)
        elif self.types[value].shape[0] != "out_rows":
            text = f"the stack ends with {name} of every row of the step, but only some are asked for"
            self.specs.add("S062", text, last, help="put a take_rows before the head")
        for index, node in enumerate(self.nodes):
            if value in node.inputs or value in node.outputs:
                ins, outs = (tuple(name if v == value else v for v in vs) for vs in (node.inputs, node.outputs))
                self.nodes[index] = Node(node.id, node.op, ins, outs, node.loc)
        return name

    def _block(self, name: str, path: Path, layer: int, repeated: bool) -> None:
        block = self.specs.spec.blocks.get(name)
        if block is None:
            hint = did_you_mean(name, self.specs.spec.blocks)
            self.specs.add("S030", f"there is no block '{name}'", path, help=hint)
            self.lost = True
            return
        if self.lost:
            self.current, self.lost = (None,) * len(block.inputs), False
        if len(block.inputs) != len(self.current):
            came = "1 value reaches" if len(self.current) == 1 else f"{len(self.current)} values reach"
            self.specs.add(
                "S030", f"block '{name}' takes {len(block.inputs)} ({', '.join(block.inputs)}), but {came} it", path
            )
            self.current = (None,) * len(block.inputs)
        scope = f"{self.letter}{layer:02d}.{name}" if layer >= 0 else self.outside + name
        if scope in self.scopes:
            where = "in one layer" if layer >= 0 else "outside the layers"
            self.specs.add(
                "S030", f"block '{name}' stands twice {where}", path, help="give the second a block of its own"
            )
            return
        self.scopes.add(scope)
        local: dict[str, str | None] = dict(zip(block.inputs, self.current, strict=True))
        for index, op in enumerate(block.ops):
            self._op(("blocks", name, "ops", index), (name, index), op, local, Place(
                node=f"{scope}.{op.id}",
                layer=layer,
                store="target" if self.specs.kind == "model" else "drafter",
                prefix=self.specs.spec.checkpoint.prefix,
                repeated=repeated,
                roles=self.specs.quant.roles,
                ropes=self.specs.ropes,
                shared=self.specs.shared,
                known=self.specs.known,
            ), scope)  # fmt: skip
        self._check_use(name, block)
        for position, value in enumerate(block.outputs):
            if value not in local:
                text = f"block '{name}' gives '{value}', which nothing in it makes"
                self.specs.add("S031", text, ("blocks", name, "out", position), help=did_you_mean(value, local))
        self.current = tuple(local.get(v) for v in block.outputs)

    def _op(
        self, path: Path, key: tuple[str, int], op: OpSpec, local: dict[str, str | None], place: Place, scope: str
    ) -> None:
        ins = [local.get(v) for v in op.inputs]
        for position, value in enumerate(op.inputs):
            if value not in local:
                text = f"{op.id}: '{value}' is not made before it is read"
                self.specs.add("S031", text, (*path, "in", position), help=did_you_mean(value, local))
        for position, value in enumerate(op.outputs):
            if value in local or value in op.outputs[:position]:
                self.specs.add("S031", f"{op.id}: '{value}' is made twice", (*path, "out", position))
        for value in op.outputs:
            local.setdefault(value, None)
        fields = self.specs.read[key]
        if fields is None:
            return
        try:
            built = build(op, fields, place)
        except Fault as fault:
            self.specs.fault(path, op, fault)
            return
        known = tuple(v for v in ins if v is not None)
        node = self._node(path, op, built, place, known, scope) if len(known) == len(ins) else None
        if node is not None:
            self.nodes.append(node)
            self.makers.update(dict.fromkeys(node.outputs, node))
            local.update(zip(op.outputs, node.outputs, strict=True))

    def _node(self, path: Path, op: OpSpec, built: Op, place: Place, ins: tuple[str, ...], scope: str) -> Node | None:
        try:
            self._check_makers(built, ins)
        except Fault as fault:
            self.specs.fault(path, op, fault)
            return None
        try:
            outs = built.infer(tuple(self.types[v] for v in ins))
        except ValueError as error:
            self.specs.add("S062", f"{op.id}: {error}", (*path, "in"))
            return None
        if len(outs) != len(op.outputs):
            self.specs.add("S013", f"{op.id} gives {len(outs)} values, {len(op.outputs)} are named", (*path, "out"))
            return None
        names = tuple(f"{scope}.{v}" for v in op.outputs)
        if any(name in self.types for name in names):
            return None
        self.types.update(zip(names, outs, strict=True))
        return Node(place.node, built, ins, names, self.specs.loc(path))

    def _check_makers(self, op: Op, ins: tuple[str, ...]) -> None:
        """What types alone do not show: which op made an input."""
        if isinstance(op, Experts):
            maker = self.makers.get(ins[1])
            if maker is None or not isinstance(maker.op, Router):
                raise Fault("'ids' do not come from a router", "in", code="S062")
            if maker.op.experts != op.total:
                raise Fault(
                    f"{op.total} experts, but its router chooses from {maker.op.experts}", "experts", code="S039"
                )
        if isinstance(op, MlaAttention):
            maker = self.makers.get(ins[2])
            if maker is None or maker.op.kind != "latent_append":
                raise Fault("'cache' does not come from a latent_append", "in", code="S062")
            widths = [self.types[v].tail[0] for v in maker.inputs]
            if widths != [op.kv_lora, op.rope]:
                text = (
                    f"the cache holds {widths[0]} + {widths[1]} values, kv_lora and rope are {op.kv_lora} and {op.rope}"
                )
                raise Fault(text, "kv_lora", code="S062")

    def _check_use(self, name: str, block: BlockSpec) -> None:
        used = {v for op in block.ops for v in op.inputs} | set(block.outputs)
        for index, op in enumerate(block.ops):
            for position, value in enumerate(op.outputs):
                if value not in used and op.op != "context_append":
                    path = ("blocks", name, "ops", index, "out", position)
                    self.specs.add("S031", f"{op.id}: '{value}' is never read", path, help="read it, or remove the op")
