"""Writes a bundle: all of it, or nothing under its name.

The files go to a fresh folder beside the target, are flushed to disk, and appear by one rename. A bundle that is
already there is replaced by exchanging the two folders where the system can (Linux), else moved aside first and put
back should the second rename fail.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import NoReturn

import msgspec

from ddtreec.artifacts import manifest as manifest_file
from ddtreec.artifacts.formats import format_of
from ddtreec.artifacts.manifest import BUNDLE_FORMAT, MANIFEST, STAGE, Manifest
from ddtreec.core.digest import of_bytes
from ddtreec.core.errors import BundleError, Loc, Problem
from ddtreec.core.paths import display

AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Of Linux's renameat2."""

OLD = "-old"


def make_manifest(
    files: Mapping[str, bytes], *, engine: str, tool: str, backend: str, topology: str, spec: bytes,
    overrides: tuple[str, ...], edited: tuple[str, ...] = (),
) -> Manifest:  # fmt: skip
    """The manifest of `files` (relative path to content, the manifest not among them), sorted by path."""
    return Manifest(
        format=BUNDLE_FORMAT,
        engine=engine,
        tool=tool,
        backend=backend,
        topology=topology,
        spec_digest=of_bytes(spec),
        overrides=overrides,
        edited=edited,
        files={path: of_bytes(files[path]) for path in sorted(files)},
    )


def write_bundle(out: Path, files: Mapping[str, bytes], manifest: Manifest) -> Path:
    """Writes `files` and manifest.json as the folder `out` and returns it.

    `out` may be absent, an empty folder, or a folder that `write_folder` made; anything else is refused. Raises
    BundleError with the reason and a way out; then, and when the process dies at any point, `out` is what it was.
    """
    return write_folder(out, {**files, MANIFEST: manifest_file.encode(manifest)})


def write_stage(out: Path, files: Mapping[str, bytes], manifest: Manifest) -> Path:
    """As `write_bundle`, for a compile that stopped before the bundle: no runtime may take the folder for one."""
    return write_folder(out, {**files, STAGE: manifest_file.encode(manifest)})


def indented(data: bytes) -> bytes:
    """JSON text, indented and with a newline at its end."""
    return msgspec.json.format(data, indent=1) + b"\n"


def write_folder(out: Path, files: Mapping[str, bytes]) -> Path:
    """Writes `files` as the folder `out` by one rename, with the rules of `write_bundle`. Raises BundleError."""
    out = _plain(out)
    refuse_foreign(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(out)
        with _fresh_folder(out) as fresh:
            for path in sorted(files):
                _write_file(fresh / path, files[path])
            for folder in sorted({fresh, *(p for p in fresh.rglob("*") if p.is_dir())}):
                _sync_folder(folder)
            _put_in_place(fresh, out)
        _sync_folder(out.parent)
    except OSError as error:
        _explain(error, out)
    return out


def _plain(out: Path) -> Path:
    """Absolute, without following a link at its end."""
    try:
        return Path(os.path.abspath(out))  # noqa: PTH100
    except OSError as error:  # the working folder was removed
        _explain(error, out)


def refuse_foreign(out: Path) -> None:
    """Raises BundleError where `out` is something that we did not write, before anything is worked out for it."""
    out = _plain(out)
    try:
        link, folder, there = out.is_symlink(), out.is_dir(), out.exists()
        ours = folder and any((out / mark).is_file() for mark in (MANIFEST, STAGE))
        empty = folder and not any(out.iterdir())
    except OSError as error:
        _explain(error, out)
    if link or (there and not folder):
        what = "a link" if link else "a file"
        raise BundleError(
            Problem("B010", f"the output is {what}, not a folder", Loc(str(out)), help="name another folder with -o")
        )
    if (ours or empty) and _holds_working_folder(out):
        message = (
            "the output is the working folder or holds it, and a folder that is replaced is another one afterwards"
        )
        raise BundleError(Problem("B010", message, Loc(str(out)), help="go to another folder, or name another with -o"))
    if folder and not ours and not empty:
        message = f"the output folder is not empty and holds no {MANIFEST}, so it was not written by ddtreec"
        way_out = "name a new folder with -o, or empty this one yourself"
        raise BundleError(Problem("B011", message, Loc(str(out)), help=way_out))


def _holds_working_folder(out: Path) -> bool:
    with contextlib.suppress(OSError):  # a working folder that was removed is in no other
        return Path.cwd().is_relative_to(out.resolve())
    return False


def _explain(error: OSError, out: Path) -> NoReturn:
    """The same failure, as a person needs it."""
    at = Loc(str(error.filename or out))
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        problem = Problem("B012", "the disk is full", at, help="free some space or name another disk with -o")
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        problem = Problem("B013", "no permission to write here", at, help="name a folder you may write with -o")
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        problem = Problem("B010", "a part of the output path is a file, not a folder", at, help="choose another -o")
    elif error.errno == errno.ENAMETOOLONG:
        problem = Problem("B014", "the output path is too long", at, help="choose a shorter -o")
    else:
        problem = Problem("B015", f"cannot write: {error.strerror or error}", at, help="choose another -o")
    raise BundleError(problem) from error


# ---- folders that come and go -------------------------------------------------------------------------------------


def _prefix(out: Path) -> str:
    return f".{out.name}.tmp-"


def _remove_stale(out: Path) -> None:
    """Removes what a killed run left: folders of our own naming whose process is gone."""
    for path in out.parent.glob(f"{_glob_escape(_prefix(out))}*"):
        pid = path.name.removeprefix(_prefix(out)).partition("-")[0]
        if not path.is_dir() or path.is_symlink() or (pid.isdigit() and _alive(int(pid))):
            continue
        if path.name.endswith(OLD) and not out.exists():
            path.rename(out)  # killed between the two renames of `_put_in_place`: this is the bundle
        else:
            shutil.rmtree(path, ignore_errors=True)


def _glob_escape(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@contextlib.contextmanager
def _fresh_folder(out: Path) -> Generator[Path]:
    """A new folder beside `out`; whatever stands under its name at the end is removed."""
    fresh = out.parent / f"{_prefix(out)}{os.getpid()}-{secrets.token_hex(4)}"
    fresh.mkdir()
    try:
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    """Flushes the names in a folder; some systems cannot, and then there is nothing to do."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _put_in_place(fresh: Path, out: Path) -> None:
    """`fresh` takes the name `out`; an old folder there ends up under the name `fresh`, to be removed."""
    if not out.exists():
        fresh.rename(out)
        return
    if _exchange(fresh, out):
        return
    old = fresh.with_name(fresh.name + OLD)
    out.rename(old)
    try:
        fresh.rename(out)
    except BaseException:
        old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swaps two names in one step. False where the system or file system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    return renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a bundle. Raises BundleError where there is none, B016 where it cannot be read, and B022 for one
    of another format."""
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
        found = format_of(data)
        if found not in (None, BUNDLE_FORMAT):
            text = f"the bundle has format {found}, this ddtreec reads format {BUNDLE_FORMAT}"
            hint = "compile it again, or read it with the ddtreec that made it"
            raise BundleError(Problem("B022", text, Loc(display(path)), help=hint))
        return manifest_file.decode(data)
    except OSError as error:
        _explain(error, path)
    except msgspec.DecodeError as error:
        text = f"not a manifest: {error}"
        raise BundleError(Problem("B016", text, Loc(display(path)), help="compile it again")) from error
