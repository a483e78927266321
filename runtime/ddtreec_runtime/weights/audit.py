"""Checks by headers alone that a checkpoint holds what a plan needs, before any data is read.

Problem codes: K020 missing tensor, K021 dtype, K022 shape, K023 missing scale, K024 group size, K025 packed where the
plan says dense or the other way round, K026 a quantisation this format does not have (zero points, activation order,
a global scale). Like problems of many tensors become one problem.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ddtreec.artifacts.plan import Weight
from ddtreec.core.errors import CheckpointError, Loc, Problem

from .checkpoint import Checkpoint
from .headers import TensorInfo
from .int4 import PER_WORD
from .names import NearNames, shown, template, who
from .slices import EXPERT, row_axes

FLOATS = frozenset({"BF16", "F16", "F32", "F64"})
_SCALES = frozenset({"BF16", "F16", "F32"})
_WORDS = frozenset({"I32", "I64"})
_FOREIGN = {"_zero_point": "zero points", "_g_idx": "an activation order", "_global_scale": "a global scale"}
_NOT_TEXT = ("vision_tower.", "mm_projector.", "model.vision_tower.", "model.mm_projector.")
_SPEC = "the model spec does not describe this checkpoint: make it with `ddtreec init CHECKPOINT_DIR`"
_REFETCH = "fetch the checkpoint again from its source"


@dataclass(frozen=True, slots=True)
class _Need:
    """One module or vector the plan reads: `name` is the dense name, `dims` how the plan sees it."""

    name: str
    dims: tuple[int, ...]
    packed: bool
    group: int


@dataclass(slots=True)
class _Fault:
    """Like faults of several tensors. `what` follows the name ('is F8_E4M3, ...')."""

    code: str
    what: str
    help: str
    note: str = ""
    names: list[str] = field(default_factory=list)


def audit(checkpoint: Checkpoint, weights: Sequence[Weight], store: str) -> tuple[str, ...]:
    """Checks every tensor that `weights` of `store` ('target' or 'drafter') read, all ranks and experts.

    Returns warnings: groups of tensors of the text model that the plan leaves unused. Raises CheckpointError with
    every problem found.
    """
    needs = list(dict.fromkeys(_needs(weights, store)))
    run = _Audit(checkpoint, needs)
    for need in needs:
        if need.packed:
            run.packed(need)
        else:
            run.dense(need)
    problems = run.problems()
    if problems:
        raise CheckpointError(problems)
    return _unused(checkpoint, run.used)


def _needs(weights: Sequence[Weight], store: str) -> Iterator[_Need]:
    for weight in weights:
        if weight.store != store:
            continue
        for part in weight.parts:
            for expert in range(weight.experts or 1):
                name = part.tensor.replace(EXPERT, str(expert))
                yield _Need(name, part.dims, weight.packing == "int4", weight.group)


class _Audit:
    """One walk over all needs, gathering faults by kind."""

    def __init__(self, checkpoint: Checkpoint, needs: Sequence[_Need]):
        self.checkpoint = checkpoint
        self.tensors = checkpoint.tensors
        self.count = len(needs)
        self.used = {name for need in needs for name in _names(need)}
        self._faults: dict[tuple[str, str, str], _Fault] = {}
        self._missing: list[str] = []

    def dense(self, need: _Need) -> None:
        """One float tensor of the plan's shape."""
        info = self.tensors.get(need.name)
        if info is None:
            if need.name + "_packed" in self.tensors:
                self.used.update(_packed_names(need.name))
                self._mixed(need.name, "int4-g32-experts", "dense", "INT4-packed (`weight_packed`)")
            else:
                self._missing.append(need.name)
            return
        if info.dtype not in FLOATS:
            wide = info.dtype.startswith(("F8", "F4"))
            way = "use a bf16 or an INT4 pack-quantized copy of the model; FP8 and FP4 checkpoints are not read"
            self._fault("K021", need.name, f"is {info.dtype}, not BF16, F16 or F32", way if wide else _REFETCH)
        self._shape(need.name, info, info.shape, need.dims)

    def packed(self, need: _Need) -> None:
        """`_packed`, `_scale` and `_shape` of one pack-quantized module."""
        name = need.name
        words, scale, shape = (self.tensors.get(name + tail) for tail in ("_packed", "_scale", "_shape"))
        if words is None:
            if name in self.tensors:
                self.used.add(name)
                self._mixed(name, "bf16", "INT4-packed", f"dense {self.tensors[name].dtype}")
            else:
                self._missing.append(name + "_packed")
            return
        for tail, thing in _FOREIGN.items():
            if name + tail in self.tensors:
                way = "only symmetric group-wise INT4 (compressed-tensors pack-quantized) is read: use such a copy"
                self._fault("K026", name + tail, f"means that the weights are quantised with {thing}", way)
        if words.dtype != "I32" or len(words.shape) != 2:
            what = f"is {words.dtype} {list(words.shape)}, not I32 [out, in/8]"
            self._fault("K021", name + "_packed", what, _REFETCH)
            return
        logical = (words.shape[0], words.shape[1] * PER_WORD)
        fits = self._shape(name + "_packed", words, logical, need.dims)
        if shape is not None and (shape.dtype not in _WORDS or shape.shape != (2,)):
            self._fault("K021", name + "_shape", f"is {shape.dtype} {list(shape.shape)}, not I32 or I64 [2]", _REFETCH)
        if scale is None:
            way = "without its scales a packed weight means nothing: fetch the checkpoint again"
            self._fault("K023", name + "_scale", "is missing while its packed weight is there", way)
            return
        if scale.dtype not in _SCALES:
            self._fault("K021", name + "_scale", f"is {scale.dtype}, not BF16, F16 or F32", _REFETCH)
        if fits:
            self._group(need, scale, logical)

    def _group(self, need: _Need, scale: TensorInfo, logical: tuple[int, int]) -> None:
        rows, cols = logical
        want = (rows, cols // need.group) if need.group and cols % need.group == 0 else None
        if scale.shape == want:
            return
        name = need.name + "_scale"
        if len(scale.shape) == 2 and scale.shape[0] == rows and scale.shape[1] and cols % scale.shape[1] == 0:
            found = cols // scale.shape[1]
            way = f"set `group: {found}` in the quant spec and compile again, or use a checkpoint of group {need.group}"
            self._fault("K024", name, f"has INT4 group size {found}, the plan expects {need.group}", way, key="group")
        else:
            ask = f"[{rows}, {cols}/{need.group}]"
            self._fault("K022", name, f"has shape {list(scale.shape)}, the plan expects {ask}", _REFETCH)

    def _shape(self, name: str, info: TensorInfo, logical: Sequence[int], dims: Sequence[int]) -> bool:
        """K022 unless `dims` is a view of the tensor; True if it is."""
        if row_axes(dims, logical) is not None:
            return True
        note = ""
        if len(logical) == 2 and row_axes(dims, (logical[1], logical[0])) is not None:
            note = "it looks transposed: a torch Linear keeps [out, in]"
        held = f"{list(info.shape)} {info.dtype}"
        if list(info.shape) != list(logical):
            held += f" (that is {list(logical)} unpacked)"
        self._fault("K022", name, f"has shape {held}, the plan reads {_view(dims)}", _SPEC, note)
        return False

    def _mixed(self, name: str, spec: str, wants: str, holds: str) -> None:
        way = f"set `quant: {spec}` in the engine spec and compile again"
        self._fault("K025", name, f"is {holds} in the checkpoint, and the plan reads it as {wants}", way, key=spec)

    def _fault(self, code: str, name: str, what: str, way: str, note: str = "", key: str = "") -> None:
        fault = self._faults.setdefault((code, key or template(name), what), _Fault(code, what, way, note))
        fault.names.append(name)

    def problems(self) -> list[Problem]:
        """All faults as problems, missing tensors first."""
        out = self._explain_missing() if self._missing else []
        return out + [self._problem(fault) for fault in self._faults.values()]

    def _problem(self, fault: _Fault) -> Problem:
        first = fault.names[0]
        info = self.tensors.get(first)
        loc = Loc(str(self.checkpoint.dir / info.file if info else self.checkpoint.dir))
        if len(fault.names) == 1:
            text = f"'{first}' {fault.what}"
        elif fault.code in ("K020", "K023"):
            text = f"{who(fault.names)} lack '{shown(fault.names)}', first: '{first}'"
        elif len({template(name) for name in fault.names}) > 1:
            text = f"{len(fault.names)} tensors, each of which {fault.what}, first: '{first}'"
        else:
            text = f"{who(fault.names)}: '{shown(fault.names)}' {fault.what}, first: '{first}'"
        return Problem(fault.code, text, loc, note=fault.note, help=fault.help)

    def _explain_missing(self) -> list[Problem]:
        """K020: tensors under another prefix in one problem, the rest by kind with near names."""
        near = NearNames(name for name in self.tensors if name not in self.used)
        if len(self._missing) == self.count > 1 and all(near.prefixes(name) is None for name in self._missing):
            text = f"none of the {self.count} tensors of the plan is in this checkpoint, first: '{self._missing[0]}'"
            note = f"it holds {len(self.tensors)} tensors, first: '{next(iter(self.tensors), '')}'"
            return [Problem("K020", text, Loc(str(self.checkpoint.dir)), note=note, help=f"check the path; {_SPEC}")]
        moved: dict[tuple[str, str], list[str]] = {}
        gone: dict[str, _Fault] = {}
        for name in self._missing:
            pair = near.prefixes(name)
            if pair is not None:
                moved.setdefault(pair, []).append(name)
            else:
                gone.setdefault(template(name), _Fault("K020", "is missing from the checkpoint", "")).names.append(name)
        problems = [self._moved(pair, names) for pair, names in moved.items()]
        for fault in gone.values():
            close = near.near(fault.names[0])
            fault.help = f"did you mean '{close[0]}'?" if close else f"{_REFETCH}, or {_SPEC}"
            problems.append(self._problem(fault))
        return problems

    def _moved(self, pair: tuple[str, str], names: list[str]) -> Problem:
        plan, held = pair
        if not plan:
            how = f"the checkpoint puts '{held}' in front of the plan's names"
        elif not held:
            how = f"the checkpoint leaves out the '{plan}' in front of the plan's names"
        else:
            how = f"the plan's names begin with '{plan}', the checkpoint's with '{held}'"
        count = "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"
        text = f"{count} in the checkpoint under another prefix: {how}; first: '{names[0]}'"
        note = ""
        if pair[1].endswith("blocks."):
            note = "transformers 5 saves `kimi_k25` models under such names; the released ones are `layers.N`"
        return Problem("K020", text, Loc(str(self.checkpoint.dir)), note=note, help=_SPEC)


def _names(need: _Need) -> list[str]:
    return _packed_names(need.name) if need.packed else [need.name]


def _packed_names(name: str) -> list[str]:
    return [name + "_packed", name + "_scale", name + "_shape"]


def _view(dims: Sequence[int]) -> str:
    return f"{list(dims)} ({math.prod(dims)} elements)"


def _unused(checkpoint: Checkpoint, used: set[str]) -> tuple[str, ...]:
    """One warning for each kind of text tensor that nothing reads."""
    groups: dict[str, list[str]] = {}
    for name in checkpoint.tensors:
        if name not in used and not name.startswith(_NOT_TEXT) and not name.endswith("rotary_emb.inv_freq"):
            groups.setdefault(template(name), []).append(name)
    warnings: list[str] = []
    for names in groups.values():
        text = f"'{names[0]}' is not used by the engine"
        if len(names) > 1:
            text = f"{who(names)}: '{shown(names)}' is not used by the engine, first: '{names[0]}'"
        warnings.append(text)
    return tuple(warnings)
