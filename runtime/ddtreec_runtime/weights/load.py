"""Loads the weights of one or all ranks from Hugging Face checkpoints, as the plan's `Weight` records say.

Each tensor is copied once, from the mapped file into the rank's own contiguous, 64-byte aligned tensor; slicing,
conversion to the compute dtype and INT4 dequantisation happen in that copy, so only the pages a rank needs are read.
Equal slices are loaded once and shared, between weights and between in-process ranks: treat results as read-only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from ddtreec.artifacts.plan import Mesh, Weight
from ddtreec.core.errors import CheckpointError, Loc, Problem, VerifyError

from .checkpoint import Checkpoint
from .int4 import PER_WORD, dequantize
from .reader import TORCH, Reader
from .slices import EXPERT, PartSlice, WeightSlice, resolve, row_axes

Progress = Callable[[int, int, str], None]
"""Called as (bytes done, bytes in all, id of the weight). Bytes are those of the checkpoint; done never falls."""


def load_rank(
    checkpoints: Mapping[str, Checkpoint],
    weights: Sequence[Weight],
    mesh: Mesh,
    rank: int,
    dtype: torch.dtype,
    progress: Progress | None = None,
) -> dict[str, torch.Tensor]:
    """Weights of one rank: weight id to CPU tensor of the plan's shape.

    `checkpoints` maps 'target' and, if the plan has one, 'drafter' to its checkpoint. `dtype` is the compute dtype;
    weights of precision 'float32' are at least float32. Raises CheckpointError (K012 no checkpoint for a store, K020
    missing tensor, K021 dtype, K022 shape, K027 contradictory `weight_shape`, K028 file changed) and VerifyError when
    the plan contradicts itself.
    """
    return _load(checkpoints, weights, mesh, [rank], dtype, progress)[0]


def load_all(
    checkpoints: Mapping[str, Checkpoint],
    weights: Sequence[Weight],
    mesh: Mesh,
    dtype: torch.dtype,
    progress: Progress | None = None,
) -> list[dict[str, torch.Tensor]]:
    """Weights of all ranks of `mesh` in one process; what ranks have in common is the same tensor object.

    Arguments and errors as for `load_rank`.
    """
    return _load(checkpoints, weights, mesh, range(mesh.ranks), dtype, progress)


def _load(
    checkpoints: Mapping[str, Checkpoint],
    weights: Sequence[Weight],
    mesh: Mesh,
    ranks: Sequence[int],
    dtype: torch.dtype,
    progress: Progress | None,
) -> list[dict[str, torch.Tensor]]:
    readers = {store: Reader(checkpoint) for store, checkpoint in checkpoints.items()}
    for weight in weights:
        if weight.store not in readers:
            text = f"the engine needs a {weight.store} checkpoint ('{weight.id}'), and none was given"
            raise CheckpointError(Problem("K012", text, help=f"give the {weight.store}'s checkpoint directory"))
    slices = [{weight.id: resolve(weight, mesh, rank) for weight in weights} for rank in ranks]
    labels = {piece: key for of_rank in slices for key, piece in of_rank.items()}
    meter = Meter(sum(slice_bytes(piece, readers[piece.store]) for piece in labels), progress)
    loaded: dict[WeightSlice, torch.Tensor] = {}
    for piece, label in labels.items():
        meter.label = label
        loaded[piece] = load_slice(piece, label, readers[piece.store], dtype, meter)
    return [{key: loaded[piece] for key, piece in of_rank.items()} for of_rank in slices]


class Meter:
    """Counts checkpoint bytes and reports them."""

    def __init__(self, total: int, progress: Progress | None):
        self.total, self.done, self.label, self._progress = total, 0, "", progress

    def add(self, count: int) -> None:
        self.done += count
        if self._progress is not None:
            self._progress(self.done, self.total, self.label)


def slice_bytes(piece: WeightSlice, reader: Reader) -> int:
    return sum(part_bytes(piece, piece.parts[index], name, reader) for name, index in piece.names)


def part_bytes(piece: WeightSlice, part: PartSlice, name: str, reader: Reader) -> int:
    """Bytes the checkpoint spends on the elements of one part (packed nibbles and scales for INT4)."""
    count = math.prod(part.sizes)
    if piece.packing == "int4":
        scale = reader.info(name + "_scale").dtype
        return count // 2 + count // max(1, piece.group) * _itemsize(scale)
    return count * _itemsize(reader.info(name).dtype)


def _itemsize(dtype: str) -> int:
    return TORCH[dtype].itemsize if dtype in TORCH else 0


def load_slice(piece: WeightSlice, label: str, reader: Reader, dtype: torch.dtype, meter: Meter) -> torch.Tensor:
    """One weight of one rank. The result is seen as [experts, rows, cols]; every part fills a run of rows."""
    wide = piece.precision == "float32" and dtype not in (torch.float32, torch.float64)
    out = torch.empty(piece.shape, dtype=torch.float32 if wide else dtype)
    flats = [_flat(piece, part, label, reader) for part in piece.parts]
    cols = {width for _, width in flats}
    if len(cols) != 1:
        raise VerifyError("plan", label, f"parts of different widths {sorted(cols)} cannot be concatenated")
    rows = out.view(-1, sum(height for height, _ in flats), cols.pop())
    top = 0
    for count, (name, index) in enumerate(piece.names):
        part, height = piece.parts[index], flats[index][0]
        top = 0 if index == 0 else top
        target = rows[count // len(piece.parts), top : top + height].view(part.sizes)
        if piece.packing == "int4":
            _copy_int4(target, piece, part, name, reader)
        else:
            target.copy_(_narrow(_as_dims(reader.view(name), part.dims, name, reader), part.ranges))
        top += height
        meter.add(part_bytes(piece, part, name, reader))
    return out


def _flat(piece: WeightSlice, part: PartSlice, label: str, reader: Reader) -> tuple[int, int]:
    """(rows, cols) of a part after narrowing; vectors have one column."""
    first = part.tensor.replace(EXPERT, str(piece.experts[0]))
    if piece.packing == "int4":
        packed = reader.info(first + "_packed")
        shape = (*packed.shape[:-1], packed.shape[-1] * PER_WORD)
    else:
        shape = reader.info(first).shape
    axes = row_axes(part.dims, shape)
    if axes is None:
        raise _shape_error(first, shape, part.dims, reader)
    return math.prod(part.sizes[:axes]), math.prod(part.sizes[axes:])


def _copy_int4(target: torch.Tensor, piece: WeightSlice, part: PartSlice, name: str, reader: Reader) -> None:
    """Dequantises the slice `part` of one packed module into `target` (contiguous, shape part.sizes)."""
    found = packed_views(piece, part, name, reader)
    if found is not None:
        dequantize(*found, target.dtype, piece.product, out=target)
    else:  # the slice runs across the inputs in another way than plain columns: unpack all of it, then cut
        packed, scale = _packed(name, reader)
        whole = dequantize(packed, scale, target.dtype, piece.product)
        target.copy_(_narrow(_as_dims(whole, part.dims, name, reader), part.ranges))


def packed_views(
    piece: WeightSlice, part: PartSlice, name: str, reader: Reader
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The words [.., n] and scales [.., 8 n / group] of the slice `part` of one packed module, as views of the file.

    None where the slice does not run along whole groups of the inputs. Raises CheckpointError (K022 shape, K027).
    """
    packed, scale = _packed(name, reader)
    inputs, group, (start, stop) = packed.shape[1] * PER_WORD, piece.group, part.ranges[-1]
    if part.dims[-1] != inputs or not group or start % group or stop % group:
        return None
    rows = part.ranges[:-1]
    words = _as_dims(packed, (*part.dims[:-1], inputs // PER_WORD), name, reader)
    scales = _as_dims(scale, (*part.dims[:-1], inputs // group), name + "_scale", reader)
    return (
        _narrow(words, (*rows, (start // PER_WORD, stop // PER_WORD))),
        _narrow(scales, (*rows, (start // group, stop // group))),
    )


def _packed(name: str, reader: Reader) -> tuple[torch.Tensor, torch.Tensor]:
    """Words and scales of one packed module as the file has them."""
    packed, scale = reader.view(name + "_packed"), reader.view(name + "_scale")
    logical = [packed.shape[0], packed.shape[1] * PER_WORD]
    if reader.has(name + "_shape") and reader.view(name + "_shape").tolist() != logical:
        text = f"'{name}_shape' says {reader.view(name + '_shape').tolist()}, the packed words hold {logical}"
        way = "fetch the checkpoint again from its source"
        raise CheckpointError(Problem("K027", text, _place(name + "_shape", reader), help=way))
    return packed, scale


def _as_dims(tensor: torch.Tensor, dims: Sequence[int], name: str, reader: Reader) -> torch.Tensor:
    if row_axes(dims, tensor.shape) is None:
        raise _shape_error(name, tensor.shape, dims, reader)
    return tensor.view(*dims)


def _narrow(tensor: torch.Tensor, ranges: Sequence[tuple[int, int]]) -> torch.Tensor:
    return tensor[tuple(slice(start, stop) for start, stop in ranges)]


def _shape_error(name: str, shape: Sequence[int], dims: Sequence[int], reader: Reader) -> CheckpointError:
    text = f"'{name}' has shape {list(shape)}, the plan reads it as {list(dims)}"
    return CheckpointError(Problem("K022", text, _place(name, reader)))


def _place(name: str, reader: Reader) -> Loc:
    info = reader.checkpoint.tensors.get(name)
    return Loc(str(reader.checkpoint.dir / info.file if info else reader.checkpoint.dir))
