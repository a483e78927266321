"""config.json of a DFlash drafter checkpoint to facts. What is not supported is refused by name, all at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ddtreec.core.errors import CheckpointError
from ddtreec.spec.facts import DrafterFacts
from ddtreec.spec.hf import Config, read_config, some, tensor_names
from ddtreec.spec.schema import MAX_LAYERS
from ddtreec.spec.target_config import rotary

ARCHITECTURE = "DFlashDraftModel"
FUSION = (("fc.weight", "hidden_norm.weight"), ("encoder.fc.weight", "encoder.output_norm_enc.weight"))
Layer = tuple[int | None, bool]


@dataclass(frozen=True, slots=True)
class Drafter:
    """A drafter understood, and remarks about what its config leaves open."""

    facts: DrafterFacts
    notes: tuple[str, ...]


def read_drafter(folder: Path, name: str) -> Drafter:
    """The drafter in `folder`. Raises CheckpointError S050..S052 with everything that stands in the way."""
    return understand_drafter(read_config(folder / "config.json"), tensor_names(folder), name)


def understand_drafter(config: Config, names: frozenset[str], name: str) -> Drafter:
    """The same from what has been read; `names` is empty when there are no weights at hand."""
    notes: list[str] = []
    _refuse_variants(config)
    dflash = config.inside("dflash_config") or Config(config.file, config.text, {}, "", config.problems)
    count = config.whole("num_hidden_layers", most=MAX_LAYERS)
    target_layers = config.whole("num_target_layers")
    theta, yarn = rotary(config)
    prefix, fc, fc_norm = _names(config, names)
    heads = config.whole("num_attention_heads")
    scaling: Any = config.data.get("rope_scaling") or config.data.get("rope_parameters") or {}
    hidden = config.whole("hidden_size")
    facts = DrafterFacts(
        name=name,
        hidden=hidden,
        vocab=config.whole("vocab_size"),
        heads=heads,
        kv_heads=config.whole("num_key_value_heads", heads),
        head_dim=config.whole("head_dim", max(hidden // heads, 1)),
        inter=config.whole("intermediate_size"),
        layers=_layers(config, dflash, count, notes),
        eps=config.real("rms_norm_eps"),
        theta=theta,
        block_size=_either("block_size", dflash, config).whole("block_size", least=2),
        mask_token=_either("mask_token_id", dflash, config).whole("mask_token_id", least=0),
        taps=_taps(_either("target_layer_ids", dflash, config), target_layers, count, notes),
        target_layers=target_layers,
        target_hidden=_either("target_hidden_size", dflash, config).whole("target_hidden_size", hidden),
        yarn=yarn,
        amplitude=_amplitude(cast(dict[str, Any], scaling)),
        prefix=prefix,
        fc=fc,
        fc_norm=fc_norm,
        own_embedding=prefix + "embed_tokens.weight" in names,
        own_head=prefix + "lm_head.weight" in names,
    )
    if config.problems:
        raise CheckpointError(config.problems)
    return Drafter(facts, tuple(notes))


def default_taps(target_layers: int, draft_layers: int) -> tuple[int, ...]:
    """The taps of a DFlash drafter whose config names none: evenly from 1 to N - 3 (z-lab's rule, Python rounding)."""
    if draft_layers == 1:
        return (target_layers // 2,)
    return tuple(round(1 + i * (target_layers - 4) / (draft_layers - 1)) for i in range(draft_layers))


def _either(key: str, first: Config, second: Config) -> Config:
    return first if key in first.data else second


def _refuse_variants(config: Config) -> None:
    named: Any = config.data.get("architectures")
    architectures = cast(list[Any], named) if isinstance(named, list) else []
    if ARCHITECTURE not in architectures:
        message = f"the architecture {some(architectures) or 'is not named, it'} is not a DFlash drafter"
        config.refuse("architectures", message, f"supported: {ARCHITECTURE}")
    for key, allowed in (("attention_bias", False), ("hidden_act", "silu"), ("tie_word_embeddings", None)):
        value = config.data.get(key, allowed)
        if allowed is not None and value != allowed:
            config.refuse(key, f"`{key}: {value}` is not supported", f"only {allowed} is")
    if config.data.get("quantization_config") is not None:
        config.refuse("quantization_config", "quantized drafters are not supported", "save the drafter as bf16")
    vocab, draft_vocab = config.data.get("vocab_size"), config.data.get("draft_vocab_size")
    if draft_vocab not in (None, vocab):
        config.refuse("draft_vocab_size", f"a draft vocabulary of {draft_vocab} for {vocab} tokens is not supported")


def _layers(config: Config, dflash: Config, count: int, notes: list[str]) -> tuple[Layer, ...]:
    """Window and causality of each layer. The sources disagree about causality in windowed layers, so say it."""
    kinds = config.data.get("layer_types")
    if kinds is None:
        kinds = ["sliding_attention" if config.data.get("use_swa") is True else "full_attention"] * count
    items = cast(list[Any], kinds) if isinstance(kinds, list) else []
    if len(items) != count or not set(items) <= {"full_attention", "sliding_attention"}:
        message = f"`layer_types` must name full_attention or sliding_attention for each of {count} layers"
        config.refuse("layer_types", message)
        return ((None, False),) * count
    if "sliding_attention" not in items:
        return ((None, _says_causal(config, dflash) or False),) * count
    key = "swa_window_size" if "swa_window_size" in config.data else "sliding_window"
    window = config.whole(key)
    causal = _says_causal(config, dflash)
    if causal is None:
        notes.append(
            "the config does not say whether windowed draft layers are causal inside the block; taken as causal, as "
            "they are trained; edit `causal:` in drafter.yaml if acceptance is poor"
        )
    return tuple((window, causal is not False) if kind == "sliding_attention" else (None, False) for kind in items)


def _says_causal(config: Config, dflash: Config) -> bool | None:
    for source, key in ((dflash, "causal"), (config, "is_causal")):
        if source.data.get(key) is not None:
            return source.flag(key, False)
    return None


def _taps(source: Config, target_layers: int, count: int, notes: list[str]) -> tuple[int, ...]:
    value: Any = source.data.get("target_layer_ids")
    if value is None:
        taps = default_taps(target_layers, count)
        notes.append(f"the config names no target layers; taps follow the default rule: {list(taps)}")
        return taps
    items = cast(list[Any], value) if isinstance(value, list) else []
    if not items or not all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in items):
        source.refuse("target_layer_ids", "`target_layer_ids` must be a list of layer numbers", code="S051")
        return (0,)
    return tuple(items)


def _amplitude(scaling: dict[str, Any]) -> float | None:
    value = scaling.get("attention_factor")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _names(config: Config, names: frozenset[str]) -> tuple[str, str, str]:
    """Prefix of the layers and the names of the fusion, which two spellings are known of."""
    if not names:
        return "", *FUSION[0]
    first = "layers.0.input_layernorm.weight"
    found = sorted(n[: -len(first)] for n in names if n == first or n.endswith("." + first))
    if len(found) != 1:
        message = f"{len(found) or 'no'} tensors are called `...{first}`, one is needed"
        config.report("S052", message, note=f"tensors there: {some(names)}")
        return "", *FUSION[0]
    prefix = found[0]
    for fc, norm in FUSION:
        if prefix + fc in names and prefix + norm in names:
            if prefix + fc.replace(".weight", ".bias") in names:
                config.report("S050", f"`{prefix}{fc}` with a bias is not supported")
            return prefix, fc, norm
    message = "the drafter has no fusion of target features: " + " or ".join(f"`{prefix}{fc}`" for fc, _ in FUSION)
    config.report("S052", message, note=f"tensors there: {some(names)}")
    return prefix, *FUSION[0]
