"""What is particular to an ensemble: ranks are averaged by weight, and members are folders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.models.contract import fitted, saved
from tests.models.rows import COLUMNS, easy_data, easy_graph
from xlarank.data.errors import ModelError
from xlarank.models.rankers.ensemble import MEMBERS, Ensemble, EnsembleParams, blend, weight_name

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
