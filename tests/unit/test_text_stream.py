"""Streamed text equals decoded text, whatever the characters, the chunks and the stop strings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
import tokenizers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

from ddtreec_runtime.text import StreamDecoder, TextStream, Tokenizer

CORPUS = [
    "def f(x):\n    return x + 1\n", "The quick brown fox jumps over the lazy dog. ", "naïve façade, déjà vu ",
    "你好世界。今天天气很好。", "こんにちは世界", "😀😀👍🏽👩‍👩‍👧 🇫🇷🇩🇪", "\u0000\t  \r\n", "\u0301e\u0301 한국어",
]  # fmt: skip
PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            [*CORPUS, "👩‍👩‍👧", "🇫🇷", "e\u0301\u0323", "\ufffd", "<|eos|>", "<tool>", "</think>", "STOP", " ", "\0"]
        ),
        st.text(max_size=8),
    ),
    max_size=8,
).map("".join)


def byte_level() -> Tokenizer:
    """Byte-level BPE as Kimi and DeepSeek have it, small enough that most characters are split over tokens."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    inner.train_from_iterator(CORPUS * 3, trainer)
    inner.add_special_tokens([AddedToken("<|eos|>", special=True)])
    inner.add_tokens([AddedToken("<tool>"), AddedToken(" spaced tool ")])
    return Tokenizer(inner)


def byte_fallback() -> Tokenizer:
    """Llama style: word starts as U+2581, unknown characters as byte tokens, one leading space stripped."""
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    for token in ["▁", "a", "e", "t", "o", "n", "▁t", "he", "▁the", "\n", "你", "S", "T", "O", "P", "ST", "."]:
        vocab.setdefault(token, len(vocab))
    merges = [("▁", "t"), ("S", "T")]
    inner = tokenizers.Tokenizer(models.BPE(vocab, merges, byte_fallback=True, fuse_unk=True))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    inner.add_special_tokens([AddedToken("<|eos|>", special=True)])
    return Tokenizer(inner)


def word_piece() -> Tokenizer:
    words = ["[UNK]", "the", "fox", "##es", "##s", ".", ",", "n't", "do", "'", "s", "e", "##e", "\ufffd"]
    inner = tokenizers.Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    return Tokenizer(inner)


TOKENIZERS = {"bytes": byte_level(), "fallback": byte_fallback(), "words": word_piece()}


def ids_of(data: st.DataObject, tokenizer: Tokenizer) -> list[int]:
    """Ids of real text, random ids (junk bytes, specials, ids without a token), or both."""
    ids = tokenizer.encode(data.draw(PIECES))
    if data.draw(st.booleans()):
        ids += data.draw(st.lists(st.integers(0, tokenizer.size + 2), max_size=60))
    return ids


