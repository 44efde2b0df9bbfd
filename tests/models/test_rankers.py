"""Every registered ranker keeps the contract; parameters, ensembles and warm starts."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import optuna
import pytest

import xlarank
from tests.models import contract
from tests.models.contract import COLUMNS, easy_data, easy_graph, fitted, graph_rows, saved
from xlarank.data.errors import ModelError
from xlarank.features.block import Scope
from xlarank.features.catalogue import FeatureSettings, blocks_of
from xlarank.models.params import Number, Whole
from xlarank.models.rankers.boosted import LambdaRank, chosen_columns
from xlarank.models.rankers.ensemble import MEMBERS, Ensemble, EnsembleParams, blend
from xlarank.models.rankers.sibling import SiblingParams
from xlarank.models.trained import RANKERS, BestParams, load_best, params_for
from xlarank.models.training_data import CPU, TPU, FitSettings, TrainingData
from xlarank.models.validation.metrics import kendall_tau

COMBINED = {"ensemble", "sibling"}


@pytest.mark.parametrize("model", sorted({*RANKERS} - COMBINED), scope="class")
class TestBaseRankers(contract.RankerContract):
    pass


@pytest.mark.parametrize("model", sorted(COMBINED), scope="class")
class TestCombinedRankers(contract.CombinedRankerContract):
    pass


SCRIPT = """
import os, signal, sys
import numpy as np
from tests.models.contract import COLUMNS, easy_data
from xlarank.models.training_data import FitSettings
from xlarank.models.trained import ranker_class

