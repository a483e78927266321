"""What every field of a spec means, for `ddtreec explain`, `ddtreec schema` and an editor's hover text.

A note for each field of each model of `schema`, none missing (there is a test). Types, ranges and defaults are not
said here: they are read from the models.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Note(NamedTuple):
    """Meaning of a field, its unit ('' where it has none), and a value as one would write it."""

    text: str
    example: Any = None
    unit: str = ""


SPEC: dict[str, Note] = {
    "version": Note("Version of the spec format.", 1),
    "name": Note("How the spec is called: small letters, digits, dots and dashes.", "kimi-k2.6"),
    "kind": Note("Which of the six kinds of spec this file is."),
}

NOTES: dict[str, dict[str, Note]] = {
    "Yarn": {
        "factor": Note("How many times the context is stretched beyond `original_positions`.", 64.0),
        "original_positions": Note("Positions the model was trained with before it was stretched.", 4096, "tokens"),
        "beta_fast": Note("Turns within the original context above which a pair of dimensions is left as it is.", 32.0),
        "beta_slow": Note("Turns below which a pair is interpolated by the whole factor.", 1.0),
        "mscale": Note("Strength of the correction of attention with the factor, on cos and sin.", 1.0),
        "mscale_all_dim": Note("The same, over all dimensions: it also scales the scores of attention.", 1.0),
    },
    "RopeSpec": {
        "dim": Note("Width that is turned: the name of a dim, or an even number.", "rope", "values"),
        "layout": Note(
            "Which values form a pair: neighbours (DeepSeek, Kimi), or one of each half (Qwen, DFlash).", "interleaved"
        ),
        "theta": Note("Base of the frequencies.", 50000.0),
        "yarn": Note("YaRN, where the model uses it.", {"factor": 64.0, "original_positions": 4096}),
        "amplitude": Note("Pins the factor on cos and sin; without it YaRN says it.", 1.0),
    },
    "OpSpec": {
        "id": Note("Name of the op in its block; the node is called `L03.<block>.<id>`.", "q_b"),
        "op": Note("Kind of op; `ddtreec explain linear` tells the fields of one kind.", "linear"),
        "in": Note("Values that the op reads, in order.", ["h"]),
        "out": Note("Values that the op gives, in order.", ["q"]),
    },
    "BlockSpec": {
        "in": Note("Values that come from the block before, in order.", ["x"]),
        "out": Note("Values that go to the next block, in order.", ["y"]),
        "ops": Note(
            "The ops of the block; each reads values made before it.",
            [{"id": "norm", "op": "rms_norm", "in": ["x"], "out": ["h"], "dim": "hidden", "eps": 1e-05}],
        ),
    },
    "StackItem": {
        "block": Note("One block outside the layers, such as the embedding or the head.", "embed"),
        "repeat": Note("Layers that are built of `blocks`; layer numbers run on through the stack.", 60, "layers"),
        "blocks": Note("The blocks of one layer, in order.", ["attention", "moe"]),
    },
    "Tokens": {
        "eos": Note("Tokens that end a text; generation stops behind any of them.", [163585, 163586], "token id"),
        "bos": Note("Token that begins a text, if the model has one.", 163584, "token id"),
        "pad": Note("Token that fills up, if the model has one.", 163839, "token id"),
    },
    "CheckpointSpec": {
        "prefix": Note("What stands before every weight name in the checkpoint.", "language_model."),
        "skip": Note(
            "Beginnings of tensor names that belong to something else (vision, extra heads).", ["vision_tower."]
        ),
    },
    "ModelSpec": {
        "dims": Note("Sizes by name; ops use the names, `--set model.dims.layers=4` changes one.", {"hidden": 7168}),
        "tokens": Note("Special tokens.", {"eos": [163586]}),
        "positions": Note("Longest sequence the model was made for.", 262144, "tokens"),
        "checkpoint": Note("How the checkpoint names its tensors.", {"prefix": "language_model."}),
        "ropes": Note("Rotary tables by name.", {"rope": {"dim": "rope", "layout": "interleaved", "theta": 50000.0}}),
        "blocks": Note("Runs of ops by name: embedding, attention, MLP, MoE, head."),
        "stack": Note(
            "The model from tokens to logits, as blocks and repeated layers.",
            [{"block": "embed"}, {"repeat": 61, "blocks": ["attention", "moe"]}, {"block": "head"}],
        ),
    },
    "TargetContract": {
        "layers": Note("Layers of the target the drafter was trained for.", 61, "layers"),
        "hidden": Note("Width of that target.", 7168, "values"),
        "vocab": Note("Vocabulary of that target.", 163840, "tokens"),
    },
    "TauSpec": {
        "points": Note("Tree nodes besides the root, and tokens committed a round.", [[4, 4.0], [8, 5.4]], "tokens"),
        "source": Note("Where the figures are from.", "256 held-out prompts, greedy, 2026-11-29"),
    },
    "DrafterSpec": {
        "target": Note("The target it was trained for; checked against the model.", {"layers": 61, "hidden": 7168}),
        "block_size": Note("Rows of one draft pass, the anchor included: it proposes one token fewer.", 8, "rows"),
        "mask_token": Note("Token that stands for a position to be drafted.", 163838, "token id"),
        "taps": Note("Target layers, from 0, after which the drafter reads the residual.", [1, 12, 24, 35, 47, 58]),
        "dims": Note("Sizes by name, as in a model.", {"hidden": 7168}),
        "checkpoint": Note("How the drafter's checkpoint names its tensors.", {"prefix": ""}),
        "ropes": Note("Rotary tables by name, as in a model."),
        "blocks": Note("Runs of ops by name, as in a model."),
        "expected_tau": Note("Tokens a round commits by tree budget: what `plan` recommends a budget by."),
        "context": Note("Stack that turns target features of committed tokens into keys and values."),
        "draft": Note("Stack that turns the anchor and masks into logits."),
    },
    "Packing": {
        "packing": Note("How weights of the role are stored: one float tensor, or compressed-tensors INT4.", "int4"),
        "group": Note("Inputs that share a scale, with int4.", 32, "values"),
        "product": Note(
            "Whether code times scale is rounded to bfloat16 first, as most kernels do, or kept exact.", "bf16"
        ),
    },
    "QuantSpec": {
        "roles": Note(
            "Packing by weight role; a role that is not named is dense.", {"experts": {"packing": "int4", "group": 32}}
        )
    },
    "TreeSpec": {
        "mode": Note("Shape of a draft: one chain of the best tokens, or a tree grown best-first (DDTree).", "ddtree"),
        "budget": Note("Tree nodes of a round besides the root; the verify step has one row more.", 16, "nodes"),
        "cost_aware": Note("Stop growing where predicted tokens a second no longer rise.", True),
    },
    "ReachedSpec": {
        "us": Note("What a kernel takes however little it reads, besides its launches.", 4.0, "microseconds"),
        "read": Note("Share of the best read rate at which it reads weights and caches.", 0.9),
        "flops": Note("Products a second at few rows.", 1.2e14, "FLOP/s"),
    },
    "KernelsSpec": {
        "linear": Note("Matrix products, those of absorbed attention among them."),
        "router": Note("Choice of experts."),
        "experts": Note("Routed experts."),
        "latent_attention": Note("Absorbed attention over the latent cache."),
        "block_attention": Note("Attention of the drafter."),
    },
    "DeviceSpec": {
        "name": Note("The device as people call it.", "NVIDIA RTX PRO 6000 Blackwell"),
        "arch": Note("Compute architecture of a GPU.", "sm_120"),
        "memory": Note("Memory as the driver reports it.", "95GiB", "bytes with unit"),
        "reserved": Note("Memory that is not ours: context, libraries, collective buffers.", "2GiB", "bytes with unit"),
        "read_rate": Note(
            "What reads reach, by size of the transfer; between points it is interpolated.",
            [["4MiB", "1.5TB/s"], ["64MiB", "4.5TB/s"]],
            "[bytes, bytes/s]",
        ),
        "flops": Note("Dense products a second that large ones reach.", 4.17e14, "FLOP/s"),
        "launch_us": Note("Time between two kernels of one graph.", 1.0, "microseconds"),
        "early_us": Note(
            "Least time from launch to launch where each begins while the one before it ends, as CUDA kernels here do; "
            "launch_us where it is not known.",
            1.5,
            "microseconds",
        ),
        "kernels": Note("What kernels of this compiler were measured to reach on this device, by op."),
        "sms": Note("Multiprocessors.", 188),
        "shared_memory": Note("Shared memory one block may use.", "99KiB", "bytes with unit"),
        "l2": Note("Size of the second-level cache.", "128MiB", "bytes with unit"),
        "source": Note("Where these facts come from.", "CUDA documentation for sm_120"),
    },
    "LinkSpec": {
        "kind": Note("What connects the devices.", "PCIe Gen5 x16 with peer-to-peer"),
        "all_reduce_us": Note(
            "Time of an all-reduce by bytes of the payload.", [["14336B", 10.5]], "[bytes, microseconds]"
        ),
        "all_gather_us": Note(
            "Time of an all-gather by bytes of the result.", [["96KiB", 25.6]], "[bytes, microseconds]"
        ),
        "source": Note("Where these facts come from.", "nccl-tests on this box"),
    },
    "TopologySpec": {
        "backend": Note("What runs the kernels.", "cuda"),
        "devices": Note("Equal devices, one rank each.", 8),
        "device": Note("Facts of one device."),
        "link": Note("Collectives between the devices; needed where there are two or more."),
    },
    "LimitsSpec": {
        "context": Note(
            "Longest sequence, prompt and output together. It sets the size of the KV cache.", 65536, "tokens"
        ),
        "sequences": Note("Sequences at a time.", 1),
        "chunk": Note("Prompt rows of one prefill step.", 128, "rows"),
        "page": Note("Tokens of one page of the KV cache.", 16, "tokens"),
    },
    "LayoutSpec": {
        "attention": Note("Heads cut over ranks, or whole on each.", "tp"),
        "a_proj": Note(
            "The small projections before attention: cut and gathered, or whole on each rank.", "replicated"
        ),
        "mlp": Note("The dense and the shared MLP: cut, or whole on each rank.", "tp"),
        "experts": Note(
            "Routed experts: dealt to ep groups of ranks, each cut over tp ranks; ep times tp are the devices.",
            "ep2xtp4",
        ),
        "vocab": Note("Embedding and head: cut by vocabulary, or whole on each rank.", "parallel"),
        "drafter": Note("The drafter: cut, or whole on each rank.", "tp"),
    },
    "EngineSpec": {
        "model": Note("The model: a shipped name, or a path that ends in .yaml.", "kimi-k2.6"),
        "quant": Note("How weights are packed: a shipped name or a path.", "int4-g32-experts"),
        "topology": Note("The machine: a shipped name or a path.", "rtx-pro-6000-x8-pcie"),
        "drafter": Note("The drafter: a shipped name or a path; null decodes without speculation.", "kimi-k2.6-dflash"),
        "tree": Note("The tree: a shipped name or a path; null without a drafter.", "ddtree-8"),
        "dtype": Note("Type of activations and caches.", "bfloat16"),
        "limits": Note("What the engine is sized for.", {"context": 65536}),
        "layout": Note("Pins for the layout over ranks; `auto` takes the fastest that fits.", {"experts": "ep1xtp8"}),
    },
}


def note(model: str, field: str) -> Note:
    """The note of a field (as written in YAML) of the model class `model`. Raises KeyError where there is none."""
    found = NOTES.get(model, {}).get(field)
    return found if found is not None else SPEC[field]
