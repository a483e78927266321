"""What a bundle holds: manifest, files with the state of their digests, plan, spec and kernels. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from ddtreec.artifacts import kernels as kernel_file
from ddtreec.artifacts import plan as plan_file
from ddtreec.artifacts.kernels import KERNELS, KERNELS_FORMAT, KernelTable
from ddtreec.artifacts.manifest import BUNDLE_FORMAT, MANIFEST, PLAN, Manifest
from ddtreec.artifacts.plan import PLAN_FORMAT, Plan
from ddtreec.core.digest import of_file
from ddtreec.core.errors import BundleError, Loc, Problem
from ddtreec.core.paths import display
from ddtreec.toolchain.bundle import STAGE, read_manifest

SPEC = "spec.json"
AGAIN = "compile it again"
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
    if manifest.format != BUNDLE_FORMAT:
        text = f"the bundle has format {manifest.format}, this ddtreec reads format {BUNDLE_FORMAT}"
        hint = f"read it with ddtreec {manifest.tool}, or {AGAIN}"
        raise BundleError(Problem("B022", text, Loc(display(folder / MANIFEST)), help=hint))
    files = tuple(file_facts(folder, manifest))
    kernels = _kernels(folder) if KERNELS in manifest.files else None
    return Bundle(folder, manifest, files, _plan(folder), _spec(folder), kernels)


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


def _plan(folder: Path) -> Plan:
    place = Loc(display(folder / PLAN))
    try:
        plan = plan_file.decode((folder / PLAN).read_bytes())
    except OSError as error:
        raise BundleError(Problem("B017", f"no plan: {error.strerror or error}", place, help=AGAIN)) from None
    except msgspec.DecodeError as error:
        raise BundleError(Problem("B017", f"the plan cannot be read: {error}", place, help=AGAIN)) from None
    if plan.format != PLAN_FORMAT:
        text = f"the plan has format {plan.format}, this ddtreec reads format {PLAN_FORMAT}"
        raise BundleError(Problem("B022", text, place, help=AGAIN))
    return plan


def _kernels(folder: Path) -> KernelTable:
    place = Loc(display(folder / KERNELS))
    try:
        table = kernel_file.decode((folder / KERNELS).read_bytes())
    except OSError as error:
        raise BundleError(Problem("B017", f"no kernels: {error.strerror or error}", place, help=AGAIN)) from None
    except msgspec.DecodeError as error:
        raise BundleError(Problem("B017", f"the kernels cannot be read: {error}", place, help=AGAIN)) from None
    if table.format != KERNELS_FORMAT:
        text = f"the kernels have format {table.format}, this ddtreec reads format {KERNELS_FORMAT}"
        raise BundleError(Problem("B022", text, place, help=AGAIN))
    return table


def _spec(folder: Path) -> dict[str, Any]:
    place = Loc(display(folder / SPEC))
    try:
        return msgspec.json.decode((folder / SPEC).read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise BundleError(Problem("B017", f"no spec: {error.strerror or error}", place, help=AGAIN)) from None
    except msgspec.DecodeError as error:
        raise BundleError(Problem("B017", f"the spec cannot be read: {error}", place, help=AGAIN)) from None
