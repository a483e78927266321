"""Checkpoints: tensors in safetensors files of at most 15 MB each, so that a phase can stop and go on later."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

LIMIT = 15_000_000


def save_state(directory: str | Path, tensors: dict[str, Tensor], facts: dict[str, float]) -> None:
    """Writes `tensors` and the numbers `facts` into `directory`, replacing an older checkpoint there."""
    out = Path(directory)
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("state-*.safetensors"):
        old.unlink()
    part: dict[str, Tensor] = {}
    size = count = 0
    for name, whole in tensors.items():
        rows = max(1, LIMIT // max(1, whole[0].numel() * whole.element_size()))
        for index, piece in enumerate(whole.split(rows)):
            nbytes = piece.numel() * piece.element_size()
            if part and size + nbytes > LIMIT:
                save_file(part, out / f"state-{count:02d}.safetensors")
                part, size, count = {}, 0, count + 1
            part[f"{name}#{index:03d}"] = piece.cpu().contiguous()
            size += nbytes
    save_file(part, out / f"state-{count:02d}.safetensors")
    (out / "state.json").write_text(json.dumps(facts))


def load_state(directory: str | Path, device: str) -> tuple[dict[str, Tensor], dict[str, float]] | None:
    """Reads what `save_state` wrote; None where there is no checkpoint."""
    source = Path(directory)
    if not (source / "state.json").exists():
        return None
    pieces: dict[str, dict[str, Tensor]] = {}
    for path in sorted(source.glob("state-*.safetensors")):
        for key, tensor in load_file(path, device=device).items():
            name, index = key.rsplit("#", 1)
            pieces.setdefault(name, {})[index] = tensor
    tensors = {name: torch.cat([part[i] for i in sorted(part)]) for name, part in pieces.items()}
    return tensors, json.loads((source / "state.json").read_text())
