"""What is particular to stacked; the contract is tested in test_registry."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.models.contract import fitted
from tests.models.rows import COLUMNS, easy_data
from tests.models.test_sum_pooled import pooled_data, pooled_graph
from xlarank.data.errors import ModelError
from xlarank.models.fit_settings import FitSettings
from xlarank.models.objectives.labels import mean_rank
from xlarank.models.rankers import stacked
from xlarank.models.rankers.ranknet import RankNet
from xlarank.models.rankers.stacked import COLUMN, Stacked
from xlarank.models.rankers.sum_pooled import SumPooled, SumPooledParams
from xlarank.models.ranking_data import RankingData

POOLED = {"pooled": {"min_data_in_leaf": 2, "learning_rate": 0.3, "leaf_l2": 0.001}}


def test_the_added_column_is_out_of_fold_and_ranks_within_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    data, asked, seen = easy_data(graphs=4, configs=10), [], []
    fit = RankNet.fit

    def scores(ranker: SumPooled, of: RankingData, folds: int, settings: FitSettings) -> np.ndarray:
        asked.append((ranker.params, of, folds, settings))
        return np.arange(40.0)[::-1]

    def spy(self: RankNet, of: RankingData, settings: FitSettings) -> RankNet:
        seen.append(of)
        return fit(self, of, settings)

    monkeypatch.setattr(stacked, "out_of_fold_scores", scores)
    monkeypatch.setattr(RankNet, "fit", spy)
    fitted("stacked", data, rounds=2, seed=5, pooled={"leaf_l2": 1.0}, pooled_rounds=3, pooled_folds=2)
    assert asked == [(SumPooledParams.of("layout", {"leaf_l2": 1.0}), data, 2, FitSettings(3, 5, 1))]
    (of,) = seen
    assert of.columns == [*COLUMNS, COLUMN]
    assert np.array_equal(of.rows[:, :-1], data.rows)
    assert of.rows[:, -1] == pytest.approx(np.tile(mean_rank(-np.arange(10.0)), 4))


@pytest.mark.slow
def test_it_reaches_what_only_instances_tell() -> None:
    graph = pooled_graph("unseen__a", 60, 99)
    ranker = fitted("stacked", pooled_data(graphs=12), rounds=40, **POOLED)
    score = ranker.predict(graph.matrix(), graph.columns, graph.instances)
    assert np.corrcoef(mean_rank(score), mean_rank(graph.row_cost))[0, 1] > 0.8
    assert set(ranker.importance()) <= {"size", "penalty", "noise"}, "the wide rows tell nothing"
    with pytest.raises(ModelError, match="without their instances"):
        ranker.predict(graph.matrix(), graph.columns)


@pytest.mark.parametrize(("name", "value"), [("pooled_rounds", 0), ("pooled_folds", 1)])
def test_senseless_parameters_are_refused(name: str, value: int) -> None:
    with pytest.raises(ModelError, match=f"{name} is {value}"):
        fitted("stacked", easy_data(graphs=2), **{name: value})


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    fitted("stacked", easy_data(graphs=2), rounds=2, pooled_rounds=2).save(tmp_path)
    path = tmp_path / "ranker.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "columns": COLUMNS[:-1]}))
    with pytest.raises(ModelError, match="different columns"):
        Stacked.load(tmp_path)
