"""Segments: connected nodes that contribute most of a difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import networkx as nx

from xlarank.data.graph import Graph, tensor_ranks

#: The nodes of the largest contributions with this share of the sum of absolute contributions are kept.
_COVERED: Final = 0.8
#: Two of them are connected when at most this many edges lie between.
_REACH: Final = 2
_MOST: Final = 5


@dataclass(frozen=True)
class Segment:
    """Connected nodes, ascending, and the sum of their contributions."""

    nodes: tuple[int, ...]
    value: float


def program_graph(graph: Graph) -> nx.DiGraph:
    """Return the program as a graph, with an edge from producer to consumer for tensors of rank 2 or more.

    Others have no choice of layout, and a shared scalar would connect half a program.
    """
    program = nx.DiGraph()
    program.add_nodes_from(range(graph.nodes))
    rank = tensor_ranks(graph.node_feat)
    program.add_edges_from((int(operand), int(node)) for node, operand in graph.edges if rank[operand] > 1)
    return program


def segments_of(graph: Graph, values: Mapping[int, float]) -> tuple[Segment, ...]:
    """Return the segments of the largest contributions; ``values`` are the contributions of nodes.

    All nodes of a segment have contributions of the same sign.
    """
    total = sum(abs(value) for value in values.values())
    if total == 0:
        return ()
    largest: list[int] = []
    covered = 0.0
    for node in sorted(values, key=lambda n: (-abs(values[n]), n)):
        if covered >= _COVERED * total:
            break
        largest.append(node)
        covered += abs(values[node])
    around = program_graph(graph).to_undirected(as_view=True)
    joined: nx.Graph = nx.Graph()
    joined.add_nodes_from(largest)
    chosen = set(largest)
    for node in largest:
        for other in nx.single_source_shortest_path_length(around, node, _REACH):
            if other in chosen and (values[other] > 0) == (values[node] > 0):
                joined.add_edge(node, other)
    parts = nx.connected_components(joined)
    segments = [Segment(tuple(sorted(part)), sum(values[node] for node in part)) for part in parts]
    return tuple(sorted(segments, key=lambda s: (-abs(s.value), s.nodes))[:_MOST])
