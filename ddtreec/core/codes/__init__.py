"""Every code that a message of ddtreec can carry: the one table. `ddtreec explain S010` prints an entry.

A test compares it with the codes in the sources, both ways.
"""

from __future__ import annotations

from ddtreec.core.codes.bench import BENCH
from ddtreec.core.codes.bundle import BUNDLE
from ddtreec.core.codes.checkpoint import CHECKPOINT
from ddtreec.core.codes.device import DEVICE
from ddtreec.core.codes.entry import Code
from ddtreec.core.codes.run import RUN
from ddtreec.core.codes.spec import SPEC

CODES: dict[str, Code] = {**SPEC, **CHECKPOINT, **BUNDLE, **DEVICE, **RUN, **BENCH}
"""Code to entry."""

FAMILIES: dict[str, str] = {
    "S": "specs and what `init` reads; exit code 2",
    "F": "fit on the devices; exit code 3",
    "K": "checkpoints; exit code 4",
    "B": "bundles and devices; exit code 5",
    "R": "requests and running; exit code 2 (R021: 4)",
    "T": "traces; exit code 2",
    "M": "measurements; exit code 2 (M007: 5)",
    "C": "the verbs that look; exit code 2",
    "V": "a bug of ddtreec itself; exit code 70",
}
"""What the first letter of a code says."""

__all__ = ["CODES", "FAMILIES", "Code"]
