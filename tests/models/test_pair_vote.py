"""What is particular to pair-vote; its votes are tested in test_voting, the contract in test_registry."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest

from tests.models.contract import fitted, saved
from tests.models.rows import COLUMNS, easy_data, easy_graph, graph_rows
from tests.models.test_init_score import kernel
from xlarank.data.errors import ModelError
from xlarank.features.targets import CPU
from xlarank.models.explanation.parts import Rows
from xlarank.models.rankers.lightgbm_text import checked_text, narrowed_text
from xlarank.models.rankers.pair_vote import PairVote
from xlarank.models.ranking_data import RankingData
from xlarank.models.validation.metrics import kendall_tau


def pair_vote(data: RankingData | None = None, **params: Any) -> PairVote:
    ranker = fitted("pair-vote", easy_data() if data is None else data, **params)
    assert isinstance(ranker, PairVote)
    return ranker


@pytest.fixture(scope="module")
def ranker() -> PairVote:
    return pair_vote()


ROWS = easy_graph("unseen__a", 15, seed=3).matrix()


def test_scores_are_the_votes_of_all_pairs_one_by_one(ranker: PairVote) -> None:
    """A loop over pairs: the trees are asked for one row at a time."""

    def chance(one: np.ndarray, other: np.ndarray) -> float:
        columns = ranker._pair_columns
        pair = np.concatenate([one[columns.own], (one - other)[columns.differences]])
        return 1 / (1 + math.exp(-float(ranker._trees().predict(pair[None], raw_score=True)[0])))

    expected = [1 - np.mean([(chance(one, other) + 1 - chance(other, one)) / 2 for other in ROWS]) for one in ROWS]
    assert ranker.predict(ROWS, COLUMNS) == pytest.approx(expected, abs=1e-12)


def test_ranks_do_not_depend_on_the_order_of_configurations(
    ranker: PairVote, monkeypatch: pytest.MonkeyPatch
) -> None:
    shuffled = np.random.default_rng(0).permutation(len(ROWS))
    few = pair_vote(all_pairs=4, opponents=6)
    for one in (ranker, few):
        assert np.array_equal(one.predict(ROWS[shuffled], COLUMNS), one.predict(ROWS, COLUMNS)[shuffled])
    monkeypatch.setattr("xlarank.models.rankers.pair_vote._BATCH", 10)
    assert np.array_equal(few.predict(ROWS[shuffled], COLUMNS), few.predict(ROWS, COLUMNS)[shuffled])


def test_equal_rows_get_equal_scores(ranker: PairVote) -> None:
    scores = ranker.predict(np.concatenate([ROWS, ROWS[:3]]), COLUMNS)
    assert scores[:3].tolist() == scores[-3:].tolist()


def test_shares_are_complementary(ranker: PairVote) -> None:
    scores = ranker.predict(ROWS, COLUMNS)
    assert scores.mean() == pytest.approx(0.5)  # the votes of a pair add up to 1
    assert (0 < scores).all() and (scores < 1).all()
    two = ranker.predict(ROWS[:2], COLUMNS)
    assert two.sum() == pytest.approx(1)
    assert abs(two[0] - 0.5) > 0.01


def test_a_sample_of_opponents_votes_where_there_are_many_rows() -> None:
    graph = easy_graph("unseen__a", 400, seed=3)
    everyone, few, other = (
        pair_vote(seed=seed, all_pairs=most, opponents=60) for most, seed in ((400, 0), (399, 0), (399, 1))
    )
    assert len(everyone.voters(graph.matrix())) == 400
    assert len(few.voters(graph.matrix())) == 60
    whole, sampled = (one.predict(graph.matrix(), COLUMNS) for one in (everyone, few))
    assert kendall_tau(whole, sampled) > 0.9
    assert not np.array_equal(whole, sampled)
    assert not np.array_equal(few.voters(graph.matrix()), other.voters(graph.matrix())), "drawn by the seed"


def test_the_sample_of_opponents_is_the_same_after_loading(tmp_path: Path) -> None:
    ranker = pair_vote(seed=3, all_pairs=4, opponents=6)
    saved(ranker, tmp_path / "model")
    again = PairVote.load(tmp_path / "model")
    assert np.array_equal(again.voters(ROWS), ranker.voters(ROWS))
    assert np.array_equal(again.predict(ROWS, COLUMNS), ranker.predict(ROWS, COLUMNS))


def test_trees_learn_from_differences_and_not_from_who_is_asked_first() -> None:
    """Own columns of a row say nothing of a pair's order beyond chance here, as each is faster as often as not."""
    ranker = pair_vote(easy_data(graphs=8), rounds=50)
    gain, columns = ranker._trees().feature_importance("gain"), ranker._pair_columns
    own, apart = gain[: len(columns.own)], gain[len(columns.own) :]
    assert apart.sum() > own.sum()
    waste = own[columns.own == 1].sum() + apart[columns.differences == 1].sum()
    assert ranker.importance()["waste"] == pytest.approx(waste / gain.sum())


