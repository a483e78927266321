"""From what the loop reports to the `Round` record that traces and drawings are made of."""

from __future__ import annotations

from collections.abc import Callable

from ddtreec_runtime.generation import RoundReport
from ddtreec_runtime.rounds import Round
from ddtreec_runtime.sampling import NonFiniteLogits, SamplingParams, pick


def recorded(listener: Callable[[Round], None] | None, params: SamplingParams) -> Callable[[RoundReport], None] | None:
    """A listener of reports that hands `Round` records on; None for nobody.

    The target's pick is recorded at every node, also off the path; a node whose logits are not numbers has none.
    """
    if listener is None:
        return None

    def hear(report: RoundReport) -> None:
        positions = [report.start + depth + 1 for depth in (0, *report.tree.depths.tolist())]
        posterior: list[int | None] = []
        for row, position in enumerate(positions):
            try:
                posterior += pick(report.logits[row : row + 1], [position], params)
            except NonFiniteLogits:
                posterior.append(None)
        listener(
            Round.of(
                report.tree,
                start=report.start,
                root=report.root,
                accepted=report.accepted,
                posterior=posterior,
                next_token=report.next_token,
            )
        )

    return hear
