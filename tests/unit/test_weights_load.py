"""Slices of every rank, compared with plain torch slicing of the same files."""

from __future__ import annotations

import gc
import math
import shutil
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from ddtreec.artifacts.plan import Mesh, Shard, Weight, WeightPart
from ddtreec.core.errors import CheckpointError, VerifyError
from ddtreec_runtime.weights import Checkpoint, audit, load_all, load_rank, read_checkpoint

K26 = Path(__file__).parents[1] / "data" / "k26"
ONE, TWO = Mesh(1, 1, 1), Mesh(2, 1, 2)
Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def a() -> tuple[Checkpoint, Tensors]:
    return opened("a-flat-8e")


@pytest.fixture(scope="module")
def c() -> tuple[Checkpoint, Tensors]:
    return opened("c-vl-nested-int4")


@pytest.fixture(scope="module")
def d() -> tuple[Checkpoint, Tensors]:
    return opened("d-vl-nested-bf16")


def opened(name: str) -> tuple[Checkpoint, Tensors]:
    tensors: Tensors = {}
    for file in sorted((K26 / name).glob("model*.safetensors")):
        tensors |= load_file(file)
    return read_checkpoint(K26 / name), tensors


def loaded(
    checkpoint: Checkpoint, weight: Weight, mesh: Mesh, dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    """The weight on every rank, by both doors (which must agree), audited first."""
    audit(checkpoint, (weight,), "target")
    together = [rank["w"] for rank in load_all({"target": checkpoint}, (weight,), mesh, dtype)]
    for rank, tensor in enumerate(together):
        alone = load_rank({"target": checkpoint}, (weight,), mesh, rank, dtype)["w"]
        assert torch.equal(alone, tensor) and alone.dtype == tensor.dtype
        assert tensor.is_contiguous() and tensor.data_ptr() % 64 == 0 and tuple(tensor.shape) == weight.shape
    return together


def plain(shape: tuple[int, ...], *parts: WeightPart, **extra: object) -> Weight:
    return msgspec.convert(
        {"id": "w", "role": "test", "store": "target", "parts": parts, "shape": shape, **extra}, Weight
    )


def int4(tensors: Tensors, name: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Another way to unpack: shifts of whole words."""
    shifts = torch.arange(0, 32, 4)
    q = ((tensors[name + "_packed"].long().unsqueeze(-1) >> shifts) & 15).flatten(-2) - 8
    return q.to(dtype) * tensors[name + "_scale"].to(dtype).repeat_interleave(32, -1)


A, LM = "model.layers.1.", "language_model.model.layers.1."


def test_whole_tensor_every_dtype(a: tuple[Checkpoint, Tensors]) -> None:
    checkpoint, tensors = a
    weight = plain((128, 48), WeightPart(A + "self_attn.q_b_proj.weight", (128, 48)))
    for dtype in (torch.bfloat16, torch.float32, torch.float64, torch.float16):
        (tensor,) = loaded(checkpoint, weight, ONE, dtype)
        assert tensor.dtype == dtype and torch.equal(tensor, tensors[A + "self_attn.q_b_proj.weight"].to(dtype))


def test_heads_over_ranks(a: tuple[Checkpoint, Tensors]) -> None:
    checkpoint, tensors = a
    weight = plain((64, 48), WeightPart(A + "self_attn.q_b_proj.weight", (4, 32, 48), shard=Shard(0, 2)))
    full = tensors[A + "self_attn.q_b_proj.weight"].float()
    for rank, tensor in enumerate(loaded(checkpoint, weight, TWO)):
        assert torch.equal(tensor, full[rank * 64 : rank * 64 + 64])


def test_kv_b_split_in_two_over_ranks(a: tuple[Checkpoint, Tensors]) -> None:
    checkpoint, tensors = a
    full = tensors[A + "self_attn.kv_b_proj.weight"].float().view(4, 32, 32)  # heads, nope 16 + v 16, latent 32
    for take, rows in (((0, 16), slice(0, 16)), ((16, 32), slice(16, 32))):
        part = WeightPart(
            A + "self_attn.kv_b_proj.weight", (4, 32, 32), take=((0, 4), take, (0, 32)), shard=Shard(0, 2)
        )
        for rank, tensor in enumerate(loaded(checkpoint, plain((2, 16, 32), part), TWO)):
            assert torch.equal(tensor, full[2 * rank : 2 * rank + 2, rows])


def test_columns_over_ranks_and_two_parts(a: tuple[Checkpoint, Tensors]) -> None:
    """o_proj by heads (columns), and q_a with kv_a stacked: rows of both after one another."""
    checkpoint, tensors = a
    o_proj = plain((128, 32), WeightPart(A + "self_attn.o_proj.weight", (128, 4, 16), shard=Shard(1, 2)))
    for rank, tensor in enumerate(loaded(checkpoint, o_proj, TWO)):
        assert torch.equal(tensor, tensors[A + "self_attn.o_proj.weight"].float()[:, 32 * rank : 32 * rank + 32])
    names = (A + "self_attn.q_a_proj.weight", A + "self_attn.kv_a_proj_with_mqa.weight")
    stacked = plain((48, 128), *(WeightPart(name, (48, 128), shard=Shard(0, 2)) for name in names))
    for rank, tensor in enumerate(loaded(checkpoint, stacked, TWO)):
        assert torch.equal(tensor, torch.cat([tensors[n].float()[24 * rank : 24 * rank + 24] for n in names]))


def test_stacked_column_shards(a: tuple[Checkpoint, Tensors]) -> None:
    """Two matrices cut along columns seen as two axes, stacked along rows."""
    checkpoint, tensors = a
    names = (A + "mlp.experts.0.gate_proj.weight", A + "mlp.experts.0.up_proj.weight")
    weight = plain((128, 64), *(WeightPart(name, (64, 4, 32), shard=Shard(1, 2)) for name in names))
    for rank, tensor in enumerate(loaded(checkpoint, weight, TWO)):
        cut = slice(64 * rank, 64 * rank + 64)
        assert torch.equal(tensor, torch.cat([tensors[name].float()[:, cut] for name in names]))


def test_vocabulary_over_ranks(d: tuple[Checkpoint, Tensors]) -> None:
    checkpoint, tensors = d
    name = "language_model.model.embed_tokens.weight"
    weight = plain((128, 128), WeightPart(name, (512, 128), shard=Shard(0, 4)))
    for rank, tensor in enumerate(loaded(checkpoint, weight, Mesh(4, 4, 1), torch.bfloat16)):
        assert torch.equal(tensor, tensors[name][128 * rank : 128 * rank + 128])


def test_router_bias_is_never_below_float32(d: tuple[Checkpoint, Tensors]) -> None:
    checkpoint, tensors = d
    name = LM + "mlp.gate.e_score_correction_bias"
    weight = plain((16,), WeightPart(name, (16,)), precision="float32")
    for dtype, want in (
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        (tensor,) = loaded(checkpoint, weight, ONE, dtype)
        assert tensor.dtype == want and torch.equal(tensor, tensors[name].to(want))
    low = msgspec.structs.replace(weight, precision="compute")
    assert loaded(checkpoint, low, ONE, torch.bfloat16)[0].dtype == torch.bfloat16


@pytest.mark.parametrize(("ep", "tp"), [(1, 1), (2, 1), (1, 2), (2, 2), (4, 2)])
@pytest.mark.parametrize("packing", ["dense", "int4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_experts(request: pytest.FixtureRequest, ep: int, tp: int, packing: str, dtype: torch.dtype) -> None:
    """gate and up stacked, split by rows; down split by columns; experts over the other axis of the mesh."""
    checkpoint, tensors = request.getfixturevalue("d" if packing == "dense" else "c")
    mesh = Mesh(ep * tp, ep, tp)
    each, inner = 16 // ep, 64 // tp
    extra = {"experts": 16, "expert_shard": Shard(0, ep, "ep")}
    if packing == "int4":
        extra |= {"packing": "int4", "group": 32}

    def full(expert: int, kind: str) -> torch.Tensor:
        name = f"{LM}mlp.experts.{expert}.{kind}_proj.weight"
        return int4(tensors, name).to(dtype) if packing == "int4" else tensors[name].to(dtype)

    pattern = LM + "mlp.experts.{expert}.%s_proj.weight"
    parts = [WeightPart(pattern % kind, (64, 128), shard=Shard(0, tp, "tp")) for kind in ("gate", "up")]
    for rank, tensor in enumerate(loaded(checkpoint, plain((each, 2 * inner, 128), *parts, **extra), mesh, dtype)):
        first, cut = rank // tp * each, slice(rank % tp * inner, rank % tp * inner + inner)
        for local in range(each):
            want = torch.cat([full(first + local, kind)[cut] for kind in ("gate", "up")])
            assert torch.equal(tensor[local], want)
    down = plain((each, 128, inner), WeightPart(pattern % "down", (128, 64), shard=Shard(1, tp, "tp")), **extra)
    for rank, tensor in enumerate(loaded(checkpoint, down, mesh, dtype)):
        first, cut = rank // tp * each, slice(rank % tp * inner, rank % tp * inner + inner)
        for local in range(each):
            assert torch.equal(tensor[local], full(first + local, "down")[:, cut])


def test_int4_rounded_product_and_odd_cuts(c: tuple[Checkpoint, Tensors]) -> None:
    checkpoint, tensors = c
    name = LM + "mlp.experts.3.down_proj.weight"
    exact = int4(tensors, name)
    extra = {"packing": "int4", "group": 32}
    rounded = plain((128, 32), WeightPart(name, (128, 64), shard=Shard(1, 2)), product="bf16", **extra)
    for rank, tensor in enumerate(loaded(checkpoint, rounded, TWO)):
        want = exact.bfloat16().float()[:, 32 * rank : 32 * rank + 32]
        assert torch.equal(tensor, want) and not torch.equal(want, exact[:, 32 * rank : 32 * rank + 32])
    across = plain((128, 20), WeightPart(name, (128, 64), take=((0, 128), (5, 25))), **extra)
    assert torch.equal(loaded(checkpoint, across, ONE)[0], exact[:, 5:25])
    split = plain((128, 2, 8), WeightPart(name, (128, 4, 16), take=((0, 128), (1, 3), (0, 8))), **extra)
    assert torch.equal(loaded(checkpoint, split, ONE)[0], exact.view(128, 4, 16)[:, 1:3, :8])
    rows = plain((3, 16, 64), WeightPart(name, (8, 16, 64), take=((2, 5), (0, 16), (0, 64))), **extra)
    assert torch.equal(loaded(checkpoint, rows, ONE)[0], exact.view(8, 16, 64)[2:5])


def test_what_is_equal_is_the_same_tensor(d: tuple[Checkpoint, Tensors]) -> None:
    checkpoint, _ = d
    norm = plain((128,), WeightPart("language_model.model.norm.weight", (128,)))
    again = msgspec.structs.replace(norm, id="again", role="other")
    pattern = WeightPart(LM + "mlp.experts.{expert}.up_proj.weight", (64, 128))
    experts = plain((8, 64, 128), pattern, experts=16, expert_shard=Shard(0, 2, "ep"))
    experts = msgspec.structs.replace(experts, id="experts")
    ranks = load_all({"target": checkpoint}, (norm, again, experts), Mesh(4, 2, 2), torch.float32)
    assert len({id(rank["w"]) for rank in ranks} | {id(rank["again"]) for rank in ranks}) == 1
    assert ranks[0]["experts"] is ranks[1]["experts"] and ranks[2]["experts"] is ranks[3]["experts"]
    assert ranks[0]["experts"] is not ranks[2]["experts"]
    wide = msgspec.structs.replace(norm, id="wide", precision="float32")
    (rank,) = load_all({"target": checkpoint}, (norm, wide), ONE, torch.bfloat16)
    assert (rank["w"].dtype, rank["wide"].dtype) == (torch.bfloat16, torch.float32)


def test_two_stores(a: tuple[Checkpoint, Tensors], d: tuple[Checkpoint, Tensors]) -> None:
    mine = plain((128,), WeightPart("model.norm.weight", (128,)))
    theirs = msgspec.structs.replace(mine, id="v", store="drafter")
    rank = load_rank({"target": a[0], "drafter": a[0]}, (mine, theirs), ONE, 0, torch.float32)
    assert torch.equal(rank["w"], rank["v"]) and rank["w"] is not rank["v"]
    with pytest.raises(CheckpointError, match="needs a drafter checkpoint"):
        load_rank({"target": a[0]}, (mine, theirs), ONE, 0, torch.float32)


def test_progress_counts_checkpoint_bytes(c: tuple[Checkpoint, Tensors]) -> None:
    checkpoint, tensors = c
    pattern = LM + "mlp.experts.{expert}.down_proj.weight"
    down = plain((16, 128, 32), WeightPart(pattern, (128, 64), shard=Shard(1, 2)), packing="int4", group=32, experts=16)
    embed = WeightPart("language_model.model.embed_tokens.weight", (512, 128))
    weights = (down, msgspec.structs.replace(plain((512, 128), embed), id="embed"))
    seen: list[tuple[int, int, str]] = []
    load_all({"target": checkpoint}, weights, TWO, torch.float32, lambda *event: seen.append(event))
    packed = sum(tensors[pattern.format(expert=e) + tail].nbytes for e in range(16) for tail in ("_packed", "_scale"))
    total = packed + 512 * 128 * 2
    assert [event[0] for event in seen] == sorted(event[0] for event in seen)
    assert seen[-1][0] == total and {event[1] for event in seen} == {total}
    assert {event[2] for event in seen} == {"w", "embed"}


def test_results_outlive_the_files(tmp_path: Path, a: tuple[Checkpoint, Tensors]) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(K26 / "a-flat-8e", copy)
    weight = plain((128,), WeightPart("model.norm.weight", (128,)))
    rank = load_rank({"target": read_checkpoint(copy)}, (weight,), ONE, 0, torch.bfloat16)
    for file in copy.glob("*.safetensors"):
        file.write_bytes(b"")
    gc.collect()
    assert torch.equal(rank["w"], a[1]["model.norm.weight"])


def test_misaligned_data_is_read(tmp_path: Path) -> None:
    import json
    import struct

    value = torch.arange(6, dtype=torch.float32)
    header = {
        "b": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "x": {"dtype": "F32", "shape": [6], "data_offsets": [1, 25]},
    }
    body = json.dumps(header).encode()
    raw = struct.pack("<Q", len(body)) + body + b"\7" + value.numpy().tobytes()
    (tmp_path / "model.safetensors").write_bytes(raw)
    weight = plain((6,), WeightPart("x", (6,)))
    assert torch.equal(loaded(read_checkpoint(tmp_path), weight, ONE)[0], value)


def test_file_that_changed_is_refused(tmp_path: Path) -> None:
    save_file({"x": torch.ones(100)}, tmp_path / "model.safetensors")
    checkpoint = read_checkpoint(tmp_path)
    weight = plain((100,), WeightPart("x", (100,)))
    path = tmp_path / "model.safetensors"
    for data in (path.read_bytes()[:-4], b""):
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match="K028"):
            load_rank({"target": checkpoint}, (weight,), ONE, 0, torch.float32)


def test_faults_that_only_the_data_shows(tmp_path: Path) -> None:
    tensors = {
        "x.weight_packed": torch.zeros(4, 8, dtype=torch.int32),
        "x.weight_scale": torch.ones(4, 2, dtype=torch.bfloat16),
        "x.weight_shape": torch.tensor([4, 32]),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    checkpoint = read_checkpoint(tmp_path)
    weight = plain((4, 64), WeightPart("x.weight", (4, 64)), packing="int4", group=32)
    with pytest.raises(CheckpointError, match="K027"):
        load_rank({"target": checkpoint}, (weight,), ONE, 0, torch.float32)


def test_unaudited_faults_still_end_clearly(a: tuple[Checkpoint, Tensors]) -> None:
    checkpoint, _ = a
    for name, dims, code in (("model.norm.weigth", (128,), "K020"), ("model.norm.weight", (64,), "K022")):
        with pytest.raises(CheckpointError, match=code):
            load_rank({"target": checkpoint}, (plain(dims, WeightPart(name, dims)),), ONE, 0, torch.float32)


@pytest.mark.parametrize(
    "weight",
    [
        plain((99,), WeightPart("model.norm.weight", (128,))),
        plain((64,), WeightPart("model.norm.weight", (128,), shard=Shard(0, 3))),
        plain((64,), WeightPart("model.norm.weight", (128,), shard=Shard(1, 2))),
        plain((64,), WeightPart("model.norm.weight", (128,), take=((64, 129),))),
        plain((64,), WeightPart("model.norm.weight", (128,), take=((0, 64), (0, 1)))),
        plain((1, 128), WeightPart("model.norm.weight", (128,)), experts=1),
        plain((128,), WeightPart("model.{expert}.weight", (128,))),
        plain(  # 128 + 2 * 96 elements would fit, the widths do not
            (10, 32), WeightPart("model.norm.weight", (128,)),
            WeightPart(A + "self_attn.q_b_proj.weight", (128, 48), take=((0, 4), (0, 48))),
        ),
    ],
)  # fmt: skip
def test_plans_that_contradict_themselves(a: tuple[Checkpoint, Tensors], weight: Weight) -> None:
    with pytest.raises(VerifyError, match="'plan': w"):
        load_rank({"target": a[0]}, (weight,), ONE, 0, torch.float32)


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_any_slice_is_what_indexing_gives(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Random dims, ranges, shards and meshes, one to two parts, with and without experts."""
    ep, tp = data.draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2), (3, 2)]))
    mesh = Mesh(ep * tp, ep, tp)
    counts = {"rank": mesh.ranks, "ep": ep, "tp": tp}
    dims = tuple(data.draw(st.lists(st.sampled_from([1, 2, 6, 12]), min_size=2, max_size=4)))
    split = data.draw(st.integers(1, len(dims) - 1))
    take = tuple((s := data.draw(st.integers(0, dim - 1)), data.draw(st.integers(s + 1, dim))) for dim in dims)
    kept = [stop - start for start, stop in take]
    shard = None
    choices = [(i, c) for i, n in enumerate(kept) for c in counts if n % counts[c] == 0]
    if choices and data.draw(st.booleans()):
        axis, coord = data.draw(st.sampled_from(choices))
        shard = Shard(axis, counts[coord], coord)
        kept[axis] //= shard.count
    experts = data.draw(st.sampled_from([0, 6]))
    parts = data.draw(st.integers(1, 2))
    rows, cols = math.prod(kept[:split]), math.prod(kept[split:])
    local = experts // ep if experts else 1
    names = [f"p{part}.{{expert}}" if experts else f"p{part}" for part in range(parts)]
    weight = plain(
        (local, parts * rows, cols) if experts else (parts * rows, cols),
        *(WeightPart(name, dims, take, shard) for name in names),
        experts=experts,
        expert_shard=Shard(0, ep, "ep") if experts else None,
    )
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    shape = (math.prod(dims[:split]), math.prod(dims[split:]))
    tensors = {
        name.replace("{expert}", str(e)): torch.rand(shape, generator=generator)
        for name in names
        for e in range(experts or 1)
    }
    directory = tmp_path_factory.mktemp("slices")
    save_file(tensors, directory / "model.safetensors")
    checkpoint = read_checkpoint(directory)
    for rank, tensor in enumerate(loaded(checkpoint, weight, mesh)):
        spans = [list(range(start, stop)) for start, stop in take]
        if shard is not None:
            number = {"rank": rank, "ep": rank // tp, "tp": rank % tp}[shard.coord]
            run = len(spans[shard.axis]) // shard.count
            spans[shard.axis] = spans[shard.axis][number * run : (number + 1) * run]
        index = torch.meshgrid(*(torch.tensor(span) for span in spans), indexing="ij")
        first = rank // tp * local if experts else 0
        want = torch.stack(
            [
                torch.cat(
                    [
                        tensors[n.replace("{expert}", str(first + e))].view(dims)[index].reshape(rows, cols)
                        for n in names
                    ]
                )
                for e in range(local)
            ]
        )
        assert torch.equal(tensor, want if experts else want[0])
