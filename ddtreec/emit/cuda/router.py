"""The launches that choose experts: logits of every row, then the best of them."""

from __future__ import annotations

import math

from ddtreec.artifacts.kernels import Dim, Scratch
from ddtreec.core.errors import VerifyError
from ddtreec.emit.cuda.base import MOST_ROWS, ONE, Constant, Entry, KernelDraft, Param, Site, StageDraft, Tensor, tiles
from ddtreec.emit.cuda.gemm import linear_stage, plane_count, plane_rows
from ddtreec.emit.cuda.rows import INPUT, ROWS, add_norm_stage, label

LOGITS = "logits"
WARPS = 8
"""Experts of a block where the weights are float32."""

WIDEST = 32
"""Most groups, and most experts a row chooses: each has a lane."""


def logits_stage(site: Site, x: Tensor, w: Tensor) -> tuple[StageDraft, int]:
    """Logits of all experts in scratch, float32 [planes][plane rows][experts], and the number of planes."""
    experts, inputs = w.tail
    y = Tensor(f"scratch:{LOGITS}", (experts,), experts, "float32")
    (record,) = (r for r in site.records if r.shape == w.tail)
    if record.bytes == 2 * math.prod(record.shape):
        most = site.most["rows"]
        stage = linear_stage(
            LOGITS, x, w.arg, y, outputs=experts, inputs=inputs, device=site.device, most=most, leave=True
        )
        return stage, plane_count(stage)
    constants: dict[str, Constant] = {"kExperts": experts, "kInputs": inputs, "kXStride": x.stride}
    params = (
        Param(INPUT, "x", x.arg),
        Param("const float*", "w", w.arg),
        Param("float*", "y", y.arg),
        Param("int", "rows", "int:rows"),
    )
    entry = Entry(MOST_ROWS, (Dim(-(-experts // WARPS)), ONE, ONE), 32 * WARPS)
    return StageDraft(LOGITS, "router_logits", "router.cuh", constants, params, (entry,)), 1


def choose_stage(site: Site, planes: int, experts: int, bias: Tensor | None, ids: Tensor, w: Tensor) -> StageDraft:
    """The best experts of every row and their weights."""
    constants: dict[str, Constant] = {
        "kExperts": experts,
        "kTopK": site.whole("top_k"),
        "kGroups": site.whole("groups"),
        "kTopGroups": site.whole("top_groups"),
        "kSigmoid": site.word("score") == "sigmoid",
        "kNormalize": site.params["normalize"] is True,
        "kScale": site.real("scale"),
        "kPlanes": planes,
        "kPlaneRows": plane_rows(site.most["rows"]),
    }
    params = [Param("const float*", "logits", f"scratch:{LOGITS}")]
    if bias:
        params.append(Param("const float*", "bias", bias.arg))
    params += [Param("ddt::i64*", "ids", ids.arg), Param("float*", "w", w.arg)]
    entry = Entry(MOST_ROWS, (ROWS, ONE, ONE), 32)
    return StageDraft("choose", "choose_experts", "router.cuh", constants, tuple(params), (entry,))


def choice(
    site: Site, x: Tensor, ids: Tensor, w: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[tuple[StageDraft, ...], Scratch, str]:
    """Stages that choose experts by x [rows, n], their scratch, and what tells them apart."""
    experts, groups, top_k = weight.tail[0], site.whole("groups"), site.whole("top_k")
    if groups > WIDEST or top_k > WIDEST:
        reason = f"{top_k} experts out of {groups} groups: a kernel has lanes for {WIDEST}"
        raise VerifyError("emit", site.call.node, reason)
    logits, planes = logits_stage(site, x, weight)
    most = site.most["rows"]
    words = label(
        ("n", experts),
        ("k", weight.tail[1]),
        ("x", x.stride),
        ("top", top_k),
        ("of", groups),
        ("by", site.whole("top_groups")),
        ("c", site.real("scale")),
        ("m", tiles(most)[-1]),
    )
    words += f"_{site.word('score')}" + ("_norm" if site.params["normalize"] else "") + ("_bias" if bias else "")
    words += "_f32" if logits.body == "router_logits" else ""
    stages = (logits, choose_stage(site, planes, experts, bias, ids, w))
    return stages, Scratch(LOGITS, Dim(4 * planes * plane_rows(most) * experts)), words


def router(site: Site) -> KernelDraft:
    """The launch `router`."""
    (ids, w), (x,), (weight, *bias) = site.outs, site.ins, site.weights
    stages, scratch, words = choice(site, x, ids, w, weight, bias[0] if bias else None)
    summary = f"{site.whole('top_k')} of {weight.tail[0]} experts"
    return KernelDraft(f"router__{words}", summary, stages, (scratch,))


def add_norm_router(site: Site) -> KernelDraft:
    """The launch `add_norm_router`: the sum of the residual stream, its RMSNorm, and the experts that this chooses. The
    sum and the norm are outputs: a block of experts reads the norm, the next block the sum."""
    *streams, ids, w = site.outs
    (a, b), (scales, weight, *bias), eps = site.ins, site.weights, site.real("eps")
    if len(streams) != 2:
        raise VerifyError("emit", site.call.node, "nobody else reads the sum, or the norm")
    y, h = streams
    stages, scratch, words = choice(site, h, ids, w, weight, bias[0] if bias else None)
    strides = label(("a", a.stride), ("b", b.stride), ("y", y.stride), ("e", eps))
    first = add_norm_stage("add_norm", a, b, y, scales, h, eps)
    summary = f"Sum of two rows, its RMSNorm and {site.whole('top_k')} of {weight.tail[0]} experts"
    return KernelDraft(f"add_norm_router__{words}_{strides}", summary, (first, *stages), (scratch,))
