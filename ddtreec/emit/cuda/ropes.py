"""Stages that rotate heads or append tokens to the caches (rope.cuh). One block a row, one warp a head."""

from __future__ import annotations

from collections.abc import Mapping

from ddtreec.artifacts.kernels import Dim
from ddtreec.artifacts.plan import Plan, Rope
from ddtreec.emit.cuda.base import MOST_ROWS, ONE, Constant, Entry, KernelDraft, Param, Site, StageDraft, Tensor
from ddtreec.emit.cuda.rows import INPUT, INTS, OUTPUT, ROWS, VECTOR, WEIGHT, label, threads_for, vector_of
from ddtreec.emit.cuda.state import context_layers, room_of

WARP = 32
MOST_WARPS = 16
TURNS = "const float2*"

POSITIONS = Param(INTS, "positions", "state:positions")
PAGES = Param(INTS, "pages", "state:pages")
COMMITTED = Param(INTS, "committed", "state:committed")
VALID = Param(INTS, "valid", "state:valid")
LATENT = Param(OUTPUT, "latent", "state:latent")
CONTEXT = Param(OUTPUT, "context", "state:context")
LAYER = Param("int", "layer", "param:layer")
GROUP = Param("int", "group", "int:group")


def turns(table: str) -> Param:
    """The array of a rotary table."""
    return Param(TURNS, "table", f"state:rope_{table.replace('.', '_')}")


def pairs_of(rope: Rope, *tensors: Tensor) -> int:
    """Pairs that a lane holds: as many as one access of all operands has, or two accesses half a run apart."""
    vector = vector_of(*tensors)
    if rope.layout == "interleaved":
        return VECTOR // 2 if vector > 1 else 1
    return vector if rope.dim // 2 % vector == 0 else 1


def heads_of(x: Tensor) -> int:
    """Runs of the last axis in a row."""
    return x.width // x.tail[-1]


def head_stage(
    name: str,
    body: str,
    rope: Rope,
    pairs: int,
    heads: int,
    params: tuple[Param, ...],
    constants: Mapping[str, Constant],
    *,
    threads: int = 0,
    blocks: int = 1,
) -> StageDraft:
    """A stage with a warp for every head; `blocks` of a row, `threads` where heads do not say how many."""
    threads = threads or WARP * min(heads, MOST_WARPS)
    shape: dict[str, Constant] = {
        "kDim": rope.dim,
        "kHeads": heads,
        "kPairs": pairs,
        "kHalf": rope.layout == "half",
        "kThreads": threads,
    }
    entry = Entry(MOST_ROWS, (ROWS, Dim(blocks), ONE), threads)
    return StageDraft(name, body, "rope.cuh", {**shape, **constants}, params, (entry,))


def rope_stage(name: str, x: Tensor, y: Tensor, table: str, rope: Rope) -> StageDraft:
    """y = x [rows, (heads,) dim] turned at the positions of the rows. `table`: the name of `rope` in the plan."""
    strides = {"kXStride": x.stride, "kXPitch": x.run, "kYStride": y.stride, "kYPitch": y.run}
    params = (Param(INPUT, "x", x.arg), turns(table), POSITIONS, VALID, Param(OUTPUT, "y", y.arg), GROUP)
    return head_stage(name, "rope", rope, pairs_of(rope, x, y), heads_of(x), params, strides)


def rope_label(rope: Rope, pairs: int) -> tuple[tuple[str, int], ...]:
    """What a table adds to the name of a kernel; the table itself is named beside it."""
    return ((f"{rope.layout}", rope.dim), ("p", pairs))


def rope(site: Site) -> KernelDraft:
    """The launch `rope`."""
    (y,), (x,), table = site.outs, site.ins, site.word("table")
    turned = site.plan.ropes[table]
    stage = rope_stage("rope", x, y, table, turned)
    tail = label(("h", heads_of(x)), ("x", x.stride), ("xp", x.run), ("y", y.stride), ("yp", y.run))
    name = f"rope__{table.replace('.', '_')}_{label(*rope_label(turned, pairs_of(turned, x, y)))}_{tail}"
    return KernelDraft(name, f"Rotary embedding of {heads_of(x)} x {turned.dim} elements", (stage,))


