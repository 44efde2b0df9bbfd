"""What is particular to LightGBM's lambdarank; what it shares with every ranker is tested in test_registry."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest

from tests.models.contract import fitted
from tests.models.rows import COLUMNS, easy_data, easy_graph, graph_rows
from xlarank.data.errors import ModelError
from xlarank.features.block import Scope
from xlarank.features.catalogue import blocks_of
from xlarank.models.rankers.lambdarank import LambdaRank
from xlarank.models.ranking_data import RankingData


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What LightGBM was asked to learn: label, group, rows and parameters of each fit."""
    calls: list[dict[str, Any]] = []
    rows: list[np.ndarray[Any, Any]] = []  # a data set lets go of them once it has its bins
    train, binned = lgb.train, lgb.Dataset

    def look(data: np.ndarray[Any, Any], *args: Any, **more: Any) -> lgb.Dataset:
        rows.append(data.copy())
        return binned(data, *args, **more)

    def spy(params: dict[str, Any], data: lgb.Dataset, count: int, **more: Any) -> lgb.Booster:
        assert data.data is None, "a copy of the rows stays in memory while trees grow"
        calls.append({**params, "label": data.label, "group": list(data.group), "rows": rows[-1], "rounds": count})
        return train(params, data, count, **more)

    monkeypatch.setattr(lgb, "Dataset", look)
    monkeypatch.setattr(lgb, "train", spy)
    return calls


def test_labels_gains_and_truncation_are_those_for_kendall_tau(asked: list[dict[str, Any]]) -> None:
    data = RankingData.from_graphs([graph_rows("a", [30, 10, 20, 10]), graph_rows("b", [5, 6, 7, 8, 9])])
    fitted("lambdarank", data, rounds=4)
    (call,) = asked
    assert call["objective"] == "lambdarank"
    assert call["label"].tolist() == [0, 2, 1, 2, 4, 3, 2, 1, 0]
    assert call["group"] == [4, 5]
    assert call["label_gain"] == [0, 1, 2, 3, 4], "linear, one for every label"
    assert call["lambdarank_truncation_level"] == 5, "no pair is cut off"
    assert call["rounds"] == 4


def test_costs_within_the_tolerance_share_a_label(asked: list[dict[str, Any]]) -> None:
    data = RankingData.from_graphs([graph_rows("a", [1000, 1004, 1011, 1300])])
    for tolerance in (0.0, 0.01):
        fitted("lambdarank", data, rounds=1, tie_tolerance=tolerance)
    assert [call["label"].tolist() for call in asked] == [[3, 2, 1, 0], [2, 2, 1, 0]]


@pytest.mark.parametrize("limit", [7, 50])
def test_larger_graphs_are_dealt_into_query_groups(asked: list[dict[str, Any]], limit: int) -> None:
    """100 and 30 rows: parts of at most the limit, labels still those of the whole graph."""
    graphs = [easy_graph("big__a", 100, 0), easy_graph("small__a", 30, 1)]
    data = RankingData.from_graphs(graphs)
    fitted("lambdarank", data, max_group=limit)
    (call,) = asked
    assert sum(call["group"]) == 130
    assert max(call["group"]) <= limit
    assert max(call["group"]) == call["lambdarank_truncation_level"]
    boundary = len(call["group"]) - len(range(0, 30, limit))
    assert sum(call["group"][:boundary]) == 100, "no part mixes two graphs"
    whole = {tuple(row): label for row, label in zip(data.rows, _rank_labels(data), strict=True)}
    assert [whole[tuple(row)] for row in call["rows"]] == call["label"].tolist()


def _rank_labels(data: RankingData) -> list[int]:
    bounds = zip(data.indptr[:-1], data.indptr[1:], strict=True)
    return [sum(set_cost > one for set_cost in set(data.cost[a:b])) for a, b in bounds for one in data.cost[a:b]]


