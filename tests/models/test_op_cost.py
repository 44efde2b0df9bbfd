"""What is particular to op-cost: cycles of nodes; the contract (on rows alone) is tested in test_registry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models.contract import fitted
from tests.models.test_sum_pooled import NODES, pooled_data, pooled_graph
from xlarank.features.instances.instances import LazyInstances
from xlarank.features.rows import GraphRows
from xlarank.models.rankers.op_cost import OpCost, _Group, _targets, within_reach
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
    assert kendall_tau(ranker.predict(graph.matrix(), graph.columns, graph.instances), graph.row_cost) > 0.4


def test_a_sum_is_dealt_as_instances_score() -> None:
    held = np.array([[0, 1], [0, -1]])
    group = _Group(np.zeros((2, 1), np.float32), held, None, np.array([80.0, 50.0]))
    assert group.dealt(None).tolist() == [[40, 40], [50, 0]]
    assert group.dealt(np.array([1.0, 3.0])).tolist() == [[20, 60], [50, 0]]
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


def test_what_is_within_reach() -> None:
    # nodes in a row, 0 - 1 - 2, and three by themselves
    graph = pooled_graph("a__a", 4, seed=0)
    assert graph.instances is not None
    table = replace(graph.instances.value, pairs=np.array([[0, 0, 1, 0, 0], [1, 0, 2, 0, 0], [1, 1, 2, 0, 0]]))
    assert (within_reach(table, 0).toarray() == np.eye(NODES)).all()
    near = within_reach(table, 1).toarray()
    assert near[:3, :3].tolist() == [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    assert (near[3:] == np.eye(NODES)[3:]).all()
    assert (within_reach(table, 2).toarray()[:3, :3] == 1).all()


def test_a_node_answers_for_what_is_next_to_it() -> None:
    """Node 1 pays for what node 0 takes: only with reach does node 0 learn what it costs."""
    graphs = []
    for number in range(6):
        graph = pooled_graph(f"f{number // 2}__{number}", 60, number)
        assert graph.instances is not None
        table = replace(graph.instances.value, pairs=np.array([[0, 0, 1, 0, 0]]))
        table = replace(
            table, pair_first=np.zeros(1, int), pair_width=np.ones(1, int), pair_instance=np.array([-1])
        )
        graphs.append(replace(graph, instances=LazyInstances(lambda table=table: table)))  # type: ignore[misc]
    data = RankingData.from_graphs(graphs)
    own = np.zeros((60, NODES))
    own[:, 0] = 50
    paid = [own + np.eye(NODES)[1] * 100 * (1 + _taken(graph)[:, :1]) for graph in graphs]
    data = replace(data, cycles=[LazyCycles(lambda one=one: one) for one in paid])  # type: ignore[misc]
    scores = {}
    for reach in (0, 1):
        params = {"min_data_in_leaf": 2, "feature_fraction": 1.0, "learning_rate": 0.2, "reach": reach}
        ranker = fitted("op-cost", data, rounds=60, **params)
        table = graphs[0].instances.value if graphs[0].instances else None
        assert isinstance(ranker, OpCost) and table is not None
        cost = ranker.instance_score(-np.asarray(ranker._trees().predict(table.values)))
        scores[reach] = cost[2] - cost[0]  # node 0 with its third row, less with its first
    assert scores[1] > 2 * scores[0]


def _taken(graph: GraphRows) -> np.ndarray:
    """``(configs, nodes)`` penalty of the row that each node takes."""
    assert graph.instances is not None
    table = graph.instances.value
    found: np.ndarray = table.values[table.first + table.codes, 1]
    return found


def test_cycles_go_with_their_groups() -> None:
    data = with_cycles(pooled_data(), {1, 2})
    taken = data.take([2, 0])
    assert taken.cycles_of(0) is data.cycles_of(2) and taken.cycles_of(1) is None
    joined = taken.join(data.take([1]))
    assert [joined.cycles_of(g) is not None for g in range(3)] == [True, False, True]
    assert pooled_data().cycles_of(0) is None
    found = taken.cycles_of(0)
    assert found is not None and found.value is not None and found.value.shape == (40, NODES)
