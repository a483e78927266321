"""The tokenizer of a checkpoint directory: text in and out, and what is wrong with a broken file."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers

from ddtreec.core.errors import CheckpointError, SpecError
from ddtreec_runtime.text import Tokenizer


def trained() -> tokenizers.Tokenizer:
    """A byte-level BPE of 280 entries with a BOS template, and a truncation that must not be obeyed."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=280, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    inner.train_from_iterator(["the cat sat on the mat", "你好 世界"], trainer)
    inner.add_special_tokens([AddedToken("<|bos|>", special=True), AddedToken("<|eos|>", special=True)])
    inner.add_tokens([AddedToken("<think>")])
    bos = inner.token_to_id("<|bos|>")
    inner.post_processor = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", bos)])
    inner.enable_truncation(max_length=4)
    inner.enable_padding(length=16)
    return inner


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("tokenizer")
    trained().save(str(directory / "tokenizer.json"))
    found = Tokenizer.from_dir(directory)
    assert found is not None
    return found


def test_no_file_is_no_tokenizer(tmp_path: Path) -> None:
    assert Tokenizer.from_dir(tmp_path) is None


@settings(max_examples=200, deadline=None)
@given(text=st.text())
def test_round_trip(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text and all(0 <= i < tokenizer.size for i in ids)


@pytest.mark.parametrize("text", ["", " ", "\n\n\t", "\0", "a\0b", "👩‍👩‍👧", "x" * 100_000])
def test_unusual_texts(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_only_when_asked(tokenizer: Tokenizer) -> None:
    bos, eos, think = (tokenizer.token_id(name) for name in ("<|bos|>", "<|eos|>", "<think>"))
    assert bos is not None and eos is not None and think is not None
    plain = tokenizer.encode("the cat")
    assert bos not in plain and tokenizer.encode("the cat", special=True) == [bos, *plain]
    assert tokenizer.decode([bos, *plain, think, eos]) == "the cat<think>"
    assert tokenizer.decode([*plain, eos], skip_special=False) == "the cat<|eos|>"
    assert tokenizer.token(eos) == "<|eos|>" and tokenizer.token(10**6) is None and tokenizer.token_id("?!?") is None
    assert not tokenizer.visible(eos) and tokenizer.visible(eos, skip_special=False) and tokenizer.visible(think)
    assert not tokenizer.visible(tokenizer.size + 5)


def test_lone_surrogates_are_refused_with_their_place(tokenizer: Tokenizer) -> None:
    with pytest.raises(SpecError) as caught:
        tokenizer.encode("abc\udc80d")
    (problem,) = caught.value.problems
    assert problem.code == "R101" and "U+DC80" in problem.message and "character 3" in problem.message and problem.help


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        (b"", "K005", "file is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "K006", "Git-LFS"),
        (b"<!doctype html>", "K006", "web page"),
        (b"{}", "K040", "not a tokenizer"),
        (b"[]", "K040", "not a tokenizer"),
        (b'{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["x", "y"]]}}', "K040", "x"),
        (b'{"model": ', "K040", "not a tokenizer"),
        (b"\xff\xfe\x00", "K040", "cannot read"),
    ],
)
def test_broken_files(tmp_path: Path, data: bytes, code: str, says: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes(data)
    with pytest.raises(CheckpointError) as caught:
        Tokenizer.from_dir(tmp_path)
    (problem,) = caught.value.problems
    assert problem.code == code and says in problem.message and problem.help and problem.loc is not None
    assert caught.value.exit_code == 4


def test_a_directory_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").mkdir()
    with pytest.raises(CheckpointError, match="K040"):
        Tokenizer.from_dir(tmp_path)
