"""The page of `ddtreec graph`: one file, layers folded, every node with what it moves and takes."""

from __future__ import annotations

from ddtreec.emit.pages import asset, json_island, page
from ddtreec.plan.graph_text import text
from ddtreec.plan.view import GraphView, encode


def graph_page(view: GraphView, layer: str = "") -> str:
    """The HTML text; `layer` is open at the start. Readers without scripts get the graph as text."""
    ranks = "1 rank" if view.ranks == 1 else f"{view.ranks} ranks"
    facts = [view.model, f"{view.topology}, {ranks}", view.dtype, f"after {view.after}", f"context {view.context:,}"]
    return page(
        "graph.html.j2",
        {
            "engine": view.engine,
            "facts": " · ".join(facts),
            "css": asset("graph.css"),
            "js": asset("graph.js"),
            "data": json_island(encode(view)),
            "open": layer,
            "plain": text(view),
        },
    )