assert "xgboost" not in sys.modules, "the other rankers do not pay for the import"
data, settings = easy_data(), FitSettings(3, threads=2)
for name in sys.argv[1:]:
    ranker = ranker_class(name)(kind="layout").fit(data, settings)
    scores = ranker.predict(data.matrix(), COLUMNS)
    if not (child := os.fork()):
        signal.alarm(30)
        again = ranker.clone().fit(data, settings)
        predictions = [one.predict(data.matrix(), COLUMNS) for one in (ranker, again)]
        os._exit(not all(np.array_equal(prediction, scores) for prediction in predictions))
    print(name, os.waitpid(child, 0)[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_child_of_a_process_that_used_threads_ends():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, "lambdarank", "xgb-pairwise"],
        cwd=Path(xlarank.__file__).parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["lambdarank 0", "xgb-pairwise 0"], done.stderr


NO_WEIGHTS = {f"weight_{name.replace('-', '_')}": 0.0 for name in MEMBERS}


def test_scores_are_the_blend_of_the_members_of_positive_weight(tmp_path):
    data = easy_data()
    graph = easy_graph("unseen__a", 40, seed=9).matrix()
    ranker = fitted(
        "ensemble", data, **{**NO_WEIGHTS, "weight_xgb_pairwise": 1.0, "weight_ranknet": 3.0}
    )
    members = [fitted(name, data).predict(graph, COLUMNS) for name in ("xgb-pairwise", "ranknet")]
    assert ranker.predict(graph, COLUMNS) == pytest.approx(blend(members, [1, 3]))
    files = saved(ranker, tmp_path / "model")
    assert {Path(name).parts[0] for name in files} == {"ranker.json", "ranknet", "xgb-pairwise"}


def test_a_member_that_runs_out_of_stages_keeps_its_last(monkeypatch):
    data = easy_data(graphs=2)
    last = np.arange(120.0)
    ranker = fitted(
        "ensemble",
        data,
        rounds=6,
        **{**NO_WEIGHTS, "weight_lambdarank": 1.0, "weight_ranknet": 1.0},
    )
    monkeypatch.setattr(
        MEMBERS["ranknet"], "staged", lambda self, rows, every, instances: iter([last])
    )
    others = fitted("lambdarank", data, rounds=6).staged(data.matrix(), 2)
    for stage, other in zip(ranker.staged(data.matrix(), 2), others, strict=True):
        assert stage == pytest.approx(blend([other, last], [1, 1]))


def test_members_of_other_columns_and_missing_ones_are_refused(tmp_path):
    folder = tmp_path / "model"
    saved(fitted("ensemble", easy_data(graphs=2), rounds=2), folder)
    path = folder / "ranker.json"
    member = folder / "ranknet" / "ranker.json"
    state = json.loads(path.read_text())
    earlier = {"params": {**state["params"], "weight_pair_vote": 1.0}}
    for change, said in (
        ({"parts": []}, "its members are none"),
        ({"parts": ["ranknet"]}, "its members are ranknet"),
        ({"parts": ["pair-vote"]}, r"it has the parts \['pair-vote'\]"),
        (earlier, "'weight_pair_vote' is not a parameter of ensemble"),
    ):
        path.write_text(json.dumps({**state, **change}))
        with pytest.raises(ModelError, match=rf"cannot be read \({said}.*run train again"):
            Ensemble.load(folder)
    path.write_text(json.dumps(state))
    member.write_text(member.read_text().replace("waste", "haste"))
    with pytest.raises(ModelError, match="different columns"):
        Ensemble.load(folder)


#: Rankers that can be continued -> parameters; the ensemble has members on LightGBM only.
CONTINUED = {"lambdarank": {}, "ranknet": {}, "sum-pooled": {}}
CONTINUED["ensemble"] = {"weight_lambdarank": 1.0, "weight_ranknet": 3.0, "weight_sum_pooled": 0.0}
UNSEEN = easy_graph("unseen__a", 60, seed=5).matrix()


def clashing(name, configs, seed):
    """Return a graph whose runtime grows with waste, as elsewhere, and falls with clash."""
    features = np.random.default_rng(seed).random((configs, 3))
    costs = np.rint(1e6 * (3 + 3 * features[:, 0] - 2 * features[:, 1])).astype(np.int64)
    return graph_rows(name, costs.tolist(), features=features)


MORE = TrainingData.from_graphs([clashing(f"more{i}__a", 40, 50 + i) for i in range(3)])
JUDGED = clashing("judged__a", 60, 77)


def scores(ranker, rows=None):
    return ranker.predict(JUDGED.matrix() if rows is None else rows, COLUMNS)


@pytest.fixture(scope="module", params=CONTINUED)
def base(request):
    return fitted(request.param, easy_data(), rounds=40, **CONTINUED[request.param])


@pytest.mark.parametrize("model", ["lambdarank", "ranknet", "sum-pooled"])
def test_new_trees_learn_what_the_first_left(model):
    """Little is left of the same data: a first tree of its own would move scores by more."""
    data = easy_data(graphs=4)
    plain = {"bagging_fraction": 1.0, "feature_fraction": 1.0}
    single, many = (fitted(model, data, rounds=rounds, **plain) for rounds in (1, 150))
    longer = many.continuing().fit(data, FitSettings(1, 0, 1))
    first, before, after = (
        scores(ranker, data.parts[0].matrix()) for ranker in (single, many, longer)
    )
    assert 0 < np.std(after - before) < 0.8 * np.std(first)


def test_stages_are_the_rounds_that_were_added_and_few_slow_ones_change_little(base):
    runs = ((0.1, 4), (1.0, 4), (1.0, 20), (1.0, 8))
    slow, fast, tuned, short = (
        base.continuing(rate).fit(MORE, FitSettings(n, 0, 1)) for rate, n in runs
    )
    before, slower, faster = (scores(ranker, UNSEEN) for ranker in (base, slow, fast))
    assert kendall_tau(before, slower) > 0.9 and not np.array_equal(before, slower)
    assert np.abs(slower - before).sum() < 0.5 * np.abs(faster - before).sum()
    first, _, last = tuned.staged(JUDGED.matrix(), 8)
    for stage, ranker in ((first, short), (last, tuned)):
        assert np.allclose(stage, scores(ranker), rtol=1e-6, atol=1e-9)


def test_saved_and_read_back_it_can_be_fitted_again_from_the_same_start(base, tmp_path):
    settings = FitSettings(15, 3, 1)
    tuned = base.continuing(0.5).fit(MORE, settings)
    tuned.save(tmp_path)
    loaded = type(tuned).load(tmp_path)
    assert np.array_equal(scores(loaded), scores(tuned))
    for again in (tuned, loaded):  # as calibrate and cross-validate do
        assert np.allclose(scores(again.clone().fit(MORE, settings)), scores(tuned), atol=1e-9)
    longer = loaded.continuing().fit(MORE, FitSettings(5, 0, 1))  # once more, from all of its trees
    saved(longer, tmp_path / "longer")
    assert np.array_equal(scores(type(longer).load(tmp_path / "longer")), scores(longer))


def test_columns_are_found_by_name_and_others_left_alone(base):
    columns = [*COLUMNS, "answer"]
    settings = FitSettings(10, 0, 1)
    graphs = (*MORE.parts, JUDGED)
    *wider, judged = (
        replace(g, columns=columns, config_values=np.c_[g.config_values, g.row_cost])
        for g in graphs
    )
    tuned, same = (
        base.continuing().fit(data, settings) for data in (TrainingData.from_graphs(wider), MORE)
    )
    assert tuned.columns == columns and "answer" not in tuned.importance()
    assert np.allclose(tuned.predict(judged.matrix(), columns), scores(same), atol=1e-9)


def test_what_does_not_fit_and_a_damaged_start_are_refused(tmp_path):
    with pytest.raises(
        ModelError, match="xgb-pairwise cannot be fine-tuned; expected trees of Light"
    ):
        fitted("xgb-pairwise", easy_data(graphs=2, configs=20), rounds=2).continuing()
    base = fitted("ranknet", easy_data(), rounds=40)
    for columns, said in (
        (["size", "waste", "noise"], r"lack 1 columns of the model to fine-tune \(clash"),
        (["size", "clash", "noise", "waste"], "in another order"),
    ):
        graphs = [
            replace(graph.only(np.arange(len(columns))), columns=columns) for graph in MORE.parts
        ]
        with pytest.raises(ModelError, match=said):
            base.continuing().fit(TrainingData.from_graphs(graphs), FitSettings(3, 0, 1))
    tuned = base.continuing().fit(MORE, FitSettings(15, 0, 1))
    path = tmp_path / "ranker.json"
    tuned.save(tmp_path)
    state = json.loads(path.read_text("utf-8"))
    for name, value in (("trees", 999), ("trees", -1), ("rate", 0)):
        path.write_text(json.dumps(state | {f"start_{name}": value}), "utf-8")
        with pytest.raises(ModelError, match=f"{name} is {value}"):
            type(tuned).load(tmp_path)


def test_the_search_space_is_that_of_stored_studies():
    """The file has ``ranker kind parameter distribution`` on each line, in the order in which
    studies draw them.

    A study can only be resumed with its search space: after a change every study starts anew, and
    the file must be written again.
    """
    lines = []
    for (name, ranker), kind in product(RANKERS.items(), contract.KINDS):
        ranker.params_class.suggest(trial := optuna.create_study().ask(), kind)
        lines += [
            f"{name} {kind} {parameter} {space}" for parameter, space in trial.distributions.items()
        ]
    assert (
        lines
        == Path(__file__).with_name("search_space.txt").read_text(encoding="utf-8").splitlines()
    )


def test_parameters_of_other_values_and_names_are_refused():
    for name, value, said in (
        ("labels", "nope", "labels is 'nope'; expected rank, log"),
        ("learning_rate", 0, "learning_rate is 0; expected a number above 0"),
        ("feature_fraction", 1.5, "feature_fraction is 1.5; expected a number above 0 to 1"),
        ("num_leaves", 1, "num_leaves is 1; expected a whole number, 2 to 131072"),
        ("num_leaves", 15.5, r"num_leaves is 15.5; expected a whole number"),
        ("num_leaves", True, "num_leaves is True; expected a whole number"),
        ("lambda_l2", "1", "lambda_l2 is '1'; expected a number from 0"),
        ("lambdarank_norm", 1, "lambdarank_norm is 1; expected True, False"),
    ):
        with pytest.raises(ModelError, match=said):
            LambdaRank({name: value}, kind="layout")
    misspelt = {"members": {"sum-pooled": {"leaf_l3": 1.0}}}
    sibling = SiblingParams
    ensemble = EnsembleParams
    for params, values, said in (
        *(
            (sibling, {"general": v}, "general is .*; expected parameters by name")
            for v in (3, None, [], "nope")
        ),
        (
            sibling,
            {"general": misspelt},
            "'leaf_l3' is not a parameter of sum-pooled; .*did you mean leaf_l2",
        ),
        (ensemble, NO_WEIGHTS, "the weights are all 0; expected one member"),
        (
            ensemble,
            {"members": {"sibling": {}}},
            "'sibling' is not a member of an ensemble; expected lambdarank",
        ),
        (ensemble, {"members": {"ranknet": {"num_leaves": 1}}}, "num_leaves is 1; expected"),
    ):
        with pytest.raises(ModelError, match=said):
            params.of("layout", values)
    for settings in ((-1,), (2.5,), (5, -1), (5, 0, -2)):
        with pytest.raises(
            ModelError, match=r"(rounds|seed|threads) is .*; expected a whole number"
        ):
            FitSettings(*settings)
    assert [FitSettings(5, 0, n).threads for n in (-1, 0, 1)] == [0, 0, 1], "-1: all cores"
    parsed = Number(0)("name", np.float32(0.5)), Number()("name", -3), Whole(1)("name", np.int64(3))
    assert parsed == (0.5, -3.0, 3) and [*map(type, parsed)] == [float, float, int], (
        "plain values for JSON"
    )


@pytest.mark.parametrize("kind", contract.KINDS)
def test_choices_of_columns_leave_out_graph_columns_and_candidates(kind):
    columns = FeatureSettings().columns(kind)
    for choice, graph, candidates in (
        ("all", 1, 1),
        ("no_graph", 0, 1),
        ("no_candidates", 1, 0),
        ("alone", 0, 0),
    ):
        expected = [
            name
            for block in blocks_of(kind)
            if (graph or block.scope is not Scope.GRAPH) and (candidates or not block.transductive)
            for name in block.columns
        ]
        assert [columns[i] for i in chosen_columns(columns, choice)] == expected
        assert expected and (choice == "all") == (expected == columns)


def test_a_target_leaves_out_the_columns_of_others():
    columns = FeatureSettings().columns("tile")
    layouts = FeatureSettings().columns("layout")
    for target, dropped in ((TPU, CPU), (CPU, TPU)):
        for choice in ("all", "alone"):
            both, kept = (
                {columns[i] for i in chosen_columns(columns, choice, t)} for t in (None, target)
            )
            assert both - kept == both & dropped.columns != set()
            assert both & target.columns <= kept
        assert chosen_columns(layouts, "all", target).tolist() == list(range(len(layouts)))


BEST = BestParams(
    model="lambdarank",
    params={"learning_rate": 0.125, "labels": "log"},
    rounds=75,
    mean=0.5,
    std=0.25,
    select="robust",
    graphs={"cnn__a": 0.25, "mlp__a": 0.75},
    trial=3,
    folds=[["cnn"], ["mlp"]],
    code_hash="0123456789abcdef",
)


def test_each_ranker_has_its_file_and_members_of_an_ensemble_take_their_own(tmp_path):
    folder = tmp_path / "studies" / "cpu"
    names = ("lambdarank", "ranknet", "ensemble")
    lambdarank, ranknet, ensemble = (RANKERS[name].params_class.of("layout") for name in names)

    def params():
        return [params_for(folder, name, "layout") for name in names]

    assert load_best(folder, "lambdarank") is None
    assert params() == [(lambdarank, False), (ranknet, False), (ensemble, False)]
    BEST.save(folder)
    assert load_best(folder, "lambdarank") == BEST
    assert [path.name for path in folder.iterdir()] == ["best-lambdarank.json"]
    tuned = replace(lambdarank, learning_rate=0.125, labels="log")  # the others keep their defaults
    members = {**ensemble.members, "lambdarank": tuned}
    assert params() == [(tuned, True), (ranknet, False), (replace(ensemble, members=members), True)]
    stale = {"ranknet": {"pairs": 3}, "lambdarank": {"num_leaves": 3}}
    replace(BEST, model="ensemble", params={"members": stale, "weight_ranknet": 0.5}).save(folder)
    expected = {"members": {**members, "ranknet": replace(ranknet, pairs=3)}, "weight_ranknet": 0.5}
    assert params()[2] == (replace(ensemble, **expected), True)


def test_files_that_cannot_be_used_are_named(tmp_path):
    for params in ({"head_start": 2.0}, {"num_leaves": 0}):
        replace(BEST, params=params).save(tmp_path)
        with pytest.raises(ModelError, match=r"best-lambdarank\.json cannot be used: .*tune again"):
            params_for(tmp_path, "lambdarank", "tile")
    replace(BEST, model="ranknet").save(tmp_path)
    other = (tmp_path / "best-ranknet.json").read_bytes()
    for content in (other, b"", b"{", b"[]", b'{"model": "lambdarank"}', b"\xff\xfe"):
        (tmp_path / "best-lambdarank.json").write_bytes(content)
        with pytest.raises(
            ModelError, match=r"best-lambdarank\.json cannot be read .*remove it, or tune again"
        ):
            load_best(tmp_path, "lambdarank")
