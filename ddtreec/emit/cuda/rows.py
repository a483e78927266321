"""Stages that work on whole rows: sums, norms, copies. One block a row.

Those that others put in front of a product (`rms_norm_stage`, `add_norm_stage`, `take_norm_stage`) write a value that
may be scratch: a `Tensor('scratch:h', (n,), n)`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ddtreec.artifacts.kernels import Dim
from ddtreec.emit.cuda.base import MOST_ROWS, ONE, Constant, Entry, KernelDraft, Param, Site, StageDraft, Tensor

ROWS = Dim(by=("rows",))

INPUT, OUTPUT, WEIGHT = "const ddt::bf16*", "ddt::bf16*", "const ddt::bf16*"
INTS = "const int*"

VECTOR = 8
"""bfloat16 elements of a 16-byte access."""

HELD = 4
"""Accesses whose elements a thread of a wide row holds."""


def vector_of(*tensors: Tensor) -> int:
    """Elements of one access that all these operands allow: 8 where widths, strides and starts are multiples."""
    sizes = [n for t in tensors for n in (t.tail[-1], t.stride, t.run, t.start)]
    return VECTOR if all(n % VECTOR == 0 for n in sizes) else 1


def threads_for(width: int, vector: int) -> int:
    """Threads of a block that holds a row of `width` elements: a multiple of 32, as few steps as 512 threads take, or
    1024 where those would hold too much."""
    accesses = -(-width // vector)
    most = 512 if accesses <= 512 * HELD else 1024
    each = -(-accesses // most)
    return -(-accesses // each // 32) * 32


def label(*parts: tuple[str, int | float]) -> str:
    """What tells a kernel from others of its kind: names and numbers, 'n7168_e1em05'."""
    return "_".join(name + f"{value:g}".replace("-", "m").replace("+", "").replace(".", "p") if isinstance(value, float)
                    else f"{name}{value}" for name, value in parts)  # fmt: skip


def row_stage(
    name: str,
    body: str,
    width: int,
    strides: Mapping[str, int],
    params: tuple[Param, ...],
    vector: int,
    *,
    heads: int = 1,
    count: str = "rows",
    more: Mapping[str, Constant] | None = None,
) -> StageDraft:
    """A stage of rows.cuh with a block for every row (and head). `strides`: constants in elements; `more`: others."""
    threads = threads_for(width, vector)
    shape: dict[str, Constant] = {"kWidth": width, "kVector": vector, "kThreads": threads}
    rows = Dim(by=(count,))
    entry = Entry(MOST_ROWS, (rows, Dim(heads), ONE), threads)
    return StageDraft(name, body, "rows.cuh", {**shape, **strides, **(more or {})}, params, (entry,), count=count)


def add_stage(name: str, a: Tensor, b: Tensor, y: Tensor) -> StageDraft:
    """y = a + b, all [rows, n]."""
    strides = {"kAStride": a.stride, "kBStride": b.stride, "kYStride": y.stride}
    params = (Param(INPUT, "a", a.arg), Param(INPUT, "b", b.arg), Param(OUTPUT, "y", y.arg))
    return row_stage(name, "add", y.width, strides, params, vector_of(a, b, y))


def rms_norm_stage(name: str, x: Tensor, w: Tensor, y: Tensor, eps: float) -> StageDraft:
    """y = RMSNorm(x) * w over the last axis of x [rows, (heads,) n]."""
    n = x.tail[-1]
    strides = {"kXStride": x.stride, "kXPitch": x.run, "kYStride": y.stride, "kYPitch": y.run}
    params = (Param(INPUT, "x", x.arg), Param(WEIGHT, "w", w.arg), Param(OUTPUT, "y", y.arg))
    return row_stage(
        name, "rms_norm", n, strides, params, vector_of(x, y), heads=x.width // n, more={"kEps": float(eps)}
    )


def add_norm_stage(name: str, a: Tensor, b: Tensor, y: Tensor, w: Tensor, h: Tensor, eps: float) -> StageDraft:
    """y = a + b and h = RMSNorm(y) * w, all [rows, n]; the norm is that of the rounded y."""
    strides = {"kAStride": a.stride, "kBStride": b.stride, "kYStride": y.stride, "kHStride": h.stride}
    params = (
        Param(INPUT, "a", a.arg),
        Param(INPUT, "b", b.arg),
        Param(WEIGHT, "w", w.arg),
        Param(OUTPUT, "y", y.arg),
        Param(OUTPUT, "h", h.arg),
    )
    return row_stage(name, "add_norm", y.width, strides, params, vector_of(a, b, y, h), more={"kEps": float(eps)})


def take_norm_stage(name: str, x: Tensor, w: Tensor, h: Tensor, eps: float) -> StageDraft:
    """h [out_rows, n] = RMSNorm of the rows of x [rows, n] that the state's out_index names. Counts out_rows."""
    strides = {"kXStride": x.stride, "kHStride": h.stride}
    params = (
        Param(INPUT, "x", x.arg),
        Param(WEIGHT, "w", w.arg),
        Param(INTS, "index", "state:out_index"),
        Param(OUTPUT, "h", h.arg),
        Param("int", "rows", "int:rows"),
    )
    more: Mapping[str, Constant] = {"kEps": float(eps)}
    return row_stage(name, "take_norm", x.width, strides, params, vector_of(x, h), count="out_rows", more=more)


