"""What an emitter of a launch kind is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ddtreec.artifacts.kernels import Dim, Kernel, Scratch, Stage, StateArray, Variant
from ddtreec.artifacts.plan import Call, Plan, Value, Weight
from ddtreec.spec.schema import MOST_ROWS

Constant = bool | int | float | str
"""A named constant of a stage. A string is a type or an enumerator and is printed as it stands."""

ROW_TILES = (8, 16, 32, 64, MOST_ROWS)
"""Rows that a variant of a matrix stage serves: multiples of the 8 columns of an mma.m16n8k16 tile."""

ONE = Dim()


@dataclass(frozen=True, slots=True)
class Device:
    """Limits of the topology that tiles must respect. `shared`: bytes of one block; `sms`: multiprocessors."""

    arch: str
    sms: int
    shared: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand of a call on one rank: its arg ('t:3'), shape behind the row axis (all of it for a weight), row stride
    in elements, dtype ('compute', 'float32', 'int32', 'int64'). `pitch`: elements from one head of a [rows, heads, dim]
    operand to the next, where that is not dim; `start`: columns of its parent before an alias."""

    arg: str
    tail: tuple[int, ...]
    stride: int = 0
    dtype: str = "compute"
    pitch: int = 0
    start: int = 0

    @property
    def run(self) -> int:
        """Elements from one head to the next; of an operand without heads its width."""
        return self.pitch or self.tail[-1]

    @property
    def width(self) -> int:
        """Elements of one row."""
        total = 1
        for n in self.tail:
            total *= n
        return total


@dataclass(frozen=True, slots=True)
class Site:
    """One call with all that its shapes and constants come from. `outs`, `ins`, `weights` are numbered 't:0', 't:1',
    ... in this order. `most`: the largest value of each symbol in this program."""

    plan: Plan
    device: Device
    call: Call
    outs: tuple[Tensor, ...]
    ins: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    records: tuple[Weight, ...]
    most: Mapping[str, int]

    @property
    def params(self) -> Mapping[str, int | float | str | bool | None]:
        """Parameters of the call. A fused launch has those of all parts; where two parts have one of the same name, it
        begins with the part ('norm_eps')."""
        return self.call.params

    def real(self, name: str) -> float:
        """A parameter that is a number."""
        value = self.call.params[name]
        assert isinstance(value, int | float)
        return float(value)

    def whole(self, name: str) -> int:
        """A parameter that is an integer."""
        value = self.call.params[name]
        assert isinstance(value, int)
        return int(value)

    def word(self, name: str) -> str:
        """A parameter that is a word."""
        value = self.call.params[name]
        assert isinstance(value, str)
        return value


Emitter = Callable[[Site], "KernelDraft"]
"""Says how a call of one launch kind is run."""


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of an entry point: C type, name, and where its value comes from (see `Stage.args`)."""

    type: str
    name: str
    arg: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One variant of a stage. `blocks`: blocks a multiprocessor should hold (second of __launch_bounds__)."""

    rows: int
    grid: tuple[Dim, Dim, Dim]
    threads: int
    shared: int = 0
    blocks: int = 1
    constants: Mapping[str, Constant] = field(default_factory=dict[str, Constant])
    """Constants that differ from variant to variant."""


@dataclass(frozen=True, slots=True)
class StageDraft:
    """One stage: instantiates `ddt::<body><Constants of the variant>(params...)` of cuh/<include>.

    `name`: snake_case, part of the entry points ('<name>_m8'). `constants`: printed as a struct of named constants.
    """

    name: str
    body: str
    include: str
    constants: Mapping[str, Constant]
    params: tuple[Param, ...]
    entries: tuple[Entry, ...]
    early: bool = True
    count: str = "rows"

    def function(self, entry: Entry) -> str:
        """Name of the entry point, readable in profiles; with the rows it serves it is never that of a function of the
        language, as `norm` and `round` are."""
        return f"{self.name}_m{entry.rows}"

    def stage(self) -> Stage:
        """What the runtime needs to launch it."""
        variants = tuple(Variant(e.rows, self.function(e), e.grid, e.threads, e.shared) for e in self.entries)
        return Stage(self.name, variants, tuple(p.arg for p in self.params), self.early, self.count)


@dataclass(frozen=True, slots=True)
class KernelDraft:
    """One kernel before it is printed. `name`: the kind and what tells it from others of its kind, e.g.
    'linear__n7168_k1024'; equal names must mean equal text. `alike`: as `Kernel.alike`."""

    name: str
    summary: str
    stages: tuple[StageDraft, ...]
    scratch: tuple[Scratch, ...] = ()
    layouts: Mapping[int, str] = field(default_factory=dict[int, str])
    alike: bool = True

    def kernel(self) -> Kernel:
        """What the runtime needs of it; the reference is added by the caller."""
        layouts = {str(index): layout for index, layout in self.layouts.items()}
        return Kernel(self.name, tuple(s.stage() for s in self.stages), self.scratch, layouts, alike=self.alike)


@dataclass(frozen=True, slots=True)
class RoundDraft:
    """Kernels of the round that are no calls of a program, and the state arrays that they bring along."""

    kernels: tuple[KernelDraft, ...]
    arrays: tuple[StateArray, ...] = ()


RoundEmitter = Callable[[Plan, Device, Mapping[str, int]], RoundDraft]
"""Kernels of the round for a plan, a device and the largest value of each symbol."""


def tiles(most: int) -> tuple[int, ...]:
    """The row tiles that steps of up to `most` rows need."""
    below = tuple(t for t in ROW_TILES if t < most)
    return (*below, ROW_TILES[len(below)])


def stride(value: Value, values: Mapping[str, Value]) -> int:
    """Elements from one row of a value to the next: of its parent for an alias."""
    owner = values[value.parent] if value.home == "alias" else value
    total = 1
    for n in owner.shape[1:]:
        total *= int(n)
    return total


def literals(constants: Mapping[str, Constant]) -> Sequence[tuple[str, str, str]]:
    """(type, name, text) of each constant as C++."""
    lines: list[tuple[str, str, str]] = []
    for name, value in constants.items():
        if isinstance(value, bool):
            lines.append(("bool", name, "true" if value else "false"))
        elif isinstance(value, int):
            lines.append(("int", name, str(value)))
        elif isinstance(value, float):
            lines.append(("float", name, f"{value!r}f" if "e" in repr(value) or "." in repr(value) else f"{value}.0f"))
        else:
            lines.append(("using", name, value))
    return lines
