"""Matrix products of few rows: the stage `linear_stage`. Which cut and which tiles a shape gets is decided here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ddtreec.artifacts.kernels import Dim, Scratch
from ddtreec.emit.cuda.base import ONE, Constant, Device, Entry, Param, StageDraft, Tensor, tiles
from ddtreec.emit.cuda.rows import INPUT, OUTPUT, VECTOR, WEIGHT, vector_of
from ddtreec.emit.cuda.state import TICKETS

STRIPE = 64
"""k of one 128-byte line of bfloat16 weights."""

MOST_WARPS = 16
"""Warps of a block: each thread may have 128 registers."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How K is summed: `slices` of interleaved stripes, `plane` slices to a plane. Follows from the shape alone, so
    that a row's sums are the same whatever else is in the step."""

    slices: int
    plane: int


@dataclass(frozen=True, slots=True)
class Tiling:
    """What may differ from variant to variant: `tiles` 16-row tiles a warp and `row_warps` warps over weight rows,
    `split` blocks over K, `serial` (a warp sums all slices of a block), `ahead` steps of weights in flight, `unit`
    token tiles loaded together and `units_ahead` such units in flight, `each_pass` token tiles summed at a time,
    `blocks` a multiprocessor should hold, `groups` blocks over tokens, each of which reads the weights."""

    tiles: int = 1
    row_warps: int = 1
    split: int = 1
    serial: bool = False
    ahead: int = 4
    unit: int = 1
    units_ahead: int = 4
    each_pass: int = 1
    blocks: int = 1
    groups: int = 1

    @property
    def rows(self) -> int:
        """Weight rows of a block."""
        return 16 * self.tiles * self.row_warps


