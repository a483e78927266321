"""What must divide: INT4 groups into input dims, and pinned layouts over the devices.

Only explicit pins are looked at here; where the engine says `auto`, the shard pass chooses among what divides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddtreec.core.errors import Problem
from ddtreec.spec.schema import DrafterSpec, Kind, ModelSpec, OpSpec
from ddtreec.spec.source import Path

if TYPE_CHECKING:
    from ddtreec.spec.load import LoadedEngine

NIBBLES = 8
"""INT4 values of one packed word: groups are whole words."""
ROLES = ("attention", "a_proj", "mlp", "experts", "vocab", "drafter", "router")


@dataclass(frozen=True, slots=True)
class Cut:
    """A dim that something must divide: its size, its name, and where it stands."""

    size: int
    name: str
    kind: Kind
    path: Path

    def note(self, loaded: LoadedEngine) -> str:
        """The value and its place."""
        return f"{self.kind}.{self.name} = {self.size} ({loaded.loc(self.kind, self.path)})"


def split_problems(loaded: LoadedEngine) -> Iterator[Problem]:
    """Everything that does not divide, and roles that nothing has."""
    yield from _quant_problems(loaded)
    yield from _layout_problems(loaded)


def ops(loaded: LoadedEngine) -> Iterator[tuple[Kind, ModelSpec | DrafterSpec, OpSpec, Path]]:
    """Every op of the model and the drafter with its place."""
    specs: list[tuple[Kind, ModelSpec | DrafterSpec]] = [("model", loaded.model)]
    if loaded.drafter is not None:
        specs.append(("drafter", loaded.drafter))
    for kind, spec in specs:
        for name, block in spec.blocks.items():
            for index, op in enumerate(block.ops):
                yield kind, spec, op, ("blocks", name, "ops", index)


def _sizes(kind: Kind, spec: ModelSpec | DrafterSpec, op: OpSpec, at: Path, field: str) -> list[Cut]:
    """The dims of one field, in order; empty where one is not known (the graph will say so)."""
    value = op.fields.get(field)
    cuts: list[Cut] = []
    for word in value if isinstance(value, tuple) else (value,):
        if isinstance(word, str) and word in spec.dims:
            cuts.append(Cut(spec.dims[word], f"dims.{word}", kind, ("dims", word)))
        elif isinstance(word, int) and not isinstance(word, bool):
            cuts.append(Cut(word, field, kind, (*at, field)))
        else:
            return []
    return cuts


def _inputs(loaded: LoadedEngine, role: str) -> Iterator[Cut]:
    """The input widths of every weight of `role`, along which INT4 groups run. Fields of a linear give one product."""
    for kind, spec, op, at in ops(loaded):
        if op.fields.get("role") != role:
            continue
        if op.op == "experts":
            yield from [cut for field in ("dim", "inter") for cut in _sizes(kind, spec, op, at, field)]
        elif op.op == "mla_attention":
            yield from _sizes(kind, spec, op, at, "kv_lora")
        elif op.op == "linear" and (cuts := _sizes(kind, spec, op, at, "from")):
            if len(cuts) == 1:
                yield cuts[0]
            else:
                name = " * ".join(cut.name for cut in cuts)
                yield Cut(math.prod(cut.size for cut in cuts), name, kind, (*at, "from"))


def _quant_problems(loaded: LoadedEngine) -> Iterator[Problem]:
    known = {str(op.fields["role"]) for _, _, op, _ in ops(loaded) if "role" in op.fields}
    for role, packing in loaded.quant.roles.items():
        path: Path = ("roles", role)
        if role not in known | set(ROLES):
            from ddtreec.spec.find import meant

            hint = meant(role, known | set(ROLES)) or f"roles: {', '.join(sorted(known))}"
            yield loaded.problem("S038", f"no weight has the role `{role}`", "quant", path, key=True, help=hint)
            continue
        written = packing.model_fields_set
        if packing.packing == "dense":
            for field in sorted({"group", "product"} & written):
                message = f"`{field}` has no meaning for dense weights"
                hint = f"remove it, or write packing: int4 for {role}"
                yield loaded.problem("S038", message, "quant", (*path, field), key=True, help=hint)
            continue
        if role == "router":
            message = "the router is never packed: its scores are computed in float32"
            yield loaded.problem("S038", message, "quant", path, key=True, help="remove the role")
        elif packing.group is None:
            message = f"int4 weights of {role} need a `group`: the inputs that share one scale"
            yield loaded.problem("S038", message, "quant", path, key=True, help="e.g. group: 32")
        else:
            yield from _group_problems(loaded, role, packing.group)


def _group_problems(loaded: LoadedEngine, role: str, group: int) -> Iterator[Problem]:
    path: Path = ("roles", role, "group")
    if group % NIBBLES:
        message = f"a group of {group} is not a multiple of {NIBBLES}, the INT4 values of one packed word"
        yield loaded.problem("S038", message, "quant", path, help="e.g. group: 32")
        return
    for cut in dict.fromkeys(_inputs(loaded, role)):
        if cut.size % group:
            message = f"groups of {group} do not divide the {cut.size} inputs of {role}: {cut.size} % {group} = "
            message += str(cut.size % group)
            fits = [g for g in (128, 64, 32, 16, 8) if cut.size % g == 0]
            hint = f"groups that divide: {', '.join(map(str, fits))}" if fits else "leave these weights dense"
            yield loaded.problem("S038", message, "quant", path, note=cut.note(loaded), help=hint)


def split_warnings(loaded: LoadedEngine) -> Iterator[Problem]:
    """Questions left to the shard pass that have no answer but `replicated`, since something does not divide."""
    devices = loaded.topology.devices
    for question, (_, cuts) in _cuts(loaded).items():
        odd = next((cut for cut in cuts if cut.size % devices), None)
        if odd is not None and getattr(loaded.engine.layout, question) == "auto" and question != "a_proj":
            message = f"every device holds all of `{question}`: {odd.size} does not divide over {devices} devices, "
            message += f"{odd.size} % {devices} = {odd.size % devices}"
            hint = f"devices that divide: {_listed(_counts(cuts))}; or say so: layout.{question}: replicated"
            note = odd.note(loaded)
            yield loaded.problem("S043", message, "topology", ("devices",), note=note, help=hint)


def _cuts(loaded: LoadedEngine) -> dict[str, tuple[str, list[Cut]]]:
    """Each layout question but `experts` with the answer that cuts over all devices, and what it cuts."""
    target = [c for k, s, o, at in ops(loaded) if o.op == "mla_attention" for c in _sizes(k, s, o, at, "heads")]
    drafter = [
        cut
        for kind, spec, op, at in ops(loaded)
        if op.op == "block_attention"
        for field in ("heads", "kv_heads")
        for cut in _sizes(kind, spec, op, at, field)
    ]
    return {
        "attention": ("tp", target),
        "a_proj": ("gather", _linear(loaded, "model", "a_proj", ("to",))),
        "mlp": ("tp", _inner(loaded, "mlp")),
        "vocab": ("parallel", _linear(loaded, "model", "vocab", ("to",))),
        "drafter": ("tp", drafter),
    }


def _layout_problems(loaded: LoadedEngine) -> Iterator[Problem]:
    layout, devices = loaded.engine.layout, loaded.topology.devices
    for question, (answer, cuts) in _cuts(loaded).items():
        if getattr(layout, question) == answer:
            yield from _pin(loaded, question, cuts, devices)
            if question == "mlp":
                yield from _slice_problems(loaded, "mlp", cuts, devices)
    if layout.experts.startswith("ep"):
        yield from _expert_problems(loaded, layout.experts, devices)


def _linear(loaded: LoadedEngine, wanted: Kind, role: str, fields: Sequence[str]) -> list[Cut]:
    """The first dim of `fields` of every linear with `role`: the dim that is cut."""
    return [
        cuts[0]
        for kind, spec, op, at in ops(loaded)
        if kind == wanted and op.op == "linear" and op.fields.get("role") == role
        for field in fields
        if (cuts := _sizes(kind, spec, op, at, field))
    ]


def _inner(loaded: LoadedEngine, role: str) -> list[Cut]:
    """The inner widths of MLPs: what a linear of `role` reads from a SwiGLU."""
    made = {v for kind, _, op, _ in ops(loaded) if kind == "model" and op.op == "swiglu" for v in op.outputs}
    return [
        cuts[0]
        for kind, spec, op, at in ops(loaded)
        if kind == "model" and op.op == "linear" and op.fields.get("role") == role and made & set(op.inputs)
        if (cuts := _sizes(kind, spec, op, at, "from"))
    ]


def _pin(loaded: LoadedEngine, question: str, cuts: Sequence[Cut], devices: int) -> Iterator[Problem]:
    """Problems of a pin that cuts each of `cuts` over all devices."""
    for cut in dict.fromkeys(cuts):
        if cut.size % devices:
            answer = getattr(loaded.engine.layout, question)
            message = f"layout.{question}: {answer} cuts {cut.size} over {devices} devices: {cut.size} % {devices} = "
            message += str(cut.size % devices)
            note = f"{cut.note(loaded)}; topology.devices = {devices} ({loaded.loc('topology', ('devices',))})"
            hint = f"devices that divide: {_listed(_counts(cuts))}; or layout.{question}: replicated, or auto"
            yield loaded.problem("S040", message, "engine", ("layout", question), note=note, help=hint)


def _counts(cuts: Sequence[Cut]) -> list[int]:
    """Numbers of devices that divide all of `cuts`, up to 64."""
    common = math.gcd(*(cut.size for cut in cuts))
    return [n for n in range(1, min(common, 64) + 1) if common % n == 0]


def _slice_problems(loaded: LoadedEngine, role: str, cuts: Sequence[Cut], parts: int) -> Iterator[Problem]:
    """INT4 groups that a cut of `cuts` into `parts` would break."""
    packing = loaded.quant.roles.get(role)
    if packing is None or packing.group is None or packing.packing != "int4":
        return
    for cut in dict.fromkeys(cuts):
        if cut.size % parts == 0 and (cut.size // parts) % packing.group:
            message = (
                f"{role} weights of width {cut.size} over {parts} ranks leave {cut.size // parts} each, "
                f"which cuts INT4 groups of {packing.group}"
            )
            group = loaded.loc("quant", ("roles", role, "group"))
            note = f"{cut.note(loaded)}; quant.roles.{role}.group = {packing.group} ({group})"
            counts = [n for n in range(1, 65) if cut.size % (n * packing.group) == 0]
            hint = f"ranks that keep groups whole: {_listed(counts)}"
            yield loaded.problem("S040", message, "engine", ("layout", role), note=note, help=hint)


def _expert_problems(loaded: LoadedEngine, answer: str, devices: int) -> Iterator[Problem]:
    ep, tp = (int(part) for part in answer.removeprefix("ep").split("xtp"))
    counts = [c for k, s, o, at in ops(loaded) if o.op == "experts" for c in _sizes(k, s, o, at, "experts")]
    inner = [c for k, s, o, at in ops(loaded) if o.op == "experts" for c in _sizes(k, s, o, at, "inter")]
    packing = loaded.quant.roles.get("experts")
    group = packing.group if packing is not None and packing.packing == "int4" and packing.group else 1

    def fits(e: int, t: int) -> bool:
        return all(c.size % e == 0 for c in counts) and all(c.size % (t * group) == 0 for c in inner)

    valid = [f"ep{e}xtp{devices // e}" for e in range(1, devices + 1) if devices % e == 0 and fits(e, devices // e)]
    hint = f"valid on {devices} devices: {', '.join(valid)}" if valid else f"valid on {devices} devices: replicated"
    if valid in ([], ["ep1xtp1"]):
        others = [n for n in range(2, 65) if any(n % e == 0 and fits(e, n // e) for e in range(1, n + 1))]
        hint += f"; they divide over {_listed(others[:8])} devices" if others else ""
    path: Path = ("layout", "experts")
    if ep < 1 or tp < 1 or ep * tp != devices:
        message = f"ep {ep} times tp {tp} is {ep * tp}, but there are {devices} devices"
        note = f"topology.devices = {devices} ({loaded.loc('topology', ('devices',))})"
        yield loaded.problem("S040", message, "engine", path, note=note, help=hint)
    for cut in dict.fromkeys(counts):
        if ep and cut.size % ep:
            message = f"{cut.size} routed experts cannot be split over ep {ep}: {cut.size} % {ep} = {cut.size % ep}"
            yield loaded.problem("S040", message, "engine", path, note=cut.note(loaded), help=hint)
    for cut in dict.fromkeys(inner):
        if tp and cut.size % tp:
            message = f"experts of width {cut.size} cannot be split over tp {tp}: {cut.size} % {tp} = {cut.size % tp}"
            yield loaded.problem("S040", message, "engine", path, note=cut.note(loaded), help=hint)
    if tp:
        for problem in _slice_problems(loaded, "experts", inner, tp):
            yield Problem(problem.code, problem.message, problem.loc, problem.source, problem.note, hint)


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts)) or "none"
