"""Opens a bundle: every file is checked against the manifest before anything of it is used."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import msgspec

from ddtreec.artifacts import manifest as manifest_file
from ddtreec.artifacts import plan as plan_file
from ddtreec.artifacts.manifest import BUNDLE_FORMAT, MANIFEST, PLAN, STAGE, STEP, Manifest
from ddtreec.artifacts.plan import PLAN_FORMAT, Plan
from ddtreec.core.errors import BundleError, Loc, Problem

AGAIN = "compile the engine again: ddtreec compile ENGINE.yaml -o DIR"


@dataclass(frozen=True)
class Bundle:
    """A checked bundle: where it is, what made it, the plan, and the module of its step programs."""

    path: Path
    manifest: Manifest
    plan: Plan
    steps: ModuleType


def open_bundle(path: str | Path) -> Bundle:
    """Read and check the bundle at `path`.

    Raises BundleError: B020 no bundle there, B021 unreadable manifest, B022 another format, B023 a file is missing,
    B024 a file was changed, B025 unreadable plan, B026 the step programs do not match the plan.
    """
    from ddtreec_runtime.program import load_steps  # here, so that looking at a bundle needs no torch

    path = Path(path)
    manifest, plan, contents = checked(path)
    steps = load_steps(contents[STEP], str(path / STEP))
    missing = [p.name for p in plan.programs if not callable(getattr(steps, p.name, None))]
    if missing:
        raise BundleError(Problem("B026", f"step.py has no program '{missing[0]}'", Loc(str(path / STEP)), help=AGAIN))
    return Bundle(path, manifest, plan, steps)


def checked(path: Path) -> tuple[Manifest, Plan, dict[str, bytes]]:
    """Manifest, plan and the content of every file, all hashed; nothing is run. Raises BundleError B020 .. B025."""
    _check_is_bundle(path)
    manifest = _manifest(path / MANIFEST)
    contents = _checked_files(path, manifest)
    return manifest, _plan(path / PLAN, contents[PLAN]), contents


def _check_is_bundle(path: Path) -> None:
    where = Loc(str(path))
    if not path.exists():
        raise BundleError(Problem("B020", "there is no such bundle", where, help=AGAIN))
    if path.is_dir() and (path / MANIFEST).is_file():
        return
    if path.is_file() or path.suffix in (".yaml", ".yml"):
        found = "this is a file; a bundle is the folder that `ddtreec compile` writes"
    elif (path / "config.json").exists():
        found = "this is a checkpoint, not a bundle: it goes to --weights"
    elif (path / "engine.yaml").exists():
        found = "this folder holds specs, which are not compiled yet"
    elif (path / STAGE).is_file():
        found = "this folder holds an early stage of a compile: compile it without --to"
    else:
        found = f"this folder has no {MANIFEST}, so it is not a bundle"
    raise BundleError(Problem("B020", found, where, help=AGAIN))


def _manifest(path: Path) -> Manifest:
    try:
        data = path.read_bytes()
        kind = msgspec.json.decode(data)
        number = kind.get("format") if isinstance(kind, dict) else None
        if isinstance(number, int) and number != BUNDLE_FORMAT:
            raise BundleError(_other_format("bundle", number, BUNDLE_FORMAT, path))
        return manifest_file.decode(data)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BundleError(Problem("B021", f"unreadable manifest: {error}", Loc(str(path)), help=AGAIN)) from None


def _other_format(what: str, found: int, known: int, path: Path) -> Problem:
    way = "install a newer ddtreec, or compile the engine again with this one" if found > known else AGAIN
    return Problem(
        "B022", f"the {what} has format {found}, this runtime reads format {known}", Loc(str(path)), help=way
    )


def _checked_files(path: Path, manifest: Manifest) -> dict[str, bytes]:
    """Contents of plan and step program; every file of the manifest is hashed. All faults are reported together."""
    problems: list[Problem] = []
    contents: dict[str, bytes] = {}
    for name, digest in manifest.files.items():
        where = Loc(str(path / name))
        try:
            data = (path / name).read_bytes()
        except OSError as error:
            problems.append(Problem("B023", f"a file of the bundle is missing: {error.strerror}", where, help=AGAIN))
            continue
        if hashlib.sha256(data).hexdigest() != digest:
            problems.append(Problem("B024", "this file was changed after it was compiled", where, help=AGAIN))
        contents[name] = data
    for name in (PLAN, STEP):
        if name not in manifest.files:
            problems.append(Problem("B023", f"the manifest names no {name}", Loc(str(path / MANIFEST)), help=AGAIN))
    if problems:
        raise BundleError(problems)
    return contents


def _plan(path: Path, data: bytes) -> Plan:
    try:
        number = msgspec.json.decode(data).get("format")
        if isinstance(number, int) and number != PLAN_FORMAT:
            raise BundleError(_other_format("plan", number, PLAN_FORMAT, path))
        return plan_file.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, AttributeError) as error:
        raise BundleError(Problem("B025", f"unreadable plan: {error}", Loc(str(path)), help=AGAIN)) from None
