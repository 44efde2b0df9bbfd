"""Rows of many graphs: what is learned from, here and in other collections."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models.contract import fitted
from tests.models.rows import COLUMNS, easy_data, easy_graph, graph_rows
from xlarank.data.errors import ModelError
from xlarank.models.objectives import mean_rank
from xlarank.models.registry import RANKERS
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.metrics import kendall_tau

#: Families 0, 0, 1, 1, 2, 2; the other collection has family 1 and one that is new.
DATA = easy_data(configs=9)
ALSO = TrainingData.from_graphs([easy_graph("family1__z", 9, 70), easy_graph("other__a", 9, 71)])


def test_graphs_are_stacked_in_order_with_the_smallest_cost_of_each_row() -> None:
    first = graph_rows("cnn__a", [30, 10], copies=[2, 0])
    first.runtime[:] = [30, 10, 25, 31]  # configurations 2 and 3 repeat 0
    second = graph_rows("mlp__b", [2**33 + 1, 2**33, 8])
    data = TrainingData.from_graphs([first, second])
    assert data.indptr.tolist() == [0, 2, 5]
    assert data.cost.tolist() == [25, 10, 2.0**33 + 1, 2.0**33, 8], "exact beyond float32"
    assert (data.names, data.families, data.columns) == (["cnn__a", "mlp__b"], ["cnn", "mlp"], COLUMNS)
    assert data.matrix()[:, 0].tolist() == [2, 2, 3, 3, 3], "the graph column, repeated"
    assert np.array_equal(data.matrix()[2:, 1:], second.config_values)
    assert data.per_group(mean_rank).tolist() == [1, 0, 1, 0.5, 0]
    first.normalizer[:] = [10, 60, 10, 10]
    assert TrainingData.from_graphs([first]).cost.tolist() == [2.5, 10 / 60], "runtime over normalizer"


def test_what_cannot_be_learned_from_is_left_out() -> None:
    good = graph_rows("good", [1, 2])
    for useless in (graph_rows("x", [0, 0]), graph_rows("x", [5, 5]), graph_rows("x", [5], copies=[3])):
        assert TrainingData.from_graphs([useless, good, useless]).names == ["good"]
        with pytest.raises(ModelError, match="none of 1 graph can be trained on"):
            TrainingData.from_graphs([useless])
    other = graph_rows("two", [1, 2], columns=["size", "waste", "clash", "noise2"])
    with pytest.raises(ModelError, match="two and good have different columns"):
        TrainingData.from_graphs([good, other])


def test_groups_are_taken_and_joined_with_their_rows_and_weights() -> None:
    joined = DATA.take([5, 1]).join(ALSO.weighted(0.5))
    assert joined.names == ["family2__b", "family0__b", "family1__z", "other__a"]
    assert joined.indptr.tolist() == [0, 9, 18, 27, 36]
    parts = [DATA.matrix()[45:], DATA.matrix()[9:18], ALSO.matrix()]
    assert np.array_equal(joined.matrix(), np.concatenate(parts))
    assert np.array_equal(joined.take([3]).cost, ALSO.cost[9:])
    assert joined.group_weight.tolist() == [1.0, 1.0, 0.5, 0.5]
    assert joined.take([3, 0]).group_weight.tolist() == [0.5, 1.0]
    with pytest.raises(ModelError, match="weight is 0"):
        DATA.weighted(0)
    with pytest.raises(ModelError, match="family1__z and family0__a have different columns"):
        DATA.join(replace(ALSO, columns=COLUMNS[::-1]))


def test_a_held_out_family_is_held_out_everywhere() -> None:
    training = replace(DATA, also=ALSO)
    assert training.without([2]).names == [DATA.names[g] for g in (0, 1, 3, 4, 5)] + ["other__a"]
    assert training.without([0, 1]).names == [*DATA.names[2:], "family1__z", "other__a"]
    assert training.whole().names == [*DATA.names, *ALSO.names]
    assert DATA.without([2]).names == [DATA.names[g] for g in (0, 1, 3, 4, 5)]
    assert DATA.whole() is DATA


@pytest.mark.parametrize("model", [name for name in RANKERS if name not in ("sibling", "ensemble")])
def test_the_heavier_of_two_contradicting_sources_is_believed(model: str) -> None:
    own = easy_data(graphs=4, configs=40)
    turned = [
        replace(part, name=f"turned{part.name}", runtime=part.runtime.max() + 1 - part.runtime)
        for part in own.parts
    ]
    also, graph = TrainingData.from_graphs(turned), easy_graph("unseen__a", 40, seed=5)
    taus = []
    for weight in (0.05, 20.0):
        ranker = fitted(model, own.join(also.weighted(weight)))
        taus.append(kendall_tau(ranker.predict(graph.matrix(), COLUMNS), graph.row_cost))
    assert taus[0] > 0.6 and taus[1] < -0.6
