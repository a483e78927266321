"""Orders of small graphs given as plain edges. networkx is loaded only where a graph has loops: it costs a tenth of a
second, a fifth of a whole `check`."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=tuple[int, ...])


def topological(edges: Mapping[Key, Collection[Key]]) -> list[Key]:
    """The keys of `edges` (each to the keys behind it, all of them keys too), every one after those before it, the
    smallest first where there is a choice. Where the graph has loops, what lies on them or behind them is missing."""
    waits = dict.fromkeys(edges, 0)
    for behind in edges.values():
        for key in behind:
            waits[key] += 1
    ready = [key for key, count in waits.items() if not count]
    heapq.heapify(ready)
    order: list[Key] = []
    while ready:
        order.append(heapq.heappop(ready))
        for key in edges[order[-1]]:
            waits[key] -= 1
            if not waits[key]:
                heapq.heappush(ready, key)
    return order


def loops(edges: Mapping[Key, Collection[Key]]) -> list[set[Key]]:
    """The sets of keys that can all reach each other, those of one key left out."""
    import networkx as nx

    graph: nx.DiGraph[Key] = nx.DiGraph()
    graph.add_nodes_from(edges)
    graph.add_edges_from((key, other) for key, behind in edges.items() for other in behind)
    return [found for found in nx.strongly_connected_components(graph) if len(found) > 1]
