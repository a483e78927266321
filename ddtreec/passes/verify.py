"""The general verifier: holds after every pass. Each pass has its own besides."""

from __future__ import annotations

from ddtreec.core.errors import VerifyError
from ddtreec.graph.layer_graph import LayerGraph
from ddtreec.passes.programs import Programs


def rebuilt(after: str, graph: LayerGraph) -> LayerGraph:
    """The same graph constructed anew, so that types and order are inferred and not believed. Raises VerifyError."""
    try:
        return graph.replaced(graph.nodes)
    except ValueError as error:
        node, _, reason = str(error).partition(": ")
        raise VerifyError(after, node, reason) from None


def verify_graph(after: str, graph: LayerGraph) -> None:
    """Every value is written once, before its readers, in a type they take; ids are unique; nothing dangles."""
    fresh = rebuilt(after, graph)
    if dict(fresh.types) != dict(graph.types):
        raise VerifyError(after, graph.name, "the types kept with the graph are not those of its ops")
    seen: set[str] = set()
    kept = {*graph.outputs, *graph.layer_outputs}
    for node in graph:
        if node.id in seen:
            raise VerifyError(after, node.id, "two nodes have this id")
        seen.add(node.id)
        for value in node.outputs:
            if value not in kept and not graph.readers(value):
                raise VerifyError(after, node.id, f"'{value}' is never read")


def verify(after: str, programs: Programs, before: Programs | None = None) -> None:
    """All graphs, and against `before`: the same programs with the same inputs, outputs and number of layers."""
    for name, graph in programs.graphs.items():
        if name != graph.name:
            raise VerifyError(after, name, f"holds the program '{graph.name}'")
        verify_graph(after, graph)
    if before is None:
        return
    if set(programs.graphs) != set(before.graphs):
        raise VerifyError(after, "programs", f"{sorted(before.graphs)} became {sorted(programs.graphs)}")
    for name, graph in programs.graphs.items():
        old = before.graphs[name]
        if (graph.inputs, graph.outputs) != (old.inputs, old.outputs):
            raise VerifyError(after, name, "the inputs or outputs of the program changed")
        if len(graph.layer_outputs) != len(old.layer_outputs):
            raise VerifyError(after, name, f"{len(old.layer_outputs)} layer outputs became {len(graph.layer_outputs)}")
