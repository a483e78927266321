"""The explicit list: which emitter serves a launch kind (a basic op or a pattern of the fuse pass)."""

from __future__ import annotations

from collections.abc import Mapping

from ddtreec.emit.cuda import experts, rows
from ddtreec.emit.cuda.base import Emitter, RoundEmitter

LAUNCHES: Mapping[str, Emitter] = {
    "experts": experts.experts,
    "experts_shared": experts.experts,
    "rms_norm": rows.rms_norm,
}
"""Launch kind to emitter."""

ROUND: tuple[RoundEmitter, ...] = ()
"""Emitters of the kernels between the programs of a round."""
