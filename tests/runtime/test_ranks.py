"""Virtual ranks in lockstep, and step programs bound to buffers."""

from __future__ import annotations

import pytest
import torch

from ddtreec.core.errors import VerifyError
from ddtreec_runtime.backends.cpu.kernels import KERNELS
from ddtreec_runtime.program import load_steps
from ddtreec_runtime.ranks import drive
from tests.runtime.engines import K26, bundle, engine, plan_of


def test_ranks_meet_at_collectives() -> None:
    log: list[str] = []

    def rank(number: int, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor):
        log.append(f"a{number}")
        x.fill_(number + 1)
        yield "all_reduce", (y,), (x,), {}
        log.append(f"b{number}")
        x.copy_(y * (number + 1))
        yield "all_gather", (z,), (x,), {"axis": 0}
        log.append(f"c{number}")

    buffers = [(torch.zeros(2), torch.zeros(2), torch.zeros(6)) for _ in range(3)]
    drive([rank(n, *of_rank) for n, of_rank in enumerate(buffers)], KERNELS)
    assert log == ["a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"]
    assert all(z.tolist() == [6, 6, 12, 12, 18, 18] for _, _, z in buffers)


def test_ranks_that_disagree_are_a_bug() -> None:
    def one():
        yield "all_reduce", (torch.zeros(1),), (torch.zeros(1),), {}

    def other():
        return
        yield

    with pytest.raises(VerifyError, match="all_reduce, the end"):
        drive([one(), other()], KERNELS)


def test_bundles_for_two_ranks_have_collectives() -> None:
    """Otherwise the two-rank goldens would show nothing."""
    plan = plan_of(bundle(K26 / "a-flat-8e", "cpu-x2"))
    kinds = {call.kernel for program in plan.programs for call in program.calls if call.collective}
    assert "all_reduce" in kinds
    assert any(part.shard for weight in plan.weights for part in weight.parts)


def test_steps_are_loaded_from_text_alone(tmp_path) -> None:
    module = load_steps(b"def target(k, w, b, state):\n    yield 1\n", str(tmp_path / "step.py"))
    assert list(module.target(None, None, None, None)) == [1]
    assert list(tmp_path.iterdir()) == []


def test_arena_grows_with_the_dtype() -> None:
    """A bundle planned for float32 runs in float64: the same program, an arena of twice the bytes."""
    sizes = {}
    for dtype in ("float32", "float64", "bfloat16"):
        program = engine(K26 / "a-flat-8e", dtype)._live().target.program
        assert program.poison
        sizes[dtype] = program.arenas[0].numel()
    assert sizes["float64"] == 2 * sizes["float32"]
    assert sizes["bfloat16"] == sizes["float32"]


def test_too_many_rows_are_refused() -> None:
    target = engine(K26 / "a-flat-8e")._fresh().target
    with pytest.raises(ValueError, match="takes"):
        target.step([1] * (target.max_rows + 1))
