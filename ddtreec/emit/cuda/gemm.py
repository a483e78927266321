"""Matrix products of few rows: the stage `linear_stage`. Which cut and which tiles a shape gets is decided here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ddtreec.artifacts.kernels import Dim, Scratch
from ddtreec.emit.cuda.base import ONE, Constant, Device, Entry, Param, StageDraft, Tensor, tiles
from ddtreec.emit.cuda.rows import INPUT, OUTPUT, VECTOR, WEIGHT, vector_of
from ddtreec.emit.cuda.state import TICKETS

STRIPE = 64
"""k of one 128-byte line of bfloat16 weights."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How K is summed: `slices` of interleaved stripes, `plane` slices to a plane. Follows from the shape alone, so
    that a row's sums are the same whatever else is in the step."""

    slices: int
    plane: int


@dataclass(frozen=True, slots=True)
class Tiling:
    """What may differ from variant to variant: `tiles` 16-row tiles a warp and `row_warps` warps over weight rows,
    `split` blocks over K, `serial` (a warp sums all slices of a block), `fetch` (weights are sent for into L2),
    `ahead` steps of weights in flight, `unit` token tiles loaded together and `units_ahead` such units in flight,
    `each_pass` token tiles summed at a time, `blocks` a multiprocessor should hold."""

    tiles: int = 1
    row_warps: int = 1
    split: int = 1
    serial: bool = False
    fetch: bool = False
    ahead: int = 4
    unit: int = 1
    units_ahead: int = 4
    each_pass: int = 1
    blocks: int = 1

    @property
    def rows(self) -> int:
        """Weight rows of a block."""
        return 16 * self.tiles * self.row_warps


