"""Whatever layout the planner proposes, the checker accepts: pinned, it passes and is planned again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ddtreec import driver
from ddtreec.spec.load import load_engine


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, ...]:
    """`--set` arguments that make other sizes of the tiny engine, on one to eight devices."""
    pick = {name: draw(st.sampled_from(values)) for name, values in {
        "topology.devices": (1, 2, 3, 4, 5, 6, 8), "model.dims.heads": (1, 3, 4, 6, 8, 12), "model.dims.experts":
        (4, 6, 9, 16), "model.dims.expert_inter": (32, 96, 160, 640), "model.dims.inter": (96, 100, 1024),
        "model.dims.shared_inter": (33, 96, 128), "model.dims.q_lora": (60, 128), "drafter.dims.kv_heads": (1, 2, 3, 4),
    }.items()}  # fmt: skip
    groups = [group for group in (8, 16, 32, 64) if pick["model.dims.expert_inter"] % group == 0]
    pick["quant.roles.experts.group"] = draw(st.sampled_from(groups))
    vocab = draw(st.sampled_from((4096, 4098, 4100, 4101)))
    pick |= {"model.dims.vocab": vocab, "drafter.dims.vocab": vocab, "drafter.target.vocab": vocab}
    pick["drafter.dims.heads"] = pick["drafter.dims.kv_heads"] * draw(st.sampled_from((1, 2, 4)))
    return tuple(f"{path}={value}" for path, value in pick.items())


@settings(max_examples=12, deadline=None, derandomize=True, database=None)
@given(sets=changes())
def test_what_the_planner_proposes_the_checker_accepts(sets: tuple[str, ...]) -> None:
    loaded = load_engine("tiny-k2-cpu-x2", sets)
    proposed = {question: words.split()[0] for question, words in driver.state_after(loaded, "shard").layout.items()}
    pins = tuple(f"layout.{question}={answer}" for question, answer in proposed.items())
    pinned = load_engine("tiny-k2-cpu-x2", (*sets, *pins))
    again = driver.states_until(pinned, "memory")["shard"].layout
    assert {question: words.split()[0] for question, words in again.items()} == proposed
