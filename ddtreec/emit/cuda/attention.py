"""Attention: of the target to its latent cache, of the drafter to its context and the block itself.

Two launches: `attend` leaves a partial result for every split of the keys, `merge` puts them together. How many splits
there are is a function of the device and of the class of the row count; which keys a split has, of the length with the
rows of the step. So a row's last bits depend on how many rows its step has (`Kernel.alike` is False): one order of sums
for all would need as many splits in every step, which `latent_classes` says the price of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ddtreec.artifacts.kernels import Dim, Scratch
from ddtreec.core.errors import Problem, SpecError
from ddtreec.emit.cuda.base import Constant, Device, Entry, KernelDraft, Param, Site, StageDraft, Tensor
from ddtreec.emit.cuda.gemm import linear_scratch, linear_stage
from ddtreec.emit.cuda.state import context_layers, room_of

TILE, PAIRS, WARP = 32, 16, 32
"""Keys of a tile, pairs of a matrix product (kTile of cuh/attention.cuh), threads of a warp."""

BLOCK_CLASSES: Mapping[int, int] = {8: 1, 32: 2, 128: 8}
"""Drafter steps of up to so many rows divide the splits by this: partial results grow with rows times splits."""

SHARED = 96 * 1024
"""Most dynamic shared memory of a block: what every device that we emit for has."""

MERGE_THREADS = 256
"""Threads of a block of the merge (kMergeThreads of cuh/attention.cuh)."""

LATENT_THREADS = 256
"""Threads of a block of absorbed attention (kThreads of LatentShape)."""

BLOCK_STAGES, BLOCK_ROWS = 3, 64
"""Tiles in flight and pairs of a block of the drafter's attention."""


@dataclass(frozen=True, slots=True)
class Class:
    """One variant: steps of up to `rows` rows, `pairs` a block, `splits` of the keys, `stages` tiles in flight."""

    rows: int
    pairs: int
    splits: int
    stages: int


