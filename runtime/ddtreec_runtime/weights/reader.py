"""Maps checkpoint files and hands out tensors as views of them: pages are read when somebody copies from a view."""

from __future__ import annotations

import mmap
import warnings
from pathlib import Path

import torch

from ddtreec.core.errors import CheckpointError, Loc, Problem

from .checkpoint import Checkpoint
from .headers import TensorInfo

TORCH = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
}  # fmt: skip


class Reader:
    """Tensors of one checkpoint by name. Views are read-only by agreement: writing to one is a crash.

    Files stay mapped while the reader or a view of it lives.
    """

    def __init__(self, checkpoint: Checkpoint):
        self.checkpoint = checkpoint
        self._maps: dict[str, torch.Tensor] = {}

    def has(self, name: str) -> bool:
        """Whether the checkpoint has a tensor of that name."""
        return name in self.checkpoint.tensors

    def info(self, name: str) -> TensorInfo:
        """Dtype, shape and place of a tensor. Raises CheckpointError K020 when there is none."""
        info = self.checkpoint.tensors.get(name)
        if info is None:
            raise CheckpointError(
                Problem("K020", f"'{name}' is missing from the checkpoint", Loc(str(self.checkpoint.dir)))
            )
        return info

    def view(self, name: str) -> torch.Tensor:
        """The tensor `name` with the checkpoint's dtype and shape, contiguous, without reading its data yet.

        Raises CheckpointError: K020 no such tensor, K021 a dtype torch cannot show, K028 the file changed.
        """
        info = self.info(name)
        if info.dtype not in TORCH:
            text = f"'{name}' is {info.dtype}, which this runtime cannot load"
            raise CheckpointError(Problem("K021", text, Loc(str(self.checkpoint.dir / info.file))))
        dtype = TORCH[info.dtype]
        octets = self._map(info.file)[info.begin : info.end]
        if info.begin % dtype.itemsize:  # legal in the format, but torch wants whole elements from the map's start
            octets = octets.clone()
        return octets.view(dtype).view(info.shape)

    def _map(self, file: str) -> torch.Tensor:
        if file not in self._maps:
            path = self.checkpoint.dir / file
            self._maps[file] = _map_file(path, self.checkpoint.sizes[file])
        return self._maps[file]


def _map_file(path: Path, size: int) -> torch.Tensor:
    """The whole file as uint8 [size]. A file that shrank since its header was read would fault, so it is refused."""
    try:
        with path.open("rb") as handle:
            mapped = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise CheckpointError(Problem("K028", f"cannot map '{path.name}': {error}", Loc(str(path)))) from None
    if len(mapped) != size:
        text = f"'{path.name}' changed while it was being loaded: {size} bytes before, {len(mapped)} now"
        raise CheckpointError(Problem("K028", text, Loc(str(path)), help="wait until nobody writes it, then run again"))
    with warnings.catch_warnings():  # torch warns that the buffer is read-only; the class promises not to write
        warnings.simplefilter("ignore", UserWarning)
        return torch.frombuffer(mapped, dtype=torch.uint8)