def test_only_columns_that_trees_split_by_are_kept() -> None:
    data = easy_data()
    constant = [replace(part, config_values=part.config_values * np.float32([1, 1, 0])) for part in data.parts]
    ranker = pair_vote(replace(data, parts=constant))
    assert 3 not in [*ranker._pair_columns.own, *ranker._pair_columns.differences]
    assert 0 not in ranker._pair_columns.differences, "it is constant within a graph"
    assert (ranker._trees().feature_importance("split") > 0).all()
    assert ranker._trees().num_feature() == len(ranker._pair_columns)


def test_ties_teach_nothing() -> None:
    data = RankingData.from_graphs([graph_rows("a", list(range(1000, 1060)))])
    assert np.ptp(pair_vote(data, tie_tolerance=0.1).predict(data.rows, COLUMNS)) == 0


def test_ties_are_left_out() -> None:
    # 30 rows cost 100, 30 cost 200: of the pairs only those across are ordered
    data = RankingData.from_graphs([graph_rows("a", [100] * 30 + [200] * 30)])
    ranker = PairVote(kind="layout")
    ranker._use(np.arange(4), np.arange(1, 4))
    (part,), ahead, weight = ranker._drawn(data, np.random.default_rng(0))
    assert ((part.first < 30) != (part.second < 30)).all()
    assert np.array_equal(ahead, part.first < 30)
    assert 0.4 < len(part) / (60 * ranker.params.pairs) < 0.6
    assert (weight > 0).all()


def test_many_rows_have_fewer_partners_each() -> None:
    data = RankingData.from_graphs([graph_rows("a", list(range(1, 61)))])
    counts = []
    for most in (1000, 200, 10):
        ranker = PairVote({"max_pairs": most}, kind="layout")
        ranker._use(np.arange(4), np.arange(1, 4))
        (part,), _, _ = ranker._drawn(data, np.random.default_rng(0))
        counts.append(len(part) / 60)
    assert counts == [8, 3, 1], "as many as are asked for, as the bound allows, one at least"


def test_graphs_weigh_as_they_are_told() -> None:
    data = RankingData.from_graphs([easy_graph("a__a", 50, 0), easy_graph("b__a", 200, 1)])
    ranker = PairVote({"graph_weight": "equal"}, kind="layout")
    ranker._use(np.arange(4), np.arange(1, 4))
    parts, _, weight = ranker._drawn(data, np.random.default_rng(0))
    small, large = weight[: len(parts[0])].sum(), weight[len(parts[0]) :].sum()
    assert [len(part.rows) for part in parts] == [50, 200]
    assert small == pytest.approx(large, rel=0.01)


def test_no_column_that_can_be_split_gives_equal_scores(capfd: pytest.CaptureFixture[str]) -> None:
    data = RankingData.from_graphs([graph_rows("a", list(range(1, 61)), features=np.ones((60, 3)))])
    assert np.ptp(pair_vote(data, rounds=3).predict(data.rows, COLUMNS)) == 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("differences", [1, 9], "not among its 4"),
        ("differences", [], r"not of \d columns"),
        ("seed", -1, "its seed is -1"),
        ("seed", "0", "its seed is '0'"),
    ],
)
def test_damaged_states_are_refused(ranker: PairVote, tmp_path: Path, name: str, value: object, said: str) -> None:
    saved(ranker, tmp_path / "model")
    path = tmp_path / "model" / "ranker.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(ModelError, match=said):
        PairVote.load(tmp_path / "model")


def test_explanations_name_the_cause_and_add_up_with_sampled_opponents() -> None:
    graph = easy_graph("unseen__a", 40, seed=5)
    best, worst = int(graph.row_cost.argmin()), int(graph.row_cost.argmax())
    ranker = pair_vote(easy_data(), rounds=50, all_pairs=10, opponents=8)
    parts = ranker.contributions(Rows.of(graph), best, worst)
    scores = ranker.predict(graph.matrix(), COLUMNS)
    assert sum(parts.columns.values()) == pytest.approx(scores[best] - scores[worst], abs=1e-9)
    assert min(parts.columns, key=lambda column: parts.columns[column]) == "waste"


def test_a_booster_on_fewer_columns_says_the_same() -> None:
    rng = np.random.default_rng(0)
    values = rng.random((300, 9))
    label = values[:, 2] + np.sin(9 * values[:, 5]) + values[:, 8]
    params = {"verbose": -1, "num_threads": 1, "objective": "regression", "boost_from_average": False}
    grown = lgb.train({**params, "interaction_constraints": [[2, 5, 8]]}, lgb.Dataset(values, label), 7)
    kept = np.flatnonzero(grown.feature_importance("split"))
    text = narrowed_text(grown.model_to_string(), kept.tolist())
    assert kept.tolist() == [2, 5, 8]
    assert text.startswith(checked_text(text, 3))
    narrow = lgb.Booster(model_str=text)
    assert np.array_equal(narrow.predict(values[:, kept]), grown.predict(values))


def test_explanations_count_what_pairs_begin_at() -> None:
    data = RankingData.from_graphs([kernel(f"f{number}__a", number) for number in range(4)])
    ranker = pair_vote(data, kind="tile", columns="all", init_score_weight=2.0)
    graph = kernel("unseen__a", 9)
    scores = ranker.predict(graph.matrix(), graph.columns)
    parts = ranker.contributions(Rows.of(graph), 0, 1)
    assert sum(parts.columns.values()) == pytest.approx(scores[0] - scores[1], abs=1e-9)
    assert CPU.estimate in parts.columns