def test_a_group_beyond_the_limit_of_lightgbm_at_the_largest_setting(asked: list[dict[str, Any]]) -> None:
    data = easy_data(graphs=1, configs=10_001)
    ranker = fitted("lambdarank", data, rounds=2, max_group=10_000)
    assert asked[0]["group"] == [5001, 5000]
    assert np.unique(ranker.predict(data.rows, COLUMNS)).size > 5


@pytest.mark.parametrize("most", [-1, 0, 1, 10_001])
def test_a_group_size_that_lightgbm_cannot_take_is_refused(most: int) -> None:
    with pytest.raises(
        ModelError, match=rf"max_group is {most}; expected a whole number, 2 to 10000, the limit of LightGBM"
    ):
        fitted("lambdarank", easy_data(graphs=2), max_group=most)


def test_split_groups_depend_on_the_seed_alone(asked: list[dict[str, Any]]) -> None:
    for seed in (0, 0, 1):
        fitted("lambdarank", easy_data(graphs=2), seed=seed, rounds=1, max_group=20)
    first, again, other = (call["rows"] for call in asked)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("labels", ["rank", "log"])
def test_both_kinds_of_labels_learn(labels: str) -> None:
    data = easy_data()
    ranker = fitted("lambdarank", data, rounds=50, labels=labels)
    order = np.argsort(ranker.predict(data.rows[:60], COLUMNS))
    assert data.cost[order[:10]].mean() < 0.7 * data.cost[:60].mean()


def test_columns_left_out_are_not_looked_at(tmp_path: Path) -> None:
    """The graph column is the first of the real ones; changing it must not change a score."""
    constant = next(name for block in blocks_of("layout") if block.scope is Scope.GRAPH for name in block.columns)
    columns = [constant, *COLUMNS[1:]]
    graphs = [graph_rows(f"f{i}__a", list(range(10, 40 + 20 * i)), columns=columns) for i in range(3)]
    data = RankingData.from_graphs(graphs)
    rows = data.rows.copy()
    rows[:, 0] += 1000
    ranker = fitted("lambdarank", data, columns="no_graph", feature_fraction=1.0)
    assert np.array_equal(ranker.predict(rows, columns), ranker.predict(data.rows, columns))
    assert np.unique(ranker.predict(rows, columns)).size > 1
    assert constant not in ranker.importance()
    ranker.save(tmp_path)
    loaded = LambdaRank.load(tmp_path)
    assert np.array_equal(loaded.predict(data.rows, columns), ranker.predict(data.rows, columns))
    with pytest.raises(ModelError, match=re.escape(f"lack 1 ({constant})")):
        loaded.predict(rows[:, 1:], columns[1:])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("ranker.json", "{", id="state is not JSON"),
        pytest.param("ranker.json", "[]", id="state is a list"),
        pytest.param("ranker.json", '{"columns": ["size"]}', id="state lacks a key"),
        pytest.param("ranker.json", '{"columns": ["size"], "used": ["x"]}', id="state holds words"),
        pytest.param("booster.txt", "", id="booster is empty"),
        pytest.param("booster.txt", "tree\nversion=v4\n", id="booster ends early"),
        pytest.param("booster.txt", "no booster at all", id="booster is something else"),
        pytest.param("booster.txt", None, id="booster is missing"),
        pytest.param("ranker.json", None, id="state is missing"),
    ],
)
def test_a_damaged_model_is_an_error_not_a_crash(
    tmp_path: Path, name: str, content: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    fitted("lambdarank", easy_data(graphs=2), rounds=2).save(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    with pytest.raises(ModelError, match="cannot be read"):
        LambdaRank.load(tmp_path)


def test_lightgbm_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    data = easy_data(graphs=2, configs=3)  # too few rows to split: LightGBM likes to warn about that
    fitted("lambdarank", data, rounds=3).predict(data.rows, COLUMNS)
    assert capfd.readouterr() == ("", "")
