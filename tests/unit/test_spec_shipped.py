"""The shipped specs load, agree with their configurations, and say the facts that the notes say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from ddtreec.spec.cross import layer_count
from ddtreec.spec.find import KINDS, is_path, shipped
from ddtreec.spec.load import load_engine, load_spec

ROOT = Path(__file__).resolve().parents[2]


def _texts() -> dict[str, str]:
    source = importlib.util.spec_from_file_location("shipped", Path(__file__).with_name("shipped.py"))
    assert source is not None
    assert source.loader is not None
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    return module.texts()


@pytest.mark.parametrize(("path", "text"), _texts().items())
def test_generated_specs_are_up_to_date(path: str, text: str) -> None:
    assert (ROOT / "specs" / path).read_text("utf-8") == text, "run python tests/unit/shipped.py"


@pytest.mark.parametrize("kind", KINDS)
def test_every_spec_loads_under_its_own_name(kind: str) -> None:
    found = shipped(kind)  # type: ignore[arg-type]
    assert found
    for name, path in found.items():
        loaded = load_spec(kind, name)  # type: ignore[arg-type]
        assert loaded.spec.name == name == path.stem
        assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", name), "spec files are kebab-case"


@pytest.mark.parametrize("name", shipped("engine"))
def test_every_engine_is_sound_and_names_shipped_specs(name: str) -> None:
    loaded = load_engine(name)
    assert loaded.warnings == ()
    for kind in ("model", "quant", "drafter", "tree", "topology"):
        ref = getattr(loaded.engine, kind)
        assert ref is None or not is_path(ref)


def test_what_must_be_shipped() -> None:
    wanted = {
        "model": {"kimi-k2.6", "kimi-k2", "moonlight-16b-a3b", "deepseek-v3", "tiny-k2"},
        "drafter": {"kimi-k2.6-dflash", "tiny-dflash"},
        "quant": {"bf16", "int4-g32-experts"},
        "tree": {"chain", "ddtree-8", "ddtree-16", "ddtree-32", "ddtree-64"},
        "topology": {"cpu", "cpu-x2", "cpu-x4", "cpu-x8", "h200-x1", "rtx-pro-6000-x8-pcie"},
        "engine": {"tiny-k2-cpu", "tiny-k2-cpu-x2", "kimi-k2.6-rtx-pro-6000-x8-pcie", "moonlight-16b-a3b-h200-x1"},
    }
    for kind in KINDS:
        assert wanted[kind] <= set(shipped(kind))


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads", "experts", "top_k", "scale"),
    [
        ("kimi-k2.6", 61, 7168, 64, 384, 8, 2.827),
        ("kimi-k2", 61, 7168, 64, 384, 8, 2.827),
        ("deepseek-v3", 61, 7168, 128, 256, 8, 2.5),
        ("moonlight-16b-a3b", 27, 2048, 16, 64, 6, 2.446),
        ("tiny-k2", 6, 256, 8, 16, 4, 2.0),
    ],
)
def test_facts(name: str, layers: int, hidden: int, heads: int, experts: int, top_k: int, scale: float) -> None:
    model = load_spec("model", name).spec
    router = next(op for op in model.blocks["moe"].ops if op.op == "router")  # type: ignore[attr-defined]
    assert layer_count(model.stack) == layers  # type: ignore[attr-defined]
    dims = model.dims  # type: ignore[attr-defined]
    assert (dims["hidden"], dims["heads"], dims["experts"]) == (hidden, heads, experts)
    assert (router.fields["top_k"], router.fields["scale"]) == (top_k, scale)
    assert dims["qk"] == dims["nope"] + dims["rope"]
    assert dims["kv_a"] == dims["kv_lora"] + dims["rope"]


def test_parameters_of_k26_add_up_to_a_trillion() -> None:
    """1,014.7 B in routed experts, 6.169 B in attention (all but norms), as counted from the release's tensors."""
    dims = load_spec("model", "kimi-k2.6").spec.dims  # type: ignore[attr-defined]
    routed = 60 * dims["experts"] * 3 * dims["hidden"] * dims["expert_inter"]
    per_layer = (
        dims["hidden"] * dims["q_lora"]
        + dims["q_lora"] * dims["heads"] * dims["qk"]
        + dims["hidden"] * dims["kv_a"]
        + dims["kv_lora"] * dims["heads"] * (dims["nope"] + dims["v"])
        + dims["heads"] * dims["v"] * dims["hidden"]
    )
    assert round(routed / 1e9, 1) == 1014.7
    assert round(61 * per_layer / 1e9, 2) == 6.17


def test_k26_drafter_is_as_big_as_published() -> None:
    """3.479 B parameters without embedding and head: the published 6.48 GiB bf16 file."""
    drafter = load_spec("drafter", "kimi-k2.6-dflash").spec
    d = drafter.dims  # type: ignore[attr-defined]
    q, kv = d["heads"] * d["head_dim"], d["kv_heads"] * d["head_dim"]
    layer = d["hidden"] * (2 * q + 2 * kv) + 3 * d["hidden"] * d["inter"] + 2 * d["hidden"] + 2 * d["head_dim"]
    total = 6 * layer + d["features"] * d["hidden"] + 2 * d["hidden"]
    assert round(total * 2 / 2**30, 2) == 6.48
