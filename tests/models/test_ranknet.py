"""What is particular to ranknet; its loss is tested in test_ranknet_loss, the contract in test_registry."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from tests.models.contract import fitted
from tests.models.rows import COLUMNS, easy_data, graph_rows
from xlarank.data.errors import ModelError
from xlarank.models.objectives import RankNetLoss, row_weights
from xlarank.models.ranking_data import RankingData
from xlarank.models.validation.metrics import kendall_tau


def test_the_first_tree_is_a_newton_step_on_the_loss() -> None:
    """Two leaves, nothing regularised: each leaf moves by -rate * sum of gradients / sum of hessians."""
    costs = [10, 20, 30, 40, 50, 60, 70, 80]
    data = RankingData.from_graphs([graph_rows("a", costs), graph_rows("b", costs[:5])])
    plain = {"num_leaves": 2, "min_data_in_leaf": 1, "lambda_l2": 0.0, "bagging_fraction": 1.0}
    plain |= {"learning_rate": 0.5, "feature_fraction": 1.0}
    ranker = fitted("ranknet", data, rounds=1, seed=4, pairs=3, graph_weight="sqrt", **plain)
    scores = ranker.predict(data.rows, COLUMNS)
    loss = RankNetLoss(data.cost, data.indptr, row_weights(data.indptr, "sqrt"), 3, 0.0)
    gradient, hessian = loss.gradients(np.zeros(len(scores)), np.random.default_rng(4))
    leaves = np.unique(scores)
    assert len(leaves) == 2
    for leaf in leaves:
        rows = scores == leaf
        assert leaf == pytest.approx(plain["learning_rate"] * gradient[rows].sum() / hessian[rows].sum(), rel=1e-5)


def test_costs_within_the_tolerance_teach_nothing() -> None:
    data = RankingData.from_graphs([graph_rows("a", list(range(1000, 1060)))])
    ranker = fitted("ranknet", data, tie_tolerance=0.1)
    assert np.ptp(ranker.predict(data.rows, COLUMNS)) == 0


def test_more_pairs_are_another_model_and_the_data_stay() -> None:
    data = easy_data(graphs=2)
    before = copy.deepcopy(data.cost)
    few, many = (fitted("ranknet", data, pairs=pairs).predict(data.rows, COLUMNS) for pairs in (1, 16))
    assert not np.array_equal(few, many)
    assert np.array_equal(before, data.cost)
    assert kendall_tau(many[:60], data.cost[:60]) > 0.7


@pytest.mark.parametrize(("name", "value"), [("pairs", 0), ("graph_weight", "even")])
def test_senseless_parameters_are_refused(name: str, value: object) -> None:
    with pytest.raises(ModelError, match=f"{name} is {value!r}; expected"):
        fitted("ranknet", easy_data(graphs=2), **{name: value})


def test_no_column_that_can_be_split_gives_equal_scores(capfd: pytest.CaptureFixture[str]) -> None:
    data = RankingData.from_graphs([graph_rows("a", list(range(1, 61)), features=np.ones((60, 3)))])
    assert np.ptp(fitted("ranknet", data, rounds=3).predict(data.rows, COLUMNS)) == 0
    assert capfd.readouterr() == ("", "")
