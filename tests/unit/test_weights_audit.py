"""The audit by headers: complete checkpoints pass, and every fault is one problem with a way out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from ddtreec.artifacts.plan import Shard, Weight, WeightPart
from ddtreec.core.errors import CheckpointError, Problem
from ddtreec_runtime.weights import Checkpoint, TensorInfo, audit, read_checkpoint
from ddtreec_runtime.weights.names import shown, template, who

K26 = Path(__file__).parents[1] / "data" / "k26"
LM = "language_model."


def weight(name: str, dims: Sequence[int], shape: Sequence[int] = (), **extra: object) -> Weight:
    part = {"tensor": name, "dims": dims}
    return msgspec.convert(
        {"id": name, "role": "test", "store": "target", "parts": [part], "shape": shape or dims, **extra}, Weight
    )


def small_plan(
    prefix: str = LM, packed: bool = True, layers: Iterable[int] = (1, 2), group: int = 32
) -> tuple[Weight, ...]:
    """What the golden checkpoints `c` and `d` hold, in part: embedding, q_b by heads, router, experts."""
    experts: dict[str, object] = {"experts": 16}
    if packed:
        experts |= {"packing": "int4", "group": group}
    out = [weight(prefix + "model.embed_tokens.weight", (512, 128)), weight(prefix + "lm_head.weight", (512, 128))]
    for layer in layers:
        head = f"{prefix}model.layers.{layer}."
        out += [
            weight(head + "self_attn.q_b_proj.weight", (4, 32, 48)),
            weight(head + "mlp.gate.e_score_correction_bias", (16,), precision="float32"),
            weight(head + "mlp.experts.{expert}.gate_proj.weight", (64, 128), (16, 64, 128), **experts),
            weight(head + "mlp.experts.{expert}.up_proj.weight", (64, 128), (16, 64, 128), **experts),
            weight(head + "mlp.experts.{expert}.down_proj.weight", (128, 64), (16, 128, 64), **experts),
        ]
    return tuple(out)


def problems(checkpoint: Checkpoint, plan: Sequence[Weight]) -> list[Problem]:
    with pytest.raises(CheckpointError) as caught:
        audit(checkpoint, plan, "target")
    for problem in caught.value.problems:
        assert problem.loc is not None and problem.help
    return list(caught.value.problems)


def only(checkpoint: Checkpoint, plan: Sequence[Weight], code: str) -> Problem:
    found = problems(checkpoint, plan)
    assert [problem.code for problem in found] == [code], [problem.message for problem in found]
    return found[0]


def edited(checkpoint: Checkpoint, pattern: str, to: str | TensorInfo | None = None, **change: object) -> Checkpoint:
    """A copy whose tensors that match `pattern` are renamed (`to`), changed, or dropped."""
    tensors: dict[str, TensorInfo] = {}
    hits = 0
    for name, info in checkpoint.tensors.items():
        if not re.search(pattern, name):
            tensors[name] = info
            continue
        hits += 1
        if change:
            tensors[name] = replace(info, **change)
        elif isinstance(to, str):
            tensors[re.sub(pattern, to, name)] = info
    assert hits
    return Checkpoint(checkpoint.dir, tensors, checkpoint.sizes)


@pytest.fixture(scope="module")
def c() -> Checkpoint:
    return read_checkpoint(K26 / "c-vl-nested-int4")


@pytest.fixture(scope="module")
def d() -> Checkpoint:
    return read_checkpoint(K26 / "d-vl-nested-bf16")


def test_complete_checkpoints_pass(c: Checkpoint, d: Checkpoint) -> None:
    audit(c, small_plan(), "target")
    audit(d, small_plan(packed=False), "target")
    audit(c, [msgspec.structs.replace(w, store="drafter", parts=()) for w in small_plan()], "target")


def test_every_expert_and_both_parts_count(c: Checkpoint) -> None:
    one = small_plan(layers=(1,))[4]
    both = msgspec.structs.replace(one, parts=one.parts + small_plan(layers=(1,))[5].parts)
    lost = edited(c, r"layers\.1\.mlp\.experts\.15\.up_proj\.weight_packed")
    audit(lost, (one,), "target")
    assert "experts.15.up_proj" in only(lost, (both,), "K020").message


def test_unused_text_tensors_are_warnings_and_vision_is_not(d: Checkpoint) -> None:
    warnings = audit(d, small_plan(packed=False), "target")
    text = "\n".join(warnings)
    assert "vision_tower" not in text and "mm_projector" not in text and "embed_tokens" not in text
    assert any("model.norm.weight" in warning for warning in warnings)
    assert sum("input_layernorm" in warning for warning in warnings) == 1 and "layers 0..2" in text
    rope = {"language_model.model.layers.1.self_attn.rotary_emb.inv_freq": TensorInfo("f", "F32", (8,), 0, 32)}
    extra = Checkpoint(d.dir, d.tensors | rope, d.sizes)
    assert audit(extra, small_plan(packed=False), "target") == warnings


def test_missing_scales_are_one_problem_for_all_experts(c: Checkpoint) -> None:
    problem = only(edited(c, r"layers\.2\.mlp\.experts\.\d+\.up_proj\.weight_scale"), small_plan(), "K023")
    assert problem.message == (
        "16 experts of layer 2 lack 'language_model.model.layers.2.mlp.experts.{expert}.up_proj.weight_scale', "
        "first: 'language_model.model.layers.2.mlp.experts.0.up_proj.weight_scale'"
    )
    one = only(edited(c, r"layers\.2\.mlp\.experts\.7\.up_proj\.weight_scale"), small_plan(), "K023")
    assert one.message.startswith("'language_model.model.layers.2.mlp.experts.7.up_proj.weight_scale' is missing")


def test_missing_in_several_layers_is_one_problem(c: Checkpoint) -> None:
    problem = only(edited(c, "e_score_correction_bias"), small_plan(), "K020")
    assert "layers 1..2 lack" in problem.message and "{layer}" in problem.message


@pytest.mark.parametrize(
    ("pattern", "to", "first"),
    [
        (r"q_b_proj", "q_b_prj", "q_b_prj"),
        (r"weight_packed", "weight_pack", "weight_pack"),
        (r"e_score_correction_bias", "e_score_correction_bais", "e_score_correction_bais"),
    ],
)
def test_did_you_mean(c: Checkpoint, pattern: str, to: str, first: str) -> None:
    for problem in problems(edited(c, pattern, to), small_plan()):
        assert problem.code == "K020" and problem.help.startswith("did you mean 'language_model.model.layers.1.")
        assert first in problem.help


def test_a_used_tensor_is_never_suggested(d: Checkpoint) -> None:
    problem = only(edited(d, r"experts\.\d+\.up_proj"), small_plan(packed=False), "K020")
    assert "did you mean" not in problem.help


@pytest.mark.parametrize(
    ("plan_prefix", "rename", "says"),
    [
        ("", None, "puts 'language_model.' in front"),
        (LM, (r"^language_model\.", ""), "leaves out the 'language_model.' in front"),
        (LM, (r"^language_model\.", "model.language_model."), "puts 'model.' in front"),
        (
            LM,
            (r"^language_model\.", "text_model."),
            "begin with 'language_model.', the checkpoint's with 'text_model.'",
        ),
    ],
)
def test_only_the_prefix_differs(c: Checkpoint, plan_prefix: str, rename: tuple[str, str] | None, says: str) -> None:
    checkpoint = edited(c, *rename) if rename else c
    found = only(checkpoint, small_plan(plan_prefix), "K020")
    assert says in found.message and "102 tensors" in found.message and "init" in found.help
    assert only(checkpoint, small_plan(plan_prefix, packed=False), "K020").message.startswith("102 tensors")


def test_names_of_transformers_5(d: Checkpoint) -> None:
    found = problems(edited(d, r"model\.layers\.", "model.blocks."), small_plan(packed=False))
    assert len(found) == 1 and "'language_model.model.blocks.'" in found[0].message and "transformers" in found[0].note


def test_another_model_altogether(c: Checkpoint) -> None:
    plan = [weight(f"h.{i}.attn.c_attn.weight", (4, 4)) for i in range(5)]
    assert "none of the 5 tensors" in only(c, plan, "K020").message


def test_packed_where_the_plan_says_dense_and_the_other_way_round(c: Checkpoint, d: Checkpoint) -> None:
    dense = only(c, small_plan(packed=False), "K025")
    assert dense.message.startswith("96 tensors") and "int4-g32-experts" in dense.help
    packed = only(d, small_plan(packed=True), "K025")
    assert "dense BF16" in packed.message and "quant: bf16" in packed.help


def test_group_size(c: Checkpoint) -> None:
    problem = only(c, small_plan(group=64), "K024")
    assert "group size 32, the plan expects 64" in problem.message and "`group: 32`" in problem.help
    coarse = edited(c, r"experts\.\d+\.gate_proj\.weight_scale", shape=(64, 1))
    assert "group size 128, the plan expects 32" in only(coarse, small_plan(), "K024").message


@pytest.mark.parametrize(
    ("pattern", "change", "code", "says"),
    [
        (r"layers\.1\.self_attn\.q_b_proj", {"dtype": "I8"}, "K021", "is I8, not BF16"),
        (r"layers\.\d\.self_attn\.q_b_proj", {"dtype": "F8_E4M3"}, "K021", "is F8_E4M3"),
        (r"q_b_proj", {"shape": (128, 47)}, "K022", "[128, 47] BF16, the plan reads [4, 32, 48]"),
        (r"q_b_proj", {"shape": (48, 128)}, "K022", "[48, 128]"),
        (r"correction_bias", {"shape": (15,)}, "K022", "[15]"),
        (r"up_proj\.weight_packed", {"dtype": "F32"}, "K021", "not I32 [out, in/8]"),
        (r"up_proj\.weight_packed", {"shape": (64, 15)}, "K022", "(that is [64, 120] unpacked)"),
        (r"up_proj\.weight_scale", {"dtype": "F8_E4M3"}, "K021", "is F8_E4M3"),
        (r"up_proj\.weight_scale", {"shape": (63, 4)}, "K022", "the plan expects [64, 128/32]"),
        (r"up_proj\.weight_scale", {"shape": (64, 3)}, "K022", "[64, 3]"),
        (r"up_proj\.weight_shape", {"dtype": "F32"}, "K021", "not I32 or I64"),
        (r"up_proj\.weight_shape", {"shape": (0,)}, "K021", "I32 [0]"),
    ],
)  # fmt: skip
def test_dtype_and_shape(c: Checkpoint, pattern: str, change: dict[str, object], code: str, says: str) -> None:
    assert says in only(edited(c, pattern, **change), small_plan(), code).message


def test_transposed_is_noted(c: Checkpoint) -> None:
    assert "transposed" in only(edited(c, "q_b_proj", shape=(48, 128)), small_plan(), "K022").note
    assert not only(edited(c, "q_b_proj", shape=(47, 128)), small_plan(), "K022").note


@pytest.mark.parametrize("dtype", ["F16", "F32", "F64"])
def test_other_float_dtypes_are_fine(c: Checkpoint, dtype: str) -> None:
    audit(edited(c, "q_b_proj", dtype=dtype), small_plan(), "target")


def test_wide_weight_shape_and_absent_weight_shape_are_fine(c: Checkpoint) -> None:
    audit(edited(c, "weight_shape", dtype="I64"), small_plan(), "target")
    audit(edited(c, "weight_shape"), small_plan(), "target")


@pytest.mark.parametrize(
    ("tail", "says"), [("_zero_point", "zero points"), ("_g_idx", "order"), ("_global_scale", "global scale")]
)
def test_foreign_quantisation_is_refused(c: Checkpoint, tail: str, says: str) -> None:
    info = TensorInfo("model-00001-of-000003.safetensors", "I32", (1,), 0, 4)
    name = "language_model.model.layers.1.mlp.experts.2.up_proj.weight" + tail
    assert says in only(Checkpoint(c.dir, c.tensors | {name: info}, c.sizes), small_plan(), "K026").message


def test_all_problems_at_once(c: Checkpoint) -> None:
    broken = edited(c, r"lm_head")
    broken = edited(broken, r"q_b_proj", dtype="I8")
    broken = edited(broken, r"gate_proj\.weight_scale")
    broken = edited(broken, r"embed_tokens", shape=(512, 127))
    assert sorted(problem.code for problem in problems(broken, small_plan())) == ["K020", "K021", "K022", "K023"]


def test_names_in_words() -> None:
    names = [f"model.layers.{layer}.mlp.experts.{e}.up.weight" for layer in (1, 2, 3, 7) for e in range(384)]
    assert template(names[0]) == "model.layers.{layer}.mlp.experts.{expert}.up.weight"
    assert (
        template("vision.conv.0.weight") == "vision.conv.{n}.weight"
        and template("layers.3.norm") == "layers.{layer}.norm"
    )
    assert who(names) == "1536 experts of layers 1..3, 7"
    assert who(names[:384]) == "384 experts of layer 1"
    assert who(["a.layers.0.x", "a.layers.2.x"]) == "layers 0, 2"
    assert shown(names[:384]) == "model.layers.1.mlp.experts.{expert}.up.weight"
    assert shown(["layers.1.x.experts.3.y", "layers.2.x.experts.3.y"]) == "layers.{layer}.x.experts.3.y"


def test_shards_do_not_matter_to_the_audit(c: Checkpoint) -> None:
    """Names and shapes are those of the whole tensor, whatever a rank takes of it."""
    whole = small_plan(layers=(1,))[4]
    part = msgspec.structs.replace(whole.parts[0], shard=Shard(0, 2, "tp"))
    cut = msgspec.structs.replace(whole, parts=(part,), shape=(8, 32, 128), expert_shard=Shard(0, 2, "ep"))
    audit(c, (cut,), "target")
    assert isinstance(part, WeightPart)
    assert (
        "experts.12"
        in only(edited(c, r"layers\.1\.mlp\.experts\.12\.gate_proj\.weight_packed"), (cut,), "K020").message
    )
