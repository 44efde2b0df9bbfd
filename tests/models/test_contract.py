"""The contract that each ranker keeps; contributions add up to a difference of scores."""

import json
import pickle
import re
from itertools import product

import numpy as np
import optuna
import pytest

from tests.models.helpers import (
    COLUMNS,
    KINDS,
    ROUNDS,
    easy_data,
    easy_graph,
    fitted,
    graph_rows,
    saved,
    scores_of,
)
from tests.pipelines.trees import edit_json
from xlarank.data.errors import ModelError
from xlarank.models.card import CARD
from xlarank.models.files import _checksum
from xlarank.models.losses import params_of, rankers, specs_of
from xlarank.models.model import Model
from xlarank.models.params import suggest_params
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.metrics import kendall_tau


@pytest.fixture(scope="module")
def data():
    return easy_data()


@pytest.fixture(scope="module", params=rankers())
def model(request, data):
    return fitted(request.param, data)


def test_pickled_and_saved_as_text_it_gives_equal_scores(model, data, tmp_path):
    scores = scores_of(model, data)
    assert np.array_equal(scores_of(pickle.loads(pickle.dumps(model)), data), scores)
    card = saved(model, tmp_path).card
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        content = path.read_bytes()
        assert path.suffix in (".json", ".txt") and b"\0" not in content
        assert path.suffix == ".txt" or json.loads(content)
    loaded = Model.load(tmp_path)
    assert (loaded.name, loaded.kind, loaded.columns) == (model.name, "layout", COLUMNS)
    assert (loaded.params, loaded.card) == (model.params, card)
    assert np.array_equal(scores_of(loaded, data), scores)
    assert loaded.importance() == pytest.approx(model.importance())
    again = saved(loaded, tmp_path / "again").card
    assert [*again.members.values()] == [*card.members.values()]


def test_stages_are_shorter_models_and_end_with_the_scores(model, data):
    """The number of rounds is chosen on a stage, then a model of that many rounds is fitted."""
    graph = data.parts[0]
    short = fitted(model.name, data, rounds=8).score(graph)
    after_8, after_16, after_20 = model.staged(graph, 8)
    (only,) = model.staged(graph, ROUNDS + 5)
    for stage, expected in ((after_8, short), (after_20, model.score(graph))):
        assert np.allclose(stage, expected, rtol=1e-6, atol=1e-9)
    assert np.allclose(only, after_20, rtol=1e-6, atol=1e-9)
    assert not np.allclose(after_8, after_16)


@pytest.mark.parametrize("name", rankers())
def test_it_learns_an_easy_order_and_the_lower_score_is_the_faster(name, data):
    grown = fitted(name, data, rounds=100)
    graphs = [easy_graph(f"unseen{number}__a", 60, seed=900 + number) for number in range(3)]
    taus = [kendall_tau(grown.score(graph), graph.row_cost) for graph in graphs]
    assert min(taus) > 0.8, f"on graphs that it never saw: {taus}"
    importance = grown.importance()
    shares = [*importance.values()]
    assert next(iter(importance)) == "waste", "it decides most of the runtime"
    assert set(importance) <= set(COLUMNS)
    assert sum(shares) == pytest.approx(1) and min(shares) > 0
    assert shares == sorted(shares, reverse=True)


def test_one_seed_gives_one_model_on_any_threads(model, data, tmp_path):
    unfitted = Model.of(model.name, "layout")
    two = unfitted.fit(data, FitSettings(ROUNDS, 0, threads=2))
    again = fitted(model.name, easy_data())
    files = []
    for number, one in enumerate((model, again, two)):
        files.append([*saved(one, tmp_path / str(number)).card.members.values()])
    assert files[0] == files[1] == files[2]
    refitted = model.fit(data, FitSettings(ROUNDS, 0, 1))
    scores = scores_of(model, data)
    assert np.array_equal(scores_of(refitted, data), scores)
    assert not np.array_equal(scores_of(fitted(model.name, data, seed=1), data), scores)


def test_scores_are_one_finite_number_a_row_in_any_order_of_rows(model, data):
    graph = data.parts[0]
    scores = model.score(graph)
    assert (scores.dtype, scores.shape) == (np.float64, (len(graph),))
    assert np.isfinite(scores).all() and np.unique(scores).size > 10
    turned = graph.take(np.arange(len(graph))[::-1])
    assert np.array_equal(model.score(turned)[::-1], scores)
    for member in model.members:
        alone = member.score(graph.take(np.array([7])))
        assert alone == member.score(graph)[7], "a member scores each row by itself"


#: XGBoost's contributions are float32; all other sums differ by the last bits of a float64.
ROUNDING = {"xgb-pairwise": 1e-5, "ensemble": 1e-4}


