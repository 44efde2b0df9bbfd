"""Real TpuGraphs files, where `XLARANK_TEST_DATA` names a tree of them: read as numpy reads them."""

from __future__ import annotations

import numpy as np

from tests.data.test_schema import check_identities
from xlarank.data.collection import discover
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.root import find_data_root
from xlarank.data.schema import OPCODE


def test_every_file_is_read_as_numpy_reads_it(real_data):
    """Layout physics builds on convolution, dot and reshape alone being configurable; the CPU sample differs."""
    tree = find_data_root(real_data).npz
    files = discover(tree)
    assert {str(file.collection) for file in files} >= {"layout:xla:default", "layout:xla:random", "tile:xla"}
    assert len(files) == len(list(tree.rglob("*.npz"))), "discovery finds every file of the tree"
    kinds, named = set(), set()
    for file in files:
        graph = read_graph(file.path, file.collection.kind)
        assert (graph.name, graph.labelled) == (file.name, file.split != "test")
        check_identities(graph)
        pairs = {"node_feat": graph.node_feat, "node_opcode": graph.opcode, "edge_index": graph.edges}
        pairs["config_runtime"] = graph.runtime
        if isinstance(graph, LayoutGraph):
            pairs |= {"node_config_ids": graph.configurable, "node_splits": graph.splits[None]}
            pairs["node_config_feat"] = full = graph.table.rows[graph.table.codes]
            of_convolution = graph.opcode[graph.configurable[graph.table.node]] == OPCODE["convolution"]
            named |= set((graph.table.rows[of_convolution, :6] >= 0).sum(axis=1).tolist())
            kinds |= set(graph.opcode[graph.configurable].tolist())
            assert np.diff(graph.table.start).max() <= 64, (
                "a node takes a handful of rows: the premise of the table"
            )
        else:
            pairs |= {"config_feat": graph.config_feat, "config_runtime_normalizers": graph.normalizers}
            full = graph.config_feat
            assert (graph.cost > 0).all()
        with np.load(file.path) as archive:
            assert {name: np.array_equal(ours, archive[name]) for name, ours in pairs.items()} == dict.fromkeys(
                archive.files, True
            )
        assert graph.duplicates.distinct == len({config.tobytes() for config in full})
    assert kinds == {OPCODE["convolution"], OPCODE["dot"], OPCODE["reshape"]}
    assert named - {0, 4}, "layouts are partial: never assume a permutation"
