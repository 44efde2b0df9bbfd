"""Rankers by name: parameters, search space, ensembles, columns and tuned parameters."""

from itertools import product
from pathlib import Path

import numpy as np
import optuna
import pytest

from tests.models.helpers import KINDS, easy_data, easy_graph, fitted, saved
from xlarank.data.errors import ModelError
from xlarank.features.catalogue import all_columns, blocks_of
from xlarank.models.losses import params_of, rankers, specs_of
from xlarank.models.member import Member, chosen_columns
from xlarank.models.model import Model
from xlarank.models.objectives import blend
from xlarank.models.params import Interval, suggest_params
from xlarank.models.training_data import CPU, TPU, UNKNOWN, FitSettings
from xlarank.models.tuned import load_best, params_for, save_best

NO_WEIGHTS = {name: 0.0 for name in specs_of("ensemble") if name.startswith("weight_")}


def test_scores_are_the_blend_of_the_members_of_positive_weight(tmp_path):
    data = easy_data()
    graph = easy_graph("unseen__a", 40, seed=9)
    weights = {**NO_WEIGHTS, "weight_xgb_pairwise": 1.0, "weight_ranknet": 3.0}
    model = fitted("ensemble", data, **weights)
    alone = [fitted(name, data).score(graph) for name in ("xgb-pairwise", "ranknet")]
    scores = model.score(graph)
    assert scores == pytest.approx(blend(alone, [1, 3]))
    columns = sum(model.contributions(graph, 0, 1)[1].values())
    assert columns == pytest.approx(scores[0] - scores[1], abs=1e-4)
    folders = [Path(name).name for name in saved(model, tmp_path).card.members]
    assert folders == ["00-ranknet", "01-xgb-pairwise"]


def test_scores_of_seeds_are_averaged(tmp_path):
    data = easy_data(graphs=2)
    graph = easy_graph("unseen__a", 40, seed=9)
    seeds = []
    model = Model.of("ensemble", "layout").fit(data, FitSettings(5, 7, 1), 2, seeds.append)
    alone = [fitted("ensemble", data, rounds=5, seed=seed).score(graph) for seed in (7, 8)]
    assert seeds == [7, 8]
    scores = model.score(graph)
    assert np.array_equal(scores, np.mean(alone, axis=0))
    columns = sum(model.contributions(graph, 0, 1)[1].values())
    assert columns == pytest.approx(scores[0] - scores[1], abs=1e-4)
    assert saved(model, tmp_path).card.seeds == 2
    assert np.array_equal(Model.load(tmp_path).score(graph), scores)


def test_a_member_that_runs_out_of_stages_keeps_its_last(monkeypatch):
    data = easy_data(graphs=2)
    graph = data.parts[0]
    last = np.arange(60.0)
    weights = {**NO_WEIGHTS, "weight_lambdarank": 1.0, "weight_ranknet": 1.0}
    model = fitted("ensemble", data, rounds=6, **weights)
    others = [*fitted("lambdarank", data, rounds=6).staged(graph, 2)]
    staged = Member.staged

    def stop_early(self, rows, every):
        return iter([last]) if self.loss.name == "ranknet" else staged(self, rows, every)

    monkeypatch.setattr(Member, "staged", stop_early)
    for stage, other in zip(model.staged(graph, 2), others, strict=True):
        assert stage == pytest.approx(blend([other, last], [1, 1]))


def test_the_search_space_is_that_of_stored_studies():
    """Each line of the file is ``ranker kind parameter distribution``, in the order of drawing.

    A study can only be resumed with its search space: after a change every study starts anew, and
    the file must be written again.
    """
    lines = []
    for name, kind in product(rankers(), KINDS):
        trial = optuna.create_study().ask()
        suggest_params(specs_of(name), trial)
        for parameter, space in trial.distributions.items():
            lines.append(f"{name} {kind} {parameter} {space}")
    expected = Path(__file__).with_name("search_space.txt").read_text(encoding="utf-8")
    assert lines == expected.splitlines()


@pytest.mark.parametrize(
    ("ranker", "values", "said"),
    [
        ("lambdarank", {"labels": "nope"}, "labels is 'nope'; expected rank, log"),
        ("lambdarank", {"learning_rate": 0}, "learning_rate is 0; expected a number above 0"),
        ("lambdarank", {"feature_fraction": 1.5}, "is 1.5; expected a number above 0 to 1"),
        ("lambdarank", {"num_leaves": 15.5}, "is 15.5; expected a whole number from 2 to 131072"),
        ("lambdarank", {"num_leaves": True}, "is True; expected a whole number"),
        ("lambdarank", {"lambda_l2": "1"}, "is '1'; expected a number from 0"),
        ("lambdrank", {}, "'lambdrank' is not a model; .*did you mean lambdarank"),
        ("ensemble", {"members": {"ranknet": {"num_leaves": 1}}}, "num_leaves is 1; expected"),
        (
            "ensemble",
            {"members": {"ranknet": {"lambda_l3": 1.0}}},
            "'lambda_l3' is not a parameter of ranknet; .*did you mean lambda_l2",
        ),
        (
            "ensemble",
            {"members": {"time-trees": {}}},
            "'time-trees' is not a member of an ensemble; expected lambdarank",
        ),
        ("ensemble", NO_WEIGHTS, "the weights are all 0; expected one member"),
    ],
)
def test_parameters_of_other_values_and_names_are_refused(ranker, values, said):
    with pytest.raises(ModelError, match=said):
        Model.of(ranker, "layout", values)