def test_contributions_add_up_to_the_difference_of_the_scores(model):
    graph = easy_graph("unseen__a", 40, seed=5)
    scores = model.score(graph)
    near = ROUNDING.get(model.name, 1e-9)
    for now, then in ((0, 1), (3, 39), (7, 7)):
        difference, columns = model.contributions(graph, now, then)
        assert difference == pytest.approx(scores[now] - scores[then], abs=1e-9)
        assert sum(columns.values()) == pytest.approx(difference, rel=near, abs=near)
    # the runtime is 1 + 3 waste + clash: between the cheapest and the dearest waste counts most
    rows = int(graph.row_cost.argmin()), int(graph.row_cost.argmax())
    difference, columns = model.contributions(graph, *rows)
    assert difference < 0 and min(columns, key=columns.get) == "waste"


@pytest.mark.parametrize("name", rankers())
def test_graphs_larger_than_lightgbm_takes_and_of_two_rows(name):
    large = easy_data(graphs=1, configs=10_001)
    scores = scores_of(fitted(name, large, rounds=2), large)
    assert kendall_tau(scores[:400], large.cost[:400]) > 0.5
    small = easy_data(graphs=2, configs=2)
    model = fitted(name, small, rounds=3)
    scores = model.score(small.parts[0])
    assert np.isfinite(scores).all()
    assert np.allclose([*model.staged(small.parts[0], 1)][-1], scores)


def test_rows_with_other_columns_are_refused_with_the_difference(model):
    columns = [*COLUMNS[:-1], *(f"x{i}" for i in range(8))]
    rows = graph_rows("other", [1, 2, 3], columns=columns)
    said = r"lack 1 \(noise\) and add 8 \(x0, x1, x2, x3, x4 and 3 more\)"
    for call in (
        lambda: model.score(rows),
        lambda: [*model.staged(rows, 5)],
        lambda: model.contributions(rows, 0, 1),
    ):
        with pytest.raises(ModelError, match=said):
            call()


@pytest.mark.parametrize("name", rankers())
def test_before_fit_it_says_that_it_was_not_trained(name, tmp_path):
    model = Model.of(name, "layout")
    rows = easy_graph("a", 3, seed=0)
    for call in (
        lambda: model.score(rows),
        lambda: [*model.staged(rows, 5)],
        lambda: model.contributions(rows, 0, 1),
        model.importance,
        lambda: saved(model, tmp_path),
    ):
        with pytest.raises(ModelError, match="was not trained"):
            call()
    assert not [*tmp_path.iterdir()]


def test_a_damaged_member_is_an_error_not_a_crash(model, tmp_path):
    """Of another checksum or, for an accepted one, without content that can be read."""
    checksums = saved(model, tmp_path).card.members
    card = re.escape(str(tmp_path / CARD))
    for name in checksums:
        for path in sorted((tmp_path / name).iterdir()):
            before = path.read_bytes()
            for content in (b"", b"[]", b"\xff\xfe", before[: len(before) // 2], None):
                path.unlink() if content is None else path.write_bytes(content)
                for accepted in (False, True)[: 1 + (path.name == "member.json")]:
                    checksum = _checksum(path.parent) if accepted else checksums[name]
                    edit_json(tmp_path / CARD, members=checksums | {name: checksum})
                    why = "" if accepted else f"{name} has changed"
                    said = rf"{card} cannot be used \({why}.*train again"
                    with pytest.raises(ModelError, match=said):
                        Model.load(tmp_path)
            path.write_bytes(before)


@pytest.mark.parametrize("name", rankers())
def test_parameters_are_those_of_the_kind_and_survive_json_and_a_study(name, data):
    specs = specs_of(name)
    assert params_of(name, "layout") != params_of(name, "tile")
    for kind, other in (KINDS, KINDS[::-1]):
        defaults = params_of(name, kind)
        assert Model.of(name, kind).params == defaults
        assert params_of(name, other, json.loads(json.dumps(defaults))) == defaults
        tried_first = suggest_params(specs, optuna.trial.FixedTrial(defaults))
        assert params_of(name, kind, tried_first) == defaults
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(3):
        values = suggest_params(specs, study.ask())
        assert json.loads(json.dumps(values)) == values
        assert np.isfinite(scores_of(fitted(name, data, rounds=2, **values), data)).all()


@pytest.mark.parametrize("name", rankers())
def test_nonsense_is_refused_by_name(name):
    specs = [*specs_of(name)]
    last = specs[-1]
    said = f"'{last}s' is not a parameter of {name}; .*did you mean {last}"
    with pytest.raises(ModelError, match=said):
        Model.of(name, "layout", {f"{last}s": 1})
    nonsense = (None, "nonsense", -1, float("nan"), float("inf"), object())
    for parameter, value in product(specs, nonsense):
        with pytest.raises(ModelError):
            Model.of(name, "tile", {parameter: value})
