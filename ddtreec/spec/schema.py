"""The six kinds of spec as strict, frozen pydantic models. Facts only: no expressions, no decisions.

The model and drafter specs ARE layer graphs: named dims, blocks of typed ops with named inputs and outputs and
checkpoint tensor names, and a stack that repeats blocks. The fields of an op besides id/op/in/out belong to the op's
own file in `ddtreec.ops`, which checks them; here they are carried as written.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Kind = Literal["model", "drafter", "quant", "tree", "topology", "engine"]
MAX_LAYERS, MAX_DEVICES = 512, 1024
"""Beyond any machine and model of the kind; they keep a slip of the finger from filling the memory."""
MOST_ROWS = 128
"""Rows of a step on a GPU: a tree mask has this many bits."""

Scalar = int | float | bool | str | None
FieldValue = Scalar | tuple[Scalar, ...]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=80)]
Ident = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Strict(BaseModel):
    """Unknown keys are errors, values are never coerced, objects never change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


class Spec(Strict):
    """What every spec file has. `version` is the version of the schema, 1 today."""

    version: Literal[1]
    name: Name


# ---- layer graphs -------------------------------------------------------------------------------------------------


class Yarn(Strict):
    """YaRN as in the DeepSeek config (`rope_scaling`/`rope_parameters` of type yarn)."""

    factor: PositiveFloat
    original_positions: Positive
    beta_fast: PositiveFloat = 32.0
    beta_slow: PositiveFloat = 1.0
    mscale: float = 1.0
    mscale_all_dim: float = 0.0


class RopeSpec(Strict):
    """One rotary table. `dim` names a dim or is a number; `amplitude` pins the factor on cos and sin (else by yarn)."""

    dim: int | Ident
    layout: Literal["interleaved", "half"]
    theta: PositiveFloat
    yarn: Yarn | None = None
    amplitude: PositiveFloat | None = None


class OpSpec(BaseModel):
    """One typed op of a block. Everything besides these four is the op's own and is checked by its file in ops/."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, populate_by_name=True)

    id: Ident
    op: Ident
    inputs: tuple[Ident, ...] = Field(default=(), alias="in")
    outputs: tuple[Ident, ...] = Field(default=(), alias="out")
    __pydantic_extra__: dict[str, FieldValue] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def fields(self) -> dict[str, FieldValue]:
        """The op's own fields as written."""
        return dict(self.__pydantic_extra__ or {})


class BlockSpec(Strict):
    """A reusable run of ops. `in` and `out` are the values that pass from block to block, in order."""

    inputs: tuple[Ident, ...] = Field(alias="in")
    outputs: tuple[Ident, ...] = Field(alias="out")
    ops: tuple[OpSpec, ...]


class StackItem(Strict):
    """Either one `block` outside the layers, or `repeat` layers of `blocks`; layer numbers run on through the stack."""

    block: Ident | None = None
    repeat: Annotated[int, Field(gt=0, le=MAX_LAYERS)] | None = None
    blocks: tuple[Ident, ...] = ()


class Tokens(Strict):
    """Special token ids. Generation ends after any of `eos`."""

    eos: tuple[Count, ...]
    bos: Count | None = None
    pad: Count | None = None


class CheckpointSpec(Strict):
    """How tensors are named: `prefix` goes before every weight name; tensors that begin with `skip` are not ours."""

    prefix: str = ""
    skip: tuple[str, ...] = ()


class ModelSpec(Spec):
    """The target: a layer graph from `tokens` to `logits`."""

    kind: Literal["model"]
    dims: dict[Ident, Positive]
    tokens: Tokens
    positions: Positive
    checkpoint: CheckpointSpec = CheckpointSpec()
    ropes: dict[Ident, RopeSpec] = {}
    blocks: dict[Ident, BlockSpec]
    stack: tuple[StackItem, ...]


class TargetContract(Strict):
    """What the drafter was trained for; checked against the model spec."""

    layers: Positive
    hidden: Positive
    vocab: Positive


class TauSpec(Strict):
    """Tokens committed a round by tree budget: (nodes besides the root, tau) points, and where they were measured."""

    points: tuple[tuple[Positive, PositiveFloat], ...]
    source: str


