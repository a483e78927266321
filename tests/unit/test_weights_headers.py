"""Reading checkpoint directories by headers: what is found, and one clear problem for every kind of damage."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from ddtreec.core.errors import CheckpointError, Problem
from ddtreec_runtime.weights import Checkpoint, read_checkpoint

K26 = Path(__file__).parents[1] / "data" / "k26"
SETS = ("a-flat-8e", "b-real-heads", "c-vl-nested-int4", "d-vl-nested-bf16")


def problems(directory: Path) -> list[Problem]:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(directory)
    assert caught.value.exit_code == 4
    for problem in caught.value.problems:
        assert problem.loc is not None and problem.message
    return list(caught.value.problems)


def only(directory: Path, code: str) -> Problem:
    """The one problem of `directory`, which must have that code and a way out."""
    found = problems(directory)
    assert [problem.code for problem in found] == [code]
    assert found[0].help
    return found[0]


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A writable copy of a golden checkpoint of four shards and an index."""
    copy = tmp_path / "a"
    copy.mkdir()
    for file in (K26 / "a-flat-8e").glob("model*"):
        shutil.copy(file, copy / file.name)
    return copy


def shard(directory: Path, number: int) -> Path:
    return directory / f"model-{number:05d}-of-00004.safetensors"


def write_raw(path: Path, header: Any, data: bytes = b"") -> None:
    body = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(body)) + body + data)


@pytest.mark.parametrize("name", SETS)
def test_golden_headers_agree_with_safetensors(name: str) -> None:
    checkpoint = read_checkpoint(K26 / name)
    files = sorted(file.name for file in (K26 / name).glob("model*.safetensors"))
    assert sorted(checkpoint.sizes) == files
    seen = 0
    for file in files:
        raw = (K26 / name / file).read_bytes()
        with safe_open(K26 / name / file, "pt") as theirs:
            for key in theirs.keys():  # noqa: SIM118 - not a dict
                info, tensor = checkpoint.tensors[key], theirs.get_tensor(key)
                assert (info.file, info.shape) == (file, tuple(tensor.shape))
                assert raw[info.begin : info.end] == tensor.contiguous().view(torch.uint8).numpy().tobytes()
                seen += 1
    assert seen == len(checkpoint.tensors)


def test_without_index_numbered_shards_are_read_and_other_files_ignored(sharded: Path) -> None:
    with_index = read_checkpoint(sharded)
    (sharded / "model.safetensors.index.json").unlink()
    save_file({"x": torch.ones(2)}, sharded / "goldens.safetensors")
    assert read_checkpoint(sharded).tensors == with_index.tensors


def test_without_index_or_numbers_every_file_is_read(tmp_path: Path) -> None:
    save_file({"x": torch.ones(2)}, tmp_path / "one.safetensors")
    save_file({"y": torch.ones(3)}, tmp_path / "two.safetensors")
    assert set(read_checkpoint(tmp_path).tensors) == {"x", "y"}


def test_scalars_empty_tensors_and_unknown_dtypes_are_accepted(tmp_path: Path) -> None:
    header = {
        "s": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
        "e": {"dtype": "F32", "shape": [0, 3], "data_offsets": [4, 4]},
        "u": {"dtype": "NEW7", "shape": [5], "data_offsets": [4, 9]},
        "f": {"dtype": "F4", "shape": [6], "data_offsets": [9, 12]},
    }
    write_raw(tmp_path / "model.safetensors", header, bytes(12))
    tensors = read_checkpoint(tmp_path).tensors
    assert tensors["u"].end - tensors["u"].begin == 5 and tensors["s"].shape == ()


def test_no_directory(tmp_path: Path) -> None:
    assert "does not exist" in only(tmp_path / "nowhere", "K001").message


def test_a_file_instead_of_a_directory(sharded: Path) -> None:
    assert str(sharded) in only(shard(sharded, 1), "K001").help


@pytest.mark.parametrize(
    ("files", "note", "way"),
    [
        ((), "no files", "download"),
        (("model.gguf",), "1 .gguf", "GGUF"),
        (("pytorch_model.bin", "config.json"), "1 .bin", "safe_serialization"),
        (("deep/model.safetensors",), "no files", "deep"),
    ],
)
def test_no_safetensors(tmp_path: Path, files: tuple[str, ...], note: str, way: str) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(b"x")
    problem = only(tmp_path, "K002")
    assert note in problem.note and way in problem.help


