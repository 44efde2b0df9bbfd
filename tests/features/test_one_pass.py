"""The one pass over the configurations: how it is cut and by which way it adds up must not show in any column."""

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
from xlarank.features.layout import block as layout_block
from xlarank.features.layout.block import LayoutBlock
from xlarank.features.layout.context import LayoutContext
from xlarank.features.recipe import FeatureSettings

SEEDS = range(200, 225)
NAMES = FeatureSettings().config_columns("layout")
BLOCKS = [block for block in blocks_of("layout") if isinstance(block, LayoutBlock)]


@pytest.fixture(scope="module")
def whole() -> list[tuple[LayoutGraph, np.ndarray]]:
    """Graphs and their columns of configurations."""
    sample = load(SAMPLE / "layout" / "cpu" / "default" / "train" / "dlrm__a.npz")
    graphs = [layout_of(arrays) for arrays in (sample, *map(fitting_graph, SEEDS))]
    return [(graph, assemble(graph).config_values) for graph in graphs]


@pytest.mark.parametrize(
    "settings",
    [
        {(layout_block, "_CODES"): 1, (layout_block, "_CONFIGS"): (1, 1)},
        {(layout_block, "_CODES"): 20, (layout_block, "_CONFIGS"): (2, 3)},
        {(aggregation, "_COMBINATIONS"): 0},
        {(aggregation, "_COMBINATIONS"): 0, (layout_block, "_CODES"): 1, (layout_block, "_CONFIGS"): (1, 1)},
        {(aggregation, "_SPARSE_NS"): 0.0},
        {(aggregation, "_SPARSE_NS"): 1e9},
    ],
    ids=["batches of 1", "batches of 2 or 3", "taken pairs only", "taken pairs, batches of 1", "sparse", "dense"],
)
def test_the_way_does_not_show(whole, monkeypatch, settings):
    for (module, name), value in settings.items():
        monkeypatch.setattr(module, name, value)
    for graph, rows in whole:
        np.testing.assert_allclose(assemble(graph).config_values, rows, rtol=1e-5, atol=1e-6)


def test_batches_are_as_large_as_they_are_said_to_be(monkeypatch):
    monkeypatch.setattr(layout_block, "_CODES", 12)
    monkeypatch.setattr(layout_block, "_CONFIGS", (2, 4))
    context, seen = LayoutContext(layout_of(layout_arrays())), []  # 5 distinct configurations of 2 nodes
    answer = aggregation.Aggregation.plan

    def noted(self):
        answered = answer(self)
        return lambda codes: seen.append(len(codes)) or answered(codes)

    monkeypatch.setattr(aggregation.Aggregation, "plan", noted)
    BLOCKS[0].compute(context)
    monkeypatch.setattr(layout_block, "_CODES", 2)
    BLOCKS[0].compute(context)
    assert seen == [4, 1, 2, 2, 1]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: type(block).__name__)
def test_a_block_alone_gives_what_it_gives_among_others(whole, block):
    at = NAMES.index(next(iter(block.columns)))
    for graph, rows in whole:
        alone = block.compute(LayoutContext(graph))
        assert (alone.dtype, alone.shape) == (np.float32, (len(rows), len(block.columns)))
        np.testing.assert_allclose(alone, rows[:, at : at + len(block.columns)], rtol=1e-5, atol=1e-6)


# Zeros ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["convolution", "dot", "reshape"])
def test_columns_of_what_a_graph_does_not_have_are_exactly_0(whole, kind):
    seen = 0
    about = [number for number, name in enumerate(NAMES) if f"__{kind}_" in name]
    assert len(about) > 20
    opcodes = [OPCODE[name] for name in ((kind, "bitcast") if kind == "reshape" else (kind,))]
    for graph, rows in whole:
        if not np.isin(graph.opcode[graph.configurable], opcodes).any():
            assert not rows[:, about].any()
            seen += 1
    assert seen > 3


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


# Nodes that are alike ---------------------------------------------------------------------------------------


def test_nodes_of_one_shape_and_element_type_share_their_types_of_rows():
    nodes = (
        Node("parameter", (8, 16)),
        Node("tanh", (8, 16), (0,)),
        Node("tanh", (8, 16), (0,)),
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
    rows = [[layout_row(output=(2, 1, 0))] * 2]
    found = by_name(assemble(layout_of(layout_file(nodes, (2, 3), rows))))
    assert found["roles__convolution_output_feature_minor__share"].tolist() == [0.5]
    assert found["roles__convolution_output_batch_minor__share"].tolist() == [0.5]
