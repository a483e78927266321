"""Puts the plan together: what the passes decided, and the facts of the specs a runtime needs. Decides nothing."""

from __future__ import annotations

from ddtreec.artifacts.plan import PLAN_FORMAT, Drafter, Limits, Model, Plan
from ddtreec.passes.state import State
from ddtreec.spec.load import LoadedEngine


def assemble(state: State) -> Plan:
    """The plan of a state that went through all passes."""
    loaded, done, placed, programs = state.loaded, state.schedule, state.placed, state.programs
    assert done is not None and placed is not None and programs is not None
    limits = loaded.engine.limits
    return Plan(
        format=PLAN_FORMAT,
        engine=loaded.engine.name,
        backend=loaded.topology.backend,
        topology=loaded.topology.name,
        dtype=loaded.engine.dtype,
        mesh=state.mesh,
        model=model_facts(state),
        limits=Limits(limits.context, limits.sequences, limits.chunk, limits.page),
        buckets=done.buckets,
        ropes=dict(programs.ropes),
        caches=placed.caches,
        weights=placed.weights,
        programs=placed.programs,
        tree=done.tree,
        drafter=drafter_contract(loaded, sum(cache.kind == "context" for cache in placed.caches)),
        memory=placed.table,
        layout=dict(state.layout),
    )


def model_facts(state: State) -> Model:
    """Sizes as the target's graph has them, tokens and limits as the spec says."""
    assert state.programs is not None
    model, target = state.loaded.model, state.programs.graphs["target"]
    return Model(
        name=model.name,
        vocab=target.types[target.outputs[0]].tail[0],
        hidden=target.types[target.layer_outputs[0]].tail[0],
        layers=len(target.layer_outputs),
        positions=model.positions,
        eos=model.tokens.eos,
        bos=model.tokens.bos,
        pad=model.tokens.pad,
    )


def drafter_contract(loaded: LoadedEngine, layers: int) -> Drafter | None:
    """What the runtime must know of the drafter, None without one. `layers`: how many keep a context cache."""
    drafter = loaded.drafter
    if drafter is None:
        return None
    return Drafter(
        name=drafter.name,
        block=drafter.block_size,
        mask_token=drafter.mask_token,
        taps=drafter.taps,
        hidden=drafter.target.hidden,
        layers=layers,
    )
