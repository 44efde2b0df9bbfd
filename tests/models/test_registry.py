"""Every registered ranker keeps the contract."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import xlarank
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


SCRIPT = """
import os, signal, sys
import numpy as np
from tests.models.rows import COLUMNS, easy_data
from xlarank.models.training_data import FitSettings
from xlarank.models.registry import ranker_class

data, settings = easy_data(), FitSettings(3, threads=2)
for name in sys.argv[1:]:
    ranker = ranker_class(name)(kind="layout").fit(data, settings)
    scores = ranker.predict(data.matrix(), COLUMNS)
    if not (child := os.fork()):
        signal.alarm(30)
        again = ranker.clone().fit(data, settings)
        os._exit(not all(np.array_equal(one.predict(data.matrix(), COLUMNS), scores) for one in (ranker, again)))
    print(name, os.waitpid(child, 0)[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_child_of_a_process_that_used_threads_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, "lambdarank", "xgb-pairwise"],
        cwd=Path(xlarank.__file__).parent.parent, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["lambdarank 0", "xgb-pairwise 0"], done.stderr
