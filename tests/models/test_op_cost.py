"""What is particular to op-cost: cycles of nodes; the contract (on rows alone) is tested in test_registry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models.contract import fitted
from tests.models.test_sum_pooled import NODES, pooled_data, pooled_graph
from xlarank.features.rows import GraphRows
from xlarank.models.rankers.op_cost import OpCost, _Group, _targets
from xlarank.models.ranking_data import LazyCycles, RankingData
from xlarank.models.validation.metrics import kendall_tau


def true_cycles(graph: GraphRows) -> np.ndarray:
    """``(configs, nodes)``: 10 * size * penalty + 20 of each node."""
    assert graph.instances is not None
    table = graph.instances.value
    values = table.values[(table.first + table.codes)]
    found: np.ndarray = 20 + 10 * values[..., 0].astype(np.float64) * values[..., 1]
    return found


def with_cycles(data: RankingData, groups: set[int]) -> RankingData:
    return replace(
        data,
        cycles=[
            LazyCycles(lambda part=part: true_cycles(part)) if g in groups else None  # type: ignore[misc]
            for g, part in enumerate(data.parts)
        ],
    )


def trained(data: RankingData) -> OpCost:
    params = {"min_data_in_leaf": 2, "feature_fraction": 1.0, "learning_rate": 0.2, "lambda_l2": 0.0}
    ranker = fitted("op-cost", data, rounds=100, **params)
    assert isinstance(ranker, OpCost)
    return ranker


def test_each_node_is_told_its_own_cycles() -> None:
    ranker, graph = trained(with_cycles(pooled_data(), set(range(6)))), pooled_graph("unseen__a", 40, seed=99)
    assert graph.instances is not None
    table = graph.instances.value
    cost = ranker.instance_score(-np.asarray(ranker._trees().predict(table.values)))
    truth = 20 + 10 * table.values[:, 0] * table.values[:, 1]
    assert np.corrcoef(np.log(cost), np.log(truth))[0, 1] > 0.9
    scores = ranker.predict(graph.matrix(), graph.columns, graph.instances)
    assert scores == pytest.approx(table.sums(cost))
    assert kendall_tau(scores, graph.row_cost) > 0.8


@pytest.mark.parametrize("known", [set(), {0, 3}])
def test_sums_teach_where_cycles_are_not_known(known: set[int]) -> None:
    ranker, graph = trained(with_cycles(pooled_data(), known)), pooled_graph("unseen__a", 40, seed=99)
    assert kendall_tau(ranker.predict(graph.matrix(), graph.columns, graph.instances), graph.row_cost) > 0.5


def test_a_sum_is_dealt_by_what_goes_with_an_instance() -> None:
    # two nodes; instance 0 or 1 of the first, 2 of the second. Mean sum 60, so 30 each; holding 0 or 1 is worth
    # -20 or +20, holding 2 nothing
    group = _Group(np.zeros((3, 1), np.float32), np.array([[0, 2], [1, 2]]), None, np.array([40.0, 80.0]))
    assert group.dealt(None).tolist() == [[10, 30], [50, 30]]
    # scores 1, 3 and 2 are 3 and 5 in sum, scaled to the mean of 60: 15, 45 and 30. Left are -5 and +5
    assert group.dealt(np.array([1.0, 3.0, 2.0])).tolist() == [[10, 30], [50, 30]]
    # never below a tenth: 30 - 59 is 3
    assert replace(group, cost=np.array([1.0, 119.0])).dealt(None).tolist() == [[3, 30], [89, 30]]
    none = replace(group, held=np.array([[0, -1], [1, -1]]))
    assert none.dealt(None).tolist() == [[40, 0], [80, 0]]
    told = replace(group, cycles=np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert told.dealt(None) is told.cycles


def test_targets_are_mean_logarithms_of_what_is_taken() -> None:
    # node 0 takes instance 0 twice (e - 1 and e^3 - 1 cycles: logarithms 1 and 3), node 1 instance 2 and none
    cycles = np.array([[np.e - 1, 7.0], [np.e**3 - 1, 1.0]])
    group = _Group(np.arange(3, dtype=np.float32)[:, None], np.array([[0, 2], [0, -1]]), cycles, cycles.sum(axis=1))
    values, logs, weight = _targets(group, cycles, 0.0)
    assert values[:, 0].tolist() == [0, 2]
    assert logs.tolist() == pytest.approx([2, np.log(8)])
    assert weight.tolist() == [1, 0.5]
    mean = cycles.mean(axis=0) + 1
    assert _targets(replace(group, weight=3.0), cycles, 0.0)[2].tolist() == [3, 1.5]
    assert _targets(group, cycles, 1.0)[2].tolist() == pytest.approx((mean / mean.mean() * [1, 0.5]).tolist())


def test_cycles_go_with_their_groups() -> None:
    data = with_cycles(pooled_data(), {1, 2})
    taken = data.take([2, 0])
    assert taken.cycles_of(0) is data.cycles_of(2) and taken.cycles_of(1) is None
    joined = taken.join(data.take([1]))
    assert [joined.cycles_of(g) is not None for g in range(3)] == [True, False, True]
    assert pooled_data().cycles_of(0) is None
    found = taken.cycles_of(0)
    assert found is not None and found.value is not None and found.value.shape == (40, NODES)
