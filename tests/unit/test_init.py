"""`ddtreec init`: golden checkpoints, both spellings of configs, refusals by name, a folder that appears at once."""

from __future__ import annotations

import json
import math
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ddtreec import driver
from ddtreec.cli.main import main
from ddtreec.core.errors import CheckpointError, DdtreecError, SpecError
from ddtreec.spec.codes import TITLES
from ddtreec.spec.cross import layer_count
from ddtreec.spec.drafter_config import default_taps, read_drafter
from ddtreec.spec.init import Request, init
from ddtreec.spec.load import LoadedEngine, load_engine

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
K26 = DATA / "k26"
GOLDEN = sorted(path.name for path in K26.iterdir() if path.is_dir())
CONFIGS = DATA / "configs"


def _write(folder: Path, config: dict[str, Any], names: list[str] | None = None, **extra: dict[str, Any]) -> Path:
    """A checkpoint folder with a config and, when names are given, headers of empty tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in {"config": config, **extra}.items():
        (folder / f"{name}.json").write_text(json.dumps(data, indent=1), "utf-8")
    if names is not None:
        header = json.dumps({n: {"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]} for n in names}).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return folder


def _config(name: str = "a-flat-8e") -> dict[str, Any]:
    return json.loads((K26 / name / "config.json").read_text("utf-8"))


def _made(checkpoint: Path, tmp_path: Path, **options: Any) -> LoadedEngine:
    init(Request(checkpoint, tmp_path / "out", **options))
    return load_engine(tmp_path / "out" / "engine.yaml")


def _ops(loaded: LoadedEngine, block: str) -> dict[str, dict[str, Any]]:
    return {op.id: op.fields for op in loaded.model.blocks[block].ops}


# ---- golden checkpoints -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_checkpoints_name_exactly_their_tensors(name: str, tmp_path: Path) -> None:
    """The weights that the specs name, written out, are the text tensors of the checkpoint: none more, none fewer."""
    loaded = _made(K26 / name, tmp_path)
    model, prefix = loaded.model, loaded.model.checkpoint.prefix
    packed = loaded.quant.roles.get("experts")
    wanted: set[str] = set()
    layer = 0
    for item in model.stack:
        for _ in range(item.repeat or 1):
            for block in item.blocks or (item.block,):
                for op in model.blocks[str(block)].ops:
                    wanted |= _tensors(op.op, op.fields, model.dims, layer, prefix, packed is not None)
            layer += item.repeat is not None
    found = _headers(K26 / name)
    ours = {n for n in found if not n.startswith(tuple(model.checkpoint.skip))} if model.checkpoint.skip else found
    assert wanted == ours


def _tensors(kind: str, fields: dict[str, Any], dims: Any, layer: int, prefix: str, packed: bool) -> set[str]:
    found: set[str] = set()
    for field in ("weight", "bias", "gate", "up", "down"):
        if fields.get(field):
            name = prefix + str(fields[field]).replace("{layer}", str(layer))
            numbers = range(dims[fields["experts"]]) if kind == "experts" else (0,)
            for number in numbers:
                one = name.replace("{expert}", str(number))
                parts = ("_packed", "_scale", "_shape") if kind == "experts" and packed else ("",)
                found |= {one + part for part in parts}
    return found


def _headers(folder: Path) -> set[str]:
    names: set[str] = set()
    for path in folder.glob("model*.safetensors"):
        with path.open("rb") as file:
            names |= set(json.loads(file.read(struct.unpack("<Q", file.read(8))[0])))
    return names - {"__metadata__"}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_shapes_agree_with_the_dims(name: str, tmp_path: Path) -> None:
    loaded = _made(K26 / name, tmp_path)
    dims, config = loaded.model.dims, _config(name)
    text = config.get("text_config", config)
    assert dims["hidden"] == text["hidden_size"]
    assert dims["qk"] == text["qk_nope_head_dim"] + text["qk_rope_head_dim"]
    assert layer_count(loaded.model.stack) == text["num_hidden_layers"]
    assert loaded.model.tokens.eos == (2,)
    assert (loaded.model.tokens.bos, loaded.model.tokens.pad) == (1, 0)
    yarn = loaded.model.ropes["rope"].yarn
    assert yarn is not None
    assert (yarn.factor, yarn.original_positions, yarn.beta_fast, yarn.mscale_all_dim) == (64.0, 4096, 32.0, 1.0)
    assert loaded.model.ropes["rope"].theta == 50000.0


def test_both_spellings_give_the_same_model(tmp_path: Path) -> None:
    """c is spelled as the release (rope_scaling, kimi_k2), d as transformers 5 saves it (rope_parameters)."""
    release = _made(K26 / "c-vl-nested-int4", tmp_path / "c").resolved()["model"]
    resaved = _made(K26 / "d-vl-nested-bf16", tmp_path / "d").resolved()["model"]
    assert {**release, "name": ""} == {**resaved, "name": ""}


def test_prefix_packing_and_skipped_tensors(tmp_path: Path) -> None:
    flat = _made(K26 / "a-flat-8e", tmp_path / "a")
    assert (flat.model.checkpoint.prefix, flat.model.checkpoint.skip, flat.quant.roles) == ("", (), {})
    nested = _made(K26 / "c-vl-nested-int4", tmp_path / "c")
    assert nested.model.checkpoint.prefix == "language_model."
    assert nested.model.checkpoint.skip == ("vision_tower.", "mm_projector.")
    assert nested.quant.roles["experts"].group == 32


def test_the_latent_norms_have_their_own_eps(tmp_path: Path) -> None:
    hugging_face = _ops(_made(K26 / "a-flat-8e", tmp_path / "a"), "attention")
    assert (hugging_face["norm"]["eps"], hugging_face["q_norm"]["eps"], hugging_face["kv_norm"]["eps"]) == (
        1e-5,
        1e-6,
        1e-6,
    )
    told = _ops(_made(K26 / "a-flat-8e", tmp_path / "b", latent_eps=1e-5), "attention")
    assert (told["q_norm"]["eps"], told["kv_norm"]["eps"]) == (1e-5, 1e-5)


@pytest.mark.parametrize("topology", ["cpu", "cpu-x2"])
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_specs_pass_check(name: str, topology: str, tmp_path: Path) -> None:
    driver.check(_made(K26 / name, tmp_path, topology=topology))


@pytest.mark.parametrize("name", ["kimi-k2.6", "kimi-k2", "deepseek-v3", "moonlight-16b-a3b", "tiny-k2"])
def test_specs_of_public_models_pass_check(name: str, tmp_path: Path) -> None:
    loaded = _made(CONFIGS / name, tmp_path, topology="rtx-pro-6000-x8-pcie", context=64)
    int4 = ["quant.roles={experts: {packing: int4, group: 32}}"]
    driver.check(load_engine(tmp_path / "out" / "engine.yaml", int4 if not loaded.quant.roles else []))


# ---- variants of the config ---------------------------------------------------------------------------------------


def test_without_a_query_latent(tmp_path: Path) -> None:
    checkpoint = CONFIGS / "moonlight-16b-a3b"
    loaded = _made(checkpoint, tmp_path)
    attention = _ops(loaded, "attention")
    assert "q_a" not in attention
    assert attention["q"]["weight"].endswith("self_attn.q_proj.weight")
    assert attention["q"]["from"] == ("hidden",)
    assert loaded.model.dims["shared_inter"] == 2 * 1408
    assert loaded.model.ropes["rope"].yarn is None


def test_grouped_routing_and_prediction_layers(tmp_path: Path) -> None:
    loaded = _made(CONFIGS / "deepseek-v3", tmp_path)
    router = _ops(loaded, "moe")["router"]
    assert (router["groups"], router["top_groups"], router["top_k"]) == (8, 4, 8)
    assert [item.repeat for item in loaded.model.stack] == [None, 3, 58, None]
    assert loaded.model.checkpoint.skip == ("model.layers.61.",)


def test_quantization_at_the_top_level_is_found(tmp_path: Path) -> None:
    config = _config("c-vl-nested-int4")
    config["quantization_config"] = config["text_config"].pop("quantization_config")
    assert _made(_write(tmp_path / "x", config), tmp_path).quant.roles["experts"].group == 32


def test_end_tokens_of_all_files_are_united(tmp_path: Path) -> None:
    config = _config() | {"eos_token_id": [7, 2]}
    checkpoint = _write(tmp_path / "x", config, generation_config={"eos_token_id": 9})
    assert _made(checkpoint, tmp_path).model.tokens.eos == (2, 7, 9)


def test_softmax_routing_without_bias_and_without_shared_experts(tmp_path: Path) -> None:
    config = _config() | {"scoring_func": "softmax", "topk_method": "greedy", "n_shared_experts": None}
    moe = _ops(_made(_write(tmp_path / "x", config), tmp_path), "moe")
    assert (moe["router"]["score"], moe["router"]["bias"]) == ("softmax", None)
    assert not [name for name in moe if name.startswith("shared")]


def test_a_dense_model_and_half_rotation(tmp_path: Path) -> None:
    config = _config() | {"n_routed_experts": None, "rope_interleave": False}
    loaded = _made(_write(tmp_path / "x", config), tmp_path)
    assert [item.blocks for item in loaded.model.stack if item.repeat] == [("attention", "mlp")]
    assert loaded.model.ropes["rope"].layout == "half"


def test_tied_embeddings_read_one_tensor_twice(tmp_path: Path) -> None:
    names = sorted(_headers(K26 / "b-real-heads") - {"lm_head.weight"})
    config = _config("b-real-heads") | {"tie_word_embeddings": True}
    loaded = _made(_write(tmp_path / "x", config, names), tmp_path)
    assert _ops(loaded, "head")["lm_head"]["weight"] == "model.embed_tokens.weight"


# ---- engine defaults and drafters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "context", "topology", "dtype"),
    [
        ({}, 4096, "cpu", "float32"),
        ({"context": 32}, 32, "cpu", "float32"),
        ({"topology": "h200-x1"}, 4096, "h200-x1", "bfloat16"),
        ({"topology": "cpu-x2"}, 4096, "cpu-x2", "float32"),
    ],
)
def test_defaults(options: dict[str, Any], context: int, topology: str, dtype: str, tmp_path: Path) -> None:
    loaded = _made(K26 / "a-flat-8e", tmp_path, **options)
    assert (loaded.engine.limits.context, loaded.topology.name, loaded.engine.dtype) == (context, topology, dtype)
    assert (loaded.drafter, loaded.tree) == (None, None)
    assert loaded.engine.limits.chunk == min(64, context)


def test_context_is_at_most_what_the_model_was_made_for(tmp_path: Path) -> None:
    checkpoint = _write(tmp_path / "x", _config() | {"max_position_embeddings": 100})
    assert _made(checkpoint, tmp_path).engine.limits.context == 100
    with pytest.raises(SpecError) as caught:
        init(Request(checkpoint, tmp_path / "out", context=101, force=True))
    problem = caught.value.problems[0]
    assert (problem.code, str(problem.loc)) == ("S037", f"{tmp_path}/out/engine.yaml:10:12")
    assert "partial" not in caught.value.render(), "messages name the files as they would be called"


def test_a_drafter_brings_a_tree(tmp_path: Path) -> None:
    loaded = _made(CONFIGS / "tiny-k2", tmp_path / "a", drafter=CONFIGS / "tiny-dflash")
    assert loaded.drafter is not None
    assert loaded.tree is not None
    assert (loaded.tree.name, loaded.drafter.taps, loaded.drafter.mask_token) == ("ddtree-16", (1, 2, 3), 4094)
    assert _made(CONFIGS / "tiny-k2", tmp_path / "b", drafter=CONFIGS / "tiny-dflash", tree="chain").tree is not None


def test_a_drafter_of_another_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        init(Request(CONFIGS / "tiny-k2", tmp_path / "out", drafter=CONFIGS / "kimi-k2.6-dflash"))
    assert {p.code for p in caught.value.problems} == {"S033", "S034", "S035"}
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("layers", "draft", "taps"),
    [(61, 6, (1, 12, 24, 35, 47, 58)), (6, 1, (3,)), (36, 5, (1, 9, 17, 25, 33)), (6, 2, (1, 3))],
)
def test_default_taps(layers: int, draft: int, taps: tuple[int, ...]) -> None:
    assert default_taps(layers, draft) == taps


def _drafter(**changes: Any) -> dict[str, Any]:
    config = json.loads((CONFIGS / "tiny-dflash" / "config.json").read_text("utf-8"))
    return {key: value for key, value in (config | changes).items() if value is not ...}


def test_windows_and_causality_of_draft_layers(tmp_path: Path) -> None:
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    silent = read_drafter(_write(tmp_path / "a", _drafter(layer_types=kinds, sliding_window=64)), "d")
    assert silent.facts.layers == ((64, True), (None, False), (64, True))
    assert "causal" in silent.notes[0]
    dflash = {"mask_token_id": 4094, "target_layer_ids": [1, 2, 3, 4], "causal": False}
    told = read_drafter(
        _write(tmp_path / "b", _drafter(layer_types=kinds, sliding_window=64, dflash_config=dflash)), "d"
    )
    assert told.facts.layers == ((64, False), (None, False), (64, False))
    assert told.notes == ()


def test_a_drafter_without_taps_uses_the_rule(tmp_path: Path) -> None:
    drafter = read_drafter(
        _write(tmp_path / "a", _drafter(num_target_layers=6, dflash_config={"mask_token_id": 4094})), "d"
    )
    assert drafter.facts.taps == default_taps(6, 3) == (1, 2, 3)
    assert "default rule" in drafter.notes[0]


def test_the_other_spelling_of_the_fusion_and_own_tables(tmp_path: Path) -> None:
    names = ["model.encoder.fc.weight", "model.encoder.output_norm_enc.weight", "model.layers.0.input_layernorm.weight"]
    names += ["model.embed_tokens.weight", "model.lm_head.weight"]
    facts = read_drafter(_write(tmp_path / "a", _drafter(), names), "d").facts
    assert (facts.prefix, facts.fc, facts.fc_norm) == ("model.", "encoder.fc.weight", "encoder.output_norm_enc.weight")
    assert facts.own_embedding
    assert facts.own_head


def test_attention_factor_pins_the_amplitude(tmp_path: Path) -> None:
    scaling = {"type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096, "attention_factor": 1.25}
    assert read_drafter(_write(tmp_path / "a", _drafter(rope_scaling=scaling)), "d").facts.amplitude == 1.25


# ---- refusals -----------------------------------------------------------------------------------------------------


def _set(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda config: config.update(changes)


def _quant(**changes: Any) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        quant = _config("c-vl-nested-int4")["text_config"]["quantization_config"]
        group = quant["config_groups"]["group_0"]
        for key, value in changes.items():
            (quant if key in quant else group if key in group else group["weights"])[key] = value
        config["quantization_config"] = quant

    return change


REFUSED = [
    ("type", _set(model_type="deepseek_v2"), "S050", ("model_type `deepseek_v2`",), "the nearest is deepseek_v3"),
    (
        "type-far",
        _set(model_type="llama"),
        "S050",
        ("model_type `llama`",),
        "supported: deepseek_v3, kimi_k2, kimi_k25",
    ),
    ("type-next", _set(model_type="kimi_k3"), "S050", ("`kimi_k3`",), "the nearest is kimi_k2"),
    ("no-type", _set(model_type=None), "S050", ("names no model_type",), "supported"),
    ("bias", _set(attention_bias=True), "S050", ("attention with biases",), "attention_bias: false"),
    ("act", _set(hidden_act="gelu"), "S050", ("activation `gelu`",), "only silu"),
    ("freq", _set(moe_layer_freq=2), "S050", ("moe_layer_freq",), "by hand"),
    ("kv-heads", _set(num_key_value_heads=2), "S050", ("2 key heads for 4 heads",), ""),
    ("score", _set(scoring_func="relu"), "S050", ("scoring function `relu`",), "sigmoid, softmax"),
    ("topk", _set(topk_method="group_limited_greedy"), "S050", ("`group_limited_greedy`",), "noaux_tc"),
    ("rope", _set(rope_parameters=None, rope_scaling={"type": "llama3", "factor": 8.0}), "S050", ("`llama3`",), "yarn"),
    ("fp8", _set(quantization_config={"quant_method": "fp8"}), "S050", ("quantization `fp8`",), "bf16"),
    ("gptq", _set(quantization_config={"quant_method": "gptq"}), "S050", ("quantization `gptq`",), "INT4"),
    ("format", _quant(format="float-quantized"), "S050", ("`float-quantized`",), "pack-quantized"),
    ("actorder", _quant(actorder="group"), "S050", ("`actorder`",), ""),
    ("asymmetric", _quant(symmetric=False), "S050", ("`symmetric` False",), "True"),
    ("bits", _quant(num_bits=8), "S050", ("`num_bits` 8",), "4"),
    ("strategy", _quant(strategy="channel"), "S050", ("`strategy` 'channel'",), "'group'"),
    ("activations", _quant(input_activations={"num_bits": 8}), "S050", ("quantized activations",), ""),
    ("kv-cache", _quant(kv_cache_scheme={"num_bits": 8}), "S050", ("quantized KV cache",), ""),
    ("groups", _quant(config_groups={}), "S050", ("0 quantization groups",), ""),
    (
        "amplitude",
        lambda c: c["rope_parameters"].update(attention_factor=1.2),
        "S050",
        ("attention_factor",),
        "amplitude",
    ),
    ("eps-nan", _set(rms_norm_eps=math.nan), "S051", ("`rms_norm_eps` must be a positive number",), ""),
    ("theta-inf", lambda c: c["rope_parameters"].update(rope_theta=math.inf), "S051", ("`rope_theta` must be",), ""),
    ("groups-missing", lambda c: c.pop("n_group"), "S051", ("`n_group` is missing",), "by hand"),
    ("top-groups-missing", lambda c: c.pop("topk_group"), "S051", ("`topk_group` is missing",), "by hand"),
    ("scale-missing", lambda c: c.pop("routed_scaling_factor"), "S051", ("`routed_scaling_factor` is missing",), ""),
    ("dense-missing", lambda c: c.pop("first_k_dense_replace"), "S051", ("`first_k_dense_replace` is missing",), ""),
    ("shared-missing", lambda c: c.pop("n_shared_experts"), "S051", ("`n_shared_experts` is missing",), ""),
    ("missing", lambda c: c.pop("kv_lora_rank"), "S051", ("`kv_lora_rank` is missing",), "by hand"),
    ("text", _set(hidden_size="128"), "S051", ("`hidden_size` must be a whole number", '"128"'), ""),
    ("zero", _set(kv_lora_rank=0), "S051", ("`kv_lora_rank` must be",), ""),
    ("depth", _set(num_hidden_layers=10**30), "S051", ("a whole number from 1 to 512",), ""),
    ("extra-depth", _set(num_nextn_predict_layers=10**30), "S051", ("a whole number from 0 to 512",), ""),
    ("no-eos", _set(eos_token_id=None), "S051", ("which token ends a text",), "eos_token_id"),
    ("tied", _set(tie_word_embeddings="yes"), "S051", ("`tie_word_embeddings` must be true or false",), ""),
]


@pytest.mark.parametrize(
    ("change", "code", "words", "hint"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_what_is_not_supported_is_refused_by_name(
    change: Callable[[dict[str, Any]], None], code: str, words: tuple[str, ...], hint: str, tmp_path: Path
) -> None:
    config = _config()
    change(config)
    checkpoint = _write(tmp_path / "x", config)
    with pytest.raises(CheckpointError) as caught:
        init(Request(checkpoint, tmp_path / "out"))
    problem = caught.value.problems[0]
    assert problem.code == code
    assert problem.code in TITLES
    assert problem.loc is not None
    assert problem.loc.file == str(checkpoint / "config.json")
    for word in words:
        assert word in problem.message
    assert hint in problem.help
    if problem.loc.line:
        line = (checkpoint / "config.json").read_text().splitlines()[problem.loc.line - 1]
        assert re.match(r'"\w+":', line[problem.loc.col - 1 :]), "the caret stands at the key"
    assert not (tmp_path / "out").exists()


def test_all_refusals_come_together(tmp_path: Path) -> None:
    config = _config() | {"attention_bias": True, "hidden_act": "gelu", "moe_layer_freq": 3}
    with pytest.raises(CheckpointError) as caught:
        init(Request(_write(tmp_path / "x", config), tmp_path / "out"))
    assert len(caught.value.problems) == 3


FLAT = sorted(_headers(K26 / "a-flat-8e"))
PACKED = [n for n in FLAT if ".mlp.experts." not in n] + [
    n + part for n in FLAT if ".mlp.experts." in n for part in ("_packed", "_scale", "_shape")
]

DISAGREE = [
    (
        "no-embedding",
        None,
        [n for n in FLAT if "embed" not in n],
        "no tensors are called `...model.embed_tokens.weight`",
    ),
    ("blocks", None, [n.replace("model.layers", "model.blocks") for n in FLAT], "`model.layers.0.`"),
    ("fewer-layers", None, [n for n in FLAT if ".layers.2." not in n], "lack layers 2"),
    ("no-head", None, [n for n in FLAT if n != "lm_head.weight"], "`lm_head.weight` is missing"),
    ("tied-head", {"tie_word_embeddings": True}, FLAT, "`lm_head.weight` is there"),
    ("packed", None, PACKED, "no quantization_config says how"),
    ("dense", {"quantization_config": ...}, FLAT, "no expert is packed"),
    ("mixed", {"quantization_config": ...}, PACKED + FLAT, "some experts are packed, others not"),
]


@pytest.mark.parametrize(("changes", "names", "words"), [case[1:] for case in DISAGREE], ids=[c[0] for c in DISAGREE])
def test_config_and_tensors_that_disagree(
    changes: dict[str, Any] | None, names: list[str], words: str, tmp_path: Path
) -> None:
    config = _config() | (changes or {})
    if "quantization_config" in config:
        config["quantization_config"] = _config("c-vl-nested-int4")["text_config"]["quantization_config"]
    with pytest.raises(CheckpointError) as caught:
        init(Request(_write(tmp_path / "x", config, names), tmp_path / "out"))
    problem = caught.value.problems[0]
    assert problem.code == "S052"
    assert words in problem.message


def test_other_tensors_beside_the_weights_are_left_alone(tmp_path: Path) -> None:
    checkpoint = _write(tmp_path / "x", _config(), FLAT)
    (checkpoint / "extra.safetensors").write_bytes(b"not weights")
    assert _made(checkpoint, tmp_path).model.checkpoint.skip == ()


def test_packed_attention_is_refused_by_name(tmp_path: Path) -> None:
    config = _config()
    _quant()(config)
    names = [n.replace("q_b_proj.weight", "q_b_proj.weight_packed") for n in PACKED]
    with pytest.raises(CheckpointError) as caught:
        init(Request(_write(tmp_path / "x", config, names), tmp_path / "out"))
    assert caught.value.problems[0].code == "S050"
    assert "model.layers.0.self_attn.q_b_proj.weight_packed" in caught.value.problems[0].message


DRAFTER_REFUSED = [
    ("architecture", {"architectures": ["Qwen3ForCausalLM"]}, "Qwen3ForCausalLM is not a DFlash drafter"),
    ("vocabulary", {"draft_vocab_size": 1000}, "a draft vocabulary of 1000 for 4096"),
    ("quantized", {"quantization_config": {"quant_method": "fp8"}}, "quantized drafters"),
    ("layer-types", {"layer_types": ["full_attention"]}, "each of 3 layers"),
    ("layer-kind", {"layer_types": ["linear_attention"] * 3}, "full_attention or sliding_attention"),
    ("window", {"layer_types": ["sliding_attention"] * 3}, "`sliding_window` is missing"),
    ("mask", {"dflash_config": {"target_layer_ids": [1]}}, "`mask_token_id` is missing"),
    ("block", {"block_size": 1}, "`block_size` must be a whole number of at least 2"),
    ("target", {"num_target_layers": ...}, "`num_target_layers` is missing"),
    ("taps", {"dflash_config": {"mask_token_id": 1, "target_layer_ids": ["a"]}}, "list of layer numbers"),
]


@pytest.mark.parametrize(
    ("changes", "words"), [case[1:] for case in DRAFTER_REFUSED], ids=[c[0] for c in DRAFTER_REFUSED]
)
def test_drafters_that_are_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_drafter(_write(tmp_path / "d", _drafter(**changes)), "d")
    assert words in caught.value.problems[0].message


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"a": ' + "9" * 5000 + "}"])
def test_json_beyond_what_python_reads(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError) as caught:
        init(Request(tmp_path, tmp_path / "out"))
    assert caught.value.problems[0].code == "S051"


def test_a_link_to_weights_that_are_gone(tmp_path: Path) -> None:
    """As in a cache of Hugging Face that was pruned."""
    _write(tmp_path / "x", _config())
    (tmp_path / "x" / "model.safetensors").symlink_to("../blobs/none")
    with pytest.raises(CheckpointError) as caught:
        init(Request(tmp_path / "x", tmp_path / "out"))
    assert "model.safetensors is a link to a file that is not there" in caught.value.problems[0].message


# ---- the folder and the command -----------------------------------------------------------------------------------


def test_a_full_folder_is_kept_without_force(tmp_path: Path) -> None:
    out = tmp_path / "out"
    init(Request(K26 / "a-flat-8e", out))
    before = (out / "engine.yaml").read_bytes()
    with pytest.raises(SpecError) as caught:
        init(Request(K26 / "b-real-heads", out))
    assert caught.value.problems[0].code == "S053"
    assert (out / "engine.yaml").read_bytes() == before
    init(Request(K26 / "b-real-heads", out, force=True))
    assert (out / "engine.yaml").read_bytes() != before


def test_force_never_replaces_what_init_did_not_write(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(SpecError) as caught:
        init(Request(K26 / "a-flat-8e", out, force=True))
    assert "thesis.tex" in caught.value.problems[0].message
    assert (out / "thesis.tex").read_text() == "years of work"


def test_places_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for out, words in (
        (tmp_path / "file" / "out", "cannot write"),
        (tmp_path / "link", "is a link, not a folder"),
        (Path(), "the output is the working folder itself"),
        (tmp_path / "here", "the output is the working folder itself"),
    ):
        with pytest.raises(SpecError) as caught:
            init(Request(K26 / "a-flat-8e", out))
        assert caught.value.problems[0].code == "S053"
        assert words in caught.value.problems[0].message
    assert list((tmp_path / "here").iterdir()) == []


def test_paths_behind_a_link(tmp_path: Path) -> None:
    """`..` from a folder behind a link does not lead back through the link."""
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "near").symlink_to("far/away")
    shutil.copy(ROOT / "specs" / "topologies" / "cpu.yaml", tmp_path / "mine.yaml")
    init(Request(K26 / "a-flat-8e", tmp_path / "near" / "out", topology=str(tmp_path / "mine.yaml")))
    assert load_engine(tmp_path / "near" / "out" / "engine.yaml").topology.name == "cpu"


def test_a_failed_init_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        init(Request(K26 / "a-flat-8e", tmp_path / "new" / "out", context=10**9))
    assert [p.name for p in (tmp_path / "new").iterdir()] == []


def test_two_inits_write_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        init(Request(CONFIGS / "tiny-k2", tmp_path / name, drafter=CONFIGS / "tiny-dflash"))
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere"], 2, "the checkpoint folder nowhere does not exist"),
        ([str(CONFIGS)], 4, "config.json does not exist"),
        ([str(K26 / "a-flat-8e"), "--topology", "cpux2"], 2, "did you mean `cpu-x2`?"),
        ([str(K26 / "a-flat-8e"), "--tree", "chain"], 2, "a tree needs a drafter"),
        ([str(CONFIGS / "tiny-k2"), "--drafter", str(CONFIGS / "tiny-dflash"), "--tree", "ddtree-9"], 2, "ddtree-8"),
        ([str(CONFIGS / "tiny-dflash")], 4, "give it with --drafter"),
        ([str(K26 / "a-flat-8e"), "--context", "0"], 2, "Invalid value for '--context'"),
        ([str(K26 / "a-flat-8e"), "--latent-norm-eps", "0"], 2, "Invalid value for '--latent-norm-eps'"),
    ],
)
def test_the_command_says_what_is_wrong(arguments: list[str], code: int, words: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["init", *arguments, "-o", str(tmp_path / "out")])
    assert result.exit_code == code
    assert words in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


def test_the_command_prints_files_and_what_comes_next(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(main, ["init", str(K26 / "a-flat-8e"), "-o", str(out)])
    assert result.exit_code == 0
    assert result.stdout.split() == [str(out / name) for name in ("engine.yaml", "model.yaml", "quant.yaml")]
    assert f"ddtreec check {out}/engine.yaml" in result.stderr
    assert "--latent-norm-eps" in result.stderr


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"\xff\xfe", "not UTF-8"),
        (b"", "not valid JSON"),
    ],
)
def test_a_damaged_config(raw: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(raw)
    with pytest.raises(DdtreecError) as caught:
        init(Request(tmp_path, tmp_path / "out"))
    assert words in caught.value.problems[0].message


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"", "no safetensors header"),
        (b"<!DOCTYPE html><html></html>", "no safetensors header"),
        (struct.pack("<Q", 500) + b'{"a": {', "cut off"),
    ],
)
def test_a_damaged_weight_file(raw: bytes, words: str, tmp_path: Path) -> None:
    checkpoint = _write(tmp_path / "x", _config())
    (checkpoint / "model.safetensors").write_bytes(raw)
    with pytest.raises(CheckpointError) as caught:
        init(Request(checkpoint, tmp_path / "out"))
    assert words in caught.value.problems[0].message
