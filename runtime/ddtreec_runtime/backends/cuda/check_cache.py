"""The caches of a case on the device: tokens of a sequence in random pages or in rings, everything else NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ddtreec.artifacts.kernels import KernelTable
from ddtreec.artifacts.plan import Plan
from ddtreec.core.errors import VerifyError
from ddtreec_runtime.backends.cuda.check_case import Case, appends, cache_kind


@dataclass(frozen=True, slots=True)
class Places:
    """Where the tokens of every slot lie in the array `kind`.

    array: its shape on the device. layer: the one that the step works on. starts: element where the layer begins; row:
    elements of a token. tokens: of a slot, for rings. pages: int32 [slots, pages], None for rings.
    """

    case: Case
    kind: str
    array: tuple[int, ...]
    layer: int
    start: int
    width: int
    ring: int
    pages: Tensor | None

    def lines(self, slot: int, tokens: Sequence[int]) -> Tensor:
        """Which rows of `width` elements of the array these tokens are, int64."""
        token = torch.tensor(tokens, dtype=torch.int64)
        if self.pages is None:
            return self.start // self.width + slot * self.ring + token % self.ring
        page = self.case.plan.limits.page
        return self.start // self.width + self.pages[slot].long()[token // page] * page + token % page

    def rows(self, array: Tensor, slot: int, count: int) -> Tensor:
        """[count, width] of the first tokens behind the committed ones, on the CPU."""
        committed = self.case.committed[slot]
        lines = self.lines(slot, range(committed, committed + count))
        return array.view(-1, self.width)[lines.to(array.device)].cpu()

    def filled(self, valid: Sequence[int], array: Tensor) -> Tensor:
        """The array before a step, with its `valid` rows where an earlier kernel put them. Tokens that have left a
        window are NaN too: nobody may see them. `array`: of its shape, all NaN; it is filled and returned."""
        held = array.view(-1, self.width)
        given = self.case.latent if self.kind == "latent" else self.case.context
        for slot, committed in enumerate(self.case.committed):
            appended = self.kind == "latent" and not appends(self.case.kernel) and slot < len(valid)
            tokens = range(self._oldest(committed), committed + (valid[slot] if appended else 0))
            lines = self.lines(slot, tokens).to(array.device)
            held[lines] = given[slot][tokens.start : tokens.stop].flatten(1).to(array.device)
        return array

    def changed(self, before: Tensor, after: Tensor, valid: Sequence[int]) -> bool:
        """Whether anything but the first `valid` new tokens of each slot was written."""
        differs = (before.view(torch.int16) != after.view(torch.int16)).view(-1, self.width).any(1)
        for slot, count in enumerate(valid):
            committed = self.case.committed[slot]
            differs[self.lines(slot, range(committed, committed + count)).to(after.device)] = False
        return bool(differs.any())

    def _oldest(self, committed: int) -> int:
        if self.kind == "latent":
            return 0
        window = rings(self.case.plan)[self.case.layer][0]
        return max(0, committed - window + 1) if window else 0


def places_of(case: Case, table: KernelTable, draw: torch.Generator) -> Places | None:
    """The cache of a case, None for a kernel without one. Of latents two layers are made, the second is worked on."""
    kind = cache_kind(case.kernel)
    if not kind:
        return None
    (shape,) = (array.shape for array in table.state if array.name == kind)
    plan = case.plan
    if kind == "latent":
        layers, tokens, width = (int(n) for n in shape)
        layer = min(1, layers - 1)
        each = tokens // plan.limits.page // plan.limits.sequences
        order = torch.randperm(tokens // plan.limits.page, generator=draw)[: case.slots * each]
        pages = order.view(case.slots, each).to(torch.int32)
        return Places(case, kind, (layer + 1, tokens, width), layer, layer * tokens * width, width, 0, pages)
    layers_ = rings(plan)
    caches = [cache for cache in plan.caches if cache.kind == "context"]
    width = 2 * caches[0].heads * caches[0].head_dim
    sizes = [plan.limits.sequences * ring * width for _, ring in layers_]
    if (sum(sizes),) != shape:
        raise VerifyError("emit", "state:context", f"has shape {shape}, its layers have {sum(sizes)} elements")
    ring = layers_[case.layer][1]
    return Places(case, kind, (sum(sizes),), case.layer, sum(sizes[: case.layer]), width, ring, None)


def rings(plan: Plan) -> list[tuple[int, int]]:
    """(window, tokens of a slot) of every drafter layer."""
    step = max(plan.limits.chunk, plan.drafter.block if plan.drafter else 0)
    most = plan.limits.context + step
    windows = [cache.window for cache in plan.caches if cache.kind == "context"]
    return [(window, min(most, 2 * (window + step)) if window else most) for window in windows]