def is_tall(outputs: int, heads: int, device: Device) -> bool:
    """Whether blocks of 64 weight rows fill more than half of the device."""
    return 2 * -(-outputs // 64) * heads > device.sms


def cut(outputs: int, inputs: int, heads: int, device: Device) -> Cut:
    """Slices that share the stripes evenly, two or more each, at most 16. A product that is not tall has up to four
    planes, so that many rows can be served by blocks that cut K."""
    stripes = -(-inputs // STRIPE)
    even = [n for n in range(1, 17) if stripes % n == 0 and stripes // n >= 2]
    slices = max(even, default=1)
    if slices < 4 <= stripes // 2:
        slices = min(8, stripes // 2)
    planes = 1 if is_tall(outputs, heads, device) else next(n for n in (4, 2, 1) if slices % n == 0)
    return Cut(slices, slices // planes)


def steps_of(inputs: int, how: Cut) -> int:
    """Loads of a warp over one slice (LinearShape::kSteps)."""
    return 2 * -(-inputs // (STRIPE * how.slices))


def tiling(
    outputs: int,
    inputs: int,
    heads: int,
    rows: int,
    how: Cut,
    device: Device,
    *,
    split: bool = True,
    leave: bool = False,
) -> Tiling:
    """A tiling for steps of up to `rows` rows (one of ROW_TILES). `split`, `leave`: see `linear_stage`; planes that are
    left anyway cost nothing to cut over blocks. Many rows: blocks of more weight rows, which read activations less
    often; more than 64 are cut over blocks, since their sums take more registers than a thread has."""
    planes = how.slices // how.plane
    if rows <= 16:
        tile = few_rows(outputs, inputs, heads, rows, how, device)
        return replace(tile, split=planes) if leave else tile
    if rows > 64:
        half = tiling(outputs, inputs, heads, rows // 2, how, device, split=split, leave=leave)
        return replace(half, groups=2 * half.groups)
    if rows == 64 and is_tall(outputs, heads, device) and how.slices > 1:
        row_warps = 8 if 4 * -(-outputs // 128) * heads >= 3 * device.sms else 4
        return Tiling(row_warps=row_warps, serial=True, ahead=2, unit=4, units_ahead=2, each_pass=4)
    row_warps, cuts = rows // 16, 1
    while split and cuts < planes:
        fills = 2 * -(-outputs // (16 * row_warps)) * heads * cuts > device.sms
        if fills and not leave:
            break
        cuts *= 2
    while row_warps > 1 and how.slices // cuts * row_warps > MOST_WARPS:
        row_warps //= 2
    return Tiling(row_warps=row_warps, split=cuts, ahead=128 // rows, unit=4, units_ahead=2, each_pass=4)


def few_rows(outputs: int, inputs: int, heads: int, rows: int, how: Cut, device: Device) -> Tiling:
    """A tiling for up to 8 or 16 rows: a warp a slice, and weights in flight are what counts. As measured on an H200:

    - Blocks of 32 weight rows read activations half as often as those of 16. They win where they fill the device one
      and a half times; 24 warps a multiprocessor with two steps in flight each beat 16 with four, except where four are
      all there is.
    - Blocks of 16 that are more than the device has multiprocessors: two at a time, so that one's end is hidden.
    - One block a multiprocessor or less: the more steps of a warp in flight the better.
    """
    columns, steps = rows // 8, steps_of(inputs, how)
    if 2 * -(-outputs // 32) * heads >= 3 * device.sms:
        ahead, warps = (4, 16) if steps <= 4 else (2, 24)
        blocks = max(1, warps // how.slices)
        return Tiling(tiles=2, ahead=ahead, unit=columns, units_ahead=2, each_pass=columns, blocks=blocks)
    if rows == 16:
        return Tiling(unit=columns, each_pass=columns, blocks=max(1, min(4, 16 // how.slices)))
    if -(-outputs // 16) * heads > device.sms:
        return Tiling(blocks=max(1, min(8, 32 // how.slices)))
    ahead = max((n for n in (4, 5, 6, 7, 8) if steps % n == 0), default=4)
    return Tiling(ahead=ahead, units_ahead=ahead)


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
    count: str = "rows",
    split: bool = True,
    leave: bool = False,
    tilings: Mapping[int, Tiling] | None = None,
) -> StageDraft:
    """y[r, h, n] = sum over k of x[r, h, k] w[h, n, k] for up to `most` rows; float32 sums, rounded once to y's dtype.

    `x`, `y`: bfloat16 (y float32 where its dtype says so); with heads > 1 a head is `run` elements behind the one
    before. `w`: arg of the weights, bfloat16 [heads, outputs, inputs] without gaps. `count`: symbol of the rows.
    `split`: whether K may be cut over blocks, which takes `linear_scratch`. With `leave` y is float32
    [planes][rows][outputs] for the next stage to add up in order (`plane_count` planes, `plane_rows` rows apart).
    `tilings` by row tile take the place of `tiling`.
    """
    how = cut(outputs, inputs, heads, device)
    kind = {"split": split, "leave": leave}
    chosen = {rows: tiling(outputs, inputs, heads, rows, how, device, **kind) for rows in tiles(most)}
    variants = {rows: (tilings or {}).get(rows, tile) for rows, tile in chosen.items()}
    cut_over_blocks = not leave and any(tile.split > 1 for tile in variants.values())
    wide = leave or y.dtype == "float32"
    out = Param("float*" if wide else OUTPUT, "planes" if leave else "y", y.arg)
    params = [Param(INPUT, "x", x.arg), Param(WEIGHT, "w", w), out]
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
        "kVector": VECTOR if inputs % VECTOR == 0 and vector_of(x) == VECTOR else 1,
        "kSlices": how.slices,
        "kPlane": how.plane,
        "kPlaneRows": plane_rows(most),
        "kLeave": leave,
    }
    return StageDraft(
        name=name,
        body="linear_planes" if leave else "linear",
        include="gemm.cuh",
        constants=constants,
        params=tuple(params),
        entries=tuple(_entry(rows, tile, how, outputs, heads) for rows, tile in variants.items()),
        count=count,
    )


def _entry(rows: int, tile: Tiling, how: Cut, outputs: int, heads: int) -> Entry:
    return Entry(
        rows=rows,
        grid=(Dim(-(-outputs // tile.rows)), Dim(heads) if heads > 1 else ONE, Dim(tile.split * tile.groups)),
        threads=32 * tile.row_warps * slice_warps(how, tile),
        shared=shared_bytes(how, tile),
        blocks=tile.blocks,
        constants={
            "kRows": rows // tile.groups,
            "kTiles": tile.tiles,
            "kRowWarps": tile.row_warps,
            "kSplit": tile.split,
            "kSerial": tile.serial,
            "kAhead": tile.ahead,
            "kUnit": tile.unit,
            "kUnitsAhead": tile.units_ahead,
            "kPass": tile.each_pass,
        },
    )


def plane_count(stage: StageDraft) -> int:
    """Partial sums of a product that `leave` leaves."""
    return int(stage.constants["kSlices"]) // int(stage.constants["kPlane"])


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
                size = plane_count(stage) * heads * int(c["kPlaneRows"]) * int(c["kOutputs"])
                needs.append(Scratch(f"{stage.name}_planes", Dim(4 * size)))
    return tuple(needs)
