"""Finds the safetensors files of a checkpoint directory and reads all their headers.

Which files: those that `model.safetensors.index.json` names; without an index `model.safetensors`; without that the
numbered shards `*-00001-of-00064.safetensors`; without those every `*.safetensors`.

Problem codes (all problems of a directory are reported together): K001 no such directory or unreadable, K002 no
safetensors inside, K003 broken index, K004 missing shard, K005 .. K009 see `headers`, K010 a tensor is not in the shard
the index gives, K011 a tensor in two files.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddtreec.core.errors import CheckpointError, Loc, Problem

from .headers import FileHeader, TensorInfo, read_header
from .sniff import misfit

INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"(.+)-(\d+)-of-(\d+)\.safetensors")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint seen through its headers: every tensor by name, and the size in bytes of every file used."""

    dir: Path
    tensors: dict[str, TensorInfo]
    sizes: dict[str, int]


def read_checkpoint(directory: str | Path) -> Checkpoint:
    """Headers of all safetensors files of `directory`; no tensor data is read.

    Raises CheckpointError with every problem found (codes above).
    """
    root = Path(directory)
    names = _safetensors_in(root)
    index_path = _index_of(root)
    problems: list[Problem] = []
    index: dict[str, str] | None = None
    if index_path is not None:
        index = _read_index(index_path)
        files = sorted(set(index.values()))
    elif "model.safetensors" in names:
        files = ["model.safetensors"]
    else:
        numbered = [name for name in names if _SHARD.fullmatch(name)]
        problems += _gaps(root, numbered)
        files = numbered or names
    headers: dict[str, FileHeader] = {}
    for file in files:
        if (root / file).exists():
            header, wrong = read_header(root / file)
            problems += wrong
            if header is not None:
                headers[file] = header
        elif index is None:
            text = f"'{file}' is a link to a file that is not there"
            way = "fetch the checkpoint again: its cache was pruned, or only half of it was copied"
            problems.append(Problem("K004", text, Loc(str(root / file)), help=way))
    if index is not None and index_path is not None:
        problems += _missing_shards(root, index_path, index, names)
        problems += _check_index(index_path, index, headers)
    tensors, twice = _merge(root, headers, index)
    problems += twice
    if problems:
        raise CheckpointError(problems)
    return Checkpoint(root, tensors, {file: header.size for file, header in headers.items()})


def _safetensors_in(root: Path) -> list[str]:
    """Names of the safetensors files of `root`; raises CheckpointError K001 or K002 when there is nothing to read."""
    loc = Loc(str(root))
    if not root.exists():
        raise CheckpointError(
            Problem("K001", f"checkpoint directory '{root}' does not exist", loc, help="check the path given")
        )
    if not root.is_dir():
        raise CheckpointError(
            Problem("K001", f"'{root}' is a file, not a checkpoint directory", loc, help=f"give '{root.parent}'")
        )
    try:
        entries = sorted(root.iterdir())
        names = [entry.name for entry in entries if entry.name.endswith(".safetensors")]
    except OSError as error:
        raise CheckpointError(
            Problem("K001", f"cannot read directory '{root}': {error.strerror or error}", loc)
        ) from None
    if names or (root / INDEX).exists():
        return names
    raise CheckpointError(_nothing(root, entries))


def _nothing(root: Path, entries: list[Path]) -> Problem:
    """K002: says what the directory holds instead of safetensors files."""
    kinds = Counter(entry.suffix or entry.name for entry in entries if entry.is_file())
    held = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(6))
    below = [entry.name for entry in entries if entry.is_dir() and any(entry.glob("*.safetensors"))]
    way = "download the safetensors files of the checkpoint into it"
    if below:
        way = f"safetensors files are one level down: give '{root / below[0]}'"
    elif ".gguf" in kinds:
        way = "GGUF files are not supported: use the original Hugging Face checkpoint"
    elif ".bin" in kinds or ".pt" in kinds or ".pth" in kinds:
        way = "PyTorch pickles are not read: save the model with `save_pretrained(..., safe_serialization=True)`"
    note = f"it holds {held}" if held else "it holds no files"
    return Problem("K002", f"no .safetensors file in '{root}'", Loc(str(root)), note=note, help=way)


def _index_of(root: Path) -> Path | None:
    if (root / INDEX).exists():
        return root / INDEX
    others = sorted(root.glob("*.safetensors.index.json"))
    return others[0] if len(others) == 1 else None


