"""Goldens of the K2 family (Hugging Face transformers) through the CUDA kernels on the emulator; a GPU runs all."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ddtreec.spec.init import Request, init
from ddtreec_runtime.backends.cuda.engine import CudaEngine
from tests.cuda_host.emulated import emulated
from tests.emulated.emulator import missing
from tests.runtime.engines import K26, scratch

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "here")


def golden_engine(name: str) -> CudaEngine:
    """A golden checkpoint for one H200, as `init` and `compile` make it."""
    out = Path(tempfile.mkdtemp(dir=scratch()))
    init(Request(K26 / name, out, None, "h200-x1", None))
    return emulated(str(out / "engine.yaml"), ("dtype=bfloat16", "limits.context=256"), K26 / name, None)


@pytest.mark.parametrize("name", ["a-flat-8e", "c-vl-nested-int4"])
def test_logits_text_and_tree(name: str) -> None:
    engine, gold = golden_engine(name), load_file(K26 / name / "goldens.safetensors")
    for i in range(2):
        want = gold[f"p{i}.logits"]
        got = engine.logits(gold[f"p{i}.input_ids"].tolist())
        error = (got - want).norm(dim=1) / want.norm(dim=1)
        assert error.median() < 0.01  # bfloat16; a row that flips an expert is further off
        assert torch.equal(got.argmax(1), want.argmax(1))
    done = engine.generate(gold["p1.input_ids"].tolist(), 6, ignore_eos=True)
    assert done.output_ids == gold["g1.tokens"][:6].tolist()
    prefix, nodes, parents = (gold[f"t1.{key}"].tolist() for key in ("prefix_ids", "token_ids", "parent"))
    logits = engine.tree_logits(prefix, nodes, parents)
    assert torch.equal(logits.argmax(1), gold["t1.logits"].argmax(1))
    engine._live().target.commit(gold["t1.accepted"].tolist())
    after = engine._live().target.step([int(gold["t1.bonus"])])
    assert int(after[0].argmax()) == gold["t1.next_tokens"][0]
