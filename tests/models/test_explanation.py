"""Contributions to a difference of scores add up to it; calibration of the trust in rankings."""

import json
from itertools import product

import numpy as np
import pytest

from tests.models.helpers import easy_data, easy_graph, fitted
from tests.pipelines.trees import FAST, layout_graph
from xlarank.data.errors import ModelError
from xlarank.data.graph import read_graph
from xlarank.features.assembly import assemble
from xlarank.features.attribution import walk_between
from xlarank.models.boosters.lightgbm import LightGBMBooster
from xlarank.models.contributions import Contributions
from xlarank.models.rankers import rankers
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.calibration import CERTAIN, Calibration, Trust, disagreement

#: XGBoost's contributions are float32; all other sums differ by the last bits of a float64.
ROUNDING = {"xgb-pairwise": 1e-5, "ensemble": 1e-4}


def check_sums(parts, name):
    columns = sum(parts.columns.values())
    near = ROUNDING.get(name, 1e-9)
    assert columns == pytest.approx(parts.difference, rel=near, abs=near)


@pytest.mark.parametrize("name", rankers())
def test_contributions_add_up_to_the_difference_of_the_scores(name):
    model = fitted(name, easy_data(graphs=4), seeds=2)
    graph = easy_graph("unseen__a", 40, seed=5)
    scores = model.score(graph)
    for now, then in ((0, 1), (3, 39), (7, 7)):
        parts = model.contributions(graph, now, then)
        assert parts.difference == pytest.approx(scores[now] - scores[then], abs=1e-9)
        check_sums(parts, name)
        assert sum(parts.losses.values()) == pytest.approx(parts.difference, abs=1e-9)
        assert set(parts.losses) == {member.loss.name for member in model.members}
    # the runtime is 1 + 3 waste + clash: between the cheapest and the dearest waste counts most
    parts = model.contributions(graph, int(graph.row_cost.argmin()), int(graph.row_cost.argmax()))
    assert parts.difference < 0 and min(parts.columns, key=parts.columns.get) == "waste"


def test_contributions_that_do_not_add_up_are_refused(monkeypatch):
    """In a tree of 120 columns one below the other LightGBM's sums over their subsets lose all
    digits.
    """
    model = fitted("lambdarank", easy_data())
    exact = LightGBMBooster.contributions
    monkeypatch.setattr(
        LightGBMBooster, "contributions", lambda self, values: exact(self, values) + 1e-3
    )
    said = r"too deep for their contributions .*; rank works with it"
    with pytest.raises(ModelError, match=said):
        model.contributions(easy_graph("unseen__a", 40, seed=5), 0, 1)


@pytest.mark.parametrize("name", ["lambdarank", "xgb-pairwise", "ensemble"])
def test_nodes_add_up_to_the_columns(name, graph_file):
    graph = read_graph(graph_file(layout_graph(3)))
    rows = assemble(graph, FAST)
    model = fitted(name, TrainingData.from_graphs([rows]), rounds=10)
    for now, then in ((0, 1), (5, 2), (9, 9)):
        walk = walk_between(graph, rows, FAST, now, then)
        parts = model.contributions(rows, int(rows.group[now]), int(rows.group[then]), walk)
        check_sums(parts, name)
        assert set(parts.nodes) <= set(walk.nodes.tolist())
        assert sum(parts.nodes.values()) == pytest.approx(sum(parts.columns.values()), abs=1e-4)


def test_contributions_are_summed_and_scaled():
    def contributions(factor):
        columns = {"a": -factor, "c": -factor}
        return Contributions(-2 * factor, columns, {"x": -2 * factor}, {5: -factor})

    one = contributions(1.0)
    half = Contributions.total([one], 0.5)
    assert half == one.scaled_to(-1.0) == contributions(0.5)
    assert Contributions.total([one, half]) == contributions(1.5)
    assert Contributions.total([one, one], 0.75) == contributions(1.5)
    nothing = Contributions(0.0, {"a": 1.0, "b": -1.0}).scaled_to(3.0)
    assert (nothing.difference, nothing.columns) == (0.0, {"a": 0.0, "b": 0.0})


def scored_graphs(noise):
    """Yield the family, the scores and the costs of 24 graphs, 40 rows each.

    Three seeds score them up to noise, half of which they share.
    """
    for number in range(24):
        rng = np.random.default_rng(number)
        cost = rng.random(40)
        shared = rng.normal(0, noise, 40)
        scores = cost + shared + rng.normal(0, noise, (3, 40))
        yield f"family{number % 6}", scores, cost


def calibrated(graphs):
    return Calibration.of(*zip(*graphs, strict=True))


