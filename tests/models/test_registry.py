"""Every registered ranker keeps the contract; what is particular to an ensemble."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import xlarank
from tests.models.contract import CombinedRankerContract, RankerContract, fitted, saved
from tests.models.rows import COLUMNS, easy_data, easy_graph
from xlarank.data.errors import ModelError
from xlarank.models.rankers.ensemble import MEMBERS, Ensemble, EnsembleParams, blend, weight_name
from xlarank.models.registry import RANKERS

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


#: No member counts.
_NONE = {weight_name(name): 0.0 for name in MEMBERS}


def test_scores_are_the_blend_of_the_members_of_positive_weight(tmp_path: Path) -> None:
    data, graph = easy_data(), easy_graph("unseen__a", 40, seed=9).matrix()
    ranker = fitted("ensemble", data, **{**_NONE, "weight_pair_vote": 1.0, "weight_ranknet": 3.0})
    each = [fitted(name, data).predict(graph, COLUMNS) for name in ("pair-vote", "ranknet")]
    assert ranker.predict(graph, COLUMNS) == pytest.approx(blend(each, [1, 3]))
    files = saved(ranker, tmp_path / "model")
    assert {Path(name).parts[0] for name in files} == {"ranker.json", "ranknet", "pair-vote"}
    loaded = Ensemble.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(graph, COLUMNS), ranker.predict(graph, COLUMNS))


def test_a_member_that_runs_out_of_stages_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    data, first = easy_data(graphs=2), np.arange(120.0)
    ranker = fitted("ensemble", data, rounds=6, **{**_NONE, "weight_lambdarank": 1.0, "weight_ranknet": 1.0})
    monkeypatch.setattr(MEMBERS["ranknet"], "staged", lambda self, rows, every, instances: iter([first]))
    other = list(fitted("lambdarank", data, rounds=6).staged(data.matrix(), 2))
    for stage, one in zip(ranker.staged(data.matrix(), 2), other, strict=True):
        assert stage == pytest.approx(blend([one, first], [1, 1]))


def test_senseless_weights_and_members_are_refused() -> None:
    for params, said in (
        (_NONE, "the weights are all 0; expected one member"),
        ({"weight_ranknet": -0.1}, "weight_ranknet is -0.1; expected"),
        ({"weight_ranknet": float("nan")}, "weight_ranknet is nan; expected"),
        ({"members": {"sibling": {}}}, "'sibling' is not a member of an ensemble; expected lambdarank"),
        ({"members": {"ranknet": {"num_leaves": 1}}}, "num_leaves is 1; expected"),
    ):
        with pytest.raises(ModelError, match=said):
            EnsembleParams.of("layout", params)


def test_members_of_other_columns_and_missing_ones_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    saved(fitted("ensemble", easy_data(graphs=2), rounds=2), folder)
    path, member = folder / "ranker.json", folder / "ranknet" / "ranker.json"
    state, whole = json.loads(path.read_text()), member.read_text()
    for parts in ([], ["ensemble"], ["ranknet"]):
        path.write_text(json.dumps({**state, "parts": parts}))
        with pytest.raises(ModelError, match="cannot be read"):
            Ensemble.load(folder)
    path.write_text(json.dumps(state))
    member.write_text(whole.replace("waste", "haste"))
    with pytest.raises(ModelError, match="different columns"):
        Ensemble.load(folder)