def latent_classes(device: Device, heads: int, width: int, most: int) -> tuple[Class, ...]:
    """Variants for `heads` heads over rows of `width` elements. What fits one product takes one, all else two. The
    blocks of a step with the most rows of a class are one wave: measured on an H200 for 8 to 512 pairs, half as many
    splits take up to twice as long, and twice as many pay for their merge."""
    bounds = {PAIRS // heads, *(n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n >= 8 or n * heads >= 4 * PAIRS)} - {0}
    found: dict[tuple[int, int], Class] = {}
    for rows in covering(sorted(bounds), most):
        pairs = PAIRS if rows * heads <= PAIRS else 2 * PAIRS
        splits = max(1, device.sms // -(-rows * heads // pairs))
        found[pairs, splits] = Class(rows, pairs, splits, latent_stages(pairs, width))
    return tuple(found.values())


def covering(bounds: Iterable[int], most: int) -> tuple[int, ...]:
    """The bounds that steps of up to `most` rows need."""
    bounds = tuple(bounds)
    return bounds[: 1 + sum(bound < most for bound in bounds)]


def latent_shared(pairs: int, width: int, stages: int) -> int:
    """Bytes of LatentRoom: `stages` tiles of rows padded to whole steps and 8 elements; four quarters of scores,
    weights and a factor a pair."""
    pitch = -(-width // 16) * 16 + 8
    return stages * TILE * pitch * 2 + pairs * (4 * (TILE + 8) * 4 + (TILE + 8) * 2 + 4)


def latent_stages(pairs: int, width: int) -> int:
    """Tiles in flight, two to four."""
    return next((n for n in (4, 3) if latent_shared(pairs, width, n) <= SHARED), 2)


def attention_stages(site: Site, y: Tensor) -> tuple[tuple[StageDraft, StageDraft], tuple[Scratch, ...], str]:
    """Absorbed MLA attention of the call's q_c, q_rot to the latent cache, written to y [rows, heads, kv_lora]: stages,
    their scratch, and what tells them from others in a kernel's name. Raises SpecError for widths without kernel."""
    plan, (q_c, q_rot) = site.plan, site.ins[:2]
    heads, lora = q_c.tail
    rope = q_rot.tail[-1]
    need(lora % 8 == 0 and lora <= 512, site, f"kv_lora {lora}", "a multiple of 8, at most 512")
    need(rope % 8 == 0 and rope <= 64, site, f"{rope} turned elements of a key", "a multiple of 8, at most 64")
    pages = room_of(plan).pages
    classes = latent_classes(site.device, heads, lora + rope, site.most["rows"])
    constants: dict[str, Constant] = {
        "kHeads": heads,
        "kLora": lora,
        "kRope": rope,
        "kCStride": q_c.stride,
        "kRotStride": q_rot.stride,
        "kPage": plan.limits.page,
        "kPagesPerSlot": pages,
        "kTokens": plan.limits.sequences * pages * plan.limits.page,
        "kWindow": 0,
        "kScale": site.real("scale"),
    }
    attend = StageDraft(
        name="attend",
        body="latent_attention",
        include="latent_attention.cuh",
        constants=constants,
        params=(
            Param("const ddt::bf16*", "q_c", q_c.arg),
            Param("const ddt::bf16*", "q_rot", q_rot.arg),
            Param("const ddt::bf16*", "latent", "state:latent"),
            Param("const int*", "pages", "state:pages"),
            Param("const int*", "committed", "state:committed"),
            Param("const int*", "valid", "state:valid"),
            Param("const ddt::u32*", "masks", "state:masks"),
            Param("float*", "sums", "scratch:sums"),
            Param("float2*", "marks", "scratch:marks"),
            Param("int", "layer", "param:layer"),
            Param("int", "group", "int:group"),
        ),
        entries=tuple(
            Entry(
                c.rows,
                (Dim(c.splits), Dim(heads, ("group",), c.pairs), Dim(by=("slots",))),
                threads=LATENT_THREADS,
                shared=latent_shared(c.pairs, lora + rope, c.stages),
                constants={"kPairs": c.pairs, "kSplits": c.splits, "kStages": c.stages},
            )
            for c in classes
        ),
    )
    splits = {c.rows: c.splits for c in classes}
    spelt = f"h{heads}_l{lora}_r{rope}"
    if (q_c.stride, q_rot.stride) != (heads * lora, heads * rope):
        spelt += f"_q{q_c.stride}_{q_rot.stride}"
    scales = scales_of(site)
    spelt += f"_s{scales.index(site.real('scale'))}" if len(scales) > 1 else ""
    merge = merge_stage(y, heads, lora, 0, splits, attend.include)
    return (attend, merge), split_scratch(heads, lora, splits, site.most["rows"]), spelt


def scales_of(site: Site) -> list[float]:
    """The different scales of the calls of this kind, since layers of a model may differ in nothing else."""
    calls = [call for program in site.plan.programs for call in program.calls if call.kernel == site.call.kernel]
    return sorted({float(str(call.params["scale"])) for call in calls})


def merge_stage(y: Tensor, heads: int, width: int, window: int, splits: Mapping[int, int], include: str) -> StageDraft:
    """y [rows, heads, width] from the partial results of `splits` splits, by the most rows of a variant. `include`: the
    header of the attention before it, which includes the body."""
    lanes = merge_lanes(width)
    return StageDraft(
        name="merge",
        body="merge_splits",
        include=include,
        constants={"kHeads": heads, "kWidth": width, "kYStride": y.stride, "kWindow": window},
        params=(
            Param("const float*", "sums", "scratch:sums"),
            Param("const float2*", "marks", "scratch:marks"),
            Param("const int*", "committed", "state:committed"),
            Param("const int*", "valid", "state:valid"),
            Param("ddt::bf16*", "y", y.arg),
            Param("int", "group", "int:group"),
        ),
        entries=tuple(
            Entry(
                rows,
                (Dim(heads, ("group",)), Dim(by=("slots",)), Dim(-(-width // (4 * lanes)))),
                threads=MERGE_THREADS,
                constants={"kSplits": count, "kLanes": lanes},
            )
            for rows, count in splits.items()
        ),
    )


def merge_lanes(width: int) -> int:
    """Threads of a merge's block that take neighbouring columns, four each: 32, or a power of two >= width / 4."""
    return next((n for n in (8, 16) if 4 * n >= width), WARP)


def split_scratch(heads: int, width: int, splits: Mapping[int, int], most: int) -> tuple[Scratch, ...]:
    """Float32 [slots][splits][pairs] of sums [width] and of (highest score, sum of weights)."""
    places = heads * max(min(rows, most) * count for rows, count in splits.items())
    return Scratch("sums", Dim(places * width * 4)), Scratch("marks", Dim(places * 8))


def latent_attention(site: Site) -> KernelDraft:
    """The launch `latent_attention`."""
    stages, scratch, spelt = attention_stages(site, site.outs[0])
    return KernelDraft(
        f"latent_attention__{spelt}",
        "Absorbed MLA attention over the paged latent cache: partial results of split keys, then their merge",
        stages,
        scratch,
        alike=False,
    )


def latent_attention_v_up(site: Site) -> KernelDraft:
    """The launch `latent_attention_v_up`: W_uv takes every head's merged latents to its values."""
    (y,), (q_c, _), (w,) = site.outs, site.ins, site.weights
    heads, v, lora = w.tail
    merged = Tensor("scratch:o_c", (heads, lora), heads * lora)
    stages, scratch, spelt = attention_stages(site, merged)
    most = site.most["rows"]
    up = linear_stage("v_up", merged, w.arg, y, outputs=v, inputs=lora, heads=heads, device=site.device, most=most)
    assert q_c.tail == (heads, lora)
    return KernelDraft(
        f"latent_attention_v_up__{spelt}_v{v}",
        "Absorbed MLA attention over the paged latent cache, then W_uv a head: partial results of split keys, their "
        "merge, the product",
        (*stages, up),
        (*scratch, Scratch("o_c", Dim(2 * heads * lora, ("rows",))), *linear_scratch(up)),
        alike=False,
    )


def block_attention(site: Site) -> KernelDraft:
    """The launch `block_attention`. Layers of one window that follow each other share it."""
    (y,), (q, k, v) = site.outs, site.ins
    (heads, dim), kv_heads, window, layer = q.tail, k.tail[0], site.whole("window"), site.whole("layer")
    need(dim % 8 == 0 and dim <= 128, site, f"head_dim {dim} of the drafter", "a multiple of 8, at most 128")
    layers, slots = context_layers(site.plan, room_of(site.plan)), site.plan.limits.sequences
    offset, tokens = layers[layer]
    base = offset // (2 * kv_heads * dim) - layer * slots * tokens
    share, causal = heads // kv_heads, bool(site.params["causal"])
    whole = max(1, site.device.sms // 2)
    splits = {rows: max(1, whole // BLOCK_CLASSES[rows]) for rows in covering(BLOCK_CLASSES, site.most["rows"])}
    pitch = -(-dim // 16) * 16 + 8
    attend = StageDraft(
        name="attend",
        body="block_attention",
        include="block_attention.cuh",
        constants={
            "kHeads": heads,
            "kKvHeads": kv_heads,
            "kDim": dim,
            "kQStride": q.stride,
            "kKStride": k.stride,
            "kVStride": v.stride,
            "kSlots": slots,
            "kTokens": tokens,
            "kBase": base,
            "kWindow": window,
            "kCausal": causal,
            "kScale": site.real("scale"),
            "kRows": BLOCK_ROWS,
            "kStages": BLOCK_STAGES,
        },
        params=(
            Param("const ddt::bf16*", "q", q.arg),
            Param("const ddt::bf16*", "k", k.arg),
            Param("const ddt::bf16*", "v", v.arg),
            Param("const ddt::bf16*", "context", "state:context"),
            Param("const int*", "committed", "state:committed"),
            Param("const int*", "valid", "state:valid"),
            Param("float*", "sums", "scratch:sums"),
            Param("float2*", "marks", "scratch:marks"),
            Param("int", "layer", "param:layer"),
            Param("int", "group", "int:group"),
        ),
        entries=tuple(
            Entry(
                rows,
                (Dim(count), Dim(share, ("group",), BLOCK_ROWS), Dim(kv_heads, ("slots",))),
                threads=BLOCK_ROWS // PAIRS * WARP,
                shared=BLOCK_STAGES * 2 * TILE * pitch * 2,
                constants={"kSplits": count},
            )
            for rows, count in splits.items()
        ),
    )
    words = [f"h{heads}", f"kv{kv_heads}", f"d{dim}", f"t{tokens}", f"w{window}"]
    words += ["causal"] if causal else []
    words += [f"b{base}".replace("-", "m")] if base else []
    words += [f"q{q.stride}_{k.stride}_{v.stride}"]
    return KernelDraft(
        f"block_attention__{'_'.join(words)}",
        f"Attention of the drafter, {heads} heads over {kv_heads}: partial results of split keys, then their merge",
        (attend, merge_stage(y, heads, dim, window, splits, attend.include)),
        split_scratch(heads, dim, splits, site.most["rows"]),
        alike=False,
    )


def need(served: bool, site: Site, what: str, how: str) -> None:
    """Raises SpecError: the kernels do not serve a width."""
    if not served:
        raise SpecError(
            Problem(
                "S063",
                f"{site.call.node}: there is no CUDA kernel for {what}; it must be {how}",
                help="choose a topology with backend: cpu for this model",
            )
        )
