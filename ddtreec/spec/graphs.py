"""Facts about a target to its layer graph, as YAML text. The shipped models and `init` both come from here.

Tensor names are those of the DeepSeek-V3 and Kimi K2 releases; the prefix goes into `checkpoint`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ddtreec.spec import text
from ddtreec.spec.facts import RouterFacts, TargetFacts, YarnFacts
from ddtreec.spec.source import Data

Op = dict[str, Data]
LAYER = "model.layers.{layer}."


def model_text(facts: TargetFacts, comment: Sequence[str] = ()) -> str:
    """The model spec as text."""
    lines = [f"# {line}".rstrip() for line in comment]
    lines += ["kind: model", "version: 1", f"name: {text.value(facts.name)}"]
    lines += text.noted([("positions", facts.positions, "longest sequence the model was made for, in tokens")], 0)
    lines += ["tokens:", *text.noted(_tokens(facts), 2)]
    lines += ["dims:", *text.noted(_dims(facts), 2)]
    lines += ["checkpoint:", *text.noted(_checkpoint(facts), 2)]
    lines += ["ropes:", *rope_lines("rope", "rope", facts.rope_layout, facts.theta, facts.yarn, None)]
    lines += ["blocks:", *block_lines("embed", ["tokens"], ["x"], [_embedding()])]
    lines += block_lines("attention", ["x"], ["y"], _attention(facts))
    if facts.dense:
        lines += block_lines("mlp", ["x"], ["y"], _mlp(facts))
    if facts.router is not None and facts.dense < facts.layers:
        lines += block_lines("moe", ["x"], ["y"], _moe(facts, facts.router))
    lines += block_lines("head", ["x"], ["logits"], _head(facts))
    return "\n".join([*lines, "stack:", *_stack(facts)]) + "\n"


def rope_lines(
    name: str, dim: str, layout: str, theta: float, yarn: YarnFacts | None, amplitude: float | None
) -> list[str]:
    """One rotary table of `ropes:`."""
    extra = {} if amplitude is None else {"amplitude": amplitude}
    table: Op = {"dim": dim, "layout": layout, "theta": theta, **extra}
    if yarn is None:
        return [f"  {name}: {text.value(table)}"]
    scaled: Op = {
        "factor": yarn.factor,
        "original_positions": yarn.original_positions,
        "beta_fast": yarn.beta_fast,
        "beta_slow": yarn.beta_slow,
        "mscale": yarn.mscale,
        "mscale_all_dim": yarn.mscale_all_dim,
    }
    lines = [f"  {name}:", *(f"    {k}: {text.value(v)}" for k, v in table.items())]
    whole = f"    yarn: {text.value(scaled)}"
    if len(whole) <= text.WIDTH:
        return [*lines, whole]
    return [*lines, "    yarn:", *(f"      {k}: {text.value(v)}" for k, v in scaled.items())]


def block_lines(name: str, ins: Sequence[str], outs: Sequence[str], ops: Sequence[Op]) -> list[str]:
    """One entry of `blocks:`."""
    lines = [f"  {name}:", f"    in: {text.value(ins)}", f"    out: {text.value(outs)}", "    ops:"]
    for op in ops:
        lines += text.op(op, 6)
    return lines


def norm(op_id: str, x: str, y: str, dim: str, eps: float, weight: str) -> Op:
    """An RMSNorm over the last axis."""
    return {"id": op_id, "op": "rms_norm", "in": [x], "out": [y], "dim": dim, "eps": eps, "weight": weight}


def linear(op_id: str, x: str, y: str, role: str, dims: tuple[list[str], list[str]], weight: str) -> Op:
    """A linear map of `dims` (from, to); the first dim of each list is the one that ranks may cut."""
    ends = {"in": [x], "out": [y], "role": role, "from": dims[0], "to": dims[1]}
    return {"id": op_id, "op": "linear", **ends, "weight": weight}


def add(a: str, b: str, y: str, op_id: str = "residual") -> Op:
    """A sum of two values."""
    return {"id": op_id, "op": "add", "in": [a, b], "out": [y]}


def swiglu_mlp(role: str, prefix: str, dims: tuple[str, str], out: str, ids: str = "") -> list[Op]:
    """gate, up, SwiGLU, down over dims (width, inner width); `ids` goes before every id and value."""
    width, inner = dims
    gate, up, act = f"{ids}g", f"{ids}u", f"{ids}a"
    return [
        linear(f"{ids}gate", "h", gate, role, ([width], [inner]), f"{prefix}gate_proj.weight"),
        linear(f"{ids}up", "h", up, role, ([width], [inner]), f"{prefix}up_proj.weight"),
        {"id": f"{ids}act", "op": "swiglu", "in": [gate, up], "out": [act]},
        linear(f"{ids}down", act, out, role, ([inner], [width]), f"{prefix}down_proj.weight"),
    ]


def _tokens(facts: TargetFacts) -> list[tuple[str, Data, str]]:
    eos = ("eos", list(facts.eos), "generation ends after any of these")
    return [eos, ("bos", facts.bos, ""), ("pad", facts.pad, "")]


def _checkpoint(facts: TargetFacts) -> list[tuple[str, Data, str]]:
    prefix = ("prefix", facts.prefix, "goes before every weight name below")
    return [prefix, ("skip", list(facts.skip), "tensors that begin so are not ours")]


def _dims(facts: TargetFacts) -> list[tuple[str, Data, str]]:
    dims: list[tuple[str, Data, str]] = [
        ("hidden", facts.hidden, "width of the residual stream"),
        ("vocab", facts.vocab, "rows of the embedding and of the head"),
        ("heads", facts.heads, "attention heads"),
    ]
    if facts.q_lora is not None:
        dims.append(("q_lora", facts.q_lora, "rank of the query latent"))
    dims += [
        ("kv_lora", facts.kv_lora, "rank of the key and value latent, cached"),
        ("nope", facts.nope, "key width of a head without positions"),
        ("rope", facts.rope, "key width with positions, shared by all heads, cached"),
        ("v", facts.v, "value width of a head"),
        ("qk", facts.nope + facts.rope, "nope + rope"),
        ("kv_a", facts.kv_lora + facts.rope, "kv_lora + rope"),
    ]
    if facts.dense:
        dims.append(("inter", facts.inter, "inner width of the dense MLP"))
    router = facts.router
    if router is not None and facts.dense < facts.layers:
        dims.append(("experts", router.experts, "routed experts of a layer"))
        dims.append(("expert_inter", router.inter, "inner width of one routed expert"))
        if router.shared:
            note = f"inner width of the shared expert{'s' if router.shared > 1 else ''}"
            dims.append(("shared_inter", router.shared * router.inter, note))
    return dims


def _embedding() -> Op:
    ends = {"in": ["tokens"], "out": ["x"], "rows": "vocab", "cols": "hidden"}
    return {"id": "tokens", "op": "embedding", **ends, "weight": "model.embed_tokens.weight"}


def _queries(facts: TargetFacts) -> list[Op]:
    attn = LAYER + "self_attn."
    if facts.q_lora is None:
        return [linear("q", "h", "q", "attention", (["hidden"], ["heads", "qk"]), attn + "q_proj.weight")]
    return [
        linear("q_a", "h", "qa", "a_proj", (["hidden"], ["q_lora"]), attn + "q_a_proj.weight"),
        norm("q_norm", "qa", "qn", "q_lora", facts.latent_eps, attn + "q_a_layernorm.weight"),
        linear("q_b", "qn", "q", "attention", (["q_lora"], ["heads", "qk"]), attn + "q_b_proj.weight"),
    ]


def _attention(facts: TargetFacts) -> list[Op]:
    attn = LAYER + "self_attn."
    mla = {"heads": "heads", "nope": "nope", "rope": "rope", "v": "v", "kv_lora": "kv_lora", "table": "rope"}
    return [
        norm("norm", "x", "h", "hidden", facts.eps, LAYER + "input_layernorm.weight"),
        *_queries(facts),
        {"id": "q_split", "op": "split", "in": ["q"], "out": ["q_nope", "q_pe"], "sizes": ["nope", "rope"]},
        {"id": "q_rope", "op": "rope", "in": ["q_pe"], "out": ["q_rot"], "table": "rope"},
        linear("kv_a", "h", "kva", "a_proj", (["hidden"], ["kv_a"]), attn + "kv_a_proj_with_mqa.weight"),
        {"id": "kv_split", "op": "split", "in": ["kva"], "out": ["latent", "k_pe"], "sizes": ["kv_lora", "rope"]},
        norm("kv_norm", "latent", "c", "kv_lora", facts.latent_eps, attn + "kv_a_layernorm.weight"),
        {"id": "k_rope", "op": "rope", "in": ["k_pe"], "out": ["k_rot"], "table": "rope"},
        {"id": "append", "op": "latent_append", "in": ["c", "k_rot"], "out": ["cache"]},
        {
            "id": "mla",
            "op": "mla_attention",
            "in": ["q_nope", "q_rot", "cache"],
            "out": ["o"],
            "role": "attention",
            **mla,
            "weight": attn + "kv_b_proj.weight",
        },
        linear("o_proj", "o", "attn", "attention", (["heads", "v"], ["hidden"]), attn + "o_proj.weight"),
        add("x", "attn", "y"),
    ]


def _mlp(facts: TargetFacts) -> list[Op]:
    return [
        norm("norm", "x", "h", "hidden", facts.eps, LAYER + "post_attention_layernorm.weight"),
        *swiglu_mlp("mlp", LAYER + "mlp.", ("hidden", "inter"), "m"),
        add("x", "m", "y"),
    ]


def _moe(facts: TargetFacts, router: RouterFacts) -> list[Op]:
    mlp, expert = LAYER + "mlp.", LAYER + "mlp.experts.{expert}."
    ops: list[Op] = [
        norm("norm", "x", "h", "hidden", facts.eps, LAYER + "post_attention_layernorm.weight"),
        {
            "id": "router",
            "op": "router",
            "in": ["h"],
            "out": ["ids", "w"],
            "role": "router",
            "dim": "hidden",
            "experts": "experts",
            "top_k": router.top_k,
            "groups": router.groups,
            "top_groups": router.top_groups,
            "score": router.score,
            "normalize": router.normalize,
            "scale": router.scale,
            "weight": mlp + "gate.weight",
            "bias": mlp + "gate.e_score_correction_bias" if router.bias else None,
        },
        {
            "id": "experts",
            "op": "experts",
            "in": ["h", "ids", "w"],
            "out": ["routed"],
            "role": "experts",
            "experts": "experts",
            "dim": "hidden",
            "inter": "expert_inter",
            "gate": expert + "gate_proj.weight",
            "up": expert + "up_proj.weight",
            "down": expert + "down_proj.weight",
        },
    ]
    if not router.shared:
        return [*ops, add("x", "routed", "y")]
    shared = swiglu_mlp("mlp", mlp + "shared_experts.", ("hidden", "shared_inter"), "shared", "shared_")
    return [*ops, *shared, add("routed", "shared", "m", "sum"), add("x", "m", "y")]


def _head(facts: TargetFacts) -> list[Op]:
    weight = "model.embed_tokens.weight" if facts.tied else "lm_head.weight"
    return [
        {"id": "take", "op": "take_rows", "in": ["x"], "out": ["rows"]},
        norm("norm", "rows", "h", "hidden", facts.eps, "model.norm.weight"),
        linear("lm_head", "h", "logits", "vocab", (["hidden"], ["vocab"]), weight),
    ]


def _stack(facts: TargetFacts) -> list[str]:
    lines = ["  - {block: embed}"]
    if facts.dense:
        lines.append(f"  - {{repeat: {facts.dense}, blocks: [attention, mlp]}}")
    if facts.dense < facts.layers:
        lines.append(f"  - {{repeat: {facts.layers - facts.dense}, blocks: [attention, moe]}}")
    return [*lines, "  - {block: head}"]
