"""Connected nodes that answer together for most of a difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import networkx as nx

from xlarank.data.graph import Graph, tensor_ranks

#: Nodes are looked at, the most telling first, until they answer for this share of what all nodes say.
_COVERED: Final = 0.8
#: Two of them are connected when at most this many edges lie between.
_REACH: Final = 2
_MOST: Final = 5


@dataclass(frozen=True)
class Segment:
    """A connected part of the program.

    Attributes:
        nodes: its telling nodes as numbered in the graph, ascending.
        value: the sum of their contributions.
    """

    nodes: tuple[int, ...]
    value: float


def program_graph(graph: Graph) -> nx.DiGraph:
    """The program with an edge from each producer to each consumer over which a layout is handed on.

    Tensors of rank 0 and 1 have no choice of layout; a shared scalar would make neighbours of half a program.
    """
    program = nx.DiGraph()
    program.add_nodes_from(range(graph.nodes))
    rank = tensor_ranks(graph.node_feat)
    program.add_edges_from((int(operand), int(node)) for node, operand in graph.edges if rank[operand] > 1)
    return program


def segments_of(graph: Graph, values: Mapping[int, float], most: int = _MOST) -> tuple[Segment, ...]:
    """The segments of the largest contributions, at most ``most``; ``values`` are those of single nodes.

    Only nodes that pull the same way make a segment: what helps and what harms lie apart even where they touch.
    """
    total = sum(abs(value) for value in values.values())
    if total == 0:
        return ()
    telling: list[int] = []
    covered = 0.0
    for node in sorted(values, key=lambda n: (-abs(values[n]), n)):
        if covered >= _COVERED * total:
            break
        telling.append(node)
        covered += abs(values[node])
    around = program_graph(graph).to_undirected(as_view=True)
    joined: nx.Graph = nx.Graph()
    joined.add_nodes_from(telling)
    chosen = set(telling)
    for node in telling:
        for other in nx.single_source_shortest_path_length(around, node, _REACH):
            if other in chosen and (values[other] > 0) == (values[node] > 0):
                joined.add_edge(node, other)
    found = [
        Segment(tuple(sorted(part)), sum(values[node] for node in part)) for part in nx.connected_components(joined)
    ]
    return tuple(sorted(found, key=lambda s: (-abs(s.value), s.nodes))[:most])
