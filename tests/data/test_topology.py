"""Levels and cycles, against networkx; the hash of a structure."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xlarank.data.graph import read_graph
from xlarank.data.root import SAMPLE
from xlarank.data.topology import has_cycle, node_levels, structure_hash


@given(
    nodes=st.integers(1, 10),
    pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20),
    names=st.none() | st.permutations(range(10)),
)
def test_levels_are_the_longest_paths_and_nodes_on_or_above_a_cycle_have_none(nodes, pairs, names):
    """Of any directed graph, self loops and all, or of a DAG under random node ids."""
    edges = np.array(pairs, np.int64).reshape(-1, 2) % nodes
    if names is not None:
        edges = np.sort(edges[edges[:, 0] != edges[:, 1]], axis=1)[:, ::-1]
        edges = np.argsort(names[:nodes])[edges]
    flow = nx.DiGraph((operand, consumer) for consumer, operand in edges.tolist())
    flow.add_nodes_from(range(nodes))
    assert has_cycle(edges, nodes) == (not nx.is_directed_acyclic_graph(flow))
    on_cycle = {n for part in nx.strongly_connected_components(flow) if len(part) > 1 for n in part}
    on_cycle |= set(nx.nodes_with_selfloops(flow))
    level = dict.fromkeys(on_cycle.union(*(nx.descendants(flow, n) for n in on_cycle)), -1)
    for node in nx.topological_sort(flow.subgraph(set(flow) - set(level))):
        level[node] = max((level[operand] + 1 for operand in flow.predecessors(node)), default=0)
    assert node_levels(edges, nodes).tolist() == [level[node] for node in range(nodes)]


def test_a_deep_chain_in_either_numbering():
    depth = 5000
    edges = np.stack([np.arange(1, depth + 1), np.arange(depth)], axis=1)
    assert node_levels(edges, depth + 1).tolist() == list(range(depth + 1))
    assert not has_cycle(depth - edges, depth + 1)
    assert has_cycle(np.vstack([depth - edges, [[depth, 0]]]), depth + 1)


def test_the_structure_is_that_of_opcodes_and_edges_in_any_order_and_type() -> None:
    opcodes, edges = np.array([63, 63, 34, 2]), np.array([[2, 0], [2, 1], [3, 2]])
    one = structure_hash(opcodes, edges)
    assert structure_hash(opcodes.astype(np.uint8), edges[::-1].astype(np.int32)) == one
    others = [(opcodes[::-1], edges), (opcodes, edges[:2]), (opcodes, edges[:, ::-1]), (opcodes, edges[:0])]
    assert len({one, *(structure_hash(*other) for other in others)}) == 5


def test_siblings_of_the_sample_have_one_structure() -> None:
    """Promised by the sample's README: ``__s`` is another batch size of ``__a``."""
    folder = SAMPLE / "npz" / "layout" / "tpu-estimate" / "random"
    for path in sorted(folder.glob("test/*__s.npz")):
        (sibling,) = folder.glob(f"*/{path.stem.removesuffix('__s')}__a.npz")
        one, other = (read_graph(p, "layout") for p in (path, sibling))
        assert structure_hash(one.opcode, one.edges) == structure_hash(other.opcode, other.edges)
