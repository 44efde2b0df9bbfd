"""Every ranker of the zoo keeps the contract."""

from __future__ import annotations

import pytest

from data.errors import ModelError
from models.zoo import DEFAULT, RANKERS, ranker_class
from tests.models.contract import RankerContract


class TestEveryRanker(RankerContract):
    @pytest.fixture(params=sorted(RANKERS))
    def model(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


def test_lambdarank_is_the_default() -> None:
    assert DEFAULT == "lambdarank"
    assert DEFAULT in RANKERS


def test_an_unknown_model_is_refused_with_those_there_are() -> None:
    with pytest.raises(ModelError, match=r"'lambdrank' is not a model; expected .*lambdarank"):
        ranker_class("lambdrank")
