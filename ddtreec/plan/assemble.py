"""Puts the plan together: what the passes decided, and the facts of the specs a runtime needs. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddtreec.artifacts.plan import (
    PLAN_FORMAT,
    Cache,
    Drafter,
    Limits,
    MemoryRow,
    Mesh,
    Model,
    Plan,
    Program,
    Rope,
    Tree,
    Weight,
)
from ddtreec.spec.load import LoadedEngine
from ddtreec.spec.schema import ModelSpec

def layer_count(model: ModelSpec) -> int:
    """Layers of the stack, all repeats together."""
    return sum(item.repeat or 0 for item in model.stack)


def assemble(
    loaded: LoadedEngine,
    *,
    mesh: Mesh,
    tree: Tree,
    buckets: Sequence[int],
    ropes: Mapping[str, Rope],
    caches: Sequence[Cache],
    weights: Sequence[Weight],
    programs: Sequence[Program],
    memory: Sequence[MemoryRow],
    layout: Mapping[str, str],
    sizes: tuple[int, int],
) -> Plan:
    """The plan. `sizes`: vocabulary and hidden width of the target, as its graph has them."""
    model, limits, drafter = loaded.model, loaded.engine.limits, loaded.drafter
    vocab, hidden = sizes
    contract = None
    if drafter is not None:
        contract = Drafter(
            name=drafter.name,
            block=drafter.block_size,
            mask_token=drafter.mask_token,
            taps=drafter.taps,
            hidden=drafter.target.hidden,
            layers=sum(cache.kind == "context" for cache in caches),
        )
    return Plan(
        format=PLAN_FORMAT,
        engine=loaded.engine.name,
        backend=loaded.topology.backend,
        topology=loaded.topology.name,
        dtype=loaded.engine.dtype,
        mesh=mesh,
        model=Model(
            name=model.name,
            vocab=vocab,
            hidden=hidden,
            layers=layer_count(model),
            positions=model.positions,
            eos=model.tokens.eos,
            bos=model.tokens.bos,
            pad=model.tokens.pad,
        ),
        limits=Limits(limits.context, limits.sequences, limits.chunk, limits.page),
        buckets=tuple(buckets),
        ropes=dict(ropes),
        caches=tuple(caches),
        weights=tuple(weights),
        programs=tuple(programs),
        tree=tree,
        drafter=contract,
        memory=tuple(memory),
        layout=dict(layout),
    )
