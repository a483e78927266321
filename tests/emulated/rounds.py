"""The round's arrays on the CPU and its kernels on the emulator, for tests."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ddtreec.artifacts.kernels import StateArray
from ddtreec.emit.cuda.base import KernelDraft
from ddtreec.emit.cuda.round_state import Operands, Sizes, round_state, values_of_programs
from ddtreec.emit.cuda.source import kernel_source
from tests.emulated.emulator import BACKWARD, FORWARD, Memory, library

DTYPES = {
    "int32": torch.int32,
    "uint32": torch.int32,
    "int64": torch.int64,
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
}
ROWS = 128
FRESH = {"limit": 10**6, "room": 10**6, "mode": 2, "heed_stops": 1, "temperature": 0.0, "top_p": 1.0, "top_k": 0}
FRESH |= {"seed": 0, "request": 0, "length": 0, "anchor": 7, "produced": 1, "rounds": 0, "status": 1}


def sizes_for(block: int, nodes: int, vocab: int, logit: str = "float", features: int = 24) -> Sizes:
    """Sizes with logits of one type."""
    return Sizes(block, nodes, vocab, logit, logit, features)


class Round:
    """All arrays for up to `slots` slots, zeros as the runtime makes them, and launches on them."""

    def __init__(self, sizes: Sizes, slots: int, latent: tuple[int, int, int] = (2, 64, 16), pages: int = 4):
        """`latent`: layers, tokens, width; `pages` of a slot."""
        self.sizes, self.slots, self.memory = sizes, slots, Memory()
        step = [
            StateArray("positions", "int32", ("rows",)),
            StateArray("committed", "int32", ("slots",)),
            StateArray("valid", "int32", ("slots",)),
            StateArray("masks", "uint32", ("rows", 4)),
            StateArray("out_index", "int32", ("rows",)),
            StateArray("pages", "int32", ("slots", pages)),
            StateArray("latent", "bfloat16", latent),
        ]
        arrays = round_state(sizes) | values_of_programs(sizes) | {array.name: array for array in step}
        self.operands = Operands(arrays)
        most = {"rows": ROWS, "out_rows": ROWS, "slots": slots}
        skipped = {"logits", "draft_logits"}
        self.arrays: dict[str, Tensor] = {}
        for name, array in arrays.items():
            if name not in skipped:
                self.put(name, torch.zeros([most.get(n, n) if isinstance(n, str) else n for n in array.shape],
                                           dtype=DTYPES[array.dtype]))  # fmt: skip

    def __getitem__(self, name: str) -> Tensor:
        return self.arrays[name]

    def put(self, name: str, values: Tensor) -> Tensor:
        """Gives the array `name` a place with a forbidden page behind it."""
        made = self.memory.tensor(tuple(values.shape), values.dtype)
        made.copy_(values)
        self.arrays[name] = made
        return made

    def admit(self, slot: int, **values: float) -> None:
        """Makes a slot run. Defaults: a tree of all nodes, no end in sight, greedy."""
        facts = FRESH | {"budget": self.sizes.nodes}
        for name, value in (facts | values).items():
            self.arrays[name][slot] = value

    def launch(self, draft: KernelDraft, slots: int | None = None, group: int = 1) -> None:
        """Runs a kernel in both orders of the emulator, which must leave the same bits everywhere."""
        slots = self.slots if slots is None else slots
        symbols = {"slots": slots, "group": group, "rows": slots * group, "out_rows": slots * group}
        lib = library(kernel_source(draft))
        before = {name: array.clone() for name, array in self.arrays.items()}
        results: list[Mapping[str, Tensor]] = []
        for flags in (BACKWARD, FORWARD):
            for name, array in self.arrays.items():
                array.copy_(before[name])
            scratch = {s.name: self.memory.tensor((s.bytes.value(symbols),), torch.uint8) for s in draft.scratch}
            for stage in draft.kernel().stages:
                variant = next(v for v in stage.variants if v.rows >= symbols[stage.count])
                args: list[int] = []
                for arg in stage.args:
                    kind, _, name = arg.partition(":")
                    places = {"state": self.arrays, "scratch": scratch}
                    args.append(symbols[name] if kind == "int" else places[kind][name].data_ptr())
                grid = [dim.value(symbols) for dim in variant.grid]
                lib.launch(variant.function, grid, variant.threads, variant.shared, args, flags=flags)
            results.append({name: array.clone() for name, array in self.arrays.items()})
        for name in self.arrays:
            assert torch.equal(bits(results[0][name]), bits(results[1][name])), f"{name} depends on the order"


def bits(x: Tensor) -> Tensor:
    """The same memory as integers, so that NaN equals itself."""
    return x.contiguous().view(torch.uint8)
