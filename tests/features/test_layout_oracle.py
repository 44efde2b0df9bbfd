"""Every column of a layout graph against the slow reference, on random graphs and on files of the sample."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from data.config_table import code_counts
from features import pairs
from features.assemble import assemble
from features.block import registered
from features.layout import LayoutContext
from tests.features.helpers import SAMPLE, by_name, layout_of, load, shared_shape_graphs
from tests.features.oracle_layout import LayoutOracle
from tests.graphs import Arrays, layout_arrays, layout_graphs

#: Small files with many kinds of configurable nodes; in the last, a reduction has its array last.
FILES = ("default/train/dlrm__a", "random/train/gan__c", "random/valid/mlp__a", "default/train/densenet__b")


def assert_columns(found: dict[str, object], expected: dict[str, object]) -> None:
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


def compare(arrays: Arrays) -> None:
    """All columns of one graph."""
    graph = layout_of(arrays)
    oracle = LayoutOracle(arrays, LayoutContext(graph).slot_tensor.tolist())
    features = assemble(graph)
    assert features.rows.shape[0] == len(oracle.distinct)
    assert_columns(by_name(features), oracle.config_columns())
    assert_columns(features.graph_columns, oracle.graph_columns())


@given(arrays=shared_shape_graphs())
@settings(max_examples=120)
def test_graphs_that_hand_shapes_on(arrays):
    compare(arrays)


@given(arrays=shared_shape_graphs(min_configurable=5, max_nodes=12))
@settings(max_examples=40)
def test_graphs_with_many_configurable_nodes(arrays):
    compare(arrays)


@given(arrays=layout_graphs(relabel=True))
def test_graphs_of_unrelated_shapes(arrays):
    compare(arrays)


@pytest.mark.parametrize("place", FILES)
def test_files_of_the_sample(place):
    compare(load(SAMPLE / "layout" / "cpu" / f"{place}.npz"))


def test_every_column_has_an_oracle():
    """A column without an independent reference is a column nobody checked."""
    arrays = layout_arrays()
    graph = layout_of(arrays)
    features = assemble(graph)
    oracle = LayoutOracle(arrays, LayoutContext(graph).slot_tensor.tolist())
    assert set(oracle.config_columns()) == set(features.config_columns)
    assert set(oracle.graph_columns()) == set(features.graph_columns)


@given(arrays=shared_shape_graphs(min_configurable=3))
@settings(max_examples=40)
def test_pieces_of_one_configuration_give_the_same_bytes(arrays):
    """Pair columns are summed piece by piece, which must not show."""
    graph = layout_of(arrays)
    whole = assemble(graph).rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "_PIECE", 1)
        assert assemble(graph).rows.tobytes() == whole.tobytes()


@pytest.mark.parametrize("place", FILES)
def test_few_configurations_give_the_same_pair_columns_as_many(place):
    """Many go through a table of all row combinations of the pairs, few are judged one by one."""
    graph = layout_of(load(SAMPLE / "layout" / "cpu" / f"{place}.npz"))
    many, few = LayoutContext(graph), LayoutContext(graph)
    configs = many.table.configs
    many.table = many.table.select(np.tile(np.arange(configs), 100))
    few.table = few.table.select(np.arange(1))
    tables = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "code_counts", lambda codes, width: tables.append(width) or code_counts(codes, width))
        blocks = [block for block in registered("layout") if type(block).__name__.startswith("Disagreement")]
        assert len(blocks) == 2
        for block in blocks:
            by_table, before = block.compute(many), len(tables)
            by_one = block.compute(few)
            assert before and len(tables) == before, "one way each"
            tables.clear()
            np.testing.assert_allclose(by_one, by_table[:1], rtol=1e-12)
            assert np.array_equal(by_table[:configs], by_table[-configs:])


def test_without_configurable_nodes_ranks_are_in_the_middle():
    arrays = layout_arrays()
    arrays["node_config_ids"] = arrays["node_config_ids"][:0]
    arrays["node_config_feat"] = arrays["node_config_feat"][:, :0]
    found = by_name(assemble(layout_of(arrays)))
    assert found["rank__change_nodes_set__share"].tolist() == [0.5]
    assert found["candidates__log_frequency__rank"].tolist() == [0.5]
