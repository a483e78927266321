"""Facts about a DFlash drafter to its two layer graphs, as YAML text.

`context` turns the target's features of committed tokens into keys and values of every draft layer; `draft` turns
[anchor, MASK, ...] into logits. Both walk the same layers, so both name the same k and v projections.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ddtreec.spec import text
from ddtreec.spec.facts import DrafterFacts
from ddtreec.spec.graphs import Op, add, block_lines, linear, norm, rope_lines, swiglu_mlp
from ddtreec.spec.source import Data

LAYER = "layers.{layer}."
Variant = tuple[int | None, bool]
"""Window in tokens (None: all of the context) and whether a slot sees only earlier slots of the block."""


def drafter_text(facts: DrafterFacts, comment: Sequence[str] = ()) -> str:
    """The drafter spec as text."""
    names = _variant_names(facts)
    lines = [f"# {line}".rstrip() for line in comment]
    lines += ["kind: drafter", "version: 1", f"name: {text.value(facts.name)}"]
    contract: list[tuple[str, Data, str]] = [
        ("layers", facts.target_layers, ""),
        ("hidden", facts.target_hidden, ""),
        ("vocab", facts.vocab, ""),
    ]
    lines += ["# The target it was trained for.", "target:", *text.noted(contract, 2)]
    head: list[tuple[str, Data, str]] = [
        ("block_size", facts.block_size, "slots of a draft pass, the anchor included"),
        ("mask_token", facts.mask_token, "fills the slots after the anchor"),
        ("taps", list(facts.taps), "target layers (from 0) whose output is read, in this order"),
    ]
    lines += text.noted(head, 0)
    lines += ["dims:", *text.noted(_dims(facts), 2)]
    lines += ["checkpoint:", f"  prefix: {text.value(facts.prefix)}"]
    lines += ["ropes:", *rope_lines("rope", "head_dim", "half", facts.theta, facts.yarn, facts.amplitude)]
    lines += ["blocks:", *block_lines("fuse", ["features"], ["ctx"], _fuse(facts))]
    for window in dict.fromkeys(window for window, _ in names):
        lines += block_lines(_context_name(window), ["ctx"], ["ctx"], _context(facts, window))
    lines += block_lines("embed", ["tokens"], ["x"], [_embedding(facts)])
    for variant, name in names.items():
        lines += block_lines(name, ["x"], ["y"], _attention(facts, variant))
    lines += block_lines("mlp", ["x"], ["y"], _mlp(facts))
    lines += block_lines("head", ["x"], ["logits"], _head(facts))
    runs = [(variant, len(list(same))) for variant, same in groupby(facts.layers)]
    lines += ["context:", "  - {block: fuse}"]
    windows = [(window, len(list(same))) for window, same in groupby(facts.layers, key=lambda layer: layer[0])]
    lines += [f"  - {{repeat: {count}, blocks: [{_context_name(window)}]}}" for window, count in windows]
    lines += ["draft:", "  - {block: embed}"]
    lines += [f"  - {{repeat: {count}, blocks: [{names[variant]}, mlp]}}" for variant, count in runs]
    return "\n".join([*lines, "  - {block: head}"]) + "\n"


def _variant_names(facts: DrafterFacts) -> dict[Variant, str]:
    """attention_full, attention_window; numbered where two windows or both causalities occur."""
    names: dict[Variant, str] = {}
    for window, causal in dict.fromkeys(facts.layers):
        name = "attention_full" if window is None else f"attention_w{window}"
        names[(window, causal)] = name + ("_causal" if causal else "")
    return names


def _context_name(window: int | None) -> str:
    return "context_full" if window is None else f"context_w{window}"


def _dims(facts: DrafterFacts) -> list[tuple[str, Data, str]]:
    return [
        ("hidden", facts.hidden, "width of the residual stream"),
        ("vocab", facts.vocab, ""),
        ("features", len(facts.taps) * facts.target_hidden, "taps * hidden of the target"),
        ("heads", facts.heads, "query heads"),
        ("kv_heads", facts.kv_heads, "key and value heads"),
        ("head_dim", facts.head_dim, ""),
        ("inter", facts.inter, "inner width of the MLP"),
    ]


def _fuse(facts: DrafterFacts) -> list[Op]:
    return [
        linear("fc", "features", "f", "drafter", (["features"], ["hidden"]), facts.fc),
        norm("norm", "f", "ctx", "hidden", facts.eps, facts.fc_norm),
    ]


def _keys(facts: DrafterFacts, x: str) -> list[Op]:
    attn = LAYER + "self_attn."
    heads = ["kv_heads", "head_dim"]
    return [
        linear("k_proj", x, "k0", "drafter", (["hidden"], heads), attn + "k_proj.weight"),
        norm("k_norm", "k0", "kn", "head_dim", facts.eps, attn + "k_norm.weight"),
        {"id": "k_rope", "op": "rope", "in": ["kn"], "out": ["k"], "table": "rope"},
        linear("v_proj", x, "v", "drafter", (["hidden"], heads), attn + "v_proj.weight"),
    ]


def _context(facts: DrafterFacts, window: int | None) -> list[Op]:
    shape = {"heads": "kv_heads", "head_dim": "head_dim", "window": window}
    return [
        *_keys(facts, "ctx"),
        {"id": "append", "op": "context_append", "in": ["k", "v"], "out": ["cached"], **shape},
    ]


def _embedding(facts: DrafterFacts) -> Op:
    own = {"weight": "embed_tokens.weight"} if facts.own_embedding else {"shared": "target"}
    return {"id": "tokens", "op": "embedding", "in": ["tokens"], "out": ["x"], "rows": "vocab", "cols": "hidden", **own}


def _attention(facts: DrafterFacts, variant: Variant) -> list[Op]:
    attn = LAYER + "self_attn."
    window, causal = variant
    shape = {"heads": "heads", "kv_heads": "kv_heads", "head_dim": "head_dim", "window": window, "causal": causal}
    return [
        norm("norm", "x", "h", "hidden", facts.eps, LAYER + "input_layernorm.weight"),
        linear("q_proj", "h", "q0", "drafter", (["hidden"], ["heads", "head_dim"]), attn + "q_proj.weight"),
        norm("q_norm", "q0", "qn", "head_dim", facts.eps, attn + "q_norm.weight"),
        {"id": "q_rope", "op": "rope", "in": ["qn"], "out": ["q"], "table": "rope"},
        *_keys(facts, "h"),
        {"id": "attend", "op": "block_attention", "in": ["q", "k", "v"], "out": ["o"], **shape},
        linear("o_proj", "o", "attn", "drafter", (["heads", "head_dim"], ["hidden"]), attn + "o_proj.weight"),
        add("x", "attn", "y"),
    ]


def _mlp(facts: DrafterFacts) -> list[Op]:
    return [
        norm("norm", "x", "h", "hidden", facts.eps, LAYER + "post_attention_layernorm.weight"),
        *swiglu_mlp("drafter", LAYER + "mlp.", ("hidden", "inter"), "m"),
        add("x", "m", "y"),
    ]


def _head(facts: DrafterFacts) -> list[Op]:
    lm_head = linear("lm_head", "h", "logits", "vocab", (["hidden"], ["vocab"]), "lm_head.weight")
    if not facts.own_head:
        del lm_head["weight"]
        lm_head["shared"] = "target"
    return [
        {"id": "take", "op": "take_rows", "in": ["x"], "out": ["rows"]},
        norm("norm", "rows", "h", "hidden", facts.eps, "norm.weight"),
        lm_head,
    ]
