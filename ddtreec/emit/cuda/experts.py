"""The routed experts of a rank, alone or with a shared expert beside them: two stages, weights in tiles of 16 rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ddtreec.artifacts.kernels import Dim, Scratch
from ddtreec.core.errors import Problem, SpecError
from ddtreec.emit.cuda.base import ONE, Constant, Device, Entry, KernelDraft, Param, Site, StageDraft, tiles

GROUP = 32
"""Inputs of one INT4 scale."""

CHUNK = {"int4": 128, "dense": 64}
"""Inputs of one tile of 16 rows, by packing (Int4Tile, Bf16Tile)."""

TILE_BYTES = {"int4": 1152, "dense": 2048}
"""Bytes of one."""

TILE_ROWS, HALF_ROWS = 16, 8
"""Rows of a tile of `down`; gates, and ups, of a tile of `gate_up`."""

LAYOUTS = ("gate_up_tiles", "tiles")
"""Layouts of gate_up and of down; see ddtreec_runtime.backends.cuda.layouts."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the sums depend on. `experts`: held by the rank; `shared`: inner width of the shared expert, 0 without;
    `rounded`: INT4 weights are rounded to bfloat16 before the product; `shared_warps` share the inputs of the shared
    `down`."""

    experts: int
    top_k: int
    hidden: int
    inter: int
    shared: int
    packing: str
    rounded: bool
    shared_warps: int = 0

    @property
    def tile(self) -> str:
        """The C++ type of a tile."""
        if self.packing == "int4":
            return f"ddt::Int4Tile<{'true' if self.rounded else 'false'}>"
        return "ddt::Bf16Tile"

    @property
    def name(self) -> str:
        """The part of a kernel's name that stands for it."""
        weights = ("int4" if self.rounded else "int4exact") if self.packing == "int4" else "bf16"
        shared = f"_s{self.shared}" if self.shared else ""
        return f"e{self.experts}_k{self.top_k}_h{self.hidden}_i{self.inter}{shared}_{weights}"

    @property
    def warps(self) -> int:
        """Warps that share the inputs of `gate_up`: a divisor of its chunks where there is a good one, at most 8."""
        chunks = -(-self.hidden // CHUNK[self.packing])
        return max((n for n in range(1, 9) if chunks % n == 0 and (n >= 4 or n == chunks)), default=8)


@dataclass(frozen=True, slots=True)
class Tiling:
    """What may differ from variant to variant: `tiles` row tiles of a warp, `cols` columns of 8 tokens, `ring` bytes of
    shared memory that a warp's weights come through, `blocks` a multiprocessor should hold, `warps` that share the
    inputs (first stage) or the routed experts (second stage), `shared_ring` for a warp of the shared expert (second
    stage). The first stage must have the same `warps` in all variants: the order of a sum depends on it."""

    tiles: int
    cols: int
    ring: int
    blocks: int
    warps: int
    shared_ring: int = 0


WIDE = 512
"""Inner width from which on a shared expert is worth two warps."""

ALONE = 1.3
"""How much longer a multiprocessor takes for the same work with one block of 8 warps than with two."""


def variants(most: int) -> tuple[int, ...]:
    """Rows that have a variant of their own."""
    return (1, *tiles(most))


def up_tiling(shape: Shape, rows: int) -> Tiling:
    """The first stage's tiling for steps of up to `rows` rows. Two tiles share the tokens that a warp reads."""
    cols = 1 if rows <= 8 else 2
    pair = shape.inter // HALF_ROWS % 2 == 0 and shape.packing == "int4" and (shape.rounded or cols == 1)
    return Tiling(2 if pair else 1, cols, (4 if cols == 1 else 3) * (2304 if pair else 2048), 2, shape.warps)


def down_tiling(shape: Shape, rows: int, device: Device) -> Tiling:
    """The second stage's tiling for steps of up to `rows` rows: the one that fills the device best, of equal ones that
    with the most tiles, which share the tokens that a warp reads, and with the deepest ring."""
    cols = 1 if rows <= 8 else 2
    row_tiles, plain = -(-shape.hidden // TILE_ROWS), shape.packing == "dense" or shape.rounded
    found: list[tuple[float, Tiling]] = []
    for count in (2, 1) if shape.packing == "int4" and row_tiles % 2 == 0 and (plain or cols == 1) else (1,):
        for depth in (4, 3, 2):
            blocks = 3 if count == cols == 1 and plain else 2
            tiling = _down(shape, count, cols, depth, blocks, 8 - shape.shared_warps)
            at_once = resident(down_shared(shape, rows, tiling), blocks, device)
            if at_once:
                stripes, slots = row_tiles // count, device.sms * at_once
                waste = -(-stripes // slots) * slots / stripes if stripes > slots else max(1.0, device.sms / stripes)
                found.append((waste * (1.0 if at_once > 1 else ALONE), tiling))
    if not found:  # as little as there can be
        return _down(shape, 1, cols, 2, 1, 4)
    return min(found, key=lambda each: each[0])[1]


def _down(shape: Shape, tiles: int, cols: int, depth: int, blocks: int, warps: int) -> Tiling:
    steps = depth * tiles
    beside = steps * TILE_BYTES["dense"] if shape.shared else 0
    return Tiling(tiles, cols, steps * TILE_BYTES[shape.packing], blocks, warps, beside)


def resident(shared: int, blocks: int, device: Device) -> int:
    """Blocks of `shared` bytes that a multiprocessor holds, at most `blocks`. It has 1 KiB more than one block may
    take, and keeps 1 KiB of every block for itself."""
    return min(blocks, (device.shared + 1024) // (shared + 1024))


def jobs_bytes(shape: Shape, rows: int, cols: int) -> int:
    """Size of the list of jobs (struct Jobs), at least."""
    pairs = rows * shape.top_k
    most = min(pairs, shape.experts) + pairs // (8 * cols)
    return 2 * (2 * pairs + 3 * most) + 4 * (shape.experts + 32) + 4


def up_shared(shape: Shape, rows: int, tiling: Tiling) -> int:
    """Shared memory of a block of the first stage: rings, the sums of all warps, jobs."""
    rooms = tiling.warps * (tiling.ring + tiling.tiles * tiling.cols * 512)
    return rooms + _whole(jobs_bytes(shape, rows, tiling.cols))


def down_shared(shape: Shape, rows: int, tiling: Tiling) -> int:
    """Shared memory of a block of the second stage: rings, a stripe of every pair and of the shared expert, shares,
    jobs."""
    pairs, stripe = rows * shape.top_k, 4 * TILE_ROWS * tiling.tiles
    parts = pairs + shape.shared_warps * rows + 1
    rings = tiling.warps * tiling.ring + shape.shared_warps * tiling.shared_ring + 16
    return rings + parts * stripe + _whole(4 * pairs + jobs_bytes(shape, rows, tiling.cols))


def _whole(size: int) -> int:
    return -(-size // 16) * 16


def up_stage(
    shape: Shape, params: tuple[Param, ...], x_stride: int, device: Device, tilings: Mapping[int, Tiling]
) -> StageDraft:
    """gate, up and SwiGLU: acts of every (row, k) pair whose expert is held, and of every row for the shared expert."""
    entries: list[Entry] = []
    for rows, tiling in tilings.items():
        width = 8 * tiling.cols
        jobs = min(rows * shape.top_k, shape.experts) + rows * shape.top_k // width
        items = shape.inter // (HALF_ROWS * tiling.tiles) * jobs + shape.shared // HALF_ROWS * -(-rows // width)
        shared = up_shared(shape, rows, tiling)
        grid = (Dim(min(items, device.sms * max(1, resident(shared, tiling.blocks, device)))), ONE, ONE)
        entries.append(Entry(rows, grid, tiling.warps * 32, shared, tiling.blocks, _variant(rows, tiling, shared)))
    constants = _constants(shape) | {"kXStride": x_stride}
    return StageDraft("experts_up", "experts_up", "experts.cuh", constants, params, tuple(entries))


def down_stage(shape: Shape, params: tuple[Param, ...], y_stride: int, tilings: Mapping[int, Tiling]) -> StageDraft:
    """down, the weighted sum over k, and the shared expert's down."""
    entries: list[Entry] = []
    for rows, tiling in tilings.items():
        grid = (Dim(-(-shape.hidden // (TILE_ROWS * tiling.tiles))), ONE, ONE)
        shared = down_shared(shape, rows, tiling)
        threads = (tiling.warps + shape.shared_warps) * 32
        own = _variant(rows, tiling, shared) | {"kSharedRing": tiling.shared_ring}
        entries.append(Entry(rows, grid, threads, shared, tiling.blocks, own))
    constants = _constants(shape) | {"kYStride": y_stride, "kSharedWarps": shape.shared_warps}
    return StageDraft("experts_down", "experts_down", "experts.cuh", constants, params, tuple(entries))


def _constants(shape: Shape) -> dict[str, Constant]:
    return {
        "Tile": shape.tile,
        "kExperts": shape.experts,
        "kTopK": shape.top_k,
        "kHidden": shape.hidden,
        "kInter": shape.inter,
        "kSharedInter": shape.shared,
    }


def _variant(rows: int, tiling: Tiling, shared: int) -> dict[str, Constant]:
    return {
        "kRows": rows,
        "kTiles": tiling.tiles,
        "kCols": tiling.cols,
        "kWarps": tiling.warps,
        "kRing": tiling.ring,
        "kShared": shared,
    }


def experts(site: Site) -> KernelDraft:
    """The launches `experts` and `experts_shared`. Raises SpecError for weights that have no tiles."""
    (y,), (x, ids, w) = site.outs, site.ins
    shape = shape_of(site)
    index = {"int64": "ddt::i64", "int32": "int"}[ids.dtype]
    first = Param("int", "first", "param:first")
    rows = Param("int", "rows", "int:rows")
    taken = Param(f"const {index}*", "ids", ids.arg)
    gate_up, down, *beside = (weight.arg for weight in site.weights)
    acts = Scratch("acts", Dim(2 * shape.top_k * shape.inter, ("rows",)))
    shared_acts = Scratch("shared_acts", Dim(2 * shape.shared, ("rows",)))

    def also(*params: Param) -> tuple[Param, ...]:
        return params if beside else ()

    shared_up, shared_down = beside or ("", "")
    up = up_stage(
        shape,
        (
            Param("const ddt::bf16*", "x", x.arg),
            taken,
            Param("const ddt::u8*", "gate_up", gate_up),
            *also(Param("const ddt::u8*", "shared_gate_up", shared_up)),
            Param("ddt::bf16*", "acts", "scratch:acts"),
            *also(Param("ddt::bf16*", "shared_acts", "scratch:shared_acts")),
            first,
            rows,
        ),
        x.stride,
        site.device,
        {n: up_tiling(shape, n) for n in variants(site.most["rows"])},
    )
    down_draft = down_stage(
        shape,
        (
            Param("const ddt::bf16*", "acts", "scratch:acts"),
            *also(Param("const ddt::bf16*", "shared_acts", "scratch:shared_acts")),
            taken,
            Param("const float*", "w", w.arg),
            Param("const ddt::u8*", "down", down),
            *also(Param("const ddt::u8*", "shared_down", shared_down)),
            Param("ddt::bf16*", "y", y.arg),
            first,
            rows,
        ),
        y.stride,
        {n: down_tiling(shape, n, site.device) for n in variants(site.most["rows"])},
    )
    strides = "" if x.stride == y.stride == shape.hidden else f"_x{x.stride}_y{y.stride}"
    wide = "" if ids.dtype == "int64" else f"_{ids.dtype}"
    before = len(site.outs) + len(site.ins)
    return KernelDraft(
        name=f"{site.call.kernel}__{shape.name}{strides}{wide}_m{max(variants(site.most['rows']))}",
        summary=f"{shape.experts} experts of {shape.inter}, {shape.top_k} a row"
        + (f", and a shared expert of {shape.shared}" if shape.shared else ""),
        stages=(up, down_draft),
        scratch=(acts, shared_acts) if beside else (acts,),
        layouts={before + n: LAYOUTS[n % 2] for n in range(len(site.weights))},
    )


def shape_of(site: Site) -> Shape:
    """Sizes and packing of a site. Raises SpecError where the kernels cannot serve them."""
    x, ids, _ = site.ins
    gate_up, down = site.records[:2]
    count, hidden, inter = site.weights[1].tail
    shared = site.weights[3].tail[-1] if len(site.weights) > 2 else 0
    beside = site.records[2:]
    node = site.call.node
    if (gate_up.packing, gate_up.group, gate_up.product) != (down.packing, down.group, down.product):
        raise _refused(node, "gate, up and down are packed in different ways", "give all three one packing")
    if gate_up.packing == "int4" and gate_up.group != GROUP:
        raise _refused(node, f"INT4 groups of {gate_up.group} inputs", f"pack in groups of {GROUP}")
    if any(record.packing != "dense" for record in beside):
        raise _refused(node, "a packed shared expert beside routed ones", "leave the shared expert in bfloat16")
    if hidden % 16 or inter % HALF_ROWS or shared % HALF_ROWS or x.stride % 8:
        sizes = f"hidden size {hidden}, expert width {inter}" + (f", shared width {shared}" if shared else "")
        raise _refused(node, sizes, "hidden sizes divide by 16 and widths by 8 on one rank")
    shape = Shape(count, ids.tail[0], hidden, inter, shared, gate_up.packing, gate_up.product == "bf16")
    return with_shared_warps(shape, site.most["rows"], site.device)


def with_shared_warps(shape: Shape, rows: int, device: Device) -> Shape:
    """Two warps for a wide shared expert where the steps of most rows leave room for what both have summed."""
    one = replace(shape, shared_warps=1 if shape.shared else 0)
    two, most = replace(shape, shared_warps=2), max(variants(rows))
    wide = shape.shared > WIDE and down_shared(two, most, down_tiling(two, most, device)) <= device.shared
    return two if wide else one


def _refused(node: str, what: str, way: str) -> SpecError:
    return SpecError(Problem("S064", f"{node}: no CUDA kernel for {what}", help=way))
