"""The drafter on the device as a host loop sees it: the same face as `ddtreec_runtime.drafting.Drafter`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ddtreec_runtime.backends.cuda.arrays import DeviceArrays
from ddtreec_runtime.backends.cuda.driver import Driver
from ddtreec_runtime.backends.cuda.steps import DeviceProgram, Shape


class DeviceDrafter:
    """Context and block programs over one sequence, in slot 0.

    features: [rows, taps * hidden] where the target leaves those of a step; kept ones are gathered from there.
    """

    def __init__(
        self,
        context: DeviceProgram,
        block_program: DeviceProgram,
        features: Tensor,
        arrays: DeviceArrays,
        driver: Driver,
        block: int,
        mask_token: int,
    ):
        self.block = block
        self.length = 0
        self._context = context
        self._block = block_program
        self._source = features
        self._arrays = arrays
        self._driver = driver
        self._tokens = block_program.homes.inputs["tokens"]
        self._mask = mask_token
        self._logits = block_program.homes.kept["logits"]

    def extend(self, rows: Sequence[int]) -> None:
        """See `DraftSource.extend`."""
        count = len(rows)
        with self._driver.ordered():
            kept = self._source.index_select(0, torch.tensor(list(rows), device=self._source.device))
            self._context.homes.inputs["features"][:count] = kept
            self._begin(count)
            self._driver.run(self._context.launches(Shape(1, count, 0)))
            self._driver.wait()
        self.length += count

    def draft(self, anchor: int) -> Tensor:
        """See `DraftSource.draft`; float32, on the CPU."""
        with self._driver.ordered():
            self._tokens[: self.block] = self._mask
            self._tokens[0] = anchor
            self._begin(self.block)
            self._arrays.put("out_index", torch.arange(1, self.block))
            self._driver.run(self._block.launches(Shape(1, self.block, self.block - 1)))
            self._driver.wait()
            return self._logits[: self.block - 1].cpu()

    def reset(self) -> None:
        """Forget the sequence."""
        self.length = 0

    def _begin(self, rows: int) -> None:
        """Positions right behind the context; `committed` is its length."""
        self._arrays.put("positions", torch.arange(self.length, self.length + rows))
        self._arrays.put("committed", torch.tensor([self.length]))
        self._arrays.put("valid", torch.tensor([rows]))
