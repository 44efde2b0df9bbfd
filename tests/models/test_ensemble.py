"""What is particular to the ensemble; the contract is tested in test_registry."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.contract import fitted
from tests.models.rows import COLUMNS, easy_data, easy_graph
from xlarank.data.errors import ModelError
from xlarank.models.rankers import ensemble
from xlarank.models.rankers.ensemble import MEMBERS, Ensemble, EnsembleParams, blend, weight_name

_NONE = {weight_name(name): 0.0 for name in MEMBERS}


def test_scores_are_the_blend_of_its_members() -> None:
    data = easy_data()
    graph = easy_graph("unseen__a", 40, seed=9).matrix()
    members = {"lambdarank": {"num_leaves": 5}, "ranknet": {"learning_rate": 0.2}}
    given = {**_NONE, "weight_lambdarank": 0.5, "weight_ranknet": 0.25, "members": members}
    scores = fitted("ensemble", data, seed=3, **given).predict(graph, COLUMNS)
    each = [fitted(name, data, seed=3, **params).predict(graph, COLUMNS) for name, params in members.items()]
    assert scores == pytest.approx(blend(each, [2, 1]))


def test_its_members_take_their_own_defaults_of_the_kind() -> None:
    for kind in ("layout", "tile"):
        members = EnsembleParams.of(kind).members
        assert members == {name: member.params_class.of(kind) for name, member in MEMBERS.items()}


def test_every_member_has_a_weight() -> None:
    assert {weight_name(name) for name in MEMBERS} < set(EnsembleParams.declared())


def test_pairs_can_vote_in_an_ensemble(tmp_path: Path) -> None:
    data = easy_data()
    graph = easy_graph("unseen__a", 40, seed=9).matrix()
    ranker = fitted("ensemble", data, **{**_NONE, "weight_pair_vote": 1.0, "weight_ranknet": 1.0})
    each = [fitted(name, data).predict(graph, COLUMNS) for name in ("pair-vote", "ranknet")]
    assert ranker.predict(graph, COLUMNS) == pytest.approx(blend(each, [1, 1]))
    ranker.save(tmp_path)
    assert np.array_equal(Ensemble.load(tmp_path).predict(graph, COLUMNS), ranker.predict(graph, COLUMNS))


def test_parameters_of_what_is_no_member_are_refused() -> None:
    with pytest.raises(ModelError, match=r"'sibling' is not a member of an ensemble; expected lambdarank"):
        EnsembleParams.of("layout", {"members": {"sibling": {}}})
    with pytest.raises(ModelError, match="num_leaves is 1; expected"):
        EnsembleParams.of("layout", {"members": {"ranknet": {"num_leaves": 1}}})


def test_a_member_without_weight_is_not_trained(tmp_path: Path) -> None:
    ranker = fitted("ensemble", easy_data(graphs=2), rounds=2, **{**_NONE, "weight_ranknet": 0.1})
    ranker.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"ranker.json", "ranknet"}


def test_weights_can_come_from_folds_within(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data, asked = easy_data(graphs=6, configs=30), []

    def weights(scores: list[np.ndarray], of: Any) -> np.ndarray:
        asked.append((scores, of))
        return np.array([0.0, 0.75, 0.25])

    monkeypatch.setattr(ensemble, "ensemble_weights", weights)
    three = {weight_name(name): 1.0 for name in ("lambdarank", "ranknet", "pair-vote")}
    ranker = fitted("ensemble", data, rounds=3, weights="out_of_fold", **{**_NONE, **three})
    ((scores, of),) = asked
    assert of is data
    assert [one.shape for one in scores] == [(180,)] * 3
    assert all(np.unique(one).size > 1 for one in scores)
    ranker.save(tmp_path)
    assert json.loads((tmp_path / "ranker.json").read_text())["weights"] == {"ranknet": 0.75, "pair-vote": 0.25}


def test_out_of_fold_weights_of_one_family_are_equal() -> None:
    data = easy_data(graphs=2, configs=20)
    equal, found = (fitted("ensemble", data, rounds=2, weights=how) for how in ("given", "out_of_fold"))
    assert equal.predict(data.rows, COLUMNS) == pytest.approx(found.predict(data.rows, COLUMNS))


def test_a_member_that_runs_out_of_stages_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    data = easy_data(graphs=2)
    ranker = fitted("ensemble", data, rounds=6, **{**_NONE, "weight_lambdarank": 1.0, "weight_ranknet": 1.0})
    first = np.arange(120.0)
    monkeypatch.setattr(MEMBERS["ranknet"], "staged", lambda self, rows, every, instances: iter([first]))
    other = list(fitted("lambdarank", data, rounds=6).staged(data.rows, 2))
    stages = list(ranker.staged(data.rows, 2))
    assert len(stages) == 3
    for stage, whole in zip(stages, other, strict=True):
        assert stage == pytest.approx(blend([whole, first], [1, 1]))


@pytest.mark.parametrize(
    "params",
    [
        pytest.param(_NONE, id="all 0"),
        pytest.param({"weight_ranknet": -0.1}, id="negative"),
        pytest.param({"weight_ranknet": float("nan")}, id="not a number"),
        pytest.param({"weights": "equal"}, id="unknown way"),
    ],
)
def test_senseless_weights_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"weight\w* (is|are) .*expected"):
        fitted("ensemble", easy_data(graphs=2), **params)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fitted("ensemble", easy_data(graphs=2), rounds=2).save(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "change",
    [{"weights": {}}, {"weights": None}, {"parts": []}, {"parts": None}, {"parts": ["ensemble"]},
     {"parts": ["../ranknet"]}, {"weights": {"ranknet": "x", "sum-pooled": 1}}],
    ids=repr,
)  # fmt: skip
def test_a_damaged_list_of_members_is_refused(folder: Path, change: dict[str, Any]) -> None:
    path = folder / "ranker.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ModelError, match="cannot be read"):
        Ensemble.load(folder)


def test_a_missing_member_is_refused(folder: Path) -> None:
    shutil.rmtree(folder / "ranknet")
    with pytest.raises(ModelError, match="ranknet cannot be read"):
        Ensemble.load(folder)


def test_members_of_other_rows_are_refused(folder: Path) -> None:
    state = folder / "ranknet" / "ranker.json"
    state.write_text(state.read_text().replace("waste", "haste"))
    with pytest.raises(ModelError, match="different columns"):
        Ensemble.load(folder)
