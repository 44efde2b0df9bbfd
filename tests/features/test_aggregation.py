"""Sums and maxima over nodes and pairs: how they are cut into batches and added up must not show."""

from __future__ import annotations

from fnmatch import fnmatch

import numpy as np
import pytest

from tests.features.helpers import SAMPLE, by_name, layout_file, layout_of, load
from tests.features.programs import fitting_graph
from tests.graphs import Node, layout_arrays, layout_row
from xlarank.data.graph import LayoutGraph
from xlarank.data.schema import OPCODE
from xlarank.features.assemble import assemble
from xlarank.features.catalogue import blocks_of
from xlarank.features.layout import aggregation
from xlarank.features.layout.aggregation import LayoutBlock
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.recipe import FeatureSettings

SEEDS = range(200, 212)
NAMES = FeatureSettings().config_columns("layout")
BLOCKS = [block for block in blocks_of("layout") if isinstance(block, LayoutBlock)]


# The one pass over the configurations -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole() -> list[tuple[LayoutGraph, np.ndarray]]:
    """Graphs and their columns of configurations."""
    sample = load(SAMPLE / "layout" / "cpu" / "default" / "train" / "dlrm__a.npz")
    graphs = [layout_of(arrays) for arrays in (sample, *map(fitting_graph, SEEDS))]
    return [(graph, assemble(graph).config_values) for graph in graphs]


@pytest.mark.slow
def test_batches_and_ways_to_add_up_do_not_show(whole, monkeypatch):
    for settings in (
        {"_CODES": 1, "_CONFIGS": (1, 1), "_COMBINATIONS": 0},  # of the pairs taken only
        {"_CODES": 20, "_CONFIGS": (2, 3)},
        {"_SPARSE_NS": 0.0},
        {"_SPARSE_NS": 1e9},
    ):
        with monkeypatch.context() as patch:
            for name, value in settings.items():
                patch.setattr(aggregation, name, value)
            for graph, rows in whole[:: 2 if "_CODES" in settings else 1]:
                np.testing.assert_allclose(assemble(graph).config_values, rows, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_block_alone_gives_what_it_gives_among_others(whole):
    for block in BLOCKS:
        at = NAMES.index(next(iter(block.columns)))
        for graph, rows in whole[:4]:
            alone = block.compute(LayoutContext(graph))
            assert (alone.dtype, alone.shape) == (np.float32, (len(rows), len(block.columns)))
            np.testing.assert_allclose(alone, rows[:, at : at + len(block.columns)], rtol=1e-5, atol=1e-6)


def test_columns_of_what_a_graph_does_not_have_are_exactly_0(whole):
    for kind in ("convolution", "dot", "reshape"):
        about = [number for number, name in enumerate(NAMES) if f"__{kind}_" in name]
        opcodes = [OPCODE[name] for name in ((kind, "bitcast") if kind == "reshape" else (kind,))]
        without = [rows for graph, rows in whole if not np.isin(graph.opcode[graph.configurable], opcodes).any()]
        assert len(about) > 20 and len(without) > 2
        assert not any(rows[:, about].any() for rows in without)


#: What says how a tensor lies, whoever chose it.
STATE = (
    *("padding__*", "packed__*", "types__*", "roles__*", "violation__*", "candidates__*", "rank__*", "zscore__*"),
    *("disagreement__mismatch_*", "disagreement__consumer_*", "disagreement__producer_*", "siblings__mismatch_*"),
    "change__*_unlike_*",
)


def test_without_any_layout_set_nothing_is_changed():
    for seed in SEEDS:
        arrays = fitting_graph(seed)
        unset = {**arrays, "node_config_feat": np.full_like(arrays["node_config_feat"], -1)}
        for name, values in by_name(assemble(layout_of(unset))).items():
            if not any(fnmatch(name, pattern) for pattern in STATE) or "_waste_change_" in name:
                assert values.tolist() == [0.0], name


def test_without_configurable_nodes_ranks_are_in_the_middle():
    arrays = layout_arrays()
    arrays["node_config_ids"] = arrays["node_config_ids"][:0]
    arrays["node_config_feat"] = arrays["node_config_feat"][:, :0]
    found = by_name(assemble(layout_of(arrays)))
    assert {n: v.tolist() for n, v in found.items()} == {n: [0.5 * n.startswith("rank__")] for n in found}


# Nodes that are alike ---------------------------------------------------------------------------------------


def test_nodes_of_one_shape_and_element_type_share_their_types_of_rows():
    nodes = (
        Node("parameter", (8, 16)),
        *[Node("tanh", (8, 16), (0,))] * 2,
        Node("tanh", (8, 16), (0,), element="bf16"),
        Node("exponential", (8, 16), (0,)),
    )
    rows = [[layout_row(output=(0, 1))] * 4, [layout_row()] * 4]
    context = LayoutContext(layout_of(layout_file(nodes, (1, 2, 3, 4), rows)))
    assert context.signature[0] == context.signature[1] and len(set(context.signature.tolist())) == 3
    assert len(context.table.rows) == 8 and len(context.type_node) == 6


def test_convolutions_of_one_shape_with_other_dimension_numbers_are_not_alike():
    """[4,4,4] with the features last or first: the same layout puts features or a batch along the lanes."""
    stem = "convolution_dim_numbers"
    nodes = [Node("parameter", (4, 4, 4)), Node("parameter", (3, 4, 4))]
    for batch, feature in ((0, 2), (2, 0)):
        numbers = {f"{stem}_output_batch_dim": batch, f"{stem}_output_feature_dim": feature}
        nodes.append(Node("convolution", (4, 4, 4), (0, 1), window=(3,), columns=numbers))
    found = by_name(assemble(layout_of(layout_file(nodes, (2, 3), [[layout_row(output=(2, 1, 0))] * 2]))))
    assert found["roles__convolution_output_feature_minor__share"].tolist() == [0.5]
    assert found["roles__convolution_output_batch_minor__share"].tolist() == [0.5]
