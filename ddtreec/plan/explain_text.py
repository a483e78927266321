"""The explanation of a node for a reader."""

from __future__ import annotations

from collections.abc import Iterator

from ddtreec.core.units import format_bytes
from ddtreec.plan.explain import ROWS, Launch, NodeStory
from ddtreec.plan.text import table
from ddtreec.plan.view import ValueView

PLACED = {"R": "whole on every rank", "P": "addends, one a rank", "S1": "cut along axis 1"}


def node_text(story: NodeStory, ranks: int) -> str:
    """All sections that say something."""
    sections = (
        _head(story),
        _layout(story, ranks),
        _launched(story),
        _values(story, ranks),
        _weights(story),
        _cost(story),
    )
    return "\n\n".join("\n".join(lines) for lines in map(list, sections) if lines) + "\n"


def _head(story: NodeStory) -> Iterator[str]:
    yield f"{story.node}: {story.kind}, program {story.program}"
    yield f"  {story.what}"
    if story.loc:
        yield f"  written at {story.loc}"
    if story.fields:
        yield "  " + ", ".join(f"{name} {value}" for name, value in story.fields.items())
    if story.became:
        yield f"  absorb makes of it {', '.join(story.became)}: explain those for what runs"
    if story.also:
        yield f"  also in {', '.join(story.also)}"


def _layout(story: NodeStory, ranks: int) -> Iterator[str]:
    if ranks == 1:
        return
    yield f"layout on {ranks} ranks"
    if story.question:
        yield f"  {story.question}: {story.layout}"
        yield "  (the times are of one step of all programs, each under its best layout with that answer)"
    else:
        yield "  answers to no layout question: it follows the values around it"
    if story.alternatives:
        yield "  this op alone, us, and the collective that makes its output whole"
        rows: list[tuple[str, ...]] = []
        for a in story.alternatives:
            extra = tuple(f"{us:.1f}" for us in a.collective_us) or ("-",) * len(ROWS)
            mark = "* " if a.taken else "  "
            times = tuple(f"{us:.1f}" for us in a.op_us)
            rows.append((mark + a.answer, a.placements, a.collective or "-", format_bytes(a.bytes), *times, *extra))
        columns = tuple(f"{word} {r}" for word in ("op", "collective") for r in ROWS)
        yield from (
            "  " + line for line in table(("  answer", "placements", "then", "weights", *columns), rows, left=3)
        )
        if any(a.taken for a in story.alternatives):
            yield "    * as planned"


def _launched(story: NodeStory) -> Iterator[str]:
    launch = story.launch
    if launch is None:
        if story.after == "fuse" and story.kind != "split":
            yield f"launch\n  by itself, as {story.kind}"
        return
    yield f"launch {launch.node} ({launch.kind})"
    if launch.pattern:
        yield f"  because {_why(launch)}"
    yield f"  parts: {', '.join(launch.parts)}"
    for n, alone in zip(launch.numbers, launch.alone_us or (None,) * len(ROWS), strict=True):
        other = f", its parts one by one {alone:.1f} us" if alone is not None else ""
        yield f"  at {n.rows} row{'s' * (n.rows > 1)}: {n.predicted_us:.1f} us{other}"


def _why(launch: Launch) -> str:
    if " " in launch.pattern and launch.alone_us:
        words = " ".join(word.strip("&<!") for word in launch.pattern.split())
        return f"fuse found {words} in a row: one launch, and what passes between them stays on the chip"
    return launch.pattern


def _values(story: NodeStory, ranks: int) -> Iterator[str]:
    yield "values"
    rows = [("reads", v.name, v.type, _placed(v)) for v in story.inputs]
    rows += [("gives", v.name, v.type, _placed(v)) for v in story.outputs]
    shown = rows if ranks > 1 else [row[:3] for row in rows]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]))]
    yield from ("  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in shown)


def _placed(value: ValueView) -> str:
    return PLACED.get(value.placement, value.placement)


def _weights(story: NodeStory) -> Iterator[str]:
    if not story.weights:
        return
    yield f"weights of one rank, {format_bytes(sum(w.bytes for w in story.weights))}"
    for w in story.weights:
        yield f"  {w.id}: {' x '.join(map(str, w.shape))}, {w.packing}, role {w.role}, {w.bytes} bytes"
        for t in w.tensors:
            yield f"    {t.tensor}"
            yield f"      {' x '.join(map(str, t.dims))}; {t.cut}"
    for s in story.slices:
        yield f"  slices of {', '.join(s.tensors)}"
        yield from (f"    rank {rank}  {words}" for rank, words in enumerate(s.ranks))


def _cost(story: NodeStory) -> Iterator[str]:
    yield "cost on one rank" + (", as it would be without absorb" if story.became else "")
    rows = [
        (
            str(n.rows),
            format_bytes(n.weight_bytes),
            format_bytes(n.cache_bytes),
            format_bytes(n.activation_bytes),
            f"{n.flops / 1e6:.1f}",
            f"{n.floor_us:.1f}",
            f"{n.predicted_us:.1f}",
        )
        for n in story.numbers
    ]
    yield from table(("rows", "weights", "cache", "activations", "MFLOP", "floor us", "predicted us"), rows, left=0)