@pytest.mark.parametrize(
    "text",
    [b"{", b"[]", b"{}", b'{"weight_map": {}}', b'{"weight_map": {"x": 3}}', b'{"weight_map": {"x": "../y"}}',
     b'{"weight_map": {"x": "/etc/passwd"}}', b"\xff\xfe", b"[" * 100_000],
)  # fmt: skip
def test_broken_index(sharded: Path, text: bytes) -> None:
    (sharded / "model.safetensors.index.json").write_bytes(text)
    only(sharded, "K003")


def test_index_that_is_empty_or_a_pointer(sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    index.write_bytes(b"")
    only(sharded, "K005")
    index.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    only(sharded, "K006")


def test_missing_shard(sharded: Path) -> None:
    shard(sharded, 3).unlink()
    problem = only(sharded, "K004")
    assert "1 of 4 files" in problem.message and shard(sharded, 3).name in problem.message
    assert "30 of" in problem.note


def test_missing_shard_without_index(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").unlink()
    shard(sharded, 2).unlink()
    problem = only(sharded, "K004")
    assert "1 of 4 shards" in problem.message and shard(sharded, 2).name in problem.message


def test_links_of_a_cache(sharded: Path, tmp_path: Path) -> None:
    """Hugging Face keeps blobs and links to them; a pruned cache keeps the links."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    snapshot.mkdir()
    sharded.rename(blobs)
    for blob in blobs.iterdir():
        (snapshot / blob.name).symlink_to(Path("..", "blobs", blob.name))
    assert read_checkpoint(snapshot).tensors.keys() == read_checkpoint(blobs).tensors.keys()
    shard(blobs, 2).unlink()
    assert "are missing" in only(snapshot, "K004").message
    (snapshot / "model.safetensors.index.json").unlink()
    assert "is a link to a file that is not there" in only(snapshot, "K004").message


def test_index_of_another_copy_beside_complete_files(sharded: Path) -> None:
    """The index names 4 shards, 2 files of other names hold everything: the way out is to drop the index."""
    everything: dict[str, torch.Tensor] = {}
    for number in range(1, 5):
        with safe_open(shard(sharded, number), "pt") as theirs:
            everything |= {key: theirs.get_tensor(key) for key in theirs.keys()}  # noqa: SIM118
        shard(sharded, number).unlink()
    names = sorted(everything)
    for number, half in ((1, names[::2]), (2, names[1::2])):
        save_file({key: everything[key] for key in half}, sharded / f"model-{number:05d}-of-00002.safetensors")
    problem = only(sharded, "K004")
    assert "4 of 4" in problem.message and "remove 'model.safetensors.index.json'" in problem.help
    (sharded / "model.safetensors.index.json").unlink()
    assert sorted(read_checkpoint(sharded).tensors) == names


def test_empty_shard(sharded: Path) -> None:
    shard(sharded, 2).write_bytes(b"")
    assert "file is empty" in only(sharded, "K005").message


@pytest.mark.parametrize(
    ("data", "says", "way"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n", "Git-LFS", "git lfs pull"),
        (b"<!DOCTYPE html><html><body>log in</body></html>", "web page", "download"),
        (b"\n  <HTML>", "web page", "download"),
        (b"PK\x03\x04" + bytes(60), "zip", "fetch"),
        (b"GGUF" + bytes(60), "GGUF", "fetch"),
    ],
)  # fmt: skip
def test_other_kinds_of_files(sharded: Path, data: bytes, says: str, way: str) -> None:
    shard(sharded, 1).write_bytes(data)
    problem = only(sharded, "K006")
    assert says in problem.message and way in problem.help and shard(sharded, 1).name in problem.message


@pytest.mark.parametrize(
    "header",
    [
        b"not json", b"[1]", b"\xff\xff", b'{"x": 3}', b'{"x": {}}', b"[" * 100_000,
        b'{"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [true], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}',
        b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}',
        b'{"x": {"dtype": 4, "shape": [1], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}, '
        b'"x": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}',
    ],
)  # fmt: skip
def test_damaged_header(tmp_path: Path, header: bytes) -> None:
    write_raw(tmp_path / "model.safetensors", header, bytes(4))
    only(tmp_path, "K007")


def test_header_too_large(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 64)
    assert "header" in only(tmp_path, "K007").message


def test_truncation_everywhere(sharded: Path) -> None:
    path = shard(sharded, 2)
    whole = path.read_bytes()
    head = 8 + struct.unpack("<Q", whole[:8])[0]
    for size in (1, 7, 8, 9, head - 1, head, head + 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        problem = only(sharded, "K008")
        assert "truncated" in problem.message and path.name in problem.message
    path.write_bytes(whole + b"\0")
    assert "1 bytes longer" in only(sharded, "K008").message


def test_truncation_names_the_tensor(sharded: Path) -> None:
    path = shard(sharded, 4)
    info = read_checkpoint(sharded).tensors["model.norm.weight"]
    path.write_bytes(path.read_bytes()[: info.begin + 10])
    assert "'model.norm.weight'" in only(sharded, "K008").message


@pytest.mark.parametrize(
    ("header", "data", "says"),
    [
        ({"x": ("F32", [2], 0, 4)}, 4, "span 4 bytes, but F32 [2] takes 8"),
        ({"x": ("F32", [1], 0, 4), "y": ("F32", [1], 0, 4)}, 4, "overlaps"),
        ({"x": ("F32", [1], 0, 4), "y": ("F32", [1], 8, 12)}, 12, "hole of 4 bytes after 'x'"),
        ({"x": ("F32", [1], 2, 6)}, 6, "after the header"),
    ],
)
def test_inconsistent_offsets(tmp_path: Path, header: dict[str, Any], data: int, says: str) -> None:
    entries = {k: {"dtype": d, "shape": s, "data_offsets": [a, b]} for k, (d, s, a, b) in header.items()}
    write_raw(tmp_path / "model.safetensors", entries, bytes(data))
    assert says in only(tmp_path, "K009").message


def test_tensor_not_in_its_shard(sharded: Path) -> None:
    path = sharded / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.norm.weight"] = shard(sharded, 1).name
    index["weight_map"]["model.extra"] = shard(sharded, 1).name
    path.write_text(json.dumps(index))
    problem = only(sharded, "K010")
    assert "'model.norm.weight' (and 1 more tensors)" in problem.message and shard(sharded, 4).name in problem.note


def test_tensor_in_two_files(tmp_path: Path) -> None:
    save_file({"x": torch.ones(2), "y": torch.ones(2)}, tmp_path / "one.safetensors")
    save_file({"x": torch.ones(2)}, tmp_path / "two.safetensors")
    problem = only(tmp_path, "K011")
    assert all(name in problem.message for name in ("'x'", "one.safetensors", "two.safetensors"))


def test_with_an_index_the_index_decides_between_copies(tmp_path: Path) -> None:
    save_file({"x": torch.ones(2)}, tmp_path / "one.safetensors")
    save_file({"x": torch.zeros(2), "y": torch.ones(2)}, tmp_path / "two.safetensors")
    index = {"weight_map": {"x": "one.safetensors", "y": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_checkpoint(tmp_path).tensors["x"].file == "one.safetensors"
    index["weight_map"]["x"] = "two.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_checkpoint(tmp_path).tensors["x"].file == "two.safetensors"


def test_all_problems_at_once(sharded: Path) -> None:
    shard(sharded, 1).write_bytes(b"")
    shard(sharded, 2).unlink()
    shard(sharded, 3).write_bytes(shard(sharded, 3).read_bytes()[:-1])
    shard(sharded, 4).write_bytes(b"<html>")
    assert sorted(problem.code for problem in problems(sharded)) == ["K004", "K005", "K006", "K008"]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_damage_is_a_checkpoint_error_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Flipped or cut bytes never raise anything but CheckpointError."""
    directory = tmp_path_factory.mktemp("damage")
    path = directory / "model.safetensors"
    save_file({"a": torch.ones(3), "b": torch.zeros(2, 2, dtype=torch.bfloat16)}, path)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    try:
        assert isinstance(read_checkpoint(directory), Checkpoint)
    except CheckpointError as error:
        assert all(problem.code.startswith("K0") for problem in error.problems)
