"""The target on the device as a host loop sees it: the same face as `ddtreec_runtime.target.Target`.

Every step here waits for its result. That is what logits, hidden states and traces need; decoding without listeners
runs in `decode.py`, which does not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ddtreec_runtime.backends.cuda.arrays import DeviceArrays
from ddtreec_runtime.backends.cuda.driver import Driver
from ddtreec_runtime.backends.cuda.steps import DeviceProgram, Shape
from ddtreec_runtime.state import causal
from ddtreec_runtime.target import Target

MASK_WORDS = 4
"""32-bit words of a row's mask: a step has at most 128 rows."""


Hear = Callable[[int, dict[str, Tensor]], None]


def mask_words(hidden: Tensor | None, rows: int) -> Tensor:
    """int32 [rows, 4]: bit j of row i says that row i may see row j. `hidden`: bool [rows, 1, rows] as in StepState,
    True where it must not; None where each row sees all."""
    seen = np.zeros((rows, 32 * MASK_WORDS), dtype=np.uint8)
    seen[:, :rows] = 1 if hidden is None else ~hidden.view(rows, rows).numpy()
    return torch.from_numpy(np.packbits(seen, axis=1, bitorder="little").view(np.int32))


class DeviceTarget:
    """One sequence, in slot 0."""

    def __init__(
        self, program: DeviceProgram, arrays: DeviceArrays, driver: Driver, chunk: int, context: int, page: int
    ):
        self.program = program
        self.chunk = chunk
        self.context = context
        self.committed = 0
        self.hear: Hear | None = None
        """Hears, of every step, its first position and the values `hears`; steps then run call by call."""
        self.hears: tuple[str, ...] = ()
        self.max_rows = program.program.max_rows
        self.max_out_rows = program.program.max_out_rows
        self._arrays = arrays
        self._driver = driver
        self._page = page
        self._logits = program.homes.kept["logits"]
        self._features = program.homes.kept.get("features")

    @property
    def room(self) -> int:
        """Rows that still fit behind the committed tokens."""
        return self._arrays["pages"].shape[1] * self._page - self.committed

    def step(
        self,
        tokens: Sequence[int] | Tensor,
        positions: Tensor | None = None,
        hidden: Tensor | None = None,
        out_index: Tensor | None = None,
    ) -> Tensor:
        """Run rows; logits [out_rows, V] in float32, on the CPU. Arguments and errors as `Target.step`."""
        with self._driver.ordered():
            shape = self.begin(tokens, positions, hidden, out_index)
            if self.hear is not None:
                self._run_heard(shape, self.hear)
            else:
                self._driver.run(self.program.launches(shape))
            self._driver.wait()
            return self._logits[: shape.out_rows].cpu()

    def begin(
        self,
        tokens: Sequence[int] | Tensor,
        positions: Tensor | None = None,
        hidden: Tensor | None = None,
        out_index: Tensor | None = None,
    ) -> Shape:
        """Writes what the kernels read of a step into the device's arrays."""
        rows, arrays = len(tokens), self._arrays
        if rows > self.max_rows:
            raise ValueError(f"a step takes {self.max_rows} rows, not {rows}")
        if rows > self.room:
            raise MemoryError(f"{rows} rows wanted, {self.room} left")
        if positions is None:
            positions, hidden = torch.arange(self.committed, self.committed + rows), causal(rows)
        index = torch.arange(rows) if out_index is None else out_index
        self.program.homes.inputs["tokens"][:rows] = torch.as_tensor(tokens, dtype=torch.int32)
        arrays.put("positions", positions)
        arrays.put("committed", torch.tensor([self.committed]))
        arrays.put("valid", torch.tensor([rows]))
        arrays.put("masks", mask_words(hidden, rows))
        arrays.put("out_index", index)
        return Shape(1, rows, len(index))

    def commit(self, accepted: Sequence[int]) -> None:
        """Keep these rows of the last step (increasing), in order; the others are gone."""
        count = len(accepted)
        moved = [place for place, row in enumerate(accepted) if row != place]
        if moved:
            source = self._lines([self.committed + row for row in accepted[moved[0] :]])
            goal = self._lines(list(range(self.committed + moved[0], self.committed + count)))
            latent = self._arrays["latent"]
            with self._driver.ordered():
                latent.index_copy_(1, goal, latent.index_select(1, source))
        self.committed += count

    prefill = Target.prefill
    """Chunks through this class's own `step` and `commit`."""

    def _run_heard(self, shape: Shape, hear: Hear) -> None:
        """Run call by call. Values share memory, so each is copied right behind the kernel that wrote it, or wrote what
        it is a view of."""
        values, found = self.program.values(shape), {}
        owners = {v.id: v.parent if v.home == "alias" else v.id for v in self.program.program.values}
        for call, launches in zip(self.program.kernel_calls, self.program.by_call(shape), strict=True):
            self._driver.run(launches)
            found |= {name: values[name].clone() for name in self.hears if owners[name] in call.outs}
        self._driver.wait()
        found |= {name: values[name] for name in self.hears if name not in found}  # what the step was given
        hear(self.committed, {name: tensor.cpu() for name, tensor in found.items()})

    def features(self, rows: int) -> Tensor | None:
        """[rows, taps * hidden] of the last step on the device, None when the plan taps nothing."""
        return None if self._features is None else self._features[:rows]

    def reset(self) -> None:
        """Forget the sequence."""
        self.committed = 0

    def _lines(self, tokens: list[int]) -> Tensor:
        """Rows of the latent cache that hold these tokens, int64 on the device."""
        pages = self._arrays["pages"][0]
        token = torch.tensor(tokens, device=pages.device)
        return pages[token // self._page].long() * self._page + token % self._page
