"""A spec that the schema accepts either expands to graphs that pass the verifier, or is refused with places: never a
traceback. Specs are made wrong at random."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ddtreec.core.errors import SpecError
from ddtreec.passes.absorb import absorb
from ddtreec.passes.expand import expand
from ddtreec.passes.fuse import fuse
from ddtreec.passes.lower import lower
from ddtreec.passes.verify import verify
from tests.passes.small import FLAT, TARGET, drafter_data, engine_of, target_data

MODELS = (target_data(TARGET), target_data(FLAT))
DRAFTER = drafter_data()
VALUES = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        3,
        2.5,
        "hidden",
        "heads",
        "x",
        "h",
        "linear",
        "rms_norm",
        "target",
        [],
        ["hidden"],
        ["x", "h"],
        "{layer}",
    ]
).map(copy.deepcopy)


@st.composite
def wrong(draw: st.DrawFn, data: dict[str, Any]) -> dict[str, Any]:
    """One to three random edits below blocks, stacks, dims or ropes."""
    data = copy.deepcopy(data)
    for _ in range(draw(st.integers(1, 3))):
        here: Any = data
        key: Any = draw(
            st.sampled_from([k for k in data if k in ("blocks", "stack", "context", "draft", "dims", "ropes", "taps")])
        )
        while isinstance(here[key], (dict, list)) and here[key] and draw(st.integers(0, 9)):
            here = here[key]
            key = draw(st.sampled_from(sorted(here) if isinstance(here, dict) else range(len(here))))
        change = draw(st.sampled_from(["set", "delete", "swap", "repeat"]))
        if change == "set":
            here[key] = draw(VALUES)
        elif change == "delete":
            del here[key]
        elif isinstance(here, list):
            other = draw(st.integers(0, len(here) - 1))
            if change == "swap":
                here[key], here[other] = here[other], here[key]
            else:
                here.insert(other, copy.deepcopy(here[key]))
    return data


@settings(max_examples=150, deadline=None)
@given(data=st.data(), both=st.booleans())
def test_wrong_specs_are_refused_or_expand(data: st.DataObject, both: bool) -> None:
    model = data.draw(wrong(data.draw(st.sampled_from(MODELS))))
    drafter = data.draw(wrong(DRAFTER)) if both else None
    try:
        small = engine_of(model, drafter)
    except ValidationError:
        return
    try:
        programs = expand(small)
    except SpecError as error:
        assert all(p.code.startswith("S0") and p.loc is not None and p.message for p in error.problems)
        assert len(set(error.problems)) == len(error.problems)
        return
    verify("expand", programs)
    for graph in programs.mapped(absorb).mapped(fuse).graphs.values():
        lower(graph, "cpu")