def _read_index(path: Path) -> dict[str, str]:
    """`weight_map` of an index file: tensor name to file name. Raises CheckpointError K003, K005 or K006."""

    def bad(why: str) -> CheckpointError:
        way = "fetch it again, or remove it if the safetensors files beside it are complete"
        return CheckpointError(Problem("K003", f"'{path.name}' is not a usable index: {why}", Loc(str(path)), help=way))

    try:
        wrong = misfit(path, path.stat().st_size)
        if wrong is not None:
            raise CheckpointError(wrong)
        raw: Any = json.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise bad(error.strerror or str(error)) from None
    except (ValueError, RecursionError) as error:
        raise bad(f"it is not JSON ({str(error)[:120]})") from None
    weight_map: Any = raw.get("weight_map") if isinstance(raw, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise bad("it has no 'weight_map'")
    for name, file in weight_map.items():
        if not isinstance(file, str) or not _inside(file):
            raise bad(f"'{name}' is given to {file!r}, which is not a file name in this directory")
    return weight_map


def _inside(file: str) -> bool:
    """Whether `file` is a plain relative name that stays in the directory."""
    return bool(file) and "\\" not in file and not Path(file).is_absolute() and ".." not in Path(file).parts


def _missing_shards(root: Path, index_path: Path, index: dict[str, str], names: list[str]) -> list[Problem]:
    """K004 if files named by the index are not there; if other files hold everything, says so."""
    files = sorted(set(index.values()))
    gone = [file for file in files if not (root / file).exists()]
    if not gone:
        return []
    lost = sum(1 for file in index.values() if file in set(gone))
    text = f"{len(gone)} of {len(files)} files named by '{index_path.name}' are missing: {_list(gone)}"
    note = f"they hold {lost} of {len(index)} tensors"
    way = "download the missing files into the checkpoint directory"
    spare = [name for name in names if name not in set(files)]
    if spare:
        held = {name for file in names for name in _tensor_names(root / file)}
        note += f"; the index does not name {len(spare)} files that are here: {_list(spare)}"
        if held >= index.keys():
            way = f"the files here hold all {len(index)} tensors: remove '{index_path.name}', it is of another copy"
    return [Problem("K004", text, Loc(str(index_path)), note=note, help=way)]


def _tensor_names(path: Path) -> list[str]:
    header, wrong = read_header(path)
    return list(header.tensors) if header is not None and not wrong else []


def _gaps(root: Path, numbered: list[str]) -> list[Problem]:
    """K004 for numbers left out in `x-00001-of-00004.safetensors`, when there is no index to tell."""
    series: dict[tuple[str, str], set[int]] = {}
    for name in numbered:
        match = _SHARD.fullmatch(name)
        if match is not None:
            series.setdefault((match[1], match[3]), set()).add(int(match[2]))
    problems: list[Problem] = []
    for (stem, total), have in series.items():
        gone = [n for n in range(1, int(total) + 1) if n not in have] if int(total) <= 100_000 else []
        if gone:
            names = [f"{stem}-{n:0{len(total)}d}-of-{total}.safetensors" for n in gone]
            text = f"{len(gone)} of {int(total)} shards are missing: {_list(names)}"
            way = "download the missing files into the checkpoint directory"
            problems.append(Problem("K004", text, Loc(str(root)), help=way))
    return problems


def _check_index(index_path: Path, index: dict[str, str], headers: dict[str, FileHeader]) -> list[Problem]:
    """K010: tensors that are not in the file the index names (files already reported are left out)."""
    absent: dict[str, list[str]] = {}
    for name, file in index.items():
        if file in headers and name not in headers[file].tensors:
            absent.setdefault(file, []).append(name)
    problems: list[Problem] = []
    for file, names in sorted(absent.items()):
        more = f" (and {len(names) - 1} more tensors)" if len(names) > 1 else ""
        where = next((other for other, header in headers.items() if names[0] in header.tensors), "")
        problems.append(
            Problem(
                "K010",
                f"'{index_path.name}' places '{names[0]}'{more} in '{file}', which does not hold it",
                Loc(str(index_path)),
                note=f"'{where}' holds it" if where else "",
                help="index and shards are of different copies: fetch both from one source",
            )
        )
    return problems


def _merge(
    root: Path, headers: dict[str, FileHeader], index: dict[str, str] | None
) -> tuple[dict[str, TensorInfo], list[Problem]]:
    """One table of all tensors. With an index it decides between two copies; without, two copies are K011."""
    tensors: dict[str, TensorInfo] = {}
    twice: dict[tuple[str, str], list[str]] = {}
    for file, header in sorted(headers.items()):
        for name, info in header.tensors.items():
            if name not in tensors or (index is not None and index.get(name) == file):
                tensors[name] = info
            elif index is None:
                twice.setdefault((tensors[name].file, file), []).append(name)
    problems: list[Problem] = []
    for (one, two), names in twice.items():
        more = f" (and {len(names) - 1} more tensors)" if len(names) > 1 else ""
        text = f"'{names[0]}'{more} is both in '{one}' and in '{two}'"
        way = f"keep the file that belongs to the checkpoint, or add the '{INDEX}' that says which one counts"
        problems.append(Problem("K011", text, Loc(str(root)), help=way))
    return tensors, problems


def _list(names: list[str], most: int = 4) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"'{name}'" for name in names[:most]) + rest