def cut(inputs: int) -> Cut:
    """Slices that share the stripes evenly, two or more each, at most 16."""
    stripes = -(-inputs // STRIPE)
    even = [n for n in range(1, 17) if stripes % n == 0 and stripes // n >= 2]
    slices = max(even, default=1)
    if slices < 4 <= stripes // 2:
        slices = min(8, stripes // 2)
    return Cut(slices, slices // 4 if slices % 4 == 0 else slices // 2 if slices % 2 == 0 else slices)


def tiling(outputs: int, inputs: int, heads: int, rows: int, device: Device, may_split: bool = True) -> Tiling:
    """A tiling for steps of up to `rows` rows (one of ROW_TILES). Blocks that share a ticket have other blocks to fill
    at most half of the device, so that tickets are few."""
    slices, planes = cut(inputs).slices, cut(inputs).slices // cut(inputs).plane
    columns = rows // 8
    if rows <= 16:
        return Tiling(unit=columns, units_ahead=4, each_pass=columns, blocks=max(1, min(4, 16 // slices)))
    row_warps = 4 if rows >= 64 else 2
    split = 1
    while may_split and split < planes and -(-outputs // (16 * row_warps)) * heads * split * 2 <= device.sms:
        split *= 2
    while slices // split * row_warps > 16:
        row_warps //= 2
    return Tiling(
        row_warps=row_warps,
        split=split,
        unit=4,
        units_ahead=2 if rows == 32 else 4 if rows < 128 else 2,
        each_pass=min(columns, 4),
        blocks=1,
    )


def slice_warps(how: Cut, tile: Tiling) -> int:
    """Warps of a block over K."""
    return 1 if tile.serial else how.slices // tile.split


def shared_bytes(how: Cut, tile: Tiling) -> int:
    """Dynamic shared memory: the slices' sums of one pass (LinearShape::kShared)."""
    return slice_warps(how, tile) * tile.each_pass * 8 * (tile.rows + 4) * 4


def linear_stage(
    name: str,
    x: Tensor,
    w: str,
    y: Tensor,
    *,
    outputs: int,
    inputs: int,
    heads: int = 1,
    device: Device,
    most: int,
    up: Tensor | None = None,
    count: str = "rows",
    split: bool = True,
    leave: bool = False,
    tilings: Mapping[int, Tiling] | None = None,
) -> StageDraft:
    """y[r, h, n] = sum over k of x[r, h, k] w[h, n, k] for up to `most` rows; float32 sums, rounded once to y's dtype.

    `x`, `y`: bfloat16 (y float32 where its dtype says so); with heads > 1 a head is `run` elements behind the one
    before. `w`: arg of the weights, bfloat16 [heads, outputs, inputs] without gaps. With `up` the activations are
    silu(x) * up, both with the strides of x. `count`: symbol of the rows. `split`: whether K may be cut over blocks,
    which takes `linear_scratch`. With `leave` y is float32 [planes][rows][outputs] for the next stage to add up in
    order (`plane_count` planes, `plane_rows` rows apart). `tilings` by row tile take the place of `tiling`.
    """
    how = cut(inputs)
    chosen = {rows: tiling(outputs, inputs, heads, rows, device, split) for rows in tiles(most)}
    variants = {rows: (tilings or {}).get(rows, tile) for rows, tile in chosen.items()}
    cut_over_blocks = not leave and any(tile.split > 1 for tile in variants.values())
    wide = leave or y.dtype == "float32"
    params = [Param(INPUT, "gate" if up else "x", x.arg)]
    if up:
        params.append(Param(INPUT, "up", up.arg))
    params += [Param(WEIGHT, "w", w), Param("float*" if wide else OUTPUT, "planes" if leave else "y", y.arg)]
    if cut_over_blocks:
        params.append(Param("float*", "planes", f"scratch:{name}_planes"))
        params.append(Param("int*", "tickets", f"state:{TICKETS}"))
    params.append(Param("int", "rows", f"int:{count}"))
    constants: dict[str, Constant] = {
        "kOutputs": outputs,
        "kInputs": inputs,
        "kXStride": x.stride,
        "kXHead": x.run if heads > 1 else 0,
        "kYStride": y.stride,
        "kYHead": y.run if heads > 1 else 0,
        "kVector": VECTOR if inputs % VECTOR == 0 and vector_of(x, up or x) == VECTOR else 1,
        "kSlices": how.slices,
        "kPlane": how.plane,
        "kPlaneRows": plane_rows(most),
        "kLeave": leave,
    }
    return StageDraft(
        name=name,
        body="swiglu_linear" if up else "linear_planes" if leave else "linear",
        include="gemm.cuh",
        constants=constants,
        params=tuple(params),
        entries=tuple(_entry(rows, tile, how, outputs, heads) for rows, tile in variants.items()),
        count=count,
    )


def _entry(rows: int, tile: Tiling, how: Cut, outputs: int, heads: int) -> Entry:
    return Entry(
        rows=rows,
        grid=(Dim(-(-outputs // tile.rows)), Dim(heads) if heads > 1 else ONE, Dim(tile.split)),
        threads=32 * tile.row_warps * slice_warps(how, tile),
        shared=shared_bytes(how, tile),
        blocks=tile.blocks,
        constants={
            "kRows": rows,
            "kTiles": tile.tiles,
            "kRowWarps": tile.row_warps,
            "kSplit": tile.split,
            "kSerial": tile.serial,
            "kFetch": tile.fetch,
            "kAhead": tile.ahead,
            "kUnit": tile.unit,
            "kUnitsAhead": tile.units_ahead,
            "kPass": tile.each_pass,
        },
    )


def plane_count(inputs: int) -> int:
    """Partial sums of a product that `leave` leaves."""
    return cut(inputs).slices // cut(inputs).plane


def plane_rows(most: int) -> int:
    """Rows of one such plane in memory."""
    return tiles(most)[-1]


def linear_scratch(*stages: StageDraft) -> tuple[Scratch, ...]:
    """What stages that cut K over blocks hand from block to block: float32 [planes][heads][plane rows][outputs]."""
    needs: list[Scratch] = []
    for stage in stages:
        for param in stage.params:
            if param.arg == f"scratch:{stage.name}_planes":
                c, heads = stage.constants, stage.entries[0].grid[1].times
                size = int(c["kSlices"]) // int(c["kPlane"]) * heads * int(c["kPlaneRows"]) * int(c["kOutputs"])
                needs.append(Scratch(f"{stage.name}_planes", Dim(4 * size)))
    return tuple(needs)
