"""Models that continue others: warm starts, their columns, and what cannot be continued."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.models.helpers import COLUMNS, easy_data, easy_graph, fitted, graph_rows, saved
from tests.pipelines.trees import edit_json
from xlarank.data.errors import ModelError
from xlarank.models.boosters.lightgbm import LightGBMBooster
from xlarank.models.card import CARD
from xlarank.models.files import _checksum
from xlarank.models.model import Model
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.validation.metrics import kendall_tau

#: Rankers that can be continued -> parameters; the ensemble has members on LightGBM only.
CONTINUED = {"lambdarank": {}, "ranknet": {}, "time-trees": {}}
CONTINUED["ensemble"] = {"weight_ranknet": 3.0, "weight_xgb_pairwise": 0.0}
UNSEEN = easy_graph("unseen__a", 60, seed=5)


def clashing(name, configs, seed):
    """Return a graph whose runtime grows with waste, as elsewhere, and falls with clash."""
    features = np.random.default_rng(seed).random((configs, 3))
    costs = np.rint(1e6 * (3 + 3 * features[:, 0] - 2 * features[:, 1])).astype(np.int64)
    return graph_rows(name, costs.tolist(), features=features)


MORE = TrainingData.from_graphs([clashing(f"more{i}__a", 40, 50 + i) for i in range(3)])
JUDGED = clashing("judged__a", 60, 77)


def scores(model, graph=JUDGED):
    return model.score(graph)


@pytest.fixture(scope="module", params=CONTINUED)
def base(request):
    return fitted(request.param, easy_data(), rounds=40, **CONTINUED[request.param])


@pytest.mark.parametrize("name", ["lambdarank", "ranknet", "time-trees"])
def test_new_trees_learn_what_the_first_left(name):
    """Little is left of the same data: a first tree of its own would move scores by more."""
    data = easy_data(graphs=4)
    plain = {"bagging_fraction": 1.0, "feature_fraction": 1.0}
    single, many = (fitted(name, data, rounds=rounds, **plain) for rounds in (1, 150))
    longer = many.continued().fit(data, FitSettings(1, 0, 1))
    first, before, after = (scores(model, data.parts[0]) for model in (single, many, longer))
    assert 0 < np.std(after - before) < 0.8 * np.std(first)


def test_times_are_continued_without_their_mean_over_a_graph(monkeypatch):
    """As they are learned up to a factor per graph."""
    (member,) = fitted("time-trees", easy_data(), rounds=5).continued().members
    starts = []
    monkeypatch.setattr(LightGBMBooster, "fit", lambda task, *_: starts.append(task.start))
    member.fit(MORE, FitSettings(1, 0, 1))
    (start,) = starts
    assert start.any() and np.allclose(MORE.centred(start), start, atol=1e-12)


def test_stages_are_the_rounds_that_were_added_and_few_slow_ones_change_little(base):
    runs = ((0.1, 4), (1.0, 4), (1.0, 20), (1.0, 8))
    slow, fast, tuned, short = (
        base.continued(rate).fit(MORE, FitSettings(rounds, 0, 1)) for rate, rounds in runs
    )
    before, slower, faster = (scores(model, UNSEEN) for model in (base, slow, fast))
    assert kendall_tau(before, slower) > 0.9 and not np.array_equal(before, slower)
    assert np.abs(slower - before).sum() < 0.5 * np.abs(faster - before).sum()
    first, _, last = tuned.staged(JUDGED, 8)
    for stage, model in ((first, short), (last, tuned)):
        assert np.allclose(stage, scores(model), rtol=1e-6, atol=1e-9)


def test_saved_and_read_back_it_can_be_fitted_again_from_the_same_start(base, tmp_path):
    settings = FitSettings(15, 3, 1)
    tuned = base.continued(0.5).fit(MORE, settings)
    saved(tuned, tmp_path)
    loaded = Model.load(tmp_path)
    assert np.array_equal(scores(loaded), scores(tuned))
    for again in (tuned, loaded):  # as cross-validate does
        assert np.allclose(scores(again.fit(MORE, settings)), scores(tuned), atol=1e-9)
    longer = loaded.continued().fit(MORE, FitSettings(5, 0, 1))  # once more, from all of its trees
    saved(longer, tmp_path / "longer")
    assert np.array_equal(scores(Model.load(tmp_path / "longer")), scores(longer))


def test_seeds_continue_those_of_the_model_in_turn():
    base = fitted("lambdarank", easy_data(graphs=2), rounds=5, seeds=2)
    model = base.continued().fit(MORE, FitSettings(3, 7, 1), seeds=3)
    assert [member.seed for member in model.members] == [7, 8, 9]
    starts = [booster.text() for member in model.members for booster in member.warm_start]
    first, second = (member.booster.text() for member in base.members)
    assert starts == [first, second, first]


def test_a_continued_model_is_unfitted_and_another_one(tmp_path):
    base = saved(fitted("lambdarank", easy_data(graphs=2), rounds=2), tmp_path)
    continued = replace(base, shipped=True).continued()
    assert (continued.card, continued.shipped) == (None, False)
    with pytest.raises(ModelError, match="was not trained"):
        continued.score(JUDGED)


def test_columns_are_found_by_name_and_others_left_alone(base):
    columns = [*COLUMNS, "answer"]
    settings = FitSettings(10, 0, 1)
    wider = []
    for graph in (*MORE.parts, JUDGED):
        values = np.c_[graph.config_values, graph.row_cost]
        wider.append(replace(graph, columns=columns, config_values=values))
    tuned = base.continued().fit(TrainingData.from_graphs(wider[:-1]), settings)
    same = base.continued().fit(MORE, settings)
    assert tuned.columns == columns and "answer" not in tuned.importance()
    assert np.allclose(scores(tuned, wider[-1]), scores(same), atol=1e-9)


def test_what_cannot_be_continued_is_refused():
    small = easy_data(graphs=2, configs=20)
    said = "xgb-pairwise cannot be fine-tuned; expected trees of Light"
    with pytest.raises(ModelError, match=said):
        fitted("xgb-pairwise", small, rounds=2).continued()
    base = fitted("ranknet", small, rounds=4)
    with pytest.raises(ModelError, match="rate is 0"):
        base.continued(0)
    for columns, said in (
        (["size", "waste", "noise"], r"lack 1 columns of the model to fine-tune \(clash"),
        (["size", "clash", "noise", "waste"], "in another order"),
    ):
        used = np.arange(len(columns))
        graphs = [replace(graph.only(used), columns=columns) for graph in MORE.parts]
        with pytest.raises(ModelError, match=said):
            base.continued().fit(TrainingData.from_graphs(graphs), FitSettings(3, 0, 1))


def test_a_damaged_start_is_refused(tmp_path):
    base = fitted("ranknet", easy_data(graphs=2), rounds=10)
    tuned = base.continued().fit(MORE, FitSettings(5, 0, 1))
    (name,) = saved(tuned, tmp_path).card.members
    path = tmp_path / name / "member.json"
    state = json.loads(path.read_text("utf-8"))
    for entry, value, said in (
        ("warm_starts", 2, "warm-start-1.txt"),
        ("warm_starts", -1, "warm_starts is -1"),
        ("rate", 0, "rate is 0"),
    ):
        path.write_text(json.dumps(state | {entry: value}), "utf-8")
        edit_json(tmp_path / CARD, members={name: _checksum(path.parent)})
        with pytest.raises(ModelError, match=said):
            Model.load(tmp_path)
