"""Says what a file is when it is not the file it should be: empty, a pointer, a web page, another format."""

from __future__ import annotations

from pathlib import Path

from ddtreec.core.errors import Loc, Problem

_MAGIC = (
    (b"PK\x03\x04", "a zip archive (a PyTorch .bin or .pt file?)"),
    (b"GGUF", "a GGUF file"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x89HDF", "an HDF5 file"),
)


def misfit(path: Path, size: int) -> Problem | None:
    """The problem with `path` if its first bytes show that it cannot be the data file its name promises.

    `size` is the file's size in bytes. Codes: K005 empty file, K006 Git-LFS pointer, web page or another format.
    Raises OSError if the file cannot be read.
    """
    loc = Loc(str(path))
    if size == 0:
        return Problem("K005", f"'{path.name}' is empty: file is empty (0 bytes)", loc, help="fetch the file again")
    with path.open("rb") as handle:
        head = handle.read(512)
    if head.startswith(b"version https://git-lfs"):
        return Problem(
            "K006",
            f"'{path.name}' is a Git-LFS pointer file ({size} bytes), not the data it stands for",
            loc,
            help="run `git lfs pull` in the checkpoint's repository, or download the file itself",
        )
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return Problem(
            "K006",
            f"'{path.name}' is a web page (HTML or XML), not the data it stands for",
            loc,
            note="a download that needs a login or a resolved address often saves the page instead",
            help="download the file again, with the right address or access token",
        )
    for magic, words in _MAGIC:
        if head.startswith(magic):
            return Problem(
                "K006", f"'{path.name}' is {words} under another name", loc, help="fetch the file of that name again"
            )
    return None
