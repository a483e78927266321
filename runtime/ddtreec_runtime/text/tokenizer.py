"""The checkpoint's own tokenizer: a thin wrapper over `tokenizers` and its `tokenizer.json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers

from ddtreec.core.errors import CheckpointError, Loc, Problem, SpecError

from ..weights.sniff import misfit

FILE = "tokenizer.json"


class Tokenizer:
    """Text to ids and back. `byte_runs`: the decoder joins byte tokens `<0xNN>` (byte fallback)."""

    def __init__(self, inner: tokenizers.Tokenizer):
        inner.no_truncation()  # a stored truncation would cut long prompts without a word
        inner.no_padding()
        self._inner = inner
        self._special = frozenset(i for i, token in inner.get_added_tokens_decoder().items() if token.special)
        self.byte_runs = _has_byte_fallback(json.loads(inner.to_str()).get("decoder"))

    @classmethod
    def from_dir(cls, directory: str | Path) -> Tokenizer | None:
        """Tokenizer of a checkpoint directory; None if it has no `tokenizer.json` (token ids still work).

        Raises CheckpointError K005 or K006 when the file is empty, a pointer or a web page, K040 when it is broken.
        """
        path = Path(directory) / FILE
        if not path.exists():
            return None
        way = "fetch the file again, or move it away and give token ids instead of text"
        try:
            wrong = misfit(path, path.stat().st_size)
            text = path.read_bytes().decode("utf-8")
        except (OSError, ValueError) as error:
            raise CheckpointError(Problem("K040", f"cannot read '{FILE}': {error}", Loc(str(path)), help=way)) from None
        if wrong is not None:
            raise CheckpointError(wrong)
        try:
            inner = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises plain Exception for everything it does not like
            problem = Problem("K040", f"'{FILE}' is not a tokenizer: {error}", Loc(str(path)), help=way)
            raise CheckpointError(problem) from None
        return cls(inner)

    @property
    def size(self) -> int:
        """Number of tokens, added ones included. Ids may have gaps: check ids against the model's vocabulary."""
        return self._inner.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Ids of `text`. With `special` the tokenizer adds what its template asks for (a BOS, for example).

        Names of special tokens inside `text` become those tokens, as in Hugging Face. An empty text gives no ids.
        Raises SpecError R101 if the text holds lone surrogates, which are no characters.
        """
        check_text(text, "the prompt")
        return self._inner.encode(text, add_special_tokens=special).ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of `ids`. Bytes that are no UTF-8 become U+FFFD; ids without a token are left out.

        Raises OverflowError for negative ids.
        """
        return self._inner.decode(list(ids), skip_special_tokens=skip_special)

    def token(self, token_id: int) -> str | None:
        """The token's own spelling in the vocabulary (not its text), or None if there is none."""
        return self._inner.id_to_token(token_id)

    def token_id(self, token: str) -> int | None:
        """Id of a vocabulary entry by its spelling, or None."""
        return self._inner.token_to_id(token)

    def visible(self, token_id: int, skip_special: bool = True) -> bool:
        """Whether `decode` makes use of this id."""
        return not (skip_special and token_id in self._special) and self._inner.id_to_token(token_id) is not None


def check_text(text: str, what: str) -> None:
    """Raises SpecError R101 if `text` (named `what` in the message) cannot be written as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise SpecError(
            Problem(
                "R101",
                f"{what} holds a lone surrogate (U+{code:04X}) at character {error.start}: it is not Unicode text",
                help="it usually comes from bytes that are not UTF-8: save the text as UTF-8 and try again",
            )
        ) from None


def _has_byte_fallback(decoder: Any) -> bool:
    if not isinstance(decoder, dict):
        return False
    return decoder.get("type") == "ByteFallback" or any(map(_has_byte_fallback, decoder.get("decoders") or ()))
