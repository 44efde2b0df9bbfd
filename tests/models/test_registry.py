"""Every registered ranker keeps the contract."""

from __future__ import annotations

import pytest

from tests.models.contract import RankerContract, fitted
from tests.models.rows import COLUMNS, easy_data
from xlarank.data.errors import ModelError
from xlarank.models.rankers.ensemble import MEMBERS
from xlarank.models.registry import DEFAULT, RANKERS, ranker_class


class TestEveryRanker(RankerContract):
    @pytest.fixture(scope="class", params=sorted(RANKERS))
    @classmethod
    def model(cls, request: pytest.FixtureRequest) -> str:
        return str(request.param)


@pytest.mark.parametrize("model", sorted({*MEMBERS} - {"pair-vote"}))
def test_a_single_ranker_scores_each_row_by_itself(model: str) -> None:
    data = easy_data()
    ranker = fitted(model, data)
    assert ranker.predict(data.rows[7:8], COLUMNS).tolist() == [ranker.predict(data.rows, COLUMNS)[7]]


def test_lambdarank_is_the_default() -> None:
    assert DEFAULT == "lambdarank"
    assert DEFAULT in RANKERS


def test_an_unknown_model_is_refused_with_those_there_are() -> None:
    with pytest.raises(ModelError, match=r"'lambdrank' is not a model; expected .*lambdarank"):
        ranker_class("lambdrank")
