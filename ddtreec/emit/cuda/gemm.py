"""Matrix products of few rows: the stage `linear_stage`, and the launches that are little more than it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ddtreec.artifacts.kernels import Dim, Scratch
from ddtreec.emit.cuda.base import ONE, Constant, Device, Entry, KernelDraft, Param, Site, StageDraft, Tensor, tiles

STRIPE = 64
"""k of one 128-byte line of bfloat16 weights."""

TICKETS = "tickets"
"""Shared array of int32: a zero for every block over weight rows of the largest stage, zero again after each launch."""

PLANES = "planes"
"""Scratch of the stages that cut K over blocks."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How K is summed: `slices` of interleaved stripes, `plane` slices to a plane. Follows from the shape alone, so
    that a row's sums are the same whatever else is in the step."""

    slices: int
    plane: int


@dataclass(frozen=True, slots=True)
class Tiling:
    """What may differ from variant to variant: `tiles` 16-row tiles a warp and `row_warps` warps over weight rows,
    `split` blocks over K, `serial` (a warp sums all slices of a block), `fetch` (weights are sent for into L2), `ahead` steps of weights in flight, `unit` token tiles loaded together and `units_ahead` such
    units in flight, `each_pass` token tiles summed at a time, `blocks` a multiprocessor should hold."""

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


def tiling(outputs: int, inputs: int, heads: int, rows: int, device: Device) -> Tiling:
    """A tiling for steps of up to `rows` rows (one of ROW_TILES)."""
    slices, planes = cut(inputs).slices, cut(inputs).slices // cut(inputs).plane
    columns = rows // 8
    if rows <= 16:
        return Tiling(unit=columns, units_ahead=4, each_pass=columns, blocks=max(1, min(4, 16 // slices)))
    row_warps = 4 if rows >= 64 else 2
    split = 1
    while split < planes and -(-outputs // (16 * row_warps)) * heads * split * 2 <= device.sms:
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
    x_head: int = 0,
    y_head: int = 0,
    tilings: Mapping[int, Tiling] | None = None,
) -> StageDraft:
    """y[r, h, n] = sum over k of x[r, h, k] w[h, n, k] for up to `most` rows; float32 sums, rounded once to y's dtype.

    `w`: arg of the weights, bfloat16 [heads, outputs, inputs] without gaps. `x_head`, `y_head`: elements from head to
    head of x and y, by default `inputs` and `outputs`. With `up` x is silu(x) * up (both with the strides of x).
    `tilings` by row tile take the place of `tiling`. A kernel with such a stage lists `linear_scratch` of its stages.
    """
    how = cut(inputs)
    variants = {rows: (tilings or {}).get(rows) or tiling(outputs, inputs, heads, rows, device) for rows in tiles(most)}
    split = any(tile.split > 1 for tile in variants.values())
    out = "float*" if y.dtype == "float32" else "ddt::bf16*"
    params = [
        *([Param("const ddt::bf16*", "gate", x.arg), Param("const ddt::bf16*", "up", up.arg)] if up else ()),
        *(() if up else [Param("const ddt::bf16*", "x", x.arg)]),
        Param("const ddt::bf16*", "w", w),
        Param(out, "y", y.arg),
    ]
    if split:
        params += [
            Param("float*", "planes", f"scratch:{name}_{PLANES}"),
            Param("int*", "tickets", f"state:{TICKETS}"),
        ]
    params.append(Param("int", "rows", "int:rows"))
    constants: dict[str, Constant] = {
        "kOutputs": outputs,
        "kInputs": inputs,
        "kXStride": x.stride,
        "kXHead": x_head or inputs,
        "kYStride": y.stride,
        "kYHead": y_head or outputs,
        "kSlices": how.slices,
        "kPlane": how.plane,
    }
    return StageDraft(
        name=name,
        body="swiglu_linear" if up else "linear",
        include="gemm.cuh",
        constants=constants,
        params=tuple(params),
        entries=tuple(_entry(rows, tile, how, outputs, heads) for rows, tile in variants.items()),
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


def linear_scratch(*stages: StageDraft) -> tuple[Scratch, ...]:
    """The scratch that linear stages name themselves: float32 [planes][heads][rows of the variant][outputs]."""
    needs: list[Scratch] = []
    for stage in stages:
        names = [p.arg.removeprefix("scratch:") for p in stage.params if p.name == PLANES]
        rows = [e.rows * e.grid[1].times for e in stage.entries if e.constants["kSplit"] != 1]
        if names and rows:
            planes = int(stage.constants["kSlices"]) // int(stage.constants["kPlane"])
            needs.append(Scratch(names[0], Dim(4 * planes * max(rows) * int(stage.constants["kOutputs"]))))
    return tuple(needs)


def linear(site: Site) -> KernelDraft:
    """The launch `linear`."""
    (y,), (x,), (w,) = site.outs, site.ins, site.weights
    outputs, inputs = w.tail[-2], w.tail[-1]
    stage = linear_stage(
        "linear", x, w.arg, y, outputs=outputs, inputs=inputs, device=site.device, most=site.most["rows"]
    )
    return KernelDraft(
        f"linear__{_spelt(outputs, inputs, x, y)}", f"{outputs} x {inputs} product", (stage,), linear_scratch(stage)
    )


def _spelt(outputs: int, inputs: int, x: Tensor, y: Tensor) -> str:
    """What tells products of one kind apart, for a kernel's name."""
    words = [f"n{outputs}", f"k{inputs}"]
    if x.stride != inputs:
        words.append(f"x{x.stride}")
    if y.stride != outputs:
        words.append(f"y{y.stride}")
    if y.dtype == "float32":
        words.append("f32")
    return "_".join(words)
