"""A graph view as text, Mermaid and DOT. Runs of layers are one box unless they are opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ddtreec.core.units import format_bytes
from ddtreec.plan.text import table
from ddtreec.plan.view import GraphView, NodeView, ProgramView, Run, group_of, renamed

SHOWN_ROWS = (1, 8)
"""Row counts of the printed times."""


def columns(view: GraphView) -> tuple[int, ...]:
    """Where the row counts of the printed times stand in the lists of a node."""
    return tuple(view.rows.index(rows) for rows in SHOWN_ROWS)


def launches(run: Run) -> int:
    """Launches of one layer: nodes that only rename values are none."""
    return sum(node.predicted_us[0] > 0 for node in run.nodes)


# ---- text ---------------------------------------------------------------------------------------------------------


def text(view: GraphView, layer: str = "") -> str:
    """A line a node; every run once, under the name of its first layer or of `layer`."""
    ranks = "1 rank" if view.ranks == 1 else f"{view.ranks} ranks"
    rows = " and ".join(map(str, SHOWN_ROWS))
    lines = [
        f"engine {view.engine} after {view.after}: {view.model} on {view.topology}, {ranks}, {view.dtype}",
        f"bytes and predicted us of one rank at {rows} rows, context {view.context}",
    ]
    for program in view.programs:
        lines += ["", f"program {program.name}"]
        lines += [f"  input {value.name}: {value.type}" for value in program.inputs]
        for run in program.runs:
            first = run.names[0]
            if layer and layer not in run.names:
                continue
            lines.append(f"  {run.title}" + (f", as {layer}" if layer and len(run.names) > 1 else ""))
            name = layer or first
            rows_of = [_text_row(view, run, node, name) for node in run.nodes]
            header = ["  node", "kind", "reads -> gives", "weights", *(f"us {r}" for r in SHOWN_ROWS)]
            lines += ["  " + line for line in table(header, rows_of, left=3)]
        if not layer:
            lines.append(f"  output {', '.join(program.outputs)}")
    return "\n".join(lines) + "\n"


def _text_row(view: GraphView, run: Run, node: NodeView, layer: str) -> tuple[str, ...]:
    def short(value: str) -> str:
        return renamed(value, run, layer).removeprefix(layer + ".")

    outs = (f"{short(v.name)}: {v.type}{'' if v.placement == 'R' else ' ' + v.placement}" for v in node.outputs)
    flow = f"{', '.join(short(v.name) for v in node.inputs)} -> {', '.join(outs)}"
    where = f" (in {' '.join(node.layers)})" if node.layers else ""
    held = sum(w.bytes for w in node.weights)
    times = (f"{node.predicted_us[i]:.1f}" for i in columns(view))
    return ("  " + short(node.id) + where, node.kind, flow, format_bytes(held), *times)


# ---- drawings -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Box:
    """A box of a drawing: what it says, and the component that colours it."""

    id: str
    lines: tuple[str, ...]
    component: str
    round: bool = False


@dataclass
class Frame:
    """Boxes drawn together: a program, or an open layer in it."""

    id: str
    title: str
    boxes: list[Box] = field(default_factory=list[Box])
    frames: list[Frame] = field(default_factory=list["Frame"])


@dataclass
class Drawing:
    """Frames, and arrows (from, to, label)."""

    title: str
    frames: list[Frame] = field(default_factory=list[Frame])
    arrows: dict[tuple[str, str, str], None] = field(default_factory=dict[tuple[str, str, str], None])


def drawing(view: GraphView, layer: str = "") -> Drawing:
    """Boxes and arrows: a box a run, the run that holds `layer` as a frame with a box a node."""
    result = Drawing(f"{view.engine} after {view.after}")
    for program in view.programs:
        _Drawer(view, program, layer, result).draw()
    return result


class _Drawer:
    def __init__(self, view: GraphView, program: ProgramView, layer: str, drawing: Drawing):
        self.view, self.program, self.layer, self.drawing = view, program, layer, drawing
        self.boxes = [f"{program.name}_{i}" for i in range(len(program.runs))]

    def draw(self) -> None:
        frame = Frame(self.program.name, f"program {self.program.name}")
        self.drawing.frames.append(frame)
        for i, value in enumerate(self.program.inputs):
            frame.boxes.append(Box(f"{self.program.name}_in{i}", (value.name, value.type), "", True))
        for number, run in enumerate(self.program.runs):
            if self._open(run):
                inner = Frame(self.boxes[number], run.title + (f", as {self.layer}" if len(run.names) > 1 else ""))
                inner.boxes += [self._node_box(number, i, self._name(run, n.id), n) for i, n in enumerate(run.nodes)]
                frame.frames.append(inner)
            else:
                frame.boxes.append(self._run_box(number, run))
        for number, run in enumerate(self.program.runs):
            self._arrows(number, run)
        for i, value in enumerate(self.program.outputs):
            maker = self._maker(value, len(self.program.runs))
            if maker:
                frame.boxes.append(Box(f"{self.program.name}_out{i}", (value,), "", True))
                self.drawing.arrows[maker, f"{self.program.name}_out{i}", ""] = None

    def _open(self, run: Run) -> bool:
        return bool(self.layer) and self.layer in run.names

    def _name(self, run: Run, name: str) -> str:
        return renamed(name, run, self.layer).removeprefix(self.layer + ".")

    def _run_box(self, number: int, run: Run) -> Box:
        times = " / ".join(
            f"{len(run.names) * sum(n.predicted_us[i] for n in run.nodes) / 1e3:.2f}" for i in columns(self.view)
        )
        heaviest = max(run.nodes, key=lambda n: n.predicted_us[0])
        rows = " / ".join(map(str, SHOWN_ROWS))
        count = launches(run)
        each = " a layer" if len(run.names) > 1 else ""
        words = (run.title, f"{count} launch{'' if count == 1 else 'es'}{each}", f"{times} ms at {rows} rows")
        return Box(self.boxes[number], words, heaviest.component)

    def _node_box(self, number: int, index: int, name: str, node: NodeView) -> Box:
        times = " / ".join(f"{node.predicted_us[i]:.1f}" for i in columns(self.view))
        held = sum(w.bytes for w in node.weights)
        words = [name, node.kind] if node.kind not in name else [name]
        words.append(f"{times} us" + (f", {format_bytes(held)}" if held else ""))
        return Box(f"{self.boxes[number]}_{index}", tuple(words), node.component)

    def _arrows(self, number: int, run: Run) -> None:
        opened = self._open(run)
        for edge in run.edges:
            label = _tail(edge.value) if opened else ""
            if edge.start < 0:
                maker = self._maker(edge.value, number)
                ends = [f"{self.boxes[number]}_{i}" for i in edge.readers] if opened else [self.boxes[number]]
                if maker:
                    self.drawing.arrows.update(dict.fromkeys((maker, end, label) for end in ends))
            elif opened:
                start = f"{self.boxes[number]}_{edge.start}"
                ends = [f"{self.boxes[number]}_{i}" for i in edge.readers]
                self.drawing.arrows.update(dict.fromkeys((start, end, label) for end in ends))

    def _maker(self, value: str, before: int) -> str:
        """The box that gives a value to run number `before`; the layers of a run call it by another layer's name."""
        for i, given in enumerate(self.program.inputs):
            if given.name == value:
                return f"{self.program.name}_in{i}"
        for number in range(min(before, len(self.program.runs)) - 1, -1, -1):
            run = self.program.runs[number]
            for edge in run.edges:
                if edge.start >= 0 and self._may_leave(run, edge.value, value) and _same(edge.value, value):
                    return f"{self.boxes[number]}_{edge.start}" if self._open(run) else self.boxes[number]
        return ""

    def _may_leave(self, run: Run, made: str, value: str) -> bool:
        tapped = made.startswith("features.") and value.startswith("features.")
        return made == value or tapped or group_of(value) in run.names


