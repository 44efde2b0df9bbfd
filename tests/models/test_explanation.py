"""Contributions to a difference of scores add up to it."""

import pytest

from tests.models.helpers import easy_data, easy_graph, fitted
from xlarank.data.errors import ModelError
from xlarank.models.boosters.lightgbm import LightGBMBooster
from xlarank.models.contributions import Contributions
from xlarank.models.rankers import rankers

#: XGBoost's contributions are float32; all other sums differ by the last bits of a float64.
ROUNDING = {"xgb-pairwise": 1e-5, "ensemble": 1e-4}


def check_sums(parts, name):
    columns = sum(parts.columns.values())
    near = ROUNDING.get(name, 1e-9)
    assert columns == pytest.approx(parts.difference, rel=near, abs=near)


@pytest.mark.parametrize("name", rankers())
def test_contributions_add_up_to_the_difference_of_the_scores(name):
    model = fitted(name, easy_data(graphs=4), seeds=2)
    graph = easy_graph("unseen__a", 40, seed=5)
    scores = model.score(graph)
    for now, then in ((0, 1), (3, 39), (7, 7)):
        parts = model.contributions(graph, now, then)
        assert parts.difference == pytest.approx(scores[now] - scores[then], abs=1e-9)
        check_sums(parts, name)
        assert sum(parts.losses.values()) == pytest.approx(parts.difference, abs=1e-9)
        assert set(parts.losses) == {member.loss.name for member in model.members}
    # the runtime is 1 + 3 waste + clash: between the cheapest and the dearest waste counts most
    parts = model.contributions(graph, int(graph.row_cost.argmin()), int(graph.row_cost.argmax()))
    assert parts.difference < 0 and min(parts.columns, key=parts.columns.get) == "waste"


def test_contributions_that_do_not_add_up_are_refused(monkeypatch):
    """In a tree of 120 columns one below the other LightGBM's sums over their subsets lose all
    digits.
    """
    model = fitted("lambdarank", easy_data())
    exact = LightGBMBooster.contributions
    monkeypatch.setattr(
        LightGBMBooster, "contributions", lambda self, values: exact(self, values) + 1e-3
    )
    said = r"too deep for their contributions .*; rank works with it"
    with pytest.raises(ModelError, match=said):
        model.contributions(easy_graph("unseen__a", 40, seed=5), 0, 1)


def test_contributions_are_summed_and_scaled():
    def contributions(factor):
        columns = {"a": -factor, "c": -factor}
        return Contributions(-2 * factor, columns, {"x": -2 * factor})

    one = contributions(1.0)
    half = Contributions.total([one], 0.5)
    assert half == one.scaled_to(-1.0) == contributions(0.5)
    assert Contributions.total([one, half]) == contributions(1.5)
    assert Contributions.total([one, one], 0.75) == contributions(1.5)
    nothing = Contributions(0.0, {"a": 1.0, "b": -1.0}).scaled_to(3.0)
    assert (nothing.difference, nothing.columns) == (0.0, {"a": 0.0, "b": 0.0})
