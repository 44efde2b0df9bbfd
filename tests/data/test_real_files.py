"""Real TpuGraphs files, where `XLARANK_TEST_DATA` names a tree of them (see that tree's README)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.data.test_schema import check_identities
from xlarank.data.collection import discover
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.root import find_data_root
from xlarank.data.schema import OPCODE

#: Place in the tree: (nodes, configurable nodes, configurations, distinct ones, labelled). Distinct
#: counts of test files were taken with numpy.unique over whole configurations.
LAYOUT_FILES = {
    "xla/default/train/alexnet_train_batch_32": (372, 26, 38009, 23924, True),
    "xla/default/train/unet3d": (2774, 56, 1159, 681, True),
    "xla/default/valid/unet_3d.4x4.bf16": (3163, 62, 1965, 1469, True),
    "xla/random/valid/unet_3d.4x4.bf16": (3163, 62, 481, 442, True),
    "xla/random/train/openai_v0_rnn_optimized": (1277, 62, 20, 1, True),
    "xla/default/test/cd708819d3f5103afd6460b15e74eaf3": (490, 38, 1000, None, False),
    "xla/random/test/cd708819d3f5103afd6460b15e74eaf3": (490, 38, 1000, None, False),
    "nlp/random/test/23559853d9702baaaacbb0c83fd32266": (1096, 56, 1000, None, False),
    "nlp/default/test/3a0c5517a87df8d82fd637b83298a3ba": (21918, 848, 1001, None, False),
}
#: Nanoseconds of the fastest and the slowest configuration, to four digits.
RUNTIMES = {
    "xla/default/train/alexnet_train_batch_32": (79.5e6, 428.8e6),
    "xla/default/train/unet3d": (23.3e9, 71.0e9),
    "xla/default/valid/unet_3d.4x4.bf16": (910.9e6, 925.7e6),
    "xla/random/valid/unet_3d.4x4.bf16": (910.9e6, 932.8e6),
    "xla/random/train/openai_v0_rnn_optimized": (461.3e6, 461.4e6),
}


@pytest.mark.parametrize("place", LAYOUT_FILES)
def test_layout_files_hold_what_their_readme_says(real_data, place):
    nodes, configurable, configs, distinct, labelled = LAYOUT_FILES[place]
    path = real_data / "npz" / "layout" / f"{place}.npz"
    graph = read_graph(path, "layout")
    assert isinstance(graph, LayoutGraph)
    assert (graph.nodes, len(graph.configurable), graph.configs) == (nodes, configurable, configs)
    assert graph.labelled == labelled
    if place in RUNTIMES:
        assert (graph.runtime.min(), graph.runtime.max()) == pytest.approx(RUNTIMES[place], rel=2e-3)
    with np.load(path) as archive:
        full = archive["node_config_feat"].astype(np.int8)
        for ours, theirs in (
            (graph.edges, "edge_index"),
            (graph.node_feat, "node_feat"),
            (graph.opcode, "node_opcode"),
            (graph.runtime, "config_runtime"),
            (graph.configurable, "node_config_ids"),
            (graph.splits[None], "node_splits"),
        ):
            assert np.array_equal(ours, archive[theirs]), theirs
    assert np.array_equal(graph.table.rows[graph.table.codes], full)
    # A whole configuration as one opaque value: quicker than unique over an axis, and just as exact.
    whole = np.ascontiguousarray(full.reshape(configs, -1)).view(f"V{full[0].size}").reshape(-1)
    assert graph.duplicates.distinct == len({bytes(value) for value in whole})
    assert distinct in (None, graph.duplicates.distinct)
    assert np.diff(graph.table.start).max() <= 64, "one node takes a handful of rows: the premise of the table"
    if "alexnet" in place:
        named = (graph.table.rows[:, :6] >= 0).sum(axis=1)
        of_convolution = graph.opcode[graph.configurable[graph.table.node]] == OPCODE["convolution"]
        assert set(named[of_convolution].tolist()) - {0, 4}, "layouts are partial: never assume a permutation"


def test_all_files_are_read(real_data):
    """Layout physics builds on convolution, dot and reshape alone being configurable; the CPU sample differs."""
    tree = find_data_root(real_data).npz
    files = discover(tree)
    assert {str(file.collection) for file in files} >= {"layout:xla:default", "layout:xla:random", "tile:xla"}
    assert len(files) == len(list(tree.rglob("*.npz"))), "discovery finds every file of the tree"
    kinds = set()
    for file in files:
        graph = read_graph(file.path, file.collection.kind)
        assert graph.name == file.name
        assert graph.labelled == (file.split != "test")
        check_identities(graph)
        if isinstance(graph, LayoutGraph):
            kinds |= set(graph.opcode[graph.configurable].tolist())
    assert kinds == {OPCODE["convolution"], OPCODE["dot"], OPCODE["reshape"]}


def test_tile_files_hold_what_their_readme_says(real_data):
    train = [
        read_graph(path) for path in sorted((real_data / "npz/tile/xla/train").glob("alexnet_train_batch_32_*.npz"))
    ]
    assert len(train) == 15
    sizes = [graph.configs for graph in train]
    assert (sum(sizes), min(sizes), max(sizes)) == (752, 2, 579)
    assert {min(graph.nodes for graph in train), max(graph.nodes for graph in train)} == {2, 56}
    assert sum(not graph.config_feat.any() for graph in train) == 3
    assert min(graph.runtime.min() for graph in train) == 598
    assert max(graph.runtime.max() for graph in train) == pytest.approx(3.96e6, rel=2e-3)
    for graph in train:
        assert (graph.cost > 0).all()
