"""Cycles handed to configurable nodes."""

import networkx as nx
import numpy as np
import pytest

from tests.graphs import layout_arrays, save_npz
from xlarank.data.graph import read_graph
from xlarank.data.hlo.compiler.attribution import nearest_configurable, node_cycles
from xlarank.data.hlo.compiler.cycle_table import CycleTable
from xlarank.data.hlo.compiler.cycles import Estimate, Operation


@pytest.fixture
def graph(tmp_path):
    return read_graph(save_npz(tmp_path / "g.npz", layout_arrays()))


def test_shares_are_those_of_shortest_paths(graph):
    """Against networkx, node by node."""
    found = nearest_configurable(graph).toarray()
    links = nx.Graph()
    links.add_nodes_from(range(graph.nodes))
    links.add_edges_from(graph.edges.tolist())
    for node in range(graph.nodes):
        away = nx.single_source_shortest_path_length(links, node)
        near = [away.get(int(one), np.inf) for one in graph.configurable]
        nearest = np.array(near) == min(near) if np.isfinite(min(near)) else np.zeros(len(near))
        assert found[node].tolist() == pytest.approx((nearest / max(1, nearest.sum())).tolist())


def test_every_cycle_is_handed_out_once(graph):
    first = int(graph.configurable[0])
    shared = next(
        node for node, row in enumerate(nearest_configurable(graph).toarray()) if node not in graph.configurable
    )
    operations = (
        Operation("a", "fusion", "f32[8]", "", 10, first),
        Operation("b", "copy", "f32[8]", "", 4, shared),
        Operation("c", "copy", "f32[8]", "", 3),
    )
    table = CycleTable(np.zeros(graph.configs, np.int64), (Estimate(operations), Estimate(operations[:1])))
    found = node_cycles(graph, table)
    assert found.own.tolist() == [10, 10]
    assert found.unattributed.tolist() == [3, 0]
    assert found.cycles.sum(axis=1).tolist() == pytest.approx([14, 10])
    assert found.cycles[1, 0] == 10
