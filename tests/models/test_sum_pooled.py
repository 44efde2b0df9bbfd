"""What is particular to sum-pooled: instances; the contract (on rows alone) is tested in test_registry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.contract import fitted, saved
from tests.models.rows import graph_rows
from xlarank.data.errors import ModelError
from xlarank.features.instances.graph_instances import Instances, LazyInstances
from xlarank.features.rows import GraphRows
from xlarank.models.fit_settings import FitSettings
from xlarank.models.rankers.sum_pooled import PairTerms, SumPooled, newton_step
from xlarank.models.ranking_data import RankingData
from xlarank.models.validation.curves import out_of_fold_scores
from xlarank.models.validation.folds import family_folds, whole_folds
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
    instances = Instances(
        columns=columns,
        values=values,
        codes=codes,
        node=np.arange(NODES),
        opcode=np.zeros(NODES, np.int16),
        first=first,
        rows=np.full((NODES * ROWS, 18), -1, np.int8),
        row_instance=np.arange(NODES * ROWS),
        request=np.zeros((NODES * ROWS, 3), np.int32),
        pairs=np.zeros((0, 5), np.int32),
        pair_first=np.zeros(0, np.int32),
        pair_width=np.zeros(0, np.int32),
        pair_instance=np.zeros(0, np.int32),
        structure=np.zeros(1, np.uint64),
        sizes=np.full((NODES, 6), 2),
    )
    rows = graph_rows(name, cost.tolist(), features=np.zeros((configs, 3)))
    return replace(rows, instances=LazyInstances(lambda: instances))


def pooled_data(graphs: int = 6, configs: int = 40) -> RankingData:
    return RankingData.from_graphs([pooled_graph(f"f{i // 2}__{i}", configs, i) for i in range(graphs)])


def trained(data: RankingData | None = None, **params: Any) -> SumPooled:
    ranker = fitted("sum-pooled", data or pooled_data(), **{"min_data_in_leaf": 2, **params})
    assert isinstance(ranker, SumPooled)
    return ranker


def scores_of(ranker: SumPooled, graph: GraphRows) -> np.ndarray:
    return ranker.predict(graph.matrix(), graph.columns, graph.instances)


def test_it_learns_what_only_instances_tell() -> None:
    graph = pooled_graph("unseen__a", 60, 99)
    assert kendall_tau(scores_of(trained(pooled_data(graphs=12), rounds=60, **QUICK), graph), graph.row_cost) > 0.9


def test_the_first_tree_is_a_newton_step_on_the_sums() -> None:
    data = pooled_data(graphs=2)
    whole = {"bagging_fraction": 1.0, "feature_fraction": 1.0, "learning_rate": 0.5, "leaf_l2": 0.2}
    ranker = trained(data, rounds=1, tie_tolerance=0.0, **whole)
    graphs = [pooled_graph(f"f0__{i}", 40, i) for i in range(2)]
    tables = [graph.instances.value for graph in graphs if graph.instances is not None]
    booster = ranker._trees()
    leaves = [booster.predict(table.values, pred_leaf=True).reshape(-1) for table in tables]
    held = [
        table.counts() @ np.eye(int(max(map(np.max, leaves))) + 1)[leaf]
        for table, leaf in zip(tables, leaves, strict=True)
    ]
    terms = [PairTerms.of(np.zeros(40), graph.row_cost, 0.0) for graph in graphs]
    values = 0.5 * newton_step(terms, held, 0.2)
    for graph, counts in zip(graphs, held, strict=True):
        assert scores_of(ranker, graph) == pytest.approx(-counts @ values)


def test_save_and_load_keep_scores_and_instances(tmp_path: Path) -> None:
    ranker, graph = trained(), pooled_graph("unseen__a", 30, 99)
    saved(ranker, tmp_path / "model")
    loaded = SumPooled.load(tmp_path / "model")
    assert np.array_equal(scores_of(loaded, graph), scores_of(ranker, graph))
    assert set(loaded.importance()) <= set(NAMES)
    assert next(iter(loaded.importance())) in ("size", "penalty")


def test_stages_end_with_the_scores() -> None:
    ranker, graph = trained(), pooled_graph("unseen__a", 30, 99)
    stages = list(ranker.staged(graph.matrix(), 8, graph.instances))
    assert len(stages) == 3
    assert stages[-1] == pytest.approx(scores_of(ranker, graph))


def test_same_seed_same_scores_and_another_seed_others() -> None:
    graph = pooled_graph("unseen__a", 30, 99)
    first, again, other = (scores_of(trained(seed=seed), graph) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.slow
def test_large_graphs_are_sampled() -> None:
    data, graph = pooled_data(graphs=12, configs=300), pooled_graph("unseen__a", 60, 99)
    drawn = scores_of(trained(data, rounds=60, configs=100, round_configs=16, **QUICK), graph)
    assert kendall_tau(drawn, graph.row_cost) > 0.9
    whole = trained(data, rounds=60, configs=300, round_configs=300, **QUICK)
    assert not np.array_equal(drawn, scores_of(whole, graph))


def test_out_of_fold_scores_reach_the_instances() -> None:
    data = pooled_data()
    ranker, folds = SumPooled({"min_data_in_leaf": 2}, kind="layout"), whole_folds(family_folds(data.families, 3))
    found = out_of_fold_scores(ranker, data, folds, FitSettings(30, threads=1))
    taus = [kendall_tau(found[a:b], data.cost[a:b]) for a, b in zip(data.indptr[:-1], data.indptr[1:], strict=True)]
    assert min(taus) > 0.7


def test_rows_without_their_instances_are_refused() -> None:
    ranker, graph = trained(rounds=2), pooled_graph("unseen__a", 30, 99)
    with pytest.raises(ModelError, match="without their instances"):
        ranker.predict(graph.matrix(), graph.columns)


def test_other_instances_are_refused() -> None:
    ranker = trained(rounds=2)
    graph = pooled_graph("unseen__a", 30, 99, ["size", "penalty", "other"])
    with pytest.raises(ModelError, match="other columns"):
        scores_of(ranker, graph)
    graph = pooled_graph("unseen__a", 30, 99)
    with pytest.raises(ModelError, match="instances of 30 configurations; expected of the 29 rows"):
        ranker.predict(graph.matrix()[:29], graph.columns, graph.instances)


def test_graphs_with_other_instances_are_named() -> None:
    graphs = [pooled_graph("a", 9, 0), replace(pooled_graph("b", 9, 1), instances=None)]
    with pytest.raises(ModelError, match="b and a have different instances"):
        trained(RankingData.from_graphs(graphs))


@pytest.mark.parametrize(("name", "value"), [("graph_weight", "even"), ("configs", 0), ("round_configs", 1)])
def test_senseless_parameters_are_refused(name: str, value: object) -> None:
    with pytest.raises(ModelError, match="expected"):
        trained(**{name: value})


def test_nothing_to_split_gives_equal_scores(capfd: pytest.CaptureFixture[str]) -> None:
    data = RankingData.from_graphs([graph_rows("a", list(range(1, 61)), features=np.ones((60, 3)))])
    assert np.ptp(fitted("sum-pooled", data, rounds=3).predict(data.rows, data.columns)) == 0
    assert capfd.readouterr() == ("", "")
