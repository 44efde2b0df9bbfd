"""Every registered ranker keeps the contract."""

from __future__ import annotations

import pytest

from tests.models.contract import CombinedRankerContract, RankerContract
from xlarank.data.errors import ModelError
from xlarank.models.registry import DEFAULT, RANKERS, ranker_class

COMBINED = {"ensemble", "sibling"}


class TestBaseRankers(RankerContract):
    @pytest.fixture(scope="class", params=sorted({*RANKERS} - COMBINED))
    @classmethod
    def model(cls, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestCombinedRankers(CombinedRankerContract):
    @pytest.fixture(scope="class", params=sorted(COMBINED))
    @classmethod
    def model(cls, request: pytest.FixtureRequest) -> str:
        return str(request.param)


def test_an_unknown_model_is_refused_with_those_there_are() -> None:
    assert DEFAULT == "lambdarank"
    with pytest.raises(ModelError, match=r"'lambdrank' is not a model; expected .*lambdarank"):
        ranker_class("lambdrank")
