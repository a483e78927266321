"""Memory: packing against brute force on random programs, tightness, and a verifier that rejects planted faults."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtreec.artifacts.plan import Call, Program, Value
from ddtreec.core.errors import VerifyError
from ddtreec.passes import memory

SIZES = memory.Sizes(rows=8, out_rows=3, itemsize=4)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Value], list[Call], list[str]]:
    """Random straight-line programs: each call reads a few earlier values (or aliases) and writes new ones."""
    values = [Value("tokens", ("rows",), "int32", home="input")]
    calls: list[Call] = []
    readable = ["tokens"]
    for number in range(draw(st.integers(1, 24))):
        ins = draw(st.lists(st.sampled_from(readable), min_size=1, max_size=3, unique=True))
        outs = []
        for index in range(draw(st.integers(1, 2))):
            name = f"v{number}_{index}"
            width = draw(st.sampled_from([1, 3, 16, 100, 257]))
            dtype = draw(st.sampled_from(["compute", "float32", "int64"]))
            rows = draw(st.sampled_from(["rows", "out_rows"]))
            values.append(Value(name, (rows, width), dtype))
            outs.append(name)
            readable.append(name)
            if draw(st.booleans()):
                values.append(Value(f"{name}a", (rows, 1), dtype, home="alias", parent=name))
                readable.append(f"{name}a")
        calls.append(Call(f"n{number}", "op", tuple(outs), tuple(ins)))
    outputs = draw(st.lists(st.sampled_from(readable), max_size=2, unique=True))
    return values, calls, outputs


def brute_force_lives(values: list[Value], calls: list[Call], outputs: list[str]) -> dict[str, set[int]]:
    """Call numbers at which each arena value is needed, straight from the definition."""
    by_id = {v.id: v for v in values}

    def owner(identifier: str) -> str:
        while by_id[identifier].home == "alias":
            identifier = by_id[identifier].parent
        return identifier

    needed: dict[str, set[int]] = {}
    for v in values:
        if v.home != "arena":
            continue
        touched = [i for i, c in enumerate(calls) for x in (*c.ins, *c.outs) if owner(x) == v.id]
        if any(owner(x) == v.id for x in outputs):
            touched.append(len(calls))
        needed[v.id] = set(range(min(touched), max(touched) + 1))
    return needed


@settings(max_examples=150, deadline=None)
@given(programs())
def test_live_buffers_never_overlap(case: tuple[list[Value], list[Call], list[str]]) -> None:
    values, calls, outputs = case
    program = memory.place_program("p", values, calls, outputs, SIZES)
    memory.verify(program, outputs, SIZES)
    needed = brute_force_lives(values, calls, outputs)
    placed = [(v, v.offset, v.offset + SIZES.value_bytes(v)) for v in program.values if v.home == "arena"]
    for index, (one, start, stop) in enumerate(placed):
        assert start % 64 == 0 and stop <= program.arena_bytes
        for other, low, high in placed[index + 1 :]:
            if needed[one.id] & needed[other.id]:
                assert stop <= low or high <= start, (one.id, other.id)
    # Tight: the lower bound counts the bytes alive at the worst call.
    bound = max(
        (
            sum(memory.aligned(SIZES.value_bytes(v)) for v, _, _ in placed if i in needed[v.id])
            for i in range(len(calls) + 1)
        ),
        default=0,
    )
    lives = memory.intervals(values, calls, outputs, SIZES)
    assert memory.peak_live(lives, len(calls)) == bound
    assert bound <= program.arena_bytes <= 1.34 * bound + 64


@settings(max_examples=100, deadline=None)
@given(programs(), st.data())
def test_verifier_rejects_any_overlap_of_live_values(
    case: tuple[list[Value], list[Call], list[str]], data: st.DataObject
) -> None:
    """Move one value onto another that is alive at the same time: the verifier must notice."""
    values, calls, outputs = case
    program = memory.place_program("p", values, calls, outputs, SIZES)
    needed = brute_force_lives(values, calls, outputs)
    pairs = [(a, b) for a in needed for b in needed if a != b and needed[a] & needed[b]]
    if not pairs:
        return
    moved, onto = data.draw(st.sampled_from(pairs))
    offset = next(v.offset for v in program.values if v.id == onto)
    broken = tuple(msgspec.structs.replace(v, offset=offset) if v.id == moved else v for v in program.values)
    program = msgspec.structs.replace(program, values=broken, arena_bytes=program.arena_bytes + 10**6)
    with pytest.raises(VerifyError, match="memory"):
        memory.verify(program, outputs, SIZES)


def chain() -> tuple[list[Value], list[Call]]:
    values = [Value("tokens", ("rows",), "int32", home="input"), *(Value(f"v{i}", ("rows", 16)) for i in range(3))]
    calls = [
        Call("n0", "op", ("v0",), ("tokens",)),
        Call("n1", "op", ("v1",), ("v0",)),
        Call("n2", "op", ("v2",), ("v1",)),
    ]
    return values, calls


def faulty(**change: object) -> Program:
    values, calls = chain()
    program = memory.place_program("p", values, calls, ["v2"], SIZES)
    return msgspec.structs.replace(program, **change)


def moved(identifier: str, offset: int) -> Program:
    program = faulty()
    values = tuple(msgspec.structs.replace(v, offset=offset) if v.id == identifier else v for v in program.values)
    return msgspec.structs.replace(program, values=values)


def test_a_chain_needs_two_buffers() -> None:
    assert faulty().arena_bytes == 2 * 8 * 16 * 4


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (moved("v1", 0), "overlap"),
        (moved("v1", 520), "align"),
        (faulty(arena_bytes=512), "arena 512"),
        (faulty(calls=faulty().calls[1:]), "never written"),
        (faulty(calls=(*faulty().calls, faulty().calls[0])), "second time"),
        (faulty(calls=(*faulty().calls, Call("n3", "op", ("tokens",), ("v2",)))), "input"),
        (faulty(calls=(*faulty().calls, Call("n3", "op", (), ("v0",)))), "overwritten by 'v2'"),
    ],
    ids=["overlap", "misaligned", "outside", "unwritten", "twice", "input", "stale read"],
)
def test_verifier_names_the_fault(program: Program, reason: str) -> None:
    with pytest.raises(VerifyError, match=reason):
        memory.verify(program, ["v2"], SIZES)


def test_an_output_lives_to_the_end() -> None:
    values, calls = chain()
    program = memory.place_program("p", values, calls, ["v0", "v2"], SIZES)
    assert program.arena_bytes == 3 * 512


def test_an_alias_keeps_its_parent() -> None:
    values, calls = chain()
    values.append(Value("v0a", ("rows", 4), home="alias", parent="v0", start=4))
    calls.append(Call("n3", "op", (), ("v0a",)))
    assert memory.place_program("p", values, calls, [], SIZES).arena_bytes == 3 * 512


@pytest.mark.parametrize("planned", [2, 4, 8])
@pytest.mark.parametrize("run", [2, 4, 8])
@pytest.mark.parametrize("dtype", ["compute", "float32", "int32", "int64"])
def test_a_wider_dtype_fits_the_scaled_arena(planned: int, run: int, dtype: str) -> None:
    """The rule of the module: bytes at run time never exceed the planned bytes times max(1, run / planned)."""
    value = Value("v", ("rows", 5), dtype)
    real = {"compute": run, "float32": max(4, run), "int32": 4, "int64": 8}[dtype] * 8 * 5
    plan = memory.Sizes(8, 3, planned).value_bytes(value)
    assert real <= plan * max(1, run // planned)