def test_settings_of_a_fit_are_whole_numbers_and_values_are_plain_ones_for_json():
    for settings in ((-1,), (2.5,), (5, -1), (5, 0, -2)):
        said = r"(rounds|seed|threads) is .*; expected a whole number"
        with pytest.raises(ModelError, match=said):
            FitSettings(*settings)
    with pytest.raises(ModelError, match="expected a whole number from 1 to 2147483647"):
        Interval(1, whole=True)("name", 2**31)
    assert [FitSettings(5, 0, n).threads for n in (-1, 0, 1)] == [0, 0, 1], "-1: all cores"
    settings = FitSettings(*np.array([5, 3, 1]))
    assert {type(settings.rounds), type(settings.seed), type(settings.threads)} == {int}
    parsed = (
        Interval(0)("name", np.float32(0.5)),
        Interval()("name", -3),
        Interval(1, whole=True)("name", np.int64(3)),
    )
    assert parsed == (0.5, -3.0, 3) and [*map(type, parsed)] == [float, float, int]


@pytest.mark.parametrize("kind", KINDS)
def test_choices_of_columns_leave_out_graph_columns_and_listwise_columns(kind):
    columns = all_columns(kind)
    for choice, graph, candidates in (
        ("all", 1, 1),
        ("no_graph", 0, 1),
        ("no_listwise", 1, 0),
        ("alone", 0, 0),
    ):
        expected = []
        for block in blocks_of(kind):
            if (graph or block.scope != "graph") and (candidates or not block.listwise):
                expected += block.columns
        assert [columns[i] for i in chosen_columns(columns, choice)] == expected
        assert expected and (choice == "all") == (expected == columns)


def test_a_target_leaves_out_the_columns_of_others():
    columns = all_columns("tile")
    layouts = all_columns("layout")

    def chosen(choice, target):
        return {columns[i] for i in chosen_columns(columns, choice, target)}

    for target, dropped in ((TPU, CPU), (CPU, TPU)):
        for choice in ("all", "alone"):
            both = chosen(choice, UNKNOWN)
            kept = chosen(choice, target)
            assert both - kept == both & dropped.columns != set()
            assert both & target.columns <= kept
        assert chosen_columns(layouts, "all", target).tolist() == [*range(len(layouts))]


BEST = {"params": {"learning_rate": 0.125, "labels": "log"}, "rounds": 75, "mean": 0.5}


def test_each_ranker_has_its_file_and_members_of_an_ensemble_take_their_own(tmp_path):
    folder = tmp_path / "studies" / "cpu"
    names = ("lambdarank", "ranknet", "ensemble")
    lambdarank, ranknet, ensemble = (params_of(name, "layout") for name in names)

    def params():
        return [params_for(folder, name, "layout") for name in names]

    assert load_best(folder, "lambdarank") is None
    assert params() == [(lambdarank, False), (ranknet, False), (ensemble, False)]
    save_best(folder, "lambdarank", BEST)
    assert load_best(folder, "lambdarank") == {"model": "lambdarank", **BEST}
    assert [path.name for path in folder.iterdir()] == ["best-lambdarank.json"]
    tuned = lambdarank | BEST["params"]  # the others keep their defaults
    members = ensemble["members"] | {"lambdarank": tuned}
    assert params() == [(tuned, True), (ranknet, False), (ensemble | {"members": members}, True)]
    stale = {"ranknet": {"pairs": 3}, "lambdarank": {"num_leaves": 3}}
    ensemble_params = {"members": stale, "weight_ranknet": 0.5}
    save_best(folder, "ensemble", {"params": ensemble_params})
    members["ranknet"] = ranknet | {"pairs": 3}
    assert params()[2] == (ensemble | {"members": members, "weight_ranknet": 0.5}, True)
    save_best(folder, "lambdarank", {"params": lambdarank})
    save_best(folder, "ensemble", {"params": {}})
    kept = [(lambdarank, False), (ranknet, False), (ensemble, False)]
    assert params() == kept, "the defaults won, so nothing is tuned"


def test_files_that_cannot_be_used_are_named(tmp_path):
    for params in ({"head_start": 2.0}, {"num_leaves": 0}):
        save_best(tmp_path, "lambdarank", {"params": params})
        with pytest.raises(ModelError, match=r"best-lambdarank\.json cannot be used: .*tune again"):
            params_for(tmp_path, "lambdarank", "tile")
    save_best(tmp_path, "ranknet", BEST)
    other = (tmp_path / "best-ranknet.json").read_bytes()
    for content in (other, b"", b"{", b"[]", b'{"model": "lambdarank"}', b"\xff\xfe"):
        (tmp_path / "best-lambdarank.json").write_bytes(content)
        said = r"best-lambdarank\.json cannot be read .*remove it, or tune again"
        with pytest.raises(ModelError, match=said):
            load_best(tmp_path, "lambdarank")
