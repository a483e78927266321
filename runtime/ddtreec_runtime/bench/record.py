"""Where and when a number was measured: the one stamp that every result of the project carries."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path

import msgspec
import torch

HERE = Path(__file__).resolve().parent


class Stamp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What makes a number comparable. `commit`: of the checkout ('+': changed since), 'release' outside one."""

    date: str
    version: str
    commit: str
    machine: dict[str, str | int]
    command: str


def stamp(command: str, version: str) -> Stamp:
    """The stamp of a result that `command` of ddtreec `version` gives on this machine, now."""
    return Stamp(datetime.date.today().isoformat(), version, commit(), machine(), command)


def machine() -> dict[str, str | int]:
    """The device and software a number belongs to. Nothing that names a host or a user."""
    return {
        "cpu": cpu(),
        "cores": os.cpu_count() or 1,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def cpu() -> str:
    """The processor's own name where Linux tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def commit() -> str:
    """Short commit id of the checkout this file lies in, with '+' when tracked files differ; results do not count."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        if not head or not _git("ls-files", str(HERE / "record.py")):
            return "release"
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/benchmarks/results", ":!/docs")
    except OSError:
        return "release"
    return head + ("+" if changed else "")


def _git(*args: str) -> str:
    line = ["git", "-C", str(HERE), *args]
    return subprocess.run(line, capture_output=True, text=True, check=False).stdout.strip()
