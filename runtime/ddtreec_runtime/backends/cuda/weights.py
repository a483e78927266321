"""Weights of one rank on the device, as its kernels want them: INT4 stays packed, all else is bfloat16 or float32.

Sources, slices and names come from the weights package. A weight goes to the device piece by piece, so that the host
never holds more than one, and the device never more than one expert twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor

from ddtreec.artifacts.kernels import KernelTable
from ddtreec.artifacts.plan import Mesh, Plan, Weight
from ddtreec.core.errors import CheckpointError, Problem, VerifyError
from ddtreec_runtime.backends.cuda.layouts import LAYOUTS
from ddtreec_runtime.weights import Checkpoint, Progress
from ddtreec_runtime.weights.load import Meter, load_slice, packed_views, part_bytes, slice_bytes
from ddtreec_runtime.weights.reader import Reader
from ddtreec_runtime.weights.slices import PartSlice, WeightSlice, resolve

PLAIN = "plain"


def layouts_of(plan: Plan, table: KernelTable) -> dict[str, str]:
    """The layout that the kernels want of each weight that they read. Raises VerifyError where two want different."""
    kernels = {kernel.name: kernel for kernel in table.kernels}
    found: dict[str, str] = {}
    for program in plan.programs:
        data = {value.id for value in program.values if value.home != "token"}
        for call, name in zip(program.calls, table.programs[program.name], strict=True):
            if not name:
                continue
            first = sum(value in data for value in (*call.outs, *call.ins))
            for place, weight in enumerate(call.weights, first):
                layout = kernels[name].layouts.get(str(place), PLAIN)
                if found.setdefault(weight, layout) != layout:
                    raise VerifyError("emit", weight, f"wanted as '{found[weight]}' and as '{layout}'")
    return found


def device_dtype(weight: Weight) -> torch.dtype:
    """What kernels read a dense weight as: float32 only where the checkpoint has it and `precision` keeps it."""
    wide = weight.precision == "float32" and weight.bytes == 4 * prod(weight.shape)
    return torch.float32 if wide else torch.bfloat16


def load_weights(
    checkpoints: Mapping[str, Checkpoint],
    weights: Sequence[Weight],
    layouts: Mapping[str, str],
    mesh: Mesh,
    rank: int,
    device: torch.device | str,
    progress: Progress | None = None,
) -> dict[str, Tensor]:
    """Weights of one rank by id; equal slices in equal layouts are one tensor.

    Raises CheckpointError as `weights.load_rank` does, K029 where a packed weight cannot stay packed, K030 where one
    that must not be rounded would be.
    """
    readers = {store: Reader(checkpoint) for store, checkpoint in checkpoints.items()}
    wanted = {weight.id: (resolve(weight, mesh, rank), layouts.get(weight.id, PLAIN)) for weight in weights}
    labels = {key: name for name, key in wanted.items()}
    meter = Meter(sum(slice_bytes(piece, readers[piece.store]) for piece, _ in labels), progress)
    kinds = {weight.id: device_dtype(weight) for weight in weights}
    made: dict[tuple[WeightSlice, str], Tensor] = {}
    for key, label in labels.items():
        piece, layout = key
        meter.label = label
        reader = readers[piece.store]
        if layout == PLAIN:
            dense = load_slice(piece, label, reader, torch.bfloat16, meter)
            made[key] = _narrowed(dense, kinds[label], label).to(device)
        elif piece.packing == "int4":
            made[key] = _packed(piece, label, layout, reader, device, meter)
        else:
            dense = load_slice(piece, label, reader, torch.bfloat16, meter).to(device)
            made[key] = LAYOUTS[layout].dense(dense)
    return {name: made[key] for name, key in wanted.items()}


def _narrowed(dense: Tensor, kind: torch.dtype, label: str) -> Tensor:
    """The weight in the dtype that its kernel reads; never rounded where `precision` keeps it."""
    narrow = dense.to(kind)
    if not torch.equal(narrow.to(dense.dtype), dense):
        raise CheckpointError(
            Problem(
                "K030",
                f"'{label}' needs float32 in this checkpoint, and the engine was compiled for bfloat16 there",
                help="write the specs for this checkpoint: ddtreec init CHECKPOINT, then compile again",
            )
        )
    return narrow


def _packed(
    piece: WeightSlice, label: str, layout: str, reader: Reader, device: torch.device | str, meter: Meter
) -> Tensor:
    """Words and scales of every expert, laid out on the device one expert after the other."""
    count, out = len(piece.parts), None
    for begin in range(0, len(piece.names), count):
        words: list[Tensor] = []
        scales: list[Tensor] = []
        for name, index in piece.names[begin : begin + count]:
            word, scale = _views(piece, piece.parts[index], name, reader)
            words.append(word.to(device).flatten(0, -2))
            scales.append(scale.to(device).flatten(0, -2))
            meter.add(part_bytes(piece, piece.parts[index], name, reader))
        (tiles,) = LAYOUTS[layout].packed(torch.cat(words).unsqueeze(0), torch.cat(scales).unsqueeze(0))
        if out is None:
            out = torch.empty(len(piece.names) // count, *tiles.shape, dtype=tiles.dtype, device=device)
        out[begin // count] = tiles
    assert out is not None, f"{label} has no experts"
    return out


def _views(piece: WeightSlice, part: PartSlice, name: str, reader: Reader) -> tuple[Tensor, Tensor]:
    found = packed_views(piece, part, name, reader)
    if found is None:
        raise CheckpointError(
            Problem(
                "K029",
                f"'{name}' is cut across its groups of {piece.group} inputs, so it cannot stay packed",
                help="compile for another number of ranks",
            )
        )
    return found
