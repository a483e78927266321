"""How fast a weights folder is read: a sample of a few hundred MB, or two seconds of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ddtreec.core.errors import CheckpointError, Loc, Problem
from ddtreec_runtime.doctor.facts import Disk

SAMPLE_BYTES = 256 * 1024 * 1024
SAMPLE_SECONDS = 2.0
CHUNK = 4 * 1024 * 1024


def measure(folder: Path) -> Disk:
    """Reads the largest files of `folder` from their start. What the system still holds of them in memory is dropped
    first where it lets us, so that the disk is measured. Raises CheckpointError K041 where there is nothing to read."""
    try:
        files = [(path.stat().st_size, path) for path in folder.iterdir() if path.is_file()]
    except OSError as error:
        reason = "there is no such folder" if not folder.exists() else error.strerror or str(error)
        raise CheckpointError(
            Problem("K041", f"cannot read the weights folder: {reason}", Loc(str(folder)), help="check --weights")
        ) from None
    weights = [item for item in files if item[1].suffix == ".safetensors"] or files
    if not any(size for size, _ in weights):
        raise CheckpointError(
            Problem("K041", "the weights folder holds no data", Loc(str(folder)), help="check --weights")
        )
    read, seconds = _timed([path for _, path in sorted(weights, reverse=True)])
    return Disk(str(folder), len(weights), sum(size for size, _ in weights), read, seconds)


def _timed(paths: list[Path]) -> tuple[int, float]:
    read, began = 0, time.perf_counter()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while data := file.read(min(CHUNK, SAMPLE_BYTES - read)):
                read += len(data)
                if read >= SAMPLE_BYTES or time.perf_counter() - began >= SAMPLE_SECONDS:
                    return read, time.perf_counter() - began
    return read, time.perf_counter() - began
