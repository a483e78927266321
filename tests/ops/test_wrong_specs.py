"""Mistakes in the layer graph of a spec: each gives a message with the place and a way out, all at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ddtreec.core.errors import SpecError
from ddtreec.passes.expand import expand
from ddtreec.spec.schema import Packing
from tests.passes.small import INT4, drafter_data, engine_of, target_data

Data = dict[str, Any]
Edit = Callable[[Data, Data], None]


def op_of(data: Data, block: str, name: str) -> Data:
    return next(op for op in data["blocks"][block]["ops"] if op["id"] == name)


def change(block: str, name: str, **fields: Any) -> Edit:
    """Set fields of an op of the model; None deletes, a leading `d_` in the block means the drafter."""

    def edit(model: Data, drafter: Data) -> None:
        op = op_of(drafter if block.startswith("d_") else model, block.removeprefix("d_"), name)
        for key, value in fields.items():
            key = key.rstrip("_")
            if value is DELETE:
                del op[key]
            else:
                op[key] = value

    return edit


DELETE = object()


def top(kind: str, key: str, value: Any) -> Edit:
    """Set one key of the model or the drafter."""
    return lambda model, drafter: {"model": model, "drafter": drafter}[kind].__setitem__(key, value)


CASES: dict[str, tuple[Edit, str, str, str]] = {
    # name: (edit, code, place, words of the message)
    "unknown op": (change("mlp", "act", op="swigloo"), "S060", "model:blocks.mlp.ops.3.op", "did you mean 'swiglu'?"),
    "unknown field": (
        change("mlp", "norm", epss=1e-6),
        "S010",
        "model:blocks.mlp.ops.0.epss",
        "rms_norm has no field 'epss'\n  --> model:blocks.mlp.ops.0.epss\n  help: did you mean 'eps'?",
    ),
    "missing field": (change("mlp", "norm", eps=DELETE), "S011", "model:blocks.mlp.ops.0", "needs the field 'eps'"),
    "undefined dim": (
        change("mlp", "gate", to=["intre"]),
        "S032",
        "model:blocks.mlp.ops.1.to",
        "undefined dim 'intre'\n  --> model:blocks.mlp.ops.1.to\n  help: did you mean 'inter'?",
    ),
    "wrong type": (change("mlp", "gate", to=[2.5]), "S012", "model:blocks.mlp.ops.1.to", "not 2.5"),
    "empty list": (change("mlp", "gate", to=[]), "S012", "model:blocks.mlp.ops.1.to", "a list of sizes"),
    "zero size": (change("mlp", "gate", to=[0]), "S012", "model:blocks.mlp.ops.1.to", "a positive integer"),
    "bool for size": (change("mlp", "gate", to=True), "S012", "model:blocks.mlp.ops.1.to", "not true"),
    "negative eps": (change("mlp", "norm", eps=-1.0), "S012", "model:blocks.mlp.ops.0.eps", "a positive number"),
    "flag": (change("moe", "router", normalize="yes"), "S012", "model:blocks.moe.ops.1.normalize", "true or false"),
    "word": (
        change("moe", "router", score="sigmoidal"),
        "S013",
        "model:blocks.moe.ops.1.score",
        "did you mean 'sigmoid'?",
    ),
    "role": (change("mlp", "gate", role="mlps"), "S013", "model:blocks.mlp.ops.1.role", "did you mean 'mlp'?"),
    "rope table": (
        change("attention", "k_rope", table="ropes"),
        "S032",
        "model:blocks.attention.ops.9.table",
        "did you mean 'rope'?",
    ),
    "no expert": (
        change("moe", "experts", up="up.weight"),
        "S042",
        "model:blocks.moe.ops.2.up",
        "names one tensor for all experts",
    ),
    "expert elsewhere": (
        change("mlp", "up", weight="{expert}.up"),
        "S042",
        "model:blocks.mlp.ops.2.weight",
        "only in the weights of",
    ),
    "placeholder": (change("mlp", "up", weight="l.{layers}.up"), "S042", "model:blocks.mlp.ops.2.weight", "'{layers}'"),
    "braces": (change("mlp", "up", weight="l.{layer.up"), "S042", "model:blocks.mlp.ops.2.weight", "unbalanced braces"),
    "layer outside": (
        change("head", "norm", weight="n.{layer}"),
        "S042",
        "model:blocks.head.ops.1.weight",
        "outside the layers",
    ),
    "no layer": (
        change("moe", "norm", weight="norm.weight"),
        "S042",
        "model:blocks.moe.ops.0.weight",
        "every layer would read",
    ),
    "no weight": (change("mlp", "up", weight=DELETE), "S061", "model:blocks.mlp.ops.2", "either a weight or 'shared"),
    "shared in the target": (
        change("head", "lm_head", weight=DELETE, shared="target"),
        "S061",
        "model:blocks.head.ops.2.shared",
        "only a drafter",
    ),
    "two weights": (
        change("d_head", "lm_head", weight="lm"),
        "S061",
        "drafter:blocks.head.ops.2",
        "either a weight or 'shared",
    ),
    "shape": (
        change("mlp", "gate", from_=["vocab"]),
        "S062",
        "model:blocks.mlp.ops.1.in",
        "but [36] values a row are expected",
    ),
    "two of one type": (
        change("mlp", "up", to=["vocab"]),
        "S062",
        "model:blocks.mlp.ops.3.in",
        "two of one type are expected",
    ),
    "norm": (change("mlp", "norm", dim="heads"), "S062", "model:blocks.mlp.ops.0.in", "a last axis of 4 is expected"),
    "split": (
        change("attention", "kv_split", sizes=["kv_lora"]),
        "S062",
        "model:blocks.attention.ops.7.in",
        "a last axis of 8 is expected",
    ),
    "arity": (
        change("mlp", "act", **{"in": ["g"]}),
        "S013",
        "model:blocks.mlp.ops.3.in",
        "has 2 values under 'in', not 1",
    ),
    "unknown value": (
        change("mlp", "act", **{"in": ["gg", "u"]}),
        "S031",
        "model:blocks.mlp.ops.3.in.0",
        "not made before it is read",
    ),
    "made twice": (change("mlp", "up", out=["g"]), "S031", "model:blocks.mlp.ops.2.out.0", "is made twice"),
    "never read": (
        change("mlp", "residual", **{"in": ["x", "x"]}),
        "S031",
        "model:blocks.mlp.ops.4.out.0",
        "'m' is never read",
    ),
    "not an output": (
        lambda m, d: m["blocks"]["mlp"].__setitem__("out", ["z"]),
        "S031",
        "model:blocks.mlp.out.0",
        "nothing in it makes",
    ),
    "unknown block": (
        lambda m, d: m["stack"][1].__setitem__("blocks", ["attention", "mlpp"]),
        "S030",
        "model:stack.1.blocks.1",
        "there is no block 'mlpp'\n  --> model:stack.1.blocks.1\n  help: did you mean 'mlp'?",
    ),
    "block twice": (
        lambda m, d: m["stack"][1].__setitem__("blocks", ["attention", "mlp", "mlp"]),
        "S030",
        "model:stack.1.blocks.2",
        "stands twice in one layer",
    ),
    "chain": (
        lambda m, d: m["blocks"]["mlp"].__setitem__("in", ["x", "more"]),
        "S030",
        "model:stack.1.blocks.1",
        "takes 2 (x, more), but 1 value reaches it",
    ),
    "stack item": (
        lambda m, d: m["stack"][1].__setitem__("block", "embed"),
        "S030",
        "model:stack.1",
        "either one 'block', or",
    ),
    "two ids": (
        change("mlp", "up", id="gate"),
        "S030",
        "model:blocks.mlp.ops.2.id",
        "block 'mlp' has two ops with the id 'gate'",
    ),
    "no layers": (
        lambda m, d: m.__setitem__("stack", [{"block": "embed"}, {"block": "head"}]),
        "S030",
        "model:stack",
        "the stack has no layers",
    ),
    "no stack": (lambda m, d: m.__setitem__("stack", []), "S030", "model:stack", "the stack has no layers"),
    "head of every row": (
        lambda m, d: (m["blocks"]["head"]["ops"].pop(0), op_of(m, "head", "norm").__setitem__("in", ["x"])),
        "S062",
        "model:stack.3",
        "put a take_rows before the head",
    ),
    "experts role of a matrix": (
        change("mlp", "gate", role="experts"),
        "S013",
        "model:blocks.mlp.ops.1.role",
        "'experts' is none of",
    ),
    "router groups": (
        change("moe", "router", groups=3),
        "S061",
        "model:blocks.moe.ops.1.groups",
        "do not divide into 3",
    ),
    "top groups": (change("moe", "router", top_groups=2), "S061", "model:blocks.moe.ops.1.top_groups", "2 of 1 groups"),
    "top k": (change("moe", "router", top_k=9), "S061", "model:blocks.moe.ops.1.top_k", "at most 8"),
    "experts of router": (
        change("moe", "experts", experts=16),
        "S039",
        "model:blocks.moe.ops.2.experts",
        "its router chooses from 8",
    ),
    "cache width": (
        change("attention", "mla", kv_lora=12),
        "S062",
        "model:blocks.attention.ops.11.kv_lora",
        "holds 8 + 4 values",
    ),
    "cache from elsewhere": (
        change("attention", "mla", **{"in": ["q_nope", "q_rot", "c"]}),
        "S062",
        "model:blocks.attention.ops.11.in",
        "does not come from a latent_append",
    ),
    "odd rope": (lambda m, d: m["ropes"]["rope"].__setitem__("dim", 3), "S061", "model:ropes.rope.dim", "no even size"),
    "huge rope": (
        lambda m, d: m["ropes"]["rope"].__setitem__("dim", 10**12),
        "S061",
        "model:ropes.rope.dim",
        "more than the 65536",
    ),
    "rope dim": (lambda m, d: m["ropes"]["rope"].__setitem__("dim", "rop"), "S032", "model:ropes.rope.dim", "'rop'"),
    "tap range": (
        top("drafter", "taps", [0, 3]),
        "S035",
        "drafter:taps.1",
        "tap 3 is no layer of the target, which has 3",
    ),
    "tap twice": (top("drafter", "taps", [2, 2]), "S035", "drafter:taps.1", "layer 2 is tapped twice"),
    "features": (
        lambda m, d: d["dims"].__setitem__("features", 72),
        "S062",
        "drafter:blocks.fuse.ops.0.in",
        "[72] values a row",
    ),
    "shared size": (
        lambda m, d: d["dims"].__setitem__("vocab", 40),
        "S061",
        "drafter:blocks.embed.ops.0.shared",
        "[36, 24]",
    ),
    "kv heads": (
        change("d_attention_full", "attend", kv_heads=3),
        "S061",
        "drafter:blocks.attention_full.ops.8.kv_heads",
        "evenly",
    ),
    "context window": (
        change("d_context_w5", "append", window=4),
        "S039",
        "drafter:context",
        "layer 1: the context holds",
    ),
    "context layers": (
        lambda m, d: d["context"].pop(),
        "S030",
        "drafter:context",
        "fills 1 layers, the draft stack reads 2",
    ),
    "append outside": (
        lambda m, d: d["blocks"]["fuse"]["ops"].extend(
            [{"id": "a", "op": "context_append", "in": ["ctx", "ctx"], "out": ["t"], "heads": 1, "head_dim": 24}]
        ),
        "S061",
        "drafter:blocks.fuse.ops.2",
        "outside the layers, where there is no cache",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_mistake(name: str) -> None:
    edit, code, place, words = CASES[name]
    model, drafter = target_data(), drafter_data()
    edit(model, drafter)
    with pytest.raises(SpecError) as caught:
        expand(engine_of(model, drafter))
    text = caught.value.render()
    matching = [p for p in caught.value.problems if p.code == code and str(p.loc) == place]
    assert matching, text
    assert any(words in p.render() for p in matching), text


def test_a_stack_without_a_head() -> None:
    model = target_data()
    model["stack"].pop()
    model["blocks"]["moe"]["out"] = ["y", "m"]
    with pytest.raises(SpecError, match="the stack ends with 2 values, but it must end with logits"):
        expand(engine_of(model))


def test_a_stack_that_ends_inside_the_layers() -> None:
    model = target_data()
    model["stack"].pop()
    with pytest.raises(SpecError, match="ends inside the layers, but a block behind them must give logits"):
        expand(engine_of(model))


def test_all_mistakes_at_once_and_each_once() -> None:
    """Faults of one op in two layers are one problem; independent faults come together, of both specs."""
    model, drafter = target_data(), drafter_data()
    op_of(model, "moe", "norm")["dim"] = "hiden"
    op_of(model, "moe", "router")["top_k"] = 9
    op_of(model, "attention", "kv_norm")["eps"] = None
    drafter["taps"] = [0, 7]
    op_of(drafter, "mlp", "up")["too"] = 3
    with pytest.raises(SpecError) as caught:
        expand(engine_of(model, drafter))
    places = sorted(str(p.loc) for p in caught.value.problems)
    assert places == [
        "drafter:blocks.mlp.ops.2.too",
        "drafter:taps.1",
        "model:blocks.attention.ops.8.eps",
        "model:blocks.moe.ops.0.dim",
        "model:blocks.moe.ops.1.top_k",
    ], caught.value.render()


def test_int4_groups_must_divide_the_inputs() -> None:
    with pytest.raises(SpecError, match="INT4 groups of 5 do not divide the 24 inputs of role 'experts'"):
        expand(engine_of(target_data(), experts=Packing(packing="int4", group=5)))
    expand(engine_of(target_data(), experts=INT4))