def norm_rope(site: Site) -> KernelDraft:
    """The launch `norm_rope`: a norm a head, then the rotation."""
    (y,), (x,), (w,), table, eps = site.outs, site.ins, site.weights, site.word("table"), site.real("eps")
    turned = site.plan.ropes[table]
    strides = {"kXStride": x.stride, "kXPitch": x.run, "kYStride": y.stride, "kYPitch": y.run, "kEps": eps}
    params = (
        Param(INPUT, "x", x.arg),
        Param(WEIGHT, "w", w.arg),
        turns(table),
        POSITIONS,
        VALID,
        Param(OUTPUT, "y", y.arg),
        GROUP,
    )
    pairs = pairs_of(turned, x, y)
    stage = head_stage("norm_rope", "norm_rope", turned, pairs, heads_of(x), params, strides)
    tail = label(("h", heads_of(x)), ("x", x.stride), ("xp", x.run), ("y", y.stride), ("yp", y.run), ("e", eps))
    name = f"norm_rope__{table.replace('.', '_')}_{label(*rope_label(turned, pairs))}_{tail}"
    return KernelDraft(name, f"RMSNorm and rotary embedding of {heads_of(x)} heads", (stage,))


def latent_constants(plan: Plan) -> dict[str, Constant]:
    """Where the latents of a token lie (cache.cuh, latent_at)."""
    room = room_of(plan)
    width = next(cache.width for cache in plan.caches if cache.kind == "latent")
    tokens = room.sequences * room.pages * room.page
    return {"kPage": room.page, "kPages": room.pages, "kTokens": tokens, "kLatent": width}


def latent_label(plan: Plan) -> tuple[tuple[str, int], ...]:
    """What the cache adds to the name of a kernel."""
    room = room_of(plan)
    return (("page", room.page), ("pages", room.pages), ("slots", room.sequences))


def latent_append(site: Site) -> KernelDraft:
    """The launch `latent_append`."""
    c, k = site.ins
    cache = latent_constants(site.plan)
    constants = {"kWidth": c.width, "kCStride": c.stride, "kKStride": k.stride} | cache
    params = (Param(INPUT, "c", c.arg), Param(INPUT, "k", k.arg), PAGES, COMMITTED, VALID, LATENT, LAYER, GROUP)
    threads = threads_for(c.width + k.width, 1)
    entry = Entry(MOST_ROWS, (ROWS, ONE, ONE), threads)
    stage = StageDraft(
        "latent_append", "latent_append", "rope.cuh", {"kThreads": threads} | constants, params, (entry,)
    )
    name = label(("c", c.width), ("k", k.width), ("cs", c.stride), ("ks", k.stride), *latent_label(site.plan))
    return KernelDraft(f"latent_append__{name}", "Writes the latents of a step into the paged cache", (stage,))


def kv_norm_rope_append(site: Site) -> KernelDraft:
    """The launch `kv_norm_rope_append`: the latent normed, its key turned, both written into the paged cache."""
    (c, k), (w,), table, eps = site.ins, site.weights, site.word("table"), site.real("eps")
    turned = site.plan.ropes[table]
    assert c.tail == w.tail and k.tail == (turned.dim,), "the launch names the latent before the key"
    cache = latent_constants(site.plan)
    # Rows of the cache are [latent, key]; the key must begin where an access may.
    row = Tensor("", (c.width,), c.width + k.width)
    vector, pairs = vector_of(c, row), pairs_of(turned, k, row)
    constants: dict[str, Constant] = {"kWidth": c.width, "kVector": vector, "kCStride": c.stride}
    constants |= {"kKStride": k.stride, "kEps": eps} | cache
    params = (
        Param(INPUT, "c", c.arg),
        Param(INPUT, "k", k.arg),
        Param(WEIGHT, "w", w.arg),
        turns(table),
        POSITIONS,
        PAGES,
        COMMITTED,
        VALID,
        LATENT,
        LAYER,
        GROUP,
    )
    threads = threads_for(c.width, vector)
    stage = head_stage(
        "kv_norm_rope_append", "norm_rope_latent", turned, pairs, 1, params, constants, threads=threads, blocks=2
    )
    tail = label(
        ("c", c.width), ("v", vector), ("cs", c.stride), ("ks", k.stride), *latent_label(site.plan), ("e", eps)
    )
    name = f"kv_norm_rope_append__{table.replace('.', '_')}_{label(*rope_label(turned, pairs))}_{tail}"
    return KernelDraft(name, "RMSNorm of the latent, rotary embedding of its key, both into the paged cache", (stage,))


