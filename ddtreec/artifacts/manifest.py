"""manifest.json: what a bundle is, what made it, and the sha256 of each of its files."""

from __future__ import annotations

import msgspec

from ddtreec.artifacts.plan import Struct

BUNDLE_FORMAT = 1
"""Raised when the files of a bundle change meaning; a runtime reads this number and no other."""

MANIFEST = "manifest.json"
PLAN = "plan.json"
STEP = "step.py"

STAGE = "stage.json"
"""The manifest of a folder that is not a whole bundle."""


class Manifest(Struct, frozen=True):
    """`files` maps each relative path in the bundle (manifest excluded) to its sha256 in hex."""

    format: int
    engine: str
    tool: str
    """Version of ddtreec that compiled it."""
    backend: str
    topology: str
    spec_digest: str
    """sha256 of the resolved spec."""
    overrides: tuple[str, ...]
    """The `--set` arguments, in order."""
    files: dict[str, str]
    edited: tuple[str, ...] = ()
    """Sources that `--override` replaced by hand-edited ones."""


def encode(manifest: Manifest) -> bytes:
    """Manifest to stable, indented JSON text ending with a newline."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode(data: bytes) -> Manifest:
    """JSON text to Manifest. Raises msgspec.ValidationError on any unknown or missing field."""
    return msgspec.json.decode(data, type=Manifest)
