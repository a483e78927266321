"""Where the shipped data lies, how a path is shown, and how a folder appears all at once."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def data_folder(name: str) -> Path:
    """`specs` or `templates`: inside the package when it was installed from a wheel, beside it in a clone."""
    installed = PACKAGE / "_data" / name
    return installed if installed.is_dir() else PACKAGE.parent / name


def display(path: Path) -> str:
    """The path as a person reads it: relative when it lies below the working folder, else as it is."""
    with contextlib.suppress(ValueError, OSError):
        return path.resolve().relative_to(Path.cwd().resolve()).as_posix()
    return path.as_posix()


@contextlib.contextmanager
def staged_folder(destination: Path) -> Generator[Path]:
    """A new folder beside `destination` that takes its name when the block ends well; nothing is left otherwise.

    An existing `destination` is replaced: whether that is allowed is for the caller to decide before.
    """
    parent = destination.parent
    parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", suffix=".partial", dir=parent))
    try:
        yield stage
        stage.chmod(0o777 & ~_umask())
        if destination.exists():
            old = stage.with_name(stage.name + ".old")
            destination.rename(old)
            try:
                stage.rename(destination)
            except BaseException:
                old.rename(destination)
                raise
            shutil.rmtree(old)
        else:
            stage.rename(destination)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
