"""Every registered ranker keeps the contract; what is particular to an ensemble and to warm starts."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xlarank
from tests.models.contract import (
    COLUMNS,
    CombinedRankerContract,
    RankerContract,
    easy_data,
    easy_graph,
    fitted,
    graph_rows,
    saved,
)
from xlarank.data.errors import ModelError
from xlarank.features.rows import GraphRows
from xlarank.models.base import Ranker
from xlarank.models.rankers.ensemble import MEMBERS, Ensemble, EnsembleParams, blend
from xlarank.models.registry import RANKERS
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.validation.metrics import kendall_tau

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
from tests.models.contract import COLUMNS, easy_data
from xlarank.models.training_data import FitSettings
from xlarank.models.registry import ranker_class

assert "xgboost" not in sys.modules, "the other rankers do not pay for the import"
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
_NONE = {f"weight_{name.replace('-', '_')}": 0.0 for name in MEMBERS}


def test_scores_are_the_blend_of_the_members_of_positive_weight(tmp_path: Path) -> None:
    data, graph = easy_data(), easy_graph("unseen__a", 40, seed=9).matrix()
    ranker = fitted("ensemble", data, **{**_NONE, "weight_xgb_pairwise": 1.0, "weight_ranknet": 3.0})
    each = [fitted(name, data).predict(graph, COLUMNS) for name in ("xgb-pairwise", "ranknet")]
    assert ranker.predict(graph, COLUMNS) == pytest.approx(blend(each, [1, 3]))
    files = saved(ranker, tmp_path / "model")
    assert {Path(name).parts[0] for name in files} == {"ranker.json", "ranknet", "xgb-pairwise"}


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
    earlier = {"params": {**state["params"], "weight_pair_vote": 1.0}}
    for change, said in (
        ({"parts": []}, "its members are none"), ({"parts": ["ranknet"]}, "its members are ranknet"),
        ({"parts": ["pair-vote"]}, r"it has the parts \['pair-vote'\]"),
        (earlier, "'weight_pair_vote' is not a parameter of ensemble"),
    ):  # fmt: skip
        path.write_text(json.dumps({**state, **change}))
        with pytest.raises(ModelError, match=rf"cannot be read \({said}.*run train again"):
            Ensemble.load(folder)
    path.write_text(json.dumps(state))
    member.write_text(whole.replace("waste", "haste"))
    with pytest.raises(ModelError, match="different columns"):
        Ensemble.load(folder)


#: Those that can; an ensemble of LightGBM's.
GOING_ON: dict[str, dict[str, Any]] = {
    "lambdarank": {}, "ranknet": {}, "sum-pooled": {},
    "ensemble": {"weight_lambdarank": 1.0, "weight_ranknet": 3.0, "weight_sum_pooled": 0.0},
}  # fmt: skip
UNSEEN = easy_graph("unseen__a", 60, seed=5).matrix()


def clashing(name: str, configs: int, seed: int) -> GraphRows:
    """Waste counts as everywhere, clash the other way round."""
    features = np.random.default_rng(seed).random((configs, 3))
    costs = np.rint(1e6 * (3 + 3 * features[:, 0] - 2 * features[:, 1])).astype(np.int64)
    return graph_rows(name, costs.tolist(), features=features)


MORE = TrainingData.from_graphs([clashing(f"more{i}__a", 40, 50 + i) for i in range(3)])
JUDGED = clashing("judged__a", 60, 77)


def scores(ranker: Ranker[Any], rows: np.ndarray | None = None) -> np.ndarray:
    return ranker.predict(JUDGED.matrix() if rows is None else rows, COLUMNS)


@pytest.fixture(params=GOING_ON)
def base(request: pytest.FixtureRequest) -> Ranker[Any]:
    return fitted(request.param, easy_data(), rounds=40, **GOING_ON[request.param])


@pytest.mark.parametrize("model", ["lambdarank", "ranknet", "sum-pooled"])
def test_new_trees_learn_what_the_first_left(model: str) -> None:
    """On what they have learned already there is little: a first tree of their own would move scores by more."""
    data, plain = easy_data(graphs=4), {"bagging_fraction": 1.0, "feature_fraction": 1.0}
    fresh, many = (fitted(model, data, rounds=rounds, **plain) for rounds in (1, 150))
    longer = many.continuing().fit(data, FitSettings(1, 0, 1))
    one, before, after = (scores(each, data.parts[0].matrix()) for each in (fresh, many, longer))
    assert 0 < np.std(after - before) < 0.8 * np.std(one)


def test_stages_are_the_rounds_that_were_added_and_few_slow_ones_change_little(base: Ranker[Any]) -> None:
    slow, fast, tuned, short = (
        base.continuing(rate).fit(MORE, FitSettings(rounds, 0, 1))
        for rate, rounds in ((0.1, 4), (1.0, 4), (1.0, 20), (1.0, 8))
    )
    first, second, third = (scores(ranker, UNSEEN) for ranker in (base, slow, fast))
    assert kendall_tau(first, second) > 0.9 and not np.array_equal(first, second)
    assert np.abs(second - first).sum() < 0.5 * np.abs(third - first).sum()
    stages = list(tuned.staged(JUDGED.matrix(), 8))
    assert len(stages) == 3
    for stage, ranker in ((stages[0], short), (stages[-1], tuned)):
        assert np.allclose(stage, scores(ranker), rtol=1e-6, atol=1e-9)


def test_saved_and_read_back_it_can_be_fitted_again_from_the_same_start(base: Ranker[Any], tmp_path: Path) -> None:
    settings = FitSettings(15, 3, 1)
    tuned = base.continuing(0.5).fit(MORE, settings)
    tuned.save(tmp_path)
    loaded = type(tuned).load(tmp_path)
    assert np.array_equal(scores(loaded), scores(tuned))
    for again in (tuned, loaded):  # as calibrate and cross-validate do
        assert np.allclose(scores(again.clone().fit(MORE, settings)), scores(tuned), atol=1e-9)
    longer = loaded.continuing().fit(MORE, FitSettings(5, 0, 1))  # once more, from all of its trees
    (tmp_path / "longer").mkdir()
    longer.save(tmp_path / "longer")
    assert np.array_equal(scores(type(longer).load(tmp_path / "longer")), scores(longer))


def test_columns_are_found_by_name_and_others_left_alone(base: Ranker[Any]) -> None:
    wider = [
        replace(graph, columns=[*COLUMNS, "answer"], config_values=np.c_[graph.config_values, graph.row_cost])
        for graph in (*MORE.parts, JUDGED)
    ]
    tuned = base.continuing().fit(TrainingData.from_graphs(wider[:-1]), FitSettings(10, 0, 1))
    assert tuned.columns == [*COLUMNS, "answer"] and "answer" not in tuned.importance()
    same = base.continuing().fit(MORE, FitSettings(10, 0, 1))
    assert np.allclose(tuned.predict(wider[-1].matrix(), tuned.columns), scores(same), atol=1e-9)


def test_what_does_not_fit_and_a_damaged_start_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="xgb-pairwise cannot be fine-tuned; expected trees of Light"):
        fitted("xgb-pairwise", easy_data(graphs=2, configs=20), rounds=2).continuing()
    base = fitted("ranknet", easy_data(), rounds=40)
    for columns, said in (
        (["size", "waste", "noise"], r"lack 1 columns of the model to fine-tune \(clash"),
        (["size", "clash", "noise", "waste"], "in another order"),
    ):
        graphs = [replace(graph.only(np.arange(len(columns))), columns=columns) for graph in MORE.parts]
        with pytest.raises(ModelError, match=said):
            base.continuing().fit(TrainingData.from_graphs(graphs), FitSettings(3, 0, 1))
    tuned = base.continuing().fit(MORE, FitSettings(15, 0, 1))
    tuned.save(tmp_path)
    path = tmp_path / "ranker.json"
    state = json.loads(path.read_text("utf-8"))
    for name, value in (("trees", 999), ("trees", -1), ("rate", 0)):
        path.write_text(json.dumps(state | {f"start_{name}": value}), "utf-8")
        with pytest.raises(ModelError, match=f"{name} is {value}"):
            type(tuned).load(tmp_path)
