"""What holds for every kind of op: one file a kind, and strategies that are honest about shapes and weights."""

from __future__ import annotations

import importlib
import math
from dataclasses import replace

import pytest

from ddtreec.artifacts.plan import Mesh
from ddtreec.ops import KINDS, OPS, SPEC_OPS
from ddtreec.ops.base import At, Op, TensorType, placed
from ddtreec.ops.experts import most_of
from ddtreec.passes.absorb import absorb
from ddtreec.passes.expand import expand
from ddtreec.passes.fuse import fuse
from tests.passes.small import DRAFTER, FLAT, INT4, TARGET, engine

MESHES = [Mesh(2, 1, 2), Mesh(2, 2, 1), Mesh(4, 2, 2), Mesh(3, 1, 3)]


def cases() -> list[tuple[Op, tuple[TensorType, ...]]]:
    """Every op of small programs before and after absorb and fuse, once a kind and shape."""
    found: dict[tuple[object, ...], tuple[Op, tuple[TensorType, ...]]] = {}
    for small in (engine(experts=INT4), engine(FLAT, None), engine(replace(TARGET, heads=12, hidden=48), None)):
        expanded = expand(small)
        absorbed = expanded.mapped(absorb)
        for programs in (expanded, absorbed, absorbed.mapped(fuse)):
            for graph in programs.graphs.values():
                for node in graph:
                    ins = tuple(graph.types[v] for v in node.inputs)
                    found.setdefault((node.op.kind, ins, graph.name), (node.op, ins))
    return list(found.values())


CASES = cases()


def test_one_file_a_kind() -> None:
    assert len(KINDS) == len(OPS)
    for kind, op in KINDS.items():
        module = importlib.import_module(f"ddtreec.ops.{kind}")
        assert vars(module)[op.__name__] is op and op.__module__ == module.__name__
        assert (op.__doc__ and "->" in op.__doc__) or kind == "fused"


def test_the_cases_cover_every_kind_but_collectives() -> None:
    assert {op.kind for op, _ in CASES} == set(KINDS) - {"all_reduce", "all_gather"}


def test_spec_ops_are_those_of_the_architecture_table() -> None:
    assert sorted(SPEC_OPS) == sorted(
        [
            "embedding",
            "rms_norm",
            "linear",
            "split",
            "rope",
            "latent_append",
            "mla_attention",
            "add",
            "swiglu",
            "router",
            "experts",
            "take_rows",
            "context_append",
            "block_attention",
        ]
    )


@pytest.mark.parametrize(("op", "ins"), CASES, ids=lambda x: x.kind if isinstance(x, Op) else "")
@pytest.mark.parametrize("mesh", MESHES, ids=lambda m: f"{m.ep}x{m.tp}")
def test_strategies(op: Op, ins: tuple[TensorType, ...], mesh: Mesh) -> None:
    """The replicated one is there and changes nothing; each other gives the shapes its placements promise, and its
    weights are whole or one of as many equal slices as there are ranks."""
    found = op.strategies(ins, mesh)
    whole = [s for s in found if set(s.ins) <= {"R"} and set(s.outs) <= {"R"}]
    assert [s.op for s in whole] == [op]
    for strategy in found:
        assert len(strategy.ins) == len(ins)
        assert bool(strategy.question) == bool(strategy.answer)
        local = tuple(placed(t, p, mesh.ranks) for t, p in zip(ins, strategy.ins, strict=True))
        given = strategy.op.infer(local)
        assert given == tuple(placed(t, p, mesh.ranks) for t, p in zip(op.infer(ins), strategy.outs, strict=True))
        for one, all_of_it in zip(strategy.op.weights(), op.weights(), strict=True):
            count = math.prod(all_of_it.shape) / math.prod(one.shape)
            assert count in (1, mesh.ranks)
            assert one.bytes * count == all_of_it.bytes
            assert one.id == all_of_it.id


@pytest.mark.parametrize(("op", "ins"), CASES, ids=lambda x: x.kind if isinstance(x, Op) else "")
def test_costs(op: Op, ins: tuple[TensorType, ...]) -> None:
    """Costs are finite, never negative, and never shrink with rows or context."""
    small, more, longer = (op.cost(ins, at) for at in (At(1, 1, 64, 2), At(8, 8, 64, 2), At(1, 1, 512, 2)))
    for cost in (small, more, longer):
        assert all(0 <= n < math.inf for n in (cost.weight_bytes, cost.cache_bytes, cost.activation_bytes, cost.flops))
    assert more.bytes >= small.bytes and more.flops >= small.flops
    assert longer.bytes >= small.bytes and longer.flops >= small.flops


@pytest.mark.parametrize(("op", "ins"), CASES, ids=lambda x: x.kind if isinstance(x, Op) else "")
def test_infer_refuses_what_does_not_fit(op: Op, ins: tuple[TensorType, ...]) -> None:
    """An input with one more axis is refused with a reason, whatever the op (an add takes any two of one type)."""
    if op.kind in ("take_rows", "fused"):
        return  # the one takes any rows, the other refuses in the words of its parts
    wrong = replace(ins[0], shape=(*ins[0].shape, 7, 7))
    with pytest.raises(ValueError, match=r"expected|turns|no axis"):
        op.infer((wrong, *ins[1:]))


@pytest.mark.parametrize(("groups", "chance"), [(1, 0.25), (2, 0.1), (8, 0.02), (8, 0.9), (3, 1.0)])
def test_most_of_is_the_expected_maximum(groups: int, chance: float) -> None:
    """Against the definition, on a count small enough to sum over."""
    count = 12
    pmf = [math.comb(count, k) * chance**k * (1 - chance) ** (count - k) for k in range(count + 1)]
    below = [sum(pmf[: k + 1]) for k in range(count + 1)]
    wanted = sum(k * (below[k] ** groups - (below[k - 1] ** groups if k else 0.0)) for k in range(count + 1))
    assert most_of(count, chance, groups) == pytest.approx(wanted)


def test_the_drafter_is_in_the_cases() -> None:
    assert DRAFTER.kv_heads == 2 and any(op.kind == "block_attention" for op, _ in CASES)
