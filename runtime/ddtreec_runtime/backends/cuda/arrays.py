"""The device arrays that kernels share: step state, caches, rotary tables. Allocated once, at their largest."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ddtreec.artifacts.kernels import KernelTable, StateArray
from ddtreec.artifacts.plan import Plan, Rope
from ddtreec.core.errors import VerifyError

STORED = {
    "int32": torch.int32, "uint32": torch.int32, "int64": torch.int64, "uint64": torch.int64, "uint8": torch.uint8,
    "float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16,
}  # fmt: skip
"""How torch holds the bits of each dtype; unsigned words are held as signed ones."""

ROPE = "rope_"

ELSEWHERE = frozenset({"logits", "draft_logits", "features", "ring"})
"""Arrays that are buffers of a program, and the ring in the host's memory: added by who makes them."""


class DeviceArrays:
    """`state:NAME` of every kernel, by name.

    The page table gives slot s the pages [s * n, (s + 1) * n): what the plan counted is there from the start, so a
    round never has to ask for memory.
    """

    def __init__(self, table: KernelTable, plan: Plan, device: torch.device | str):
        made = [array for array in table.state if array.name not in ELSEWHERE]
        self.tensors = {array.name: self._made(array, table.largest, device) for array in made}
        for name, rope in plan.ropes.items():
            spelt = ROPE + name.replace(".", "_")
            if spelt in self.tensors:
                positions = self.tensors[spelt].shape[0]
                self.tensors[spelt].copy_(rope_table(rope, positions))
        if "pages" in self.tensors:
            pages = self.tensors["pages"]
            pages.copy_(torch.arange(pages.numel(), dtype=torch.int32).view(pages.shape))

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def add(self, name: str, tensor: Tensor) -> None:
        """An array that lies elsewhere: a buffer of a program, or pinned memory of the host."""
        self.tensors[name] = tensor

    def put(self, name: str, values: Tensor) -> None:
        """Writes the first elements of an array; nothing where no kernel reads it, so that it was not made."""
        if name in self.tensors:
            self.tensors[name][: len(values)] = values.to(self.tensors[name].dtype)

    def pointer(self, name: str) -> int:
        """Address of an array. Raises VerifyError where no kernel was said to need it."""
        if name not in self.tensors:
            raise VerifyError("emit", f"state:{name}", "kernels.json has no array of this name")
        return self.tensors[name].data_ptr()

    @staticmethod
    def _made(array: StateArray, largest: Mapping[str, int], device: torch.device | str) -> Tensor:
        if array.dtype not in STORED:
            raise VerifyError("emit", f"state:{array.name}", f"no dtype '{array.dtype}'")
        shape = [largest[n] if isinstance(n, str) else n for n in array.shape]
        return torch.zeros(shape, dtype=STORED[array.dtype], device=device)


def rope_table(rope: Rope, positions: int) -> Tensor:
    """amplitude * (cos, sin) of position * inv_freq, float32 [positions, dim / 2, 2]; angles in float64."""
    inv = torch.tensor(rope.inv_freq, dtype=torch.float64)
    angle = torch.arange(positions, dtype=torch.float64).unsqueeze(1) * inv
    return (torch.stack([angle.cos(), angle.sin()], dim=-1) * rope.amplitude).float()