def _tail(value: str) -> str:
    return value.removeprefix(group_of(value) + ".")


def _same(made: str, value: str) -> bool:
    """Whether two names stand for one value of layers that are alike; each tap makes a feature of its own number."""
    return _tail(made) == _tail(value) or made.partition(".")[0] == value.partition(".")[0] == "features"


COLOURS = {
    "attention": "#dbe7fb",
    "experts": "#fde3cf",
    "mlp": "#e3f1dc",
    "router": "#f7dfeb",
    "vocab": "#e9e2f8",
    "links": "#fbe3e3",
    "other": "#eef0ef",
    "drafter": "#d9f0f0",
    "": "#ffffff",
}
"""Fill of a box by component, for black text."""


def mermaid(view: GraphView, layer: str = "") -> str:
    """A Mermaid flowchart."""
    drawn = drawing(view, layer)
    lines = [f"%% {drawn.title}", "flowchart TD"]
    for frame in drawn.frames:
        lines += _mermaid_frame(frame, 1)
    for start, end, label in drawn.arrows:
        lines.append(f"  {start} -->{_mermaid_label(label)} {end}")
    lines += [f"  classDef c_{name or 'end'} fill:{fill},stroke:#60666d,color:#111" for name, fill in COLOURS.items()]
    return "\n".join(lines) + "\n"


def _mermaid_label(label: str) -> str:
    return f'|"{label}"|' if label else ""


def _mermaid_frame(frame: Frame, depth: int) -> Iterator[str]:
    pad = "  " * depth
    yield f'{pad}subgraph {frame.id}["{frame.title}"]'
    for box in frame.boxes:
        left, right = ('(["', '"])') if box.round else ('["', '"]')
        yield f"{pad}  {box.id}{left}{'<br/>'.join(box.lines)}{right}:::c_{box.component or 'end'}"
    for inner in frame.frames:
        yield from _mermaid_frame(inner, depth + 1)
    yield f"{pad}end"


def dot(view: GraphView, layer: str = "") -> str:
    """A Graphviz digraph."""
    drawn = drawing(view, layer)
    lines = [
        f"digraph {_quoted(drawn.title)} {{",
        '  node [shape=box, style="filled,rounded", fontname="Helvetica", fontsize=11, color="#60666d"];',
        '  edge [color="#60666d", fontname="Helvetica", fontsize=9];',
        "  compound=true;",
    ]
    for frame in drawn.frames:
        lines += _dot_frame(frame, 1)
    for start, end, label in drawn.arrows:
        lines.append(f"  {start} -> {end}" + (f" [label={_quoted(label)}]" if label else "") + ";")
    return "\n".join([*lines, "}"]) + "\n"


def _dot_frame(frame: Frame, depth: int) -> Iterator[str]:
    pad = "  " * depth
    yield f"{pad}subgraph cluster_{frame.id} {{"
    yield f"{pad}  label={_quoted(frame.title)}; fontname=Helvetica; fontsize=11;"
    for box in frame.boxes:
        shape = ", shape=oval" if box.round else ""
        yield f"{pad}  {box.id} [label={_quoted_lines(box.lines)}, fillcolor={_quoted(COLOURS[box.component])}{shape}];"
    for inner in frame.frames:
        yield from _dot_frame(inner, depth + 1)
    yield f"{pad}}}"


def _quoted(word: str) -> str:
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _quoted_lines(lines: Sequence[str]) -> str:
    return '"' + "\\n".join(_quoted(line)[1:-1] for line in lines) + '"'