def swiglu_stage(gate: Tensor, up: Tensor, y: Tensor) -> StageDraft:
    """y = silu(gate) * up, all [rows, n]."""
    strides = {"kGateStride": gate.stride, "kUpStride": up.stride, "kYStride": y.stride}
    params = (Param(INPUT, "gate", gate.arg), Param(INPUT, "up", up.arg), Param(OUTPUT, "y", y.arg))
    return row_stage("swiglu", "swiglu", y.width, strides, params, vector_of(gate, up, y))


def rms_norm(site: Site) -> KernelDraft:
    """The launch `rms_norm`."""
    (y,), (x,), (w,), eps = site.outs, site.ins, site.weights, site.real("eps")
    n, heads = x.tail[-1], x.width // x.tail[-1]
    pitches = (("xp", x.run), ("yp", y.run)) if heads > 1 else ()
    name = label(("n", n), ("h", heads), ("x", x.stride), ("y", y.stride), *pitches, ("v", vector_of(x, y)), ("e", eps))
    stage = rms_norm_stage("rms_norm", x, w, y, eps)
    return KernelDraft(f"rms_norm__{name}", f"RMSNorm over {n} elements", (stage,))


def add(site: Site) -> KernelDraft:
    """The launch `add`."""
    (y,), (a, b) = site.outs, site.ins
    name = label(("n", y.width), ("a", a.stride), ("b", b.stride), ("y", y.stride), ("v", vector_of(a, b, y)))
    return KernelDraft(f"add__{name}", f"Sum of two rows of {y.width} elements", (add_stage("add", a, b, y),))


def add_norm(site: Site) -> KernelDraft:
    """The launch `add_norm`: the residual stream and what the next block reads of it."""
    (y, h), (a, b), (w,), eps = site.outs, site.ins, site.weights, site.real("eps")
    strides = (("a", a.stride), ("b", b.stride), ("y", y.stride), ("h", h.stride))
    name = label(("n", y.width), *strides, ("v", vector_of(a, b, y, h)), ("e", eps))
    stage = add_norm_stage("add_norm", a, b, y, w, h, eps)
    return KernelDraft(f"add_norm__{name}", f"Sum of two rows of {y.width} elements and its RMSNorm", (stage,))


def embedding(site: Site) -> KernelDraft:
    """The launch `embedding`. The runtime parameter `first`: number of the first token that the rank holds."""
    (x,), (tokens,), (table,) = site.outs, site.ins, site.weights
    held, width = table.tail
    params = (
        Param(INTS, "tokens", tokens.arg),
        Param(WEIGHT, "table", table.arg),
        Param(OUTPUT, "x", x.arg),
        Param("int", "first", "param:first"),
    )
    vector = vector_of(x)
    stage = row_stage("embedding", "embedding", width, {"kXStride": x.stride}, params, vector, more={"kTokens": held})
    name = label(("t", held), ("n", width), ("x", x.stride), ("v", vector))
    return KernelDraft(f"embedding__{name}", f"Embeddings of {held} tokens, {width} elements each", (stage,))


def tap(site: Site) -> KernelDraft:
    """The launch `tap`. The runtime parameter `index`: which columns of the features."""
    (features,), (x,) = site.outs, site.ins
    params = (
        Param(INPUT, "x", x.arg),
        Param(OUTPUT, "features", features.arg),
        Param("int", "index", "param:index"),
    )
    vector = vector_of(x, features)
    strides = {"kXStride": x.stride, "kYStride": features.stride}
    stage = row_stage("tap", "tap", x.width, strides, params, vector)
    name = label(("n", x.width), ("x", x.stride), ("y", features.stride), ("v", vector))
    return KernelDraft(f"tap__{name}", f"Copies {x.width} columns into the features of the drafter", (stage,))


def take_rows(site: Site) -> KernelDraft:
    """The launch `take_rows`."""
    (y,), (x,) = site.outs, site.ins
    params = (
        Param(INPUT, "x", x.arg),
        Param(INTS, "index", "state:out_index"),
        Param(OUTPUT, "y", y.arg),
        Param("int", "rows", "int:rows"),
    )
    vector = vector_of(x, y)
    strides = {"kXStride": x.stride, "kYStride": y.stride}
    stage = row_stage("take_rows", "take_rows", x.width, strides, params, vector, count="out_rows")
    name = label(("n", x.width), ("x", x.stride), ("y", y.stride), ("v", vector))
    return KernelDraft(f"take_rows__{name}", f"Rows of {x.width} elements by index", (stage,))


def swiglu(site: Site) -> KernelDraft:
    """The launch `swiglu`."""
    (y,), (gate, up) = site.outs, site.ins
    vector = vector_of(gate, up, y)
    name = label(("n", y.width), ("g", gate.stride), ("u", up.stride), ("y", y.stride), ("v", vector))
    return KernelDraft(f"swiglu__{name}", f"Gated activation of {y.width} elements", (swiglu_stage(gate, up, y),))
