"""What a bundle holds: manifest, files with the state of their digests, plan, spec and kernels. Runs nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from ddtreec.artifacts import kernels as kernel_file
from ddtreec.artifacts import plan as plan_file
from ddtreec.artifacts.formats import format_of
from ddtreec.artifacts.kernels import KERNELS, KERNELS_FORMAT, KernelTable
from ddtreec.artifacts.manifest import MANIFEST, PLAN, STAGE, Manifest
from ddtreec.artifacts.plan import PLAN_FORMAT, Plan
from ddtreec.core.digest import of_file
from ddtreec.core.errors import BundleError, Loc, Problem
from ddtreec.core.paths import display
from ddtreec.toolchain.bundle import read_manifest

SPEC = "spec.json"
AGAIN = "compile it again"
T = TypeVar("T")
FileState = Literal["ok", "edited", "missing", "unlisted"]


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file of a bundle. `edited`: its sha256 is not that of the manifest; `unlisted`: the manifest does not name
    it. `bytes` is 0 where it is missing."""

    path: str
    bytes: int
    state: FileState


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle as it lies on disk."""

    folder: Path
    manifest: Manifest
    files: tuple[FileFacts, ...]
    plan: Plan
    spec: dict[str, Any]
    kernels: KernelTable | None = None
    """None where the bundle has no CUDA kernels."""

    @property
    def whole(self) -> bool:
        """Whether every file is as it was compiled, and no other is there."""
        return all(file.state == "ok" for file in self.files)


def is_bundle(ref: str) -> bool:
    """Whether `ref` is a folder with a manifest."""
    return (Path(ref) / MANIFEST).is_file()


def read_bundle(folder: Path) -> Bundle:
    """The bundle in `folder`. Files that were edited or are missing are told, not refused, unless nothing can be read
    without them. Raises BundleError B016, B017, B020 and B022."""
    if not (folder / MANIFEST).is_file():
        raise BundleError(_no_bundle(folder))
    manifest = read_manifest(folder)
    files = tuple(file_facts(folder, manifest))
    plan = _read(folder / PLAN, "plan", plan_file.decode, PLAN_FORMAT)
    spec = _read(folder / SPEC, "spec", _spec)
    if KERNELS not in manifest.files:
        return Bundle(folder, manifest, files, plan, spec)
    kernels = _read(folder / KERNELS, "kernel table", kernel_file.decode, KERNELS_FORMAT)
    return Bundle(folder, manifest, files, plan, spec, kernels)


def file_facts(folder: Path, manifest: Manifest) -> list[FileFacts]:
    """Every file of the manifest, then those that lie there besides."""
    found: list[FileFacts] = []
    for path, digest in manifest.files.items():
        file = folder / path
        try:
            state: FileState = "ok" if of_file(file) == digest else "edited"
            found.append(FileFacts(path, file.stat().st_size, state))
        except OSError:
            found.append(FileFacts(path, 0, "missing"))
    known = {*manifest.files, MANIFEST}
    others = sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    extra = [p for p in others if p.relative_to(folder).as_posix() not in known]
    return [*found, *(FileFacts(p.relative_to(folder).as_posix(), p.stat().st_size, "unlisted") for p in extra)]


def _no_bundle(folder: Path) -> Problem:
    if not folder.exists():
        return Problem("B020", "there is no such bundle", Loc(display(folder)), help="give the folder of a compile")
    if (folder / STAGE).is_file():
        text = "this folder holds an early stage of a compile, not a bundle"
        return Problem("B020", text, Loc(display(folder)), help="compile it without --to")
    text = f"this is no bundle: it has no {MANIFEST}"
    return Problem("B020", text, Loc(display(folder)), help="give the folder that `ddtreec compile` printed")


def _read(path: Path, what: str, decode: Callable[[bytes], T], known: int | None = None) -> T:
    """A file of a bundle; `known` is the format that `decode` reads, None for a file without one. Raises BundleError
    B017 and B022."""
    place = Loc(display(path))
    try:
        data = path.read_bytes()
        found = None if known is None else format_of(data)
        if found not in (None, known):
            text = f"the {what} has format {found}, this ddtreec reads format {known}"
            raise BundleError(Problem("B022", text, place, help=AGAIN))
        return decode(data)
    except OSError as error:
        raise BundleError(Problem("B017", f"no {what}: {error.strerror or error}", place, help=AGAIN)) from None
    except msgspec.DecodeError as error:
        raise BundleError(Problem("B017", f"the {what} cannot be read: {error}", place, help=AGAIN)) from None


def _spec(data: bytes) -> dict[str, Any]:
    return msgspec.json.decode(data, type=dict[str, Any])
