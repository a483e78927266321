"""Small engines for tests of the passes: facts to specs, as the shipped ones are made, without files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from ddtreec.core.errors import Loc, Problem
from ddtreec.ops.base import At, Op, TensorType
from ddtreec.spec.drafter_graph import drafter_text
from ddtreec.spec.facts import DrafterFacts, RouterFacts, TargetFacts, YarnFacts
from ddtreec.spec.graphs import model_text
from ddtreec.spec.schema import DrafterSpec, ModelSpec, Packing, QuantSpec

TARGET = TargetFacts(
    name="small", hidden=24, vocab=36, layers=3, dense=1, heads=4, q_lora=12, kv_lora=8, nope=4, rope=4, v=4, inter=24,
    router=RouterFacts(
        experts=8, top_k=3, groups=1, top_groups=1, inter=12, shared=1, score="sigmoid", normalize=True, scale=2.5,
        bias=True,
    ),
    eps=1e-5, latent_eps=1e-6, positions=64, eos=(1,), bos=0, pad=None, theta=10000.0,
    yarn=YarnFacts(factor=4.0, original_positions=16, mscale=1.0, mscale_all_dim=1.0),
)  # fmt: skip

DRAFTER = DrafterFacts(
    name="small-dflash", hidden=24, vocab=36, heads=4, kv_heads=2, head_dim=6, inter=24,
    layers=((None, False), (5, True)),
    eps=1e-5, theta=10000.0, block_size=4, mask_token=35, taps=(0, 2), target_layers=3, target_hidden=24,
)  # fmt: skip


@dataclass(frozen=True)
class SmallEngine:
    """What expand and shard ask of a loaded engine; places are spelt as paths, such as `model:blocks.mlp.ops.3`."""

    model: ModelSpec
    quant: QuantSpec
    drafter: DrafterSpec | None = None

    def problem(self, code: str, message: str, kind: str, path: tuple[Any, ...] = (), **more: Any) -> Problem:
        more.pop("key", None)
        return Problem(code, message, Loc(f"{kind}:{'.'.join(map(str, path))}"), **more)


def frozen(data: Any) -> Any:
    """Lists to tuples, as the spec reader gives them."""
    if isinstance(data, dict):
        return {key: frozen(value) for key, value in data.items()}
    return tuple(map(frozen, data)) if isinstance(data, list) else data


def target_data(facts: TargetFacts = TARGET) -> dict[str, Any]:
    return yaml.safe_load(model_text(facts))


def drafter_data(facts: DrafterFacts = DRAFTER) -> dict[str, Any]:
    return yaml.safe_load(drafter_text(facts))


def engine_of(model: dict[str, Any], drafter: dict[str, Any] | None = None, **roles: Packing) -> SmallEngine:
    """An engine of plain data; `roles` of the quant spec."""
    return SmallEngine(
        ModelSpec.model_validate(frozen(model)),
        QuantSpec(kind="quant", version=1, name="quant", roles=roles),
        DrafterSpec.model_validate(frozen(drafter)) if drafter is not None else None,
    )


def engine(target: TargetFacts = TARGET, drafter: DrafterFacts | None = DRAFTER, **roles: Packing) -> SmallEngine:
    """An engine of facts."""
    return engine_of(target_data(target), drafter_data(drafter) if drafter else None, **roles)


@dataclass
class Price:
    """A made-up device: seconds by bytes and FLOPs, and a price for collectives that tests turn up and down."""

    link: float = 1e-6
    at: At = field(default_factory=lambda: At(4, 4, 16, 8))

    def price(self, op: Op, ins: tuple[TensorType, ...]) -> float:
        cost = op.cost(ins, self.at)
        return 1e-9 + cost.bytes / 1e9 + cost.flops / 1e10

    def collective(self, kind: str, size: float) -> float:
        return self.link * (1.5 if kind == "all_reduce" else 1.0) * (1.0 + size / 1e3)


INT4 = Packing(packing="int4", group=4)
FLAT = replace(TARGET, q_lora=None, dense=0)
"""Without a query latent and without a dense layer."""
