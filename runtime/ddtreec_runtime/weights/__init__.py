"""Checkpoints: headers, audit, INT4, and the slices of every rank.

Order of use: `read_checkpoint` (headers only), `audit` (everything the plan needs, before any data is read),
`load_rank` or `load_all`.
"""

from __future__ import annotations

from .audit import audit
from .checkpoint import Checkpoint, read_checkpoint
from .headers import TensorInfo
from .int4 import dequantize, unpack
from .load import Progress, load_all, load_rank

__all__ = [
    "Checkpoint",
    "Progress",
    "TensorInfo",
    "audit",
    "dequantize",
    "load_all",
    "load_rank",
    "read_checkpoint",
    "unpack",
]
