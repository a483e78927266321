"""Threads: what a plan is worth, and that calls leave torch's own number as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ddtreec.artifacts.plan import decode
from ddtreec.core.errors import SpecError
from ddtreec_runtime import Engine
from ddtreec_runtime.threads import automatic, using
from tests.runtime.engines import K26, bundle

GENERATED = Path(__file__).resolve().parents[2] / "generated"
CHECKPOINT = K26 / "a-flat-8e"


def test_a_small_model_takes_one_thread_and_a_large_one_what_there_is() -> None:
    small = decode((GENERATED / "tiny-k2-cpu" / "plan.json").read_bytes())
    large = decode((GENERATED / "kimi-k2.6-rtx-pro-6000-x8-pcie" / "plan.json").read_bytes())
    assert automatic(small, itemsize=4, most=8) == 1
    assert automatic(large, itemsize=2, most=4) == 4
    assert automatic(large, itemsize=2, most=1) == 1
    assert 1 < automatic(large, itemsize=2, most=1000) < automatic(large, itemsize=4, most=1000)


def test_torch_has_its_own_number_again_after_a_call_and_after_an_error() -> None:
    before = torch.get_num_threads()
    other = before + 1
    seen: list[int] = []
    with Engine.load(bundle(CHECKPOINT), CHECKPOINT, threads=other) as engine:
        engine.generate([1, 2, 3], max_new_tokens=2, on_tokens=lambda *_: seen.append(torch.get_num_threads()))
        assert set(seen) == {other}
        assert torch.get_num_threads() == before
        with pytest.raises(SpecError):
            engine.logits([])
    with pytest.raises(RuntimeError), using(other):
        raise RuntimeError
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("count", [0, -1, True, 1.5])
def test_refuses_what_is_no_number_of_threads(count: object) -> None:
    with pytest.raises(SpecError, match=r"R009.*threads"):
        Engine.load(bundle(CHECKPOINT), CHECKPOINT, threads=count)  # type: ignore[arg-type]
