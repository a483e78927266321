"""Launches that are products and what stands before them: norms, sums, gated activations, rotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ddtreec.artifacts.kernels import Dim, Scratch
from ddtreec.core.errors import VerifyError
from ddtreec.emit.cuda.base import Constant, KernelDraft, Param, Site, StageDraft, Tensor, tiles
from ddtreec.emit.cuda.gemm import linear_scratch, linear_stage
from ddtreec.emit.cuda.ropes import GROUP, POSITIONS, VALID, turns
from ddtreec.emit.cuda.rows import (
    INPUT,
    OUTPUT,
    WEIGHT,
    add_norm_stage,
    label,
    rms_norm_stage,
    swiglu_stage,
    take_norm_stage,
    vector_of,
)


def held(name: str, width: int, count: str = "rows") -> tuple[Tensor, Scratch]:
    """bfloat16 [rows, width] that a stage hands to a later one of its kernel."""
    return Tensor(f"scratch:{name}", (width,), width), Scratch(name, Dim(2 * width, by=(count,)))


def product(site: Site, x: Tensor, w: Tensor, y: Tensor, count: str = "rows") -> StageDraft:
    """y = x w^T for a weight [N, K], x and y without gaps inside a row."""
    outputs, inputs = w.tail
    if x.width != inputs or y.width != outputs or x.run != x.tail[-1] or y.run != y.tail[-1]:
        raise VerifyError("emit", site.call.node, f"a weight {list(w.tail)} between {list(x.tail)} and {list(y.tail)}")
    most = site.most[count]
    return linear_stage(
        "linear", x, w.arg, y, outputs=outputs, inputs=inputs, device=site.device, most=most, count=count
    )


def spelt(site: Site, *tensors: Tensor, eps: Sequence[float] = (), count: str = "rows") -> str:
    """What tells kernels of one kind apart: shapes of the weights, strides, alignment, rows."""
    shapes = [("w", "x".join(map(str, w.tail))) for w in site.weights if len(w.tail) > 1]
    words = [name + text for name, text in shapes]
    numbers = [("s", t.stride) for t in tensors]
    numbers += [("p", t.run) for t in tensors if t.run != t.tail[-1]]
    numbers += [("f", 32) for t in tensors if t.dtype == "float32"]
    numbers += [("v", vector_of(*tensors)), ("m", tiles(site.most[count])[-1])]
    return "_".join((*words, label(*numbers, *(("e", value) for value in eps))))


def described(w: Tensor) -> str:
    """A weight in words."""
    return f"{w.tail[-2]} x {w.tail[-1]} product"


def linear(site: Site) -> KernelDraft:
    """The launch `linear`."""
    (y,), (x,), (w,) = site.outs, site.ins, site.weights
    stage = product(site, x, w, y)
    return KernelDraft(f"linear__{spelt(site, x, y)}", described(w), (stage,), linear_scratch(stage))


def norm_linear(site: Site) -> KernelDraft:
    """The launch `norm_linear`: RMSNorm, then a product of it."""
    (y,), (x,), (scales, w), eps = site.outs, site.ins, site.weights, site.real("eps")
    h, scratch = held("h", x.width)
    stages = (rms_norm_stage("rms_norm", x, scales, h, eps), product(site, h, w, y))
    name = f"norm_linear__{spelt(site, x, y, eps=(eps,))}"
    return KernelDraft(name, f"RMSNorm and {described(w)}", stages, (scratch, *linear_scratch(*stages)))


def take_norm_linear(site: Site) -> KernelDraft:
    """The launch `take_norm_linear`: rows that the step asks for, their RMSNorm, and a product of it."""
    (y,), (x,), (scales, w), eps = site.outs, site.ins, site.weights, site.real("eps")
    h, scratch = held("h", x.width, "out_rows")
    stages = (take_norm_stage("take_norm", x, scales, h, eps), product(site, h, w, y, count="out_rows"))
    name = f"take_norm_linear__{spelt(site, x, y, eps=(eps,), count='out_rows')}"
    summary = f"Rows by index, their RMSNorm and {described(w)}"
    return KernelDraft(name, summary, stages, (scratch, *linear_scratch(*stages)))


def add_norm_linear(site: Site) -> KernelDraft:
    """The launch `add_norm_linear`: the sum of the residual stream, its RMSNorm, and a product of that. The sum is an
    output where others read it."""
    *sums, y = site.outs
    (a, b), (scales, w), eps = site.ins, site.weights, site.real("eps")
    h, scratch = held("h", a.width)
    total, inner = (sums[0], ()) if sums else held("sum", a.width)
    stages = (add_norm_stage("add_norm", a, b, total, scales, h, eps), product(site, h, w, y))
    name = f"add_norm_linear__{spelt(site, a, b, *sums, y, eps=(eps,))}"
    needs = (scratch, *((inner,) if inner else ()), *linear_scratch(*stages))
    return KernelDraft(name, f"Sum of two rows, its RMSNorm and {described(w)}", stages, needs)


def swiglu_linear(site: Site) -> KernelDraft:
    """The launch `swiglu_linear`: the gated activation, then a product of it. Blocks of the product each read all
    activations; the exponentials of all of them in every block would take longer than the weights."""
    (y,), (gate, up), (w,) = site.outs, site.ins, site.weights
    act, scratch = held("act", w.tail[-1])
    stages = (swiglu_stage(gate, up, act), product(site, act, w, y))
    summary = f"Gated activation and {described(w)}"
    name = f"swiglu_linear__{spelt(site, gate, up, y)}"
    return KernelDraft(name, summary, stages, (scratch, *linear_scratch(*stages)))


def v_up(site: Site) -> KernelDraft:
    """The launch `v_up`: a product for every head."""
    (o,), (o_c,), (w,) = site.outs, site.ins, site.weights
    heads, outputs, inputs = w.tail
    most = site.most["rows"]
    stage = linear_stage(
        "v_up", o_c, w.arg, o, outputs=outputs, inputs=inputs, heads=heads, device=site.device, most=most
    )
    return KernelDraft(f"v_up__{spelt(site, o_c, o)}", f"{heads} times {described(w)}", (stage,), linear_scratch(stage))


def absorb_stage(site: Site, q: Tensor, w: Tensor, q_c: Tensor) -> StageDraft:
    """q_c [rows, heads, kv_lora] = q [rows, heads, nope ..] W_uk of every head. The weight [heads, nope, kv_lora] must
    lie in memory as [heads, kv_lora, nope] ('transposed')."""
    heads, nope, kv_lora = w.tail
    most, device = site.most["rows"], site.device
    return linear_stage(
        "absorb", q, w.arg, q_c, outputs=kv_lora, inputs=nope, heads=heads, device=device, most=most, split=False
    )


def index(w: Tensor) -> int:
    """The number of an operand."""
    return int(w.arg.removeprefix("t:"))


def q_absorb(site: Site) -> KernelDraft:
    """The launch `q_absorb`."""
    (q_c,), (q,), (w,) = site.outs, site.ins, site.weights
    stage = absorb_stage(site, q, w, q_c)
    heads, nope, kv_lora = w.tail
    summary = f"{heads} times {kv_lora} x {nope} product"
    name = f"q_absorb__{spelt(site, q, q_c)}"
    return KernelDraft(name, summary, (stage,), layouts={index(w): "transposed"})


def absorb_rope_stage(site: Site, q: Tensor, w: Tensor, q_c: Tensor, q_rot: Tensor) -> StageDraft:
    """`absorb_stage`, and beside it the last elements of every head of q turned at the positions of the rows."""
    stage = absorb_stage(site, q, w, q_c)
    rope = site.plan.ropes[site.word("table")]
    constants: dict[str, Constant] = {
        **stage.constants,
        "kDim": q_rot.tail[-1],
        "kHalf": rope.layout == "half",
        "kRotStride": q_rot.stride,
        "kRotHead": q_rot.run,
    }
    params = (
        Param(INPUT, "q", q.arg),
        Param(WEIGHT, "w", w.arg),
        turns(site.word("table")),
        POSITIONS,
        VALID,
        Param(OUTPUT, "q_c", q_c.arg),
        Param(OUTPUT, "q_rot", q_rot.arg),
        Param("int", "rows", "int:rows"),
        GROUP,
    )
    entries = tuple(
        replace(entry, grid=(Dim(entry.grid[0].times + int(entry.constants["kRows"]) // 8), *entry.grid[1:]))
        for entry in stage.entries
    )
    return replace(stage, body="absorb_rope", include="absorb.cuh", constants=constants, params=params, entries=entries)


def q_b_absorb_rope(site: Site) -> KernelDraft:
    """The launches `q_b_absorb_rope` (with a norm first) and `q_absorb_rope`: queries of all heads, their first part
    absorbed into latent space and the rest turned. Every head of q is nope | rope."""
    (x,), (*scales, w, w_uk) = site.ins, site.weights
    heads, nope, kv_lora = w_uk.tail
    q_rot, q_c = site.outs if site.outs[1].tail[-1] == kv_lora else site.outs[::-1]
    width = w.tail[0] // heads
    if (q_rot.tail, q_c.tail, width) != ((heads, width - nope), (heads, kv_lora), nope + q_rot.tail[-1]):
        raise VerifyError("emit", site.call.node, f"{heads} heads of {width} give {q_rot.tail} and {q_c.tail}")
    eps = [site.real("eps") for _ in scales]
    stages: list[StageDraft] = []
    needs: list[Scratch] = []
    for norm in scales:
        h, scratch = held("h", x.width)
        stages.append(rms_norm_stage("rms_norm", x, norm, h, eps[0]))
        needs.append(scratch)
        x = h
    q, scratch = held("q", w.tail[0])
    needs.append(scratch)
    stages.append(product(site, x, w, q))
    stages.append(absorb_rope_stage(site, replace(q, tail=(heads, nope), pitch=width), w_uk, q_c, q_rot))
    needs += linear_scratch(*stages)
    table = site.word("table").replace(".", "_")
    words = spelt(site, site.ins[0], q_rot, q_c, eps=eps)
    summary = f"{'RMSNorm, ' if scales else ''}{described(w)}, {heads} heads absorbed and turned"
    name = f"{site.call.kernel}__{words}_{site.plan.ropes[site.word('table')].layout}_{table}"
    return KernelDraft(name, summary, tuple(stages), tuple(needs), {index(w_uk): "transposed"})
