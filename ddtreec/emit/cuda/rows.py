"""Stages that work on whole rows: norms, sums, rotations, copies. One block a row."""

from __future__ import annotations

from ddtreec.artifacts.kernels import Dim
from ddtreec.emit.cuda.base import ONE, Entry, KernelDraft, Param, Site, StageDraft, Tensor

ROWS = Dim(by=("rows",))


def threads_for(width: int) -> int:
    """Threads of a block that walks `width` elements: a power of two, 32 .. 512, about eight elements a thread."""
    threads = 32
    while threads < 512 and threads * 8 < width:
        threads *= 2
    return threads


def rms_norm_stage(name: str, x: Tensor, w: Tensor, y: Tensor, eps: float) -> StageDraft:
    """y = RMSNorm(x) * w over the last axis of x [rows, (heads,) n]."""
    n = x.tail[-1]
    return StageDraft(
        name=name,
        body="rms_norm",
        include="rows.cuh",
        constants={"kNorm": n, "kXStride": x.stride, "kYStride": y.stride, "kEps": eps},
        params=(
            Param("const ddt::bf16*", "x", x.arg),
            Param("const ddt::bf16*", "w", w.arg),
            Param("ddt::bf16*", "y", y.arg),
            Param("int", "rows", "int:rows"),
        ),
        entries=(Entry(128, (ROWS, Dim(x.width // n), ONE), threads_for(n)),),
    )


def rms_norm(site: Site) -> KernelDraft:
    """The launch `rms_norm`."""
    (y,), (x,), (w,) = site.outs, site.ins, site.weights
    stage = rms_norm_stage("rms_norm", x, w, y, site.real("eps"))
    runs = x.width // x.tail[-1]
    heads = f"_h{runs}" if runs > 1 else ""
    name = f"rms_norm__n{x.tail[-1]}{heads}_x{x.stride}_y{y.stride}"
    return KernelDraft(name, f"RMSNorm over {x.tail[-1]} elements", (stage,))