class DrafterSpec(Spec):
    """A DFlash drafter: two layer graphs over the same layers.

    `context` turns target features of committed tokens into per-layer keys and values (input `features`);
    `draft` turns [anchor, MASK, ...] into logits (input `tokens`, output `logits`).
    `block_size` counts the anchor. `taps` are 0-based target layers, features are the residual AFTER the layer.
    `expected_tau`: what trees are worth, for `plan`; nothing that runs reads it.
    """

    kind: Literal["drafter"]
    target: TargetContract
    block_size: Annotated[int, Field(ge=2)]
    mask_token: Count
    taps: tuple[Count, ...]
    dims: dict[Ident, Positive]
    checkpoint: CheckpointSpec = CheckpointSpec()
    ropes: dict[Ident, RopeSpec] = {}
    blocks: dict[Ident, BlockSpec]
    expected_tau: TauSpec | None = None
    context: tuple[StackItem, ...]
    draft: tuple[StackItem, ...]


# ---- quant, tree, topology, engine --------------------------------------------------------------------------------


class Packing(Strict):
    """How weights of a role are stored. INT4: compressed-tensors pack-quantized, symmetric, `group` inputs a scale."""

    packing: Literal["dense", "int4"]
    group: Positive | None = None
    product: Literal["exact", "bf16"] = "bf16"


class QuantSpec(Spec):
    """Role to packing; a role that is not named is dense."""

    kind: Literal["quant"]
    roles: dict[Ident, Packing] = {}


class TreeSpec(Spec):
    """`budget` counts tree nodes besides the root. `cost_aware` stops where predicted tokens per second stop rising."""

    kind: Literal["tree"]
    mode: Literal["chain", "ddtree"]
    budget: Annotated[int, Field(ge=1, le=127)]
    cost_aware: bool = False


class ReachedSpec(Strict):
    """What kernels of one op were measured to take, besides their launches: `us`, then reads at the share `read` of the
    best read rate, then products at `flops`."""

    us: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    read: Annotated[float, Field(gt=0, le=1)]
    flops: PositiveFloat


class KernelsSpec(Strict):
    """Measured kernels by op. An op that is not named reads at the best rate and multiplies at `device.flops`."""

    linear: ReachedSpec | None = None
    router: ReachedSpec | None = None
    experts: ReachedSpec | None = None
    latent_attention: ReachedSpec | None = None
    block_attention: ReachedSpec | None = None


class DeviceSpec(Strict):
    """One device of the topology. Facts with their source; `read_rate` maps transfer bytes to achieved bytes/s."""

    name: str
    arch: str | None = None
    memory: str
    reserved: str = "0B"
    read_rate: tuple[tuple[str, str], ...]
    flops: PositiveFloat
    launch_us: float = 0.0
    early_us: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    kernels: KernelsSpec | None = None
    sms: Positive | None = None
    shared_memory: str | None = None
    l2: str | None = None
    source: str


class LinkSpec(Strict):
    """Collectives between the devices: (bytes, microseconds) points, straight lines between, slope kept beyond."""

    kind: str
    all_reduce_us: tuple[tuple[str, float], ...]
    all_gather_us: tuple[tuple[str, float], ...]
    source: str


class TopologySpec(Spec):
    """`devices` equal devices and the links between them. Never says which layer goes where."""

    kind: Literal["topology"]
    backend: Literal["cpu", "cuda"]
    devices: Annotated[int, Field(gt=0, le=MAX_DEVICES)]
    device: DeviceSpec
    link: LinkSpec | None = None


class LimitsSpec(Strict):
    """`context`: prompt and output tokens together. `chunk`: prefill rows a step. `page`: tokens per KV page."""

    context: Positive
    sequences: Positive = 1
    chunk: Positive = 64
    page: Positive = 16


class LayoutSpec(Strict):
    """Pins for the shard pass; `auto` lets cost choose."""

    attention: Literal["auto", "tp", "replicated"] = "auto"
    a_proj: Literal["auto", "gather", "replicated"] = "auto"
    mlp: Literal["auto", "tp", "replicated"] = "auto"
    experts: Annotated[str, Field(pattern=r"^(auto|replicated|ep[0-9]{1,4}xtp[0-9]{1,4})$")] = "auto"
    vocab: Literal["auto", "parallel", "replicated"] = "auto"
    drafter: Literal["auto", "tp", "replicated"] = "auto"


class EngineSpec(Spec):
    """Names one of each. A reference is a shipped name, or a path (ending in .yaml) relative to this file."""

    kind: Literal["engine"]
    model: str
    quant: str
    topology: str
    drafter: str | None = None
    tree: str | None = None
    dtype: Literal["float32", "bfloat16", "float64"]
    limits: LimitsSpec
    layout: LayoutSpec = LayoutSpec()


CLASSES: dict[Kind, type[Spec]] = {
    "model": ModelSpec,
    "drafter": DrafterSpec,
    "quant": QuantSpec,
    "tree": TreeSpec,
    "topology": TopologySpec,
    "engine": EngineSpec,
}
