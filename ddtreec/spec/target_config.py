"""config.json of a DeepSeek-V3 / Kimi K2 checkpoint to facts. What is not supported is refused by name, all at once."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ddtreec.core.errors import CheckpointError
from ddtreec.spec.facts import RouterFacts, TargetFacts, YarnFacts
from ddtreec.spec.hf import Config, read_config, some, tensor_names
from ddtreec.spec.packing_config import int4_group
from ddtreec.spec.schema import MAX_LAYERS

FLAT = ("deepseek_v3", "kimi_k2")
NESTED = ("kimi_k25",)
HF_LATENT_EPS = 1e-6
"""What Hugging Face builds q_a_layernorm and kv_a_layernorm with, whatever rms_norm_eps says."""
_EMBEDDING = "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class Target:
    """A checkpoint understood: its facts, the INT4 group of its routed experts (None: dense), and remarks."""

    facts: TargetFacts
    group: int | None
    notes: tuple[str, ...]


def read_target(folder: Path, name: str, latent_eps: float | None = None) -> Target:
    """The target in `folder`. Raises CheckpointError S050..S052 with everything that stands in the way."""
    config = read_config(folder / "config.json")
    generation = folder / "generation_config.json"
    extra = read_config(generation) if generation.exists() else None
    return understand(config, extra, tensor_names(folder), name, latent_eps)


def understand(
    config: Config, generation: Config | None, names: frozenset[str], name: str, latent_eps: float | None = None
) -> Target:
    """The same from what has been read; `names` is empty when there are no weights at hand."""
    text = _text_part(config)
    if config.problems:
        raise CheckpointError(config.problems)
    notes: list[str] = [] if names else ["no weights here: tensor names and packing are taken from config.json"]
    prefix, skip = _prefix(config, names)
    layers = text.whole("num_hidden_layers", most=MAX_LAYERS)
    skip += _extra_layers(text, names, prefix, layers, notes)
    _refuse_variants(text)
    theta, yarn = rotary(text)
    if latent_eps is None:
        latent_eps = HF_LATENT_EPS
        notes.append(
            "q_a and kv_a norms use eps 1e-06 as Hugging Face does; if the model was made with rms_norm_eps there "
            "(vLLM, SGLang), give --latent-norm-eps"
        )
    facts = TargetFacts(
        name=name,
        hidden=text.whole("hidden_size"),
        vocab=text.whole("vocab_size"),
        layers=layers,
        dense=min(text.whole("first_k_dense_replace", least=0), layers) if _experts(text) else layers,
        heads=text.whole("num_attention_heads"),
        q_lora=text.whole("q_lora_rank") if text.data.get("q_lora_rank") is not None else None,
        kv_lora=text.whole("kv_lora_rank"),
        nope=text.whole("qk_nope_head_dim"),
        rope=text.whole("qk_rope_head_dim"),
        v=text.whole("v_head_dim"),
        inter=text.whole("intermediate_size"),
        router=_router(text, names),
        eps=text.real("rms_norm_eps"),
        latent_eps=latent_eps,
        positions=text.whole("max_position_embeddings"),
        eos=_eos(config, text, generation),
        bos=_token("bos_token_id", text, config),
        pad=_token("pad_token_id", text, config),
        theta=theta,
        yarn=yarn,
        rope_layout="interleaved" if text.flag("rope_interleave", True) else "half",
        prefix=prefix,
        skip=tuple(skip),
        tied=_tied(config, text, names, prefix),
    )
    group = int4_group(config, text, names)
    if config.problems:
        raise CheckpointError(config.problems)
    return Target(facts, group, tuple(notes))


def rotary(config: Config) -> tuple[float, YarnFacts | None]:
    """theta and YaRN from either spelling: `rope_theta` + `rope_scaling`, or `rope_parameters`."""
    new = config.inside("rope_parameters")
    old = config.inside("rope_scaling")
    scaling = new or old
    theta = new.real("rope_theta") if new and "rope_theta" in new.data else config.real("rope_theta", 10000.0)
    if scaling is None:
        return theta, None
    kind = scaling.word("rope_type", scaling.word("type", "default"))
    if kind == "default":
        return theta, None
    if kind not in ("yarn", "deepseek_yarn"):
        key = "rope_type" if "rope_type" in scaling.data else "type"
        scaling.refuse(key, f"rope scaling of type `{kind}` is not supported", "supported: yarn, default")
        return theta, None
    if scaling.data.get("truncate") is False:
        scaling.refuse("truncate", "yarn with `truncate: false` is not supported")
    factor, original = scaling.real("factor"), scaling.whole("original_max_position_embeddings")
    fast, slow = scaling.real("beta_fast", 32.0), scaling.real("beta_slow", 1.0)
    mscale = scaling.real("mscale", 1.0, positive=False)
    return theta, YarnFacts(factor, original, fast, slow, mscale, scaling.real("mscale_all_dim", 0.0, positive=False))


def _text_part(config: Config) -> Config:
    kind = config.word("model_type", "")
    if "dflash_config" in config.data:
        config.refuse("dflash_config", "this is a DFlash drafter, not a target", "give it with --drafter")
        return config
    if kind in FLAT:
        return config
    if kind in NESTED:
        text = config.inside("text_config")
        if text is None:
            config.refuse("model_type", f"model_type `{kind}` needs a `text_config`", code="S051")
            return config
        inner = text.word("model_type", FLAT[0])
        if inner not in FLAT:
            _refuse_type(text, inner, FLAT)
        return text
    _refuse_type(config, kind, FLAT + NESTED)
    return config


def _refuse_type(config: Config, kind: str, known: tuple[str, ...]) -> None:
    near = difflib.get_close_matches(kind, known, n=1, cutoff=0.4)
    nearest = f"; the nearest is {near[0]}" if near else ""
    message = f"model_type `{kind}` is not supported" if kind else "config.json names no model_type"
    config.refuse("model_type", message, f"supported: {', '.join(known)}{nearest}")


def _prefix(config: Config, names: frozenset[str]) -> tuple[str, list[str]]:
    """The prefix of the text tensors, and what begins the names of the others."""
    if not names:
        nested = "text_config" in config.data
        return ("language_model.", ["vision_tower.", "mm_projector."]) if nested else ("", [])
    found = sorted(n[: -len(_EMBEDDING)] for n in names if n == _EMBEDDING or n.endswith("." + _EMBEDDING))
    if len(found) != 1:
        message = f"{len(found) or 'no'} tensors are called `...{_EMBEDDING}`, one is needed"
        config.report("S052", message, note=f"tensors there: {some(names)}")
        return "", []
    prefix = found[0]
    if not any(n.startswith(prefix + "model.layers.0.") for n in names):
        message = f"no tensor begins with `{prefix}model.layers.0.`, so this is not the naming of the releases"
        hint = "save the checkpoint under the released names (transformers 5 writes `blocks` for `layers`)"
        config.report("S052", message, note=f"tensors there: {some(names)}", help=hint)
    others = [n for n in names if not n.startswith(prefix)]
    return prefix, sorted({n.split(".")[0] + "." for n in others}, reverse=True)


def _extra_layers(text: Config, names: frozenset[str], prefix: str, layers: int, notes: list[str]) -> list[str]:
    """Prefixes of the multi-token-prediction layers, which follow the last layer."""
    start = prefix + "model.layers."
    numbers = {int(n[len(start) :].split(".")[0]) for n in names if n.startswith(start)}
    extra = sorted(n for n in numbers if n >= layers)
    if not names:
        extra = list(range(layers, layers + text.whole("num_nextn_predict_layers", 0, 0, MAX_LAYERS)))
    if names and numbers and not set(range(layers)) <= numbers:
        gone = sorted(set(range(layers)) - numbers)
        text.refuse("num_hidden_layers", f"{layers} layers, but the tensors lack layers {some(gone)}", code="S052")
    if extra:
        notes.append(f"layers {some(extra)} are multi-token-prediction heads and are skipped")
    return [f"{start}{n}." for n in extra]


def _experts(text: Config) -> bool:
    return text.data.get("n_routed_experts") is not None


def _refuse_variants(text: Config) -> None:
    if text.flag("attention_bias", False):
        text.refuse("attention_bias", "attention with biases is not supported", "only `attention_bias: false` is")
    if text.word("hidden_act", "silu") != "silu":
        text.refuse("hidden_act", f"the activation `{text.data['hidden_act']}` is not supported", "only silu is")
    for key in ("rope_parameters", "rope_scaling"):
        scaling = text.inside(key)
        if scaling is not None and scaling.data.get("attention_factor") is not None:
            hint = "write `amplitude` at the rope table of the model spec by hand"
            scaling.refuse("attention_factor", "a target's `attention_factor` is not read", hint)
    if _experts(text) and text.whole("moe_layer_freq", 1) != 1:
        text.refuse("moe_layer_freq", "`moe_layer_freq` other than 1 is not supported", "write the stack by hand")
    heads, kv_heads = text.data.get("num_attention_heads"), text.data.get("num_key_value_heads")
    if kv_heads not in (None, heads):
        text.refuse("num_key_value_heads", f"{kv_heads} key heads for {heads} heads: MLA has as many of both")


def _router(text: Config, names: frozenset[str]) -> RouterFacts | None:
    """Routing of the MoE layers. What Hugging Face would fill in for a missing key (8 groups, 4 of them, a scale of
    2.5, one shared expert) fits few models, so such keys must be there."""
    if not _experts(text):
        return None
    score = text.word("scoring_func", "sigmoid")
    method = text.word("topk_method", "noaux_tc")
    groups, top_groups = text.whole("n_group"), text.whole("topk_group")
    if score not in ("sigmoid", "softmax"):
        text.refuse("scoring_func", f"the scoring function `{score}` is not supported", "supported: sigmoid, softmax")
    if method not in ("noaux_tc", "greedy") or (method == "greedy" and groups > 1):
        hint = "supported: noaux_tc, and greedy without groups"
        text.refuse("topk_method", f"the top-k method `{method}` is not supported", hint)
    bias = any(n.endswith(".mlp.gate.e_score_correction_bias") for n in names) if names else method == "noaux_tc"
    return RouterFacts(
        experts=text.whole("n_routed_experts"),
        top_k=text.whole("num_experts_per_tok"),
        groups=groups,
        top_groups=top_groups,
        inter=text.whole("moe_intermediate_size"),
        shared=0 if text.data.get("n_shared_experts", 0) is None else text.whole("n_shared_experts", least=0),
        score=score,
        normalize=text.flag("norm_topk_prob", True),
        scale=text.real("routed_scaling_factor"),
        bias=bias,
    )


def _eos(config: Config, text: Config, generation: Config | None) -> tuple[int, ...]:
    """The union of what every file says: a missing one would make generation run on."""
    found: set[int] = set()
    for source in (config, text, *([generation] if generation else [])):
        value: Any = source.data.get("eos_token_id")
        items = cast(list[Any], value) if isinstance(value, list) else [] if value is None else [value]
        if all(isinstance(item, int) and not isinstance(item, bool) for item in items):
            found.update(items)
        else:
            source.refuse("eos_token_id", "`eos_token_id` must be a token id or a list of them", code="S051")
    if not found:
        message = "no file of the checkpoint says which token ends a text"
        config.report("S051", message, help=_EOS)
    return tuple(sorted(found))


_EOS = "add `eos_token_id` to config.json or generation_config.json"


def _token(key: str, text: Config, config: Config) -> int | None:
    source = text if text.data.get(key) is not None else config
    return source.whole(key, least=0) if source.data.get(key) is not None else None


def _tied(config: Config, text: Config, names: frozenset[str], prefix: str) -> bool:
    says = config.flag("tie_word_embeddings", False) or text.flag("tie_word_embeddings", False)
    if names and (prefix + "lm_head.weight" not in names) != says:
        state = "is missing" if not says else "is there"
        message = f"`tie_word_embeddings` is {str(says).lower()}, but `{prefix}lm_head.weight` {state}"
        config.refuse("tie_word_embeddings", message, "correct config.json or the checkpoint", code="S052")
    return says
