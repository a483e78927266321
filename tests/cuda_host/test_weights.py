"""Weights as the device holds them: INT4 stays packed, the router's bits stay, and what cannot be so is refused."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from ddtreec.artifacts.plan import Mesh, Shard, Weight, WeightPart
from ddtreec.core.errors import CheckpointError, VerifyError
from ddtreec_runtime.backends.cuda.layouts import LAYOUTS
from ddtreec_runtime.backends.cuda.synthetic import synthetic_weights
from ddtreec_runtime.backends.cuda.weights import device_dtype, layouts_of, load_weights
from ddtreec_runtime.weights import load_rank, read_checkpoint
from tests.cuda_host.emulated import PAIR, compiled


@cache
def plan() -> Any:
    return compiled("tiny-k2-h200-x1")[0].plan


@cache
def layouts() -> dict[str, str]:
    bundle, table, _ = compiled("tiny-k2-h200-x1")
    return layouts_of(bundle.plan, table)


def loaded(names: list[str]) -> dict[str, torch.Tensor]:
    weights = [weight for weight in plan().weights if weight.id in names]
    checkpoints = {"target": read_checkpoint(PAIR / "target")}
    return load_weights(checkpoints, weights, layouts(), plan().mesh, 0, "cpu")


def test_every_weight_that_a_kernel_reads_has_one_layout() -> None:
    found = layouts()
    assert set(found) == {weight.id for weight in plan().weights}
    assert {found["L01.moe.experts.gate_up"], found["L01.moe.experts.down"]} == {"gate_up_tiles", "tiles"}
    assert found["L01.attention.o_proj"] == "plain"
    bundle, table, _ = compiled("tiny-k2-h200-x1")
    kernels = tuple(
        msgspec.structs.replace(k, layouts={"3": "tiles"}) if k.name == table.programs["draft_block"][-1] else k
        for k in table.kernels
    )
    with pytest.raises(VerifyError, match="wanted as 'plain' and as 'tiles'"):
        layouts_of(bundle.plan, msgspec.structs.replace(table, kernels=kernels))


def test_experts_stay_packed() -> None:
    """Laid out from the words and scales of the file: gate, then up, of every expert."""
    name = "L01.moe.experts.gate_up"
    (record,) = (weight for weight in plan().weights if weight.id == name)
    file = load_file(PAIR / "target" / "model.safetensors")
    words: list[torch.Tensor] = []
    scales: list[torch.Tensor] = []
    for expert in range(record.experts):
        parts = [part.tensor.replace("{expert}", str(expert)) for part in record.parts]
        words.append(torch.cat([file[f"{part}_packed"] for part in parts]))
        scales.append(torch.cat([file[f"{part}_scale"] for part in parts]))
    want = LAYOUTS["gate_up_tiles"].packed(torch.stack(words), torch.stack(scales))
    got = loaded([name])[name]
    assert got.dtype == torch.uint8 and torch.equal(got, want)
    assert got.numel() == record.bytes  # 0.5 bytes a weight and a scale for 32 of them


def test_dense_weights_keep_their_bits() -> None:
    names = ["L01.moe.router", "L01.moe.router.bias", "L01.attention.o_proj", "L01.attention.mla.w_uk"]
    got = loaded(names)
    weights = [weight for weight in plan().weights if weight.id in names]
    want = load_rank({"target": read_checkpoint(PAIR / "target")}, weights, plan().mesh, 0, torch.float32)
    assert [got[name].dtype for name in names] == [torch.bfloat16, torch.float32, torch.bfloat16, torch.bfloat16]
    for name in names[:3]:
        assert torch.equal(got[name].float(), want[name])
    assert torch.equal(got[names[3]].float(), want[names[3]].transpose(-1, -2)) and got[names[3]].is_contiguous()


def dense(precision: Any, size: int) -> Weight:
    part = WeightPart("w", (4, 8))
    return Weight("router", "router", "target", (part,), (4, 8), precision=precision, bytes=32 * size)


def test_a_router_that_would_be_rounded_is_refused(tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text("{}")
    exact = torch.arange(32.0).view(4, 8)
    for tensor, size, fine in ((exact, 2, True), (exact + 0.001, 2, False), (exact + 0.001, 4, True)):
        save_file({"w": tensor}, tmp_path / "model.safetensors")
        record = dense("float32", size)
        checkpoints = {"target": read_checkpoint(tmp_path)}
        if not fine:
            with pytest.raises(CheckpointError, match=r"K030.*needs float32"):
                load_weights(checkpoints, [record], {}, Mesh(1, 1, 1), 0, "cpu")
            continue
        got = load_weights(checkpoints, [record], {}, Mesh(1, 1, 1), 0, "cpu")["router"]
        assert got.dtype == device_dtype(record) and torch.equal(got.float(), tensor)


def test_a_slice_across_groups_is_refused() -> None:
    """96 inputs in groups of 32, cut in two."""
    name = "L01.moe.experts.down"
    (record,) = (weight for weight in plan().weights if weight.id == name)
    part = msgspec.structs.replace(record.parts[0], shard=Shard(1, 2))
    halved = msgspec.structs.replace(record, parts=(part,), shape=(*record.shape[:2], record.shape[2] // 2))
    with pytest.raises(CheckpointError, match=r"K029.*cut across its groups of 32 inputs"):
        load_weights({"target": read_checkpoint(PAIR / "target")}, [halved], layouts(), Mesh(2, 1, 2), 0, "cpu")


def test_random_weights_have_the_shape_of_real_ones() -> None:
    checkpoints = {"target": read_checkpoint(PAIR / "target"), "drafter": read_checkpoint(PAIR / "drafter")}
    real = load_weights(checkpoints, plan().weights, layouts(), plan().mesh, 0, "cpu")
    told: list[tuple[int, int, str]] = []
    made = synthetic_weights(plan().weights, layouts(), "cpu", progress=lambda *how: told.append(how))
    assert {name: (w.shape, w.dtype) for name, w in made.items()} == {n: (w.shape, w.dtype) for n, w in real.items()}
    assert told[-1][0] == told[-1][1] == sum(weight.bytes for weight in plan().weights)
    assert all(torch.isfinite(w).all() for w in made.values() if w.is_floating_point())