def chunks(data: st.DataObject, ids: Sequence[int]) -> list[list[int]]:
    """`ids` cut at random into runs, empty ones included."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=len(ids) + 2)))
    return [list(ids[a:b]) for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_stream_equals_decode(name: str, data: st.DataObject) -> None:
    tokenizer, skip = TOKENIZERS[name], data.draw(st.booleans())
    ids = ids_of(data, tokenizer)
    stream = StreamDecoder(tokenizer, skip)
    shown, done = "", 0
    for run in chunks(data, ids):
        shown, done = shown + stream.push(run), done + len(run)
        if name == "bytes":  # as much as is certain: all but a last U+FFFD, which may yet become a character
            text = tokenizer.decode(ids[:done], skip)
            assert shown == (text[:-1] if text.endswith("\ufffd") else text)
    assert shown + stream.flush() == tokenizer.decode(ids, skip)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_long_streams_of_junk(data: st.DataObject) -> None:
    """Far longer than the window, over single bytes that are mostly no UTF-8."""
    tokenizer = TOKENIZERS["bytes"]
    singles = [i for i in range(256) if tokenizer.visible(i)]
    ids = data.draw(st.lists(st.sampled_from(singles), min_size=40, max_size=200))
    stream = StreamDecoder(tokenizer)
    assert "".join(stream.push([i]) for i in ids) + stream.flush() == tokenizer.decode(ids)


def test_text_is_not_held_longer_than_needed() -> None:
    tokenizer = TOKENIZERS["bytes"]
    ids = tokenizer.encode("日")
    assert len(ids) > 1
    stream = StreamDecoder(tokenizer)
    assert [stream.push([i]) for i in ids] == [""] * (len(ids) - 1) + ["日"]
    assert stream.push(tokenizer.encode("abc")) == "abc"


def test_an_unfinished_character_comes_out_at_the_end() -> None:
    tokenizer = TOKENIZERS["bytes"]
    ids = tokenizer.encode("x日")[:-1]
    stream = StreamDecoder(tokenizer)
    assert (stream.push(ids), stream.flush()) == ("x", "\ufffd")


def test_time_a_token_does_not_grow() -> None:
    """The decoder asks for a bounded number of tokens each time, however long the text is."""
    tokenizer = TOKENIZERS["bytes"]
    asked: list[int] = []
    plain: Callable[..., str] = tokenizer.decode

    class Counting:
        byte_runs = False
        token, visible = tokenizer.token, tokenizer.visible

        def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
            asked.append(len(ids))
            return plain(ids, skip_special)

    ids = tokenizer.encode("".join(CORPUS) * 40)
    stream = StreamDecoder(Counting())  # type: ignore[arg-type]
    began = time.perf_counter()
    text = "".join(stream.push([i]) for i in ids) + stream.flush()
    assert text == tokenizer.decode(ids) and len(ids) > 2000
    assert max(asked) <= 40 and sum(asked) < 30 * len(ids)
    assert time.perf_counter() - began < 10


def first_stop(text: str, stops: Sequence[str]) -> tuple[int, int, str] | None:
    """(start, end, stop) of the stop that ends first, the longest of those, looking at every end in turn."""
    for end in range(1, len(text) + 1):
        hits = sorted((stop for stop in stops if text[:end].endswith(stop)), key=len)
        if hits:
            return end - len(hits[-1]), end, hits[-1]
    return None


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_stops_against_a_naive_search(data: st.DataObject) -> None:
    """Text, kept ids and stop equal those of decoding everything again after every token."""
    tokenizer, skip = TOKENIZERS["bytes"], data.draw(st.booleans())
    ids = ids_of(data, tokenizer)
    full = tokenizer.decode(ids, skip)
    some = st.sampled_from(["STOP", "ST", "\n", "a", " the", "世界", "\u0301", "😀", "aab", "aaab"])
    inside = st.tuples(st.integers(0, max(0, len(full) - 1)), st.integers(1, 6)).map(lambda at: full[at[0] : sum(at)])
    stops = [stop for stop in data.draw(st.lists(st.one_of(some, inside), max_size=4)) if stop]
    assume(not any("\ufffd" in stop for stop in stops))
    hit = first_stop(full, stops)
    want_text, want_keep, want_stop = full, len(ids), None
    if hit is not None:
        start, end, want_stop = hit
        want_text = full[:start]
        for n in range(len(ids) + 1):
            text = tokenizer.decode(ids[:n], skip)
            if text[:end] == full[:end]:
                want_keep = n
                break
    stream = TextStream(tokenizer, stops, skip)
    shown, keep, stop = "", 0, None
    for run in chunks(data, ids):
        piece = stream.push(run)
        assert stop is None or (piece.text, piece.keep, piece.stop) == ("", 0, stop)
        shown, keep, stop = shown + piece.text, keep + piece.keep, piece.stop
        assert want_text.startswith(shown)
    last = stream.finish()
    assert (shown + last.text, keep, last.stop) == (want_text, want_keep, want_stop)


def test_a_stop_inside_an_accepted_run_cuts_the_run() -> None:
    tokenizer = TOKENIZERS["bytes"]
    ids = tokenizer.encode("one STOP two STOP")
    stream = TextStream(tokenizer, ["STOP"])
    piece = stream.push(ids)
    assert piece.text == "one " and piece.stop == "STOP"
    assert tokenizer.decode(ids[: piece.keep]) == "one STOP" and piece.keep < len(ids)
    assert stream.push(ids).keep == 0 and stream.finish().text == ""


def test_a_stop_across_runs_is_never_shown() -> None:
    tokenizer = TOKENIZERS["bytes"]
    stream = TextStream(tokenizer, ["STOP!"])
    shown = [stream.push([i]) for i in tokenizer.encode("a STO")]
    assert "".join(piece.text for piece in shown) == "a "
    assert stream.push(tokenizer.encode("P?")).text == "STOP?"
    stream.push(tokenizer.encode(" STOP"))
    end = stream.push(tokenizer.encode("!"))
    assert (end.text, end.keep, end.stop) == ("", 1, "STOP!")


def test_what_is_held_at_the_end_is_given_back() -> None:
    tokenizer = TOKENIZERS["bytes"]
    stream = TextStream(tokenizer, ["STOP"])
    assert stream.push(tokenizer.encode("x ST")).text == "x "
    last = stream.finish()
    assert (last.text, last.keep, last.stop) == ("ST", 0, None)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_stops_with_byte_fallback(data: st.DataObject) -> None:
    """Here a run of byte tokens is judged when it ends, so only text and stop are compared."""
    tokenizer = TOKENIZERS["fallback"]
    ids = ids_of(data, tokenizer)
    full = tokenizer.decode(ids)
    stops = data.draw(st.lists(st.sampled_from(["STOP", "the", "😀", "你", "世"]), max_size=3))
    hit = first_stop(full, stops)
    stream = TextStream(tokenizer, stops)
    pieces = [stream.push(run) for run in chunks(data, ids)]
    pieces.append(stream.finish())
    assert "".join(piece.text for piece in pieces) == (full if hit is None else full[: hit[0]])
    assert pieces[-1].stop == (None if hit is None else hit[2])