def test_certain_pairs_are_right_as_often_as_promised_on_other_graphs():
    # seeds differ by a constant (no disagreement), then by +-1 at two of two rows: variance 2 (ddof
    # 1) of (1, -1)
    assert disagreement(np.array([[0.0, 1.0], [5.0, 6.0]])) == 1e-12
    assert disagreement(np.array([[1.0, -1.0], [-1.0, 1.0]])) == pytest.approx(2.0)
    graphs = [*scored_graphs(0.15)]
    calibration = calibrated(graphs)
    assert 0.05 < calibration.certain < 0.9
    assert calibration.right_low <= calibration.right <= calibration.right_high
    values = Trust(calibration, graphs[0][1], np.arange(40)).as_json()
    assert values["certain_right_interval"] == [calibration.right_low, calibration.right_high]
    assert (calibration.graphs, calibration.families, calibration.seeds) == (24, 6, 3)
    assert calibration.by == "family"
    right = 0
    certain = 0
    for family, scores, cost in graphs:
        others = calibrated([other for other in graphs if other[0] != family])
        mean = scores.mean(axis=0)
        sure = mean - mean[:, None] >= others.threshold * disagreement(scores)
        trust = Trust(others, scores, np.arange(40))
        assert trust.ahead_of.tolist() == sure.sum(axis=1).tolist()
        assert trust.certain == pytest.approx(sure.sum() / (40 * 39 / 2))
        certain += sure.sum()
        right += (sure & (cost > cost[:, None])).sum()
    assert right / certain == pytest.approx(calibration.right) == pytest.approx(CERTAIN, abs=0.02)


def test_pure_noise_is_never_certain():
    rng = np.random.default_rng(3)
    noise = calibrated([(f"f{n % 5}", rng.random((3, 60)), rng.random(60)) for n in range(20)])
    assert (noise.threshold, noise.certain, noise.right) == (None, 0.0, None)
    assert noise.first > 0.8
    # seeds that agree: inf * 0
    trust = Trust(noise, np.zeros((3, 60)), np.repeat(np.arange(60), 2))
    assert trust.certain == 0 and trust.ahead_of.tolist() == [0] * 120
    assert trust.as_json()["certain_right"] is trust.as_json()["certain_right_interval"] is None
    assert trust.lines()[0] == "no pair is certain: out of fold none reached 95% (20 graphs)"


def test_ties_are_never_certain():
    """The mean scores are the costs but for one tie, whose pair is neither right nor wrong.

    Seeds are 3 above and below them in turn: differences disagree by 6, neighbours are 1/6 apart.
    """
    scores = np.arange(40.0) + 3 * np.array([[1.0], [-1.0]]) * np.tile([1, -1], 20)
    scores[:, 1] = scores[::-1, 0]
    graphs = [(f"family{n % 3}", scores, np.arange(1.0, 41.0)) for n in range(12)]
    calibration = calibrated(graphs)
    assert calibration.threshold == pytest.approx(1 / 6), "all pairs but the tie"
    trust = Trust(calibration, scores, np.arange(40))
    assert trust.certain <= 1 and trust.ahead_of.max() <= 39


def test_the_first_hold_the_best_of_as_many_graphs_as_promised(tmp_path):
    # of ten graphs the best stands second in nine, behind one that is nearly as good, and last in
    # one
    scores = [[2.0, 1.0, 3.0, 4.0]] * 9 + [[4.0, 3.0, 2.0, 1.0]]
    cost = np.array([1.0, 1.005, 2.0, 3.0])
    graphs = []
    for number, mean in enumerate(scores):
        graphs.append((f"f{number % 2}", np.array([mean] * 2), cost))
    calibration = calibrated([*graphs[:9], *graphs])
    assert (calibration.first, calibration.first_nearly) == (0.5, 0.25)
    # the worst of 8 is at most the 8/9 quantile of the next place, of 9 the 9/10 quantile
    few = calibrated(graphs[2:])
    assert few.first is few.first_nearly is None
    of_few = Trust(few, np.zeros((2, 5)), np.arange(5))
    assert (of_few.first, of_few.as_json()["best_among_first"]) == (None, None)
    assert not [line for line in of_few.lines() if "among the first" in line]
    few.save(tmp_path, "this")
    assert Calibration.load(tmp_path, "this") == few
    assert calibrated(graphs[:9]).first == 0.5
    assert Trust(calibration, np.zeros((2, 5)), np.arange(5)).first == 3


@pytest.mark.parametrize("noise", [0.15, 3.0])
def test_it_is_read_back_for_the_same_model_only(noise, tmp_path):
    """An edited one is ignored: it is outside the booster's checksums, and rankings do without
    it.
    """
    calibration = calibrated(scored_graphs(noise))
    file = tmp_path / "calibration.json"
    calibration.save(tmp_path, "this")
    content = json.loads(file.read_text(encoding="utf-8"))

    def loaded(value, model="this"):
        file.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
        return Calibration.load(tmp_path, model)

    assert loaded(content) == calibration
    assert loaded(content, "another") is None
    missing = dict.fromkeys(("right", "right_low", "right_high"))
    none_right = loaded(content | missing | {"threshold": 1.0})
    first, *_ = Trust(none_right, np.zeros((3, 4)), np.arange(4)).lines()
    assert first == "0% of the pairs are certain"
    edits = [*product(content, ("x", [], {}, True, -1))]
    edits += [("certain", None), ("graphs", None)]
    edits += [("first", 1.5), ("right", 10**400), ("by", "moon"), ("graphs", 2.5), ("more", 1)]
    assert len(content) == 12
    for name, value in edits:
        assert loaded({**content, name: value}) is None, (name, value)
    for text in ("[" * 100_000, "[]", '{"model": "this"}', "{"):
        assert loaded(text) is None
    scores = np.random.default_rng(0).normal(size=(3, 5))
    first, *_ = Trust(loaded({**content, "threshold": None}), scores, np.arange(5)).lines()
    assert "no pair is certain" in first