def context_constants(plan: Plan, heads: int, dim: int) -> dict[str, Constant]:
    """Where keys and values of a token lie (cache.cuh, context_at)."""
    room = room_of(plan)
    tokens = ", ".join(str(count) for _, count in context_layers(plan, room))
    return {"Layers": f"ddt::ContextLayers<{tokens}>", "kSlots": room.sequences, "kHeads": heads, "kDim": dim}


def context_label(plan: Plan) -> str:
    """What the context adds to the name of a kernel."""
    room = room_of(plan)
    return "_".join([*(f"t{count}" for _, count in context_layers(plan, room)), f"slots{room.sequences}"])


def context_append(site: Site) -> KernelDraft:
    """The launch `context_append`."""
    k, v = site.ins
    heads, dim = k.tail
    strides = {"kKStride": k.stride, "kKPitch": k.run, "kVStride": v.stride, "kVPitch": v.run}
    threads = threads_for(heads * dim, 1)
    constants = {"kThreads": threads} | strides | context_constants(site.plan, heads, dim)
    params = (Param(INPUT, "k", k.arg), Param(INPUT, "v", v.arg), POSITIONS, VALID, CONTEXT, LAYER, GROUP)
    entry = Entry(MOST_ROWS, (ROWS, ONE, ONE), threads)
    stage = StageDraft("context_append", "context_append", "rope.cuh", constants, params, (entry,))
    tail = label(("h", heads), ("d", dim), ("k", k.stride), ("kp", k.run), ("v", v.stride), ("vp", v.run))
    name = f"context_append__{tail}_{context_label(site.plan)}"
    return KernelDraft(name, "Appends keys and values to the drafter's context", (stage,))


def norm_rope_append(site: Site) -> KernelDraft:
    """The launch `norm_rope_append`: keys normed and turned, with their values into the drafter's context."""
    (k, v), (w,), table, eps = site.ins, site.weights, site.word("table"), site.real("eps")
    turned = site.plan.ropes[table]
    heads, dim = k.tail
    assert (dim,) == w.tail, "the launch names keys before values"
    pairs = pairs_of(turned, k, v)
    strides = {"kKStride": k.stride, "kKPitch": k.run, "kVStride": v.stride, "kVPitch": v.run, "kEps": eps}
    params = (
        Param(INPUT, "k", k.arg),
        Param(INPUT, "v", v.arg),
        Param(WEIGHT, "w", w.arg),
        turns(table),
        POSITIONS,
        VALID,
        CONTEXT,
        LAYER,
        GROUP,
    )
    constants = strides | context_constants(site.plan, heads, dim)
    stage = head_stage("norm_rope_append", "norm_rope_context", turned, pairs, heads, params, constants)
    tail = label(("h", heads), ("k", k.stride), ("kp", k.run), ("v", v.stride), ("vp", v.run), ("e", eps))
    name = f"norm_rope_append__{table.replace('.', '_')}_{label(*rope_label(turned, pairs))}_{tail}"
    name = f"{name}_{context_label(site.plan)}"
    return KernelDraft(name, "RMSNorm and rotary embedding of keys, with values into the drafter's context", (stage,))
