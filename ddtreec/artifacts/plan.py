"""plan.json: everything the runtime must know, and nothing it has to work out again.

Written by `ddtreec.plan.assemble`, read by `ddtreec_runtime`. All structs are frozen and forbid unknown fields.
One plan serves all ranks: programs are the same text on every rank (SPMD) and shapes are those of ONE rank;
only weight slices differ, and `Shard` says how.
"""

from __future__ import annotations

from typing import Literal

import msgspec

PLAN_FORMAT = 1
"""Raised whenever a field changes meaning; the runtime refuses any other number."""


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of every record of the plan."""


class Mesh(Struct, frozen=True):
    """How ranks split the routed experts: rank r has ep index r // tp and tp index r % tp; ep * tp == ranks."""

    ranks: int
    ep: int
    tp: int

    def coord(self, axis: str, rank: int) -> int:
        """Index of `rank` along `axis` ('rank', 'ep' or 'tp')."""
        return {"rank": rank, "ep": rank // self.tp, "tp": rank % self.tp}[axis]


class Shard(Struct, frozen=True):
    """Cut `axis` into `count` equal runs; rank r holds run number `mesh.coord(coord, r)`."""

    axis: int
    count: int
    coord: Literal["rank", "ep", "tp"] = "rank"


class WeightPart(Struct, frozen=True):
    """One checkpoint tensor (or one pattern with `{expert}`) seen as `dims`, narrowed by `take`, then sharded.

    `tensor` is the full checkpoint name, e.g. `language_model.model.layers.3.mlp.experts.{expert}.up_proj.weight`.
    `dims` multiplies to the tensor's elements; `take` is a (start, stop) range per axis, empty for all of it
    (e.g. kv_b seen as [heads, nope + v, kv_lora], take rows [0, nope) of every head for W_uk).
    """

    tensor: str
    dims: tuple[int, ...]
    take: tuple[tuple[int, int], ...] = ()
    shard: Shard | None = None


class Weight(Struct, frozen=True):
    """One weight as kernels see it on one rank.

    Each part is read, viewed as its dims, narrowed and sharded, then flattened to [rows, cols] (vectors stay
    [n]); with `experts` > 0 this is done for every local expert and stacked in front; parts are concatenated along
    the rows; the result is viewed as `shape`, the shape of ONE rank.

    `packing`: how the checkpoint stores it: 'dense' (one float tensor) or 'int4' (compressed-tensors
    pack-quantized: `<tensor>_packed`, `<tensor>_scale`, `<tensor>_shape`). `group` is the INT4 group size (inputs per
    scale). `product`: 'exact' dequantises q * scale in the compute dtype, 'bf16' rounds the product to bfloat16 first
    (what Hugging Face and Marlin do). `precision`: 'compute' or 'float32' (never computed below float32: router).
    """

    id: str
    role: str
    store: Literal["target", "drafter"]
    parts: tuple[WeightPart, ...]
    shape: tuple[int, ...]
    packing: Literal["dense", "int4"] = "dense"
    group: int = 0
    product: Literal["exact", "bf16"] = "exact"
    precision: Literal["compute", "float32"] = "compute"
    experts: int = 0
    expert_shard: Shard | None = None
    bytes: int = 0
    """Bytes of one rank's slice as the checkpoint packs it: what the device holds and a step reads."""


class Value(Struct, frozen=True):
    """One tensor of a program on one rank.

    `shape`: ints, or 'rows' (rows of the step), or 'out_rows' (rows the head is asked for).
    `dtype`: 'compute', 'float32' (float32 or wider), 'int32', 'int64'.
    `home`: 'arena' (at `offset` bytes of the program's arena, sized for max rows), 'input' (given by the step state),
    'persistent' (own buffer, outlives the step), 'alias' (columns `start` .. `start + n` of the last axis of `parent`,
    reshaped to `shape`; n is what the axes of `shape` behind the parent's leading ones multiply to, so a [rows, heads,
    dim] view of a [rows, m] parent covers heads * dim columns; `parent` is never an alias itself), 'token' (no data:
    orders a cache write before its readers).
    """

    id: str
    shape: tuple[int | str, ...]
    dtype: str = "compute"
    home: Literal["arena", "input", "persistent", "alias", "token"] = "arena"
    offset: int = 0
    parent: str = ""
    start: int = 0


class Call(Struct, frozen=True):
    """One kernel launch of a step program: `kernel(outs..., ins..., weights..., **params)`.

    `node` is the graph node (after fuse) it came from. `collective` calls are yielded, not called.
    """

    node: str
    kernel: str
    outs: tuple[str, ...] = ()
    ins: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    params: dict[str, int | float | str | bool | None] = {}
    collective: bool = False


class Program(Struct, frozen=True):
    """A straight-line step: 'target' (prefill and verify), 'draft_context', 'draft_block'.

    `layer_outputs`: the residual value after each layer, by layer number. They lie in the arena like others: whoever
    wants to keep one must copy it before the next layer runs, or give values places of their own.
    """

    name: str
    max_rows: int
    max_out_rows: int
    arena_bytes: int
    values: tuple[Value, ...]
    calls: tuple[Call, ...]
    layer_outputs: tuple[str, ...] = ()


class Rope(Struct, frozen=True):
    """Rotary table: pair i of a row at position p turns by p * inv_freq[i]; cos and sin are multiplied by `amplitude`.

    `layout`: 'interleaved' pairs (x0, x1), (x2, x3).. (DeepSeek, Kimi); 'half' pairs (x0, x_{d/2}).. (Qwen, DFlash).
    """

    dim: int
    layout: Literal["interleaved", "half"]
    inv_freq: tuple[float, ...]
    amplitude: float = 1.0


class Cache(Struct, frozen=True):
    """What one layer keeps per token on one rank.

    kind 'latent': [kv_lora + rope] values, normed latent first (MLA). kind 'context': keys and values
    [2, kv_heads, head_dim] of the drafter. `window` > 0 bounds how many tokens back are visible.
    """

    id: str
    kind: Literal["latent", "context"]
    width: int
    heads: int = 0
    head_dim: int = 0
    window: int = 0


class Model(Struct, frozen=True):
    """Facts of the target a runtime needs: sizes, special tokens, limits."""

    name: str
    vocab: int
    hidden: int
    layers: int
    positions: int
    eos: tuple[int, ...]
    bos: int | None = None
    pad: int | None = None


class Drafter(Struct, frozen=True):
    """The DFlash contract. `block` counts the anchor; `taps` are 0-based layer ids, features taken AFTER the layer."""

    name: str
    block: int
    mask_token: int
    taps: tuple[int, ...]
    hidden: int
    layers: int


class Tree(Struct, frozen=True):
    """Tree policy. `mode`: 'chain' (top-1 spine), 'ddtree' (best-first). `budget` excludes the root.

    `verify_cost[n]`: predicted seconds of a verify of n nodes besides the root, for the cost-aware stop; empty: off.
    """

    name: str
    mode: Literal["chain", "ddtree"]
    budget: int
    depth: int
    verify_cost: tuple[float, ...] = ()
    draft_cost: float = 0.0


class Limits(Struct, frozen=True):
    """`context`: tokens of prompt and output together; `page`: tokens per KV page; `chunk`: prefill rows a step."""

    context: int
    sequences: int
    chunk: int
    page: int


class MemoryRow(Struct, frozen=True):
    """Bytes of one rank held by one purpose."""

    purpose: str
    bytes: int


class Plan(Struct, frozen=True):
    """One engine, planned."""

    format: int
    engine: str
    backend: Literal["cpu", "cuda"]
    topology: str
    dtype: str
    """Dtype the arena and caches were planned for: 'float32', 'bfloat16', 'float64'."""
    mesh: Mesh
    model: Model
    limits: Limits
    buckets: tuple[int, ...]
    ropes: dict[str, Rope]
    caches: tuple[Cache, ...]
    weights: tuple[Weight, ...]
    programs: tuple[Program, ...]
    tree: Tree
    drafter: Drafter | None = None
    memory: tuple[MemoryRow, ...] = ()
    layout: dict[str, str] = {}
    """Choice made for each layout question ('attention', 'experts', 'a_proj', ...) in words."""


def encode(plan: Plan) -> bytes:
    """Plan to stable, indented JSON text ending with a newline."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n"


def decode(data: bytes) -> Plan:
    """JSON text to Plan. Raises msgspec.ValidationError on any unknown or missing field."""
    return msgspec.json.decode(data, type=Plan)
