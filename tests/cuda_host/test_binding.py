"""From calls to launches, without a GPU: variants, grids, argument words, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ddtreec.artifacts.kernels import (
    Dim,
    Kernel,
    KernelTable,
    Scratch,
    Stage,
    StateArray,
    Variant,
    places,
    scratch_bytes,
)
from ddtreec.artifacts.plan import Call, Mesh, Program, Value
from ddtreec.core.errors import VerifyError
from ddtreec_runtime.backends.cuda.arrays import DeviceArrays
from ddtreec_runtime.backends.cuda.launches import Binder
from ddtreec_runtime.backends.cuda.steps import DeviceProgram, Rank, Shape
from ddtreec_runtime.program import Homes, kept_buffers

ONE, ROWS = Dim(), Dim(by=("rows",))
LARGEST = {"rows": 16, "out_rows": 8, "slots": 2, "group": 8}


class Made:
    """A maker of launches that are plain records."""

    def launch_of(
        self,
        label: str,
        function: Any,
        grid: tuple[int, int, int],
        threads: int,
        shared: int,
        early: bool,
        words: Sequence[int],
    ) -> Any:
        return SimpleNamespace(
            label=label, function=function, grid=grid, threads=threads, shared=shared, early=early, words=list(words)
        )


def kernel(name: str, args: tuple[str, ...], count: str = "rows", scratch: tuple[Scratch, ...] = ()) -> Kernel:
    small = Variant(4, f"{name}_m4", (Dim(3), Dim(1, ("slots",)), ONE), 64)
    large = Variant(16, f"{name}_m16", (Dim(5, ("rows",), 2), ONE, ONE), 128, 70_000)
    return Kernel(name, (Stage(name, (small, large), args, early=True, count=count),), scratch)


def table(*kernels: Kernel, programs: dict[str, tuple[str, ...]] | None = None) -> KernelTable:
    state = (StateArray("positions", "int32", ("rows",)), StateArray("pages", "int32", ("slots", 3)))
    return KernelTable(1, "sm_90", kernels, programs or {}, state=state, largest=LARGEST)


def binder(made: KernelTable) -> Binder:
    functions = {(k.name, v.function): f"<{v.function}>" for k in made.kernels for s in k.stages for v in s.variants}
    return Binder(made, Made(), functions, scratch=1 << 20)


class Pointers:
    def pointer(self, name: str) -> int:
        return {"positions": 4096}[name]


def symbols(slots: int, group: int, out_rows: int) -> dict[str, int]:
    return Shape(slots, group, out_rows).symbols


def test_the_smallest_variant_that_serves_the_rows() -> None:
    bound = binder(table(kernel("k", ())))
    for slots, group, function, grid in (
        (1, 1, "k_m4", (3, 1, 1)),
        (2, 2, "k_m4", (3, 2, 1)),
        (1, 5, "k_m16", (13, 1, 1)),
        (2, 8, "k_m16", (40, 1, 1)),
    ):
        (launch,) = bound.bind("k", (), {}, symbols(slots, group, 0), Pointers())
        assert (launch.label, launch.function, launch.grid) == (f"k:{function}", f"<{function}>", grid)
        assert (launch.threads, launch.shared) == ((64, 0) if function == "k_m4" else (128, 70_000))


def test_words_of_every_kind_of_argument() -> None:
    args = ("t:1", "state:positions", "int:rows", "int:group", "param:layer", "param:flag", "scratch:b", "t:0")
    scratch = (Scratch("a", Dim(100, ("rows",))), Scratch("b", Dim(4)))
    bound = binder(table(kernel("k", args, scratch=scratch)))
    x, y = torch.zeros(4), torch.zeros(4)
    (launch,) = bound.bind("k", (x, y), {"layer": -2, "flag": True}, symbols(2, 3, 0), Pointers())
    assert launch.words == [
        y.data_ptr(), 4096, 6, 3, 0xFFFFFFFE, 1, (1 << 20) + 1792, x.data_ptr()
    ]  # fmt: skip
    assert launch.early


def test_scratch_is_placed_at_the_largest_step() -> None:
    made = kernel("k", (), scratch=(Scratch("a", Dim(100, ("rows",))), Scratch("b", Dim(4))))
    assert places(made, LARGEST) == ({"a": 0, "b": 1792}, 2048)  # 100 * 16 rows, in steps of 256
    assert scratch_bytes(table(made, kernel("none", ()))) == 2048
    assert scratch_bytes(table()) == 0


def test_a_stage_that_counts_nothing_is_not_launched() -> None:
    bound = binder(table(kernel("head", ("int:out_rows",), count="out_rows")))
    assert bound.bind("head", (), {}, symbols(1, 8, 0), Pointers()) == []
    (launch,) = bound.bind("head", (), {}, symbols(1, 8, 1), Pointers())
    assert launch.words == [1]


@pytest.mark.parametrize(
    ("args", "rows", "said"),
    [
        (("t:1",), 4, "nothing is known of the argument 't:1'"),
        (("param:layer",), 4, "nothing is known of the argument 'param:layer'"),
        (("param:big",), 4, "parameter 'big' is 2147483648, no int32"),
        (("param:eps",), 4, "parameter 'eps' is 0.5, no int32"),
        (("what:x",), 4, "nothing is known of the argument 'what:x'"),
        ((), 17, "stage 'k' has no variant for 17 rows"),
    ],
)
def test_refused(args: tuple[str, ...], rows: int, said: str) -> None:
    with pytest.raises(VerifyError, match=said):
        binder(table(kernel("k", args))).bind(
            "k", (torch.zeros(1),), {"big": 2**31, "eps": 0.5}, symbols(1, rows, 0), Pointers()
        )


def test_an_unknown_kernel() -> None:
    with pytest.raises(VerifyError, match=r"kernels\.json has no kernel of this name"):
        binder(table()).bind("k", (), {}, symbols(1, 1, 0), Pointers())


# --- a step program ---

VALUES = (
    Value("tokens", ("rows",), "int32", "input"),
    Value("x", ("rows", 6), offset=0),
    Value("x.left", ("rows", 2), home="alias", parent="x", start=4),
    Value("order", (), home="token"),
    Value("logits", ("out_rows", 8), "float32", "persistent"),
)
CALLS = (
    Call("a", "one", ("x",), ("tokens",), ("L00.w",)),
    Call("b", "two", ("logits",), ("x.left",), params={"layer": 3}),
)


def steps(k: Any, w: Any, b: Any, state: Any) -> Any:
    k.one(state, b.x, b.tokens, w.L00_w)
    yield ("all_reduce", (b.x,), (b.x,), {})
    k.two(state, b.logits, b.x_left, layer=3, first=state.first("tp", 5))


def device_program(met: list[object]) -> DeviceProgram:
    made = table(kernel("one", ("t:0", "t:1", "t:2", "state:positions")), kernel("two", ("t:0", "t:1", "param:first")))
    program = Program("target", 16, 8, 16 * 12, VALUES, CALLS)
    plan = SimpleNamespace(ropes={})
    arrays = DeviceArrays(made, plan, "cpu")  # type: ignore[arg-type]
    kept = kept_buffers(program, torch.bfloat16)
    homes = Homes({"tokens": torch.zeros(16, dtype=torch.int32)}, torch.zeros(192, dtype=torch.uint8), kept)
    return DeviceProgram(
        program,
        steps,
        binder(made),
        {"L00.w": torch.zeros(3)},
        homes,
        arrays,
        Rank(Mesh(4, 2, 2), 3),
        {"all_reduce": lambda outs, ins, **params: met.append((outs, ins))},
    )


def test_a_step_function_is_bound_once_a_shape() -> None:
    met: list[object] = []
    program = device_program(met)
    first, second = program.launches(Shape(1, 3, 2))
    values = program.values(Shape(1, 3, 2))
    arena, kept = program.homes.arena.data_ptr(), program.homes.kept["logits"].data_ptr()
    assert first.words[:2] == [arena, program.homes.inputs["tokens"].data_ptr()]
    assert second.words == [kept, arena + 4 * 2, 5]  # column 4 of bfloat16; tp index 1 of rank 3
    assert values["x.left"].shape == (3, 2) and values["logits"].dtype == torch.float32
    assert program.launches(Shape(1, 3, 2)) is program.launches(Shape(1, 3, 2)) and len(met) == 1
    program.launches(Shape(3, 1, 2))
    assert len(met) == 2
    assert [len(call) for call in program.by_call(Shape(1, 3, 0))] == [1, 1]


def test_steps_that_are_too_large() -> None:
    for shape in (Shape(1, 17, 0), Shape(2, 2, 9)):
        with pytest.raises(ValueError, match="target takes 16 rows and 8 out rows"):
            device_program([]).launches(shape)


def test_slots_own_their_pages() -> None:
    arrays = DeviceArrays(table(), SimpleNamespace(ropes={}), "cpu")  # type: ignore[arg-type]
    assert arrays["pages"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays["positions"].tolist() == [0] * 16
    with pytest.raises(VerifyError, match="no array of this name"):
        arrays.pointer("masks")
