"""The target on the device as a host loop sees it, on the emulator."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.cuda_host.emulated import emulated
from tests.emulated.emulator import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "here")


def test_watched_views_are_those_of_the_call_that_wrote_them() -> None:
    """Later calls of a step reuse the memory of earlier values, also of those that are told of as views."""
    engine = emulated(drafter=None)
    values = {value.id: value for value in engine.plan.programs[0].values}
    views = [name for name in values if values[name].home == "alias" and name.startswith("L00.")]
    wholes = sorted({values[name].parent for name in views})
    assert {"L00.mlp.g", "L00.mlp.u"} <= set(views)
    heard: list[dict[str, Tensor]] = []
    with engine.observe([*views, *wholes, "tokens"], lambda start, found: heard.append(found)):
        engine.logits([5, 6, 7])
    (found,) = heard
    for name in views:
        view = values[name]
        whole = found[view.parent].flatten(1)
        begin, width = view.start, found[name][0].numel()
        assert torch.equal(found[name].flatten(1), whole[:, begin : begin + width]), name
    assert found["tokens"].tolist() == [5, 6, 7]


def test_more_sequences_than_a_step_has_rows_for_go_in_turns() -> None:
    """20 sequences with draft blocks of 8 rows would be 160 rows; a step has 128."""
    engine = emulated(overrides=("limits.sequences=20", "limits.context=128"))
    assert engine.decoder.most_sequences == 16
    prompts = [[5 + place, 6, 7][: 1 + place % 3] for place in range(17)]
    done = engine.generate_batch(prompts, 3, speculation="tree", ignore_eos=True)
    for place in (0, 15, 16):
        alone = engine.generate(prompts[place], 3, speculation="off", ignore_eos=True)
        assert done[place].output_ids == alone.output_ids
