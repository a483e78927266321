"""The step program: exact text, spellings, and that it is one generator a program that calls what the plan says."""

from __future__ import annotations

import jinja2
import msgspec
import pytest

from ddtreec.artifacts.plan import Call, Limits, Mesh, Model, Plan, Program, Tree, Value, Weight
from ddtreec.core.errors import VerifyError
from ddtreec.core.ids import attribute
from ddtreec.emit import environment, step


def plan_of(*programs: Program, weights: tuple[Weight, ...] = ()) -> Plan:
    return Plan(
        format=1, engine="tiny", backend="cpu", topology="cpu-x2", dtype="float32", mesh=Mesh(2, 2, 1),
        model=Model("tiny-k2", 64, 16, 2, 128, (3,)), limits=Limits(100, 1, 8, 4), buckets=(1, 8), ropes={}, caches=(),
        weights=weights, programs=programs, tree=Tree("t", "ddtree", 4, 7),
    )  # fmt: skip


TARGET = Program(
    "target", 8, 5, 1024,
    values=(
        Value("tokens", ("rows",), "int32", "input"),
        Value("embed.x", ("rows", 16)),
        Value("L00.attn.in", ("rows", 16)),
        Value("L00.attn.cache", (), "token", "token"),
        Value("L00.attn.out", ("rows", 16)),
    ),
    calls=(
        Call("embed.table", "embedding", ("embed.x",), ("tokens",), ("embed.tab",), {"first_per": 32, "coord": "rank"}),
        Call("L00.attn.norm", "rms_norm", ("L00.attn.in",), ("embed.x",), ("L00.attn.norm",), {"eps": 1e-05}),
        Call("L00.attn.kv", "rope", ("L00.attn.in",), ("embed.x",), (), {"table": "main"}),
        Call("L00.attn.kv", "latent_append", ("L00.attn.cache",), ("L00.attn.in", "embed.x"), (), {"layer": 0}),
        Call("L00.attn.sum", "all_reduce", ("L00.attn.out",), ("L00.attn.in",), (), {}, True),
        Call("L00.attn.cat", "all_gather", ("L00.attn.out",), ("L00.attn.in",), (), {"axis": 1}, True),
    ),
)  # fmt: skip

BODY = '''\
def target(k, w, b, state):
    """6 calls, up to 8 rows."""
    # embed.table
    k.embedding(b.embed_x, b.tokens, w.embed_tab, first=state.first("rank", 32))
    # L00.attn.norm
    k.rms_norm(b.L00_attn_in, b.embed_x, w.L00_attn_norm, eps=1e-05)
    # L00.attn.kv
    k.rope(state, b.L00_attn_in, b.embed_x, table="main")
    k.latent_append(state, b.L00_attn_in, b.embed_x, layer=0)
    # L00.attn.sum
    yield ("all_reduce", (b.L00_attn_out,), (b.L00_attn_in,), {})
    # L00.attn.cat
    yield ("all_gather", (b.L00_attn_out,), (b.L00_attn_in,), {"axis": 1})
'''


def test_the_text_of_a_program() -> None:
    text = step.step_program(plan_of(TARGET))
    assert text.endswith(BODY)
    assert text.startswith(
        '# step program: engine tiny, float32; template step/step.py.j2\n"""tiny-k2 on cpu-x2: 2 ranks'
    )
    assert text == step.step_program(plan_of(TARGET))


def test_a_program_without_collectives_is_a_generator_that_yields_nothing() -> None:
    calls = tuple(call for call in TARGET.calls if not call.collective)
    names: dict[str, object] = {}
    exec(step.step_program(plan_of(msgspec.structs.replace(TARGET, calls=calls))), names)

    class Recorder:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def __getattr__(self, name: str) -> object:
            return lambda *args, **kwargs: self.seen.append(name)

    class Anything:
        def __getattr__(self, name: str) -> object:
            return lambda *args: 0

    k = Recorder()
    assert list(names["target"](k, Anything(), Anything(), Anything())) == []  # type: ignore[operator]
    assert k.seen == [call.kernel for call in calls]


@pytest.mark.parametrize(
    ("identifier", "name"),
    [("L03.moe.experts", "L03_moe_experts"), ("in", "in_"), ("class", "class_"), ("x.in", "x_in")],
)
def test_spelling(identifier: str, name: str) -> None:
    assert attribute(identifier) == name


@pytest.mark.parametrize("identifier", ["3x", "a-b", "", "a b"])
def test_no_spelling(identifier: str) -> None:
    with pytest.raises(ValueError, match="Python name"):
        attribute(identifier)


def test_two_values_of_one_spelling_are_refused() -> None:
    values = (*TARGET.values, Value("embed_x", ("rows", 1)))
    with pytest.raises(VerifyError, match=r"spelt like 'embed\.x'"):
        step.step_program(plan_of(msgspec.structs.replace(TARGET, values=values)))


def test_a_name_the_template_is_not_given_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError, match="summary"):
        environment.render(step.TEMPLATE, {"header": "h"})


def test_cuda_templates_use_line_statements_behind_slashes() -> None:
    text = (
        environment._environment("//%")
        .from_string("//% for m in rows\nkernel_m${m};\n//% endfor\n")
        .render(rows=[1, 2])
    )
    assert text == "kernel_m1;\nkernel_m2;\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-05, "1e-05"), (0.14468, "0.14468"), (True, "True"), (None, "None"), ('a"b', '"a\\"b"'), (7, "7")],
)
def test_literals_keep_every_digit(value: object, text: str) -> None:
    assert step.literal(value) == text


def test_parameters_of_a_fused_launch_begin_with_their_part() -> None:
    params = {"norm_eps": 1e-05, "experts_first_per": 6, "experts_coord": "ep"}
    call = Call("L00.moe", "norm_experts", ("embed.x",), ("tokens",), ("w",), params)
    assert step.call_line(call, frozenset()) == (
        'k.norm_experts(state, b.embed_x, b.tokens, w.w, norm_eps=1e-05, experts_first=state.first("ep", 6))'
    )


def test_long_calls_are_broken_behind_commas_and_stay_the_same_call() -> None:
    line = "k.kernel(" + ", ".join(f"b.some_value_{i}" for i in range(40)) + ")"
    broken = list(step.wrapped(line))
    assert len(broken) > 4 and max(map(len, broken)) <= step.WIDTH
    assert " ".join(part.strip() for part in broken) == line
