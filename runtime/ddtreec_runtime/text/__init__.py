"""Text in and out: the tokenizer, streaming that never breaks a character, and stop strings."""

from __future__ import annotations

from .stop import StopStrings
from .stream import Piece, StreamDecoder, TextStream
from .tokenizer import Tokenizer

__all__ = ["Piece", "StopStrings", "StreamDecoder", "TextStream", "Tokenizer"]
