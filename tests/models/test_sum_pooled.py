"""What is particular to sum-pooled: sums over instances, and a Newton step on all pairs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.contract import fitted, saved
from tests.models.rows import graph_rows, instance_table
from xlarank.data.errors import ModelError
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.features.rows import GraphRows
from xlarank.models.objectives import faster_by_sign
from xlarank.models.rankers.sum_pooled import SumPooled, newton_step, pair_terms, pooled
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.metrics import kendall_tau

NODES, ROWS = 6, 3
NAMES = ["size", "penalty", "noise"]
QUICK = {"learning_rate": 0.3, "leaf_l2": 0.001, "feature_fraction": 1.0}


def pooled_graph(name: str, configs: int, seed: int, columns: list[str] = NAMES) -> GraphRows:
    """Each node has a size and rows with a penalty; runtime is the sum of size * penalty, which no row tells."""
    rng = np.random.default_rng(seed)
    size, penalty = np.repeat(rng.integers(1, 9, NODES), ROWS), np.tile(np.arange(ROWS), NODES)
    values = np.stack([size, penalty, rng.random(len(size))], axis=1).astype(np.float32)
    codes = rng.integers(0, ROWS, (configs, NODES)).astype(np.uint8)
    first = np.arange(0, NODES * ROWS, ROWS)
    cost = 1000 + 10 * (size * penalty)[first + codes].sum(axis=1)
    rows = np.full((NODES * ROWS, 18), -1, np.int8)
    instances = instance_table(columns, values, codes, rows, np.full((NODES, 6), 2))
    wide = graph_rows(name, cost.tolist(), features=np.zeros((configs, 3)))
    return replace(wide, instances=LazyInstances(lambda: instances))


def pooled_data(graphs: int = 6, configs: int = 40) -> TrainingData:
    return TrainingData.from_graphs([pooled_graph(f"f{i // 2}__{i}", configs, i) for i in range(graphs)])


def trained(data: TrainingData | None = None, **params: Any) -> SumPooled:
    ranker = fitted("sum-pooled", data or pooled_data(), **{"min_data_in_leaf": 2, **params})
    assert isinstance(ranker, SumPooled)
    return ranker


def scores_of(ranker: SumPooled, graph: GraphRows) -> np.ndarray:
    return ranker.predict(graph.matrix(), graph.columns, graph.instances)


def test_it_learns_what_only_instances_tell() -> None:
    graph, data = pooled_graph("unseen__a", 60, 99), pooled_data(graphs=12, configs=60)
    drawn = {"configs": 40, "round_configs": 16}
    every, some = (scores_of(trained(data, rounds=60, **QUICK, **few), graph) for few in ({}, drawn))
    assert min(kendall_tau(every, graph.row_cost), kendall_tau(some, graph.row_cost)) > 0.9
    assert not np.array_equal(every, some)


def test_the_first_tree_is_a_newton_step_on_the_sums() -> None:
    data = pooled_data(graphs=2)
    whole = {"bagging_fraction": 1.0, "feature_fraction": 1.0, "learning_rate": 0.5, "leaf_l2": 0.2}
    ranker, graphs = trained(data, rounds=1, tie_tolerance=0.0, **whole), data.parts
    tables = [graph.instances.value for graph in graphs if graph.instances is not None]
    leaves = [ranker._booster.predict(table.values, pred_leaf=True).reshape(-1) for table in tables]
    eye = np.eye(int(max(map(np.max, leaves))) + 1)
    held = [table.counts() @ eye[leaf] for table, leaf in zip(tables, leaves, strict=True)]
    terms = [terms_of(np.zeros(40), graph.row_cost) for graph in graphs]
    values = 0.5 * step_of(terms, held, 0.2)
    for graph, counts in zip(graphs, held, strict=True):
        assert scores_of(ranker, graph) == pytest.approx(-counts @ values)


def test_saved_and_loaded_it_keeps_scores_stages_and_instances(tmp_path: Path) -> None:
    ranker, graph = trained(), pooled_graph("unseen__a", 30, 99)
    saved(ranker, tmp_path / "model")
    loaded, scores = SumPooled.load(tmp_path / "model"), scores_of(ranker, graph)
    assert np.array_equal(scores_of(loaded, graph), scores)
    assert next(iter(loaded.importance())) in ("size", "penalty")
    stages = list(loaded.staged(graph.matrix(), 8, graph.instances))
    assert len(stages) == 3 and stages[-1] == pytest.approx(scores)


def test_rows_without_their_instances_and_other_instances_are_refused() -> None:
    ranker, graph = trained(rounds=2), pooled_graph("unseen__a", 30, 99)
    other = pooled_graph("unseen__a", 30, 99, ["size", "penalty", "other"])
    matrix = graph.matrix()
    for rows, instances in ((matrix, None), (matrix[:29], graph.instances), (matrix, other.instances)):
        with pytest.raises(ModelError, match="without their instances, or with others"):
            ranker.predict(rows, graph.columns, instances)
    graphs = [pooled_graph("a", 9, 0), replace(pooled_graph("b", 9, 1), instances=None)]
    with pytest.raises(ModelError, match="b and a have different instances"):
        trained(TrainingData.from_graphs(graphs))


Terms = tuple[np.ndarray, np.ndarray]


def terms_of(relevance: np.ndarray, cost: np.ndarray, tolerance: float = 0.0, weight: float = 1.0) -> Terms:
    return pair_terms(relevance, faster_by_sign(cost[:, None], cost, tolerance), np.array(weight))


def step_of(terms: list[Terms], held: list[np.ndarray], ridge: float) -> np.ndarray:
    derivatives = [pooled(*term, counts) for term, counts in zip(terms, held, strict=True)]
    return newton_step(*(np.stack(each) for each in zip(*derivatives, strict=True)), ridge)


def test_pairs_by_hand() -> None:
    """Relevances ln 3 apart the wrong way: p = 3/4. One row faster than two that tie: a mean of two pairs."""
    pair = np.array([[0, 1], [1, 0]])
    for relevance, cost, gradient, weight in (
        ([0.0, math.log(3)], [1, 2], [-0.75, 0.75], pair * 3 / 16), ([-1e6, 1e6], [1, 2], [-1, 1], pair * 0),
        ([0, 0, 0], [1, 2, 2], [-1 / 2, 1 / 4, 1 / 4], np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]]) / 8),
    ):  # fmt: skip
        for times in (1.0, 3.0):
            terms = terms_of(np.array(relevance, float), np.array(cost, float), weight=times)
            assert terms[0] == pytest.approx(times * np.array(gradient))
            assert terms[1] == pytest.approx(times * weight)
    ties = terms_of(np.arange(3.0), np.array([100.0, 101.0, 100.5]), 0.01)
    assert not ties[0].any() and not ties[1].any()


def test_leaves_in_one_step_by_hand() -> None:
    """gradient (-1/2, 1/2), L = [[1, -1], [-1, 1]] / 4.

    The slower one holds two instances of the only leaf: slope 1, curve 4 / 4 = 1, so v = -1 / (1 + ridge). If the
    faster holds one instance of a first leaf, the slower two of a second, S = diag(1, 2) gives slope (-1/2, 1) and
    curve [[1, -2], [-2, 4]] / 4. With ridge 1/4, [[2, -2], [-2, 5]] v = (2, -4): v = (1/3, -2/3).
    """
    terms, held = terms_of(np.zeros(2), np.array([1.0, 2.0])), np.array([[0.0], [2.0]])
    assert step_of([terms], [held], 0.0) == pytest.approx([-1.0])
    assert step_of([terms, terms], [held, held], 1.0) == pytest.approx([-0.5]), "a mean over graphs"
    assert step_of([terms], [np.diag([1.0, 2.0])], 0.25) == pytest.approx([1 / 3, -2 / 3])
