"""What an engine on CUDA devices must say: dtype, rows of a step, and the facts its kernels are made for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtreec.core.errors import SpecError
from ddtreec.spec.load import load_engine

TINY = "tiny-k2-h200-x1"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["dtype=float32"], ("bfloat16, not in float32", "topology=cpu")),
        (["dtype=float64"], ("bfloat16, not in float64",)),
        (["limits.chunk=129"], ("a chunk of 129 rows", "at most 128")),
        (["drafter.block_size=129"], ("a block of 129 rows",)),
        (["topology.device.sms=null"], ("without `sms`", "sms: 132")),
        (["topology.device.shared_memory=null"], ("without `shared_memory`", "99KiB")),
        (["topology.device.arch=null"], ("without `arch`", "arch: sm_90")),
        (["topology.device.arch=hopper"], ("`hopper` is no CUDA arch", "sm_120")),
        (["topology.device.arch=sm_80"], ("need sm_90 or newer, not sm_80",)),
    ],
)
def test_what_cuda_kernels_cannot_be_made_for(overrides: list[str], words: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as caught:
        load_engine(TINY, overrides)
    problems = [p for p in caught.value.problems if p.code == "S044"]
    text = "\n".join(problem.render() for problem in problems)
    assert len(problems) == 1 and problems[0].help, text
    for word in words:
        assert word in text, text


def test_the_cpu_takes_every_dtype_and_chunk() -> None:
    for dtype in ("float32", "float64", "bfloat16"):
        load_engine("tiny-k2-cpu", [f"dtype={dtype}", "limits.chunk=512"])
    load_engine(TINY, ["topology=cpu", "dtype=float32"])


def test_several_problems_come_together(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load_engine("tiny-k2-cpu", ["topology=h200-x1", "limits.chunk=200"])
    assert [p.code for p in caught.value.problems] == ["S044", "S044"]
