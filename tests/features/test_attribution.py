"""Following columns from one configuration to another, node by node."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from tests.features.helpers import by_name, layout_of
from tests.graphs import Arrays, layout_arrays, layout_graphs
from xlarank.features.assemble import assemble
from xlarank.features.attribution import NodeChanges, node_changes
from xlarank.features.recipe import FeatureSettings


def test_a_term_of_one_node_is_laid_at_its_door() -> None:
    # Configuration 2 changes the convolution (node 2) and the reshape (node 4), 4 the reshape alone. Both rows set
    # an output, so each adds 1/2 to the share of nodes with an output set.
    graph = layout_of(layout_arrays())
    both = node_changes(graph, FeatureSettings(), 2, 0)
    assert both.nodes.tolist() == [0, 1]
    assert both.steps[both.columns.index("change__output_set__share")].tolist() == [0.5, 0.5]
    one = node_changes(graph, FeatureSettings(), 4, 0)
    assert one.nodes.tolist() == [1]
    assert one.steps[one.columns.index("change__output_set__share")].tolist() == [0.5]


def test_a_disagreement_is_shared_by_both_ends() -> None:
    # The reshape reads the convolution over one elementwise addition. From nothing set to two unlike layouts set,
    # a clash appears only with the second row, whichever way is walked: half of the one pair for either.
    arrays = layout_arrays()
    arrays["node_config_feat"][5] = [arrays["node_config_feat"][1][0], arrays["node_config_feat"][4][1]]
    found = node_changes(layout_of(arrays), FeatureSettings(), 5, 0)
    assert found.steps[found.columns.index("disagreement__clash_2hop__share")].tolist() == [0.5, 0.5]


@settings(max_examples=15)
@given(layout_graphs(min_nodes=2, min_configurable=1))
def test_steps_add_up_to_the_change_of_every_column(arrays: Arrays) -> None:
    graph, chosen = layout_of(arrays), FeatureSettings()
    now, then = 0, graph.configs - 1
    rows = by_name(assemble(graph, chosen))
    found = node_changes(graph, chosen, now, then)
    group = graph.duplicates.group
    for number, name in enumerate(found.columns):
        if name.startswith(("rank__", "zscore__")):
            continue
        change = float(rows[name][group[now]]) - float(rows[name][group[then]])
        scale = max(1.0, abs(float(rows[name][group[now]])), abs(float(rows[name][group[then]])))
        assert abs(found.steps[number].sum() - change) <= 1e-4 * scale, name


@settings(max_examples=15)
@given(layout_graphs(min_nodes=2, min_configurable=1))
def test_shares_add_up_to_one(arrays: Arrays) -> None:
    graph = layout_of(arrays)
    found = node_changes(graph, FeatureSettings(), 0, graph.configs - 1)
    for name, shares in found.shares().items():
        assert shares.shape == found.nodes.shape
        np.testing.assert_allclose(shares.sum(), 1.0, rtol=1e-9, err_msg=name)


def test_what_cancels_is_not_dealt_out() -> None:
    # steps of 3 and -2: of a size of 5 only 1 is left
    found = NodeChanges(np.array([0, 1]), ["a", "b", "c"], np.array([[3.0, -2.0], [3.0, -0.5], [0.0, 0.0]]))
    assert list(found.shares()) == ["b"]
    assert found.shares()["b"].tolist() == [1.2, -0.2]
