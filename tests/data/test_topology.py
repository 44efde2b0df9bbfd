"""Levels and cycles, against networkx and a plain depth-first search."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xlarank.data.graph import read_graph
from xlarank.data.root import SAMPLE
from xlarank.data.topology import has_cycle, node_levels, structure_hash


@st.composite
def dags(draw: st.DrawFn) -> tuple[int, np.ndarray]:
    """A random DAG under random node ids; edges may repeat."""
    nodes = draw(st.integers(1, 12))
    pair = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)).filter(lambda p: p[0] != p[1])
    pairs = draw(st.lists(pair.map(lambda p: (max(p), min(p))), max_size=25)) if nodes > 1 else []
    new_id = np.array(draw(st.permutations(range(nodes))))
    return nodes, new_id[np.array(pairs, np.int64).reshape(-1, 2)]


@st.composite
def digraphs(draw: st.DrawFn) -> tuple[int, np.ndarray]:
    """Any directed graph, self loops and all."""
    nodes = draw(st.integers(1, 7))
    end = st.integers(0, nodes - 1)
    return nodes, np.array(draw(st.lists(st.tuples(end, end), max_size=12)), np.int64).reshape(-1, 2)


def as_networkx(nodes: int, edges: np.ndarray) -> nx.DiGraph:
    """Arrows point from the operand to its consumer, the way data flows."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from((operand, consumer) for consumer, operand in edges.tolist())
    return graph


def longest_paths(graph: nx.DiGraph) -> list[int]:
    """Length of the longest path into each node, in topological order."""
    level: dict[int, int] = {}
    for node in nx.topological_sort(graph):
        level[node] = max((level[operand] + 1 for operand in graph.predecessors(node)), default=0)
    return [level[node] for node in range(len(graph))]


@given(graph=dags())
def test_levels_are_the_longest_paths(graph):
    """Also renumbered in topological order, which is the short way."""
    nodes, edges = graph
    flow = as_networkx(nodes, edges)
    expected = longest_paths(flow)
    assert node_levels(edges, nodes).tolist() == expected
    assert max(expected) == nx.dag_longest_path_length(flow)
    place = np.argsort(list(nx.topological_sort(flow)))
    assert node_levels(place[edges].reshape(-1, 2), nodes)[place].tolist() == expected


@given(graph=digraphs())
def test_nodes_on_or_above_a_cycle_have_no_level(graph):
    nodes, edges = graph
    flow = as_networkx(nodes, edges)
    assert has_cycle(edges, nodes) == (not nx.is_directed_acyclic_graph(flow))
    on_cycle = {n for part in nx.strongly_connected_components(flow) if len(part) > 1 for n in part}
    on_cycle |= {n for n in flow if flow.has_edge(n, n)}
    above = on_cycle.union(*(nx.descendants(flow, n) for n in on_cycle))
    levels = node_levels(edges, nodes)
    assert set(np.flatnonzero(levels < 0)) == above


def test_no_edges_and_a_deep_chain():
    none = np.zeros((0, 2), np.int64)
    assert node_levels(none, 3).tolist() == [0, 0, 0] and not has_cycle(none, 3)
    depth = 5000
    edges = np.stack([np.arange(1, depth + 1), np.arange(depth)], axis=1)
    assert node_levels(edges, depth + 1).tolist() == list(range(depth + 1))
    # The same chain numbered the other way round leaves the short cut for sorted ids.
    assert not has_cycle(depth - edges, depth + 1)
    assert has_cycle(np.vstack([depth - edges, [[depth, 0]]]), depth + 1)


# Structure ---------------------------------------------------------------------------------------------------

OPCODES, EDGES = np.array([63, 63, 34, 2]), np.array([[2, 0], [2, 1], [3, 2]])


def test_the_structure_is_that_of_opcodes_and_edges_in_any_order_and_type() -> None:
    one = structure_hash(OPCODES, EDGES)
    assert structure_hash(OPCODES.astype(np.uint8), EDGES[::-1].astype(np.int32)) == one
    others = [(OPCODES[::-1], EDGES), (OPCODES, EDGES[:2]), (OPCODES, EDGES[:, ::-1]), (OPCODES, EDGES[:0])]
    assert len({one, *(structure_hash(*other) for other in others)}) == 5


def test_siblings_of_the_sample_have_one_structure() -> None:
    """Promised by the sample's README: ``__s`` is another batch size of ``__a``."""
    folder = SAMPLE / "npz" / "layout" / "tpu-estimate" / "random"
    for path in sorted(folder.glob("test/*__s.npz")):
        (sibling,) = folder.glob(f"*/{path.stem.removesuffix('__s')}__a.npz")
        one, other = (read_graph(p, "layout") for p in (path, sibling))
        assert structure_hash(one.opcode, one.edges) == structure_hash(other.opcode, other.edges)
