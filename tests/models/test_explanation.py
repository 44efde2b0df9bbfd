"""Parts of a difference between two scores add up to it; a calibration says how far rankings can be trusted."""

import json

import numpy as np
import pytest

from tests.models.contract import easy_data, easy_graph, fitted, graph_rows, saved
from tests.models.test_sum_pooled import pooled_data, pooled_graph
from tests.pipelines.trees import layout_graph
from xlarank.data.errors import ModelError
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.features.assemble import assemble
from xlarank.features.attribution import walk_between
from xlarank.features.block import Tier
from xlarank.features.recipe import FeatureSettings
from xlarank.models.explanation.calibration import CERTAIN, Calibration, ScoredGraph, Trust, disagreement
from xlarank.models.explanation.parts import Parts, Place, Rows
from xlarank.models.registry import RANKERS
from xlarank.models.training_data import TrainingData

#: XGBoost's contributions are float32; all other sums differ by the last bits of a float64.
ROUNDING = {"xgb-pairwise": 1e-5, "ensemble": 1e-4, "sibling": 1e-4}
SETTINGS = FeatureSettings(Tier.FAST)


def check_sums(parts, model):
    columns, places = sum(parts.columns.values()), sum(place.value for place in parts.places)
    near = ROUNDING.get(model, 1e-9)
    assert columns + places == pytest.approx(parts.difference, rel=near, abs=near)
    assert sum(parts.instance_columns.values()) == pytest.approx(places, rel=near, abs=near)


@pytest.mark.parametrize("model", RANKERS)
def test_parts_add_up_to_the_difference_of_the_scores(model):
    ranker, graph = fitted(model, easy_data()), easy_graph("unseen__a", 40, seed=5)
    scores = ranker.predict(graph.matrix(), graph.columns)
    for now, then in ((0, 1), (3, 39), (7, 7)):
        parts = ranker.contributions(Rows.of(graph), now, then)
        assert parts.difference == pytest.approx(scores[now] - scores[then], abs=1e-9)
        check_sums(parts, model)
        assert sum(parts.members.values()) == pytest.approx(parts.difference, abs=1e-9)
    # the runtime is 1 + 3 waste + clash: between the cheapest and the dearest waste counts most
    parts = ranker.contributions(Rows.of(graph), int(graph.row_cost.argmin()), int(graph.row_cost.argmax()))
    assert parts.difference < 0 and min(parts.columns, key=lambda name: parts.columns[name]) == "waste"


def test_contributions_that_do_not_add_up_are_refused(tmp_path):
    """A tree of many columns one below the other: LightGBM's sums over their subsets lose all digits."""
    columns = 120
    names = [f"column{number}" for number in range(columns)]
    values = np.random.default_rng(0).random((40, columns - 1)) ** 0.02
    graph = graph_rows("a__a", range(1, 41), features=values, columns=names)
    ranker = fitted("lambdarank", TrainingData.from_graphs([graph]), num_leaves=2, rounds=1)
    saved(ranker, tmp_path / "model")
    (path,) = tmp_path.rglob("booster.txt")
    path.write_text(chain_text(columns), encoding="utf-8")
    stranger = type(ranker).load(tmp_path / "model")
    rows = Rows(graph.matrix(), graph.columns)
    assert np.isfinite(stranger.predict(rows.matrix, graph.columns)).all()
    with pytest.raises(ModelError, match=r"too deep for their contributions .*; rank works with it"):
        stranger.contributions(rows, 0, 1)


def chain_text(columns):
    """LightGBM's text of a tree in which each column splits once, one below the other."""
    rng, leaves = np.random.default_rng(0), columns + 1
    counts = [20 * (leaves - split) for split in range(columns)]
    entries = {
        "num_leaves": [leaves], "num_cat": [0], "split_feature": range(columns), "split_gain": [1] * columns,
        "threshold": rng.random(columns), "decision_type": [2] * columns,
        "left_child": range(-1, -leaves, -1), "right_child": [*range(1, columns), -leaves],
        "leaf_value": rng.normal(size=leaves), "leaf_weight": [20] * leaves, "leaf_count": [20] * leaves,
        "internal_value": [0] * columns, "internal_weight": counts, "internal_count": counts, "is_linear": [0],
        "shrinkage": [1],
    }  # fmt: skip
    block = "".join(f"{name}={' '.join(map(str, values))}\n" for name, values in entries.items())
    block = f"Tree=0\n{block}\n\n"
    head = {
        "version": "v4", "num_class": 1, "num_tree_per_iteration": 1, "label_index": 0,
        "max_feature_idx": columns - 1, "objective": "lambdarank",
        "feature_names": " ".join(f"Column_{number}" for number in range(columns)),
        "feature_infos": " ".join(["[0:1]"] * columns), "tree_sizes": len(block),
    }  # fmt: skip
    lines = "".join(f"{name}={value}\n" for name, value in head.items())
    return f"tree\n{lines}\n{block}end of trees\n\nparameters:\n\nend of parameters\n"


@pytest.mark.parametrize("model", ["sum-pooled", "ensemble", "sibling"])
def test_sums_over_instances_name_the_nodes_that_differ(model):
    ranker, graph = fitted(model, pooled_data()), pooled_graph("unseen__a", 30, seed=77)
    assert graph.instances is not None
    codes = graph.instances.value.codes
    parts = ranker.contributions(Rows.of(graph), 4, 9)
    check_sums(parts, model)
    assert {place.nodes for place in parts.places} == {(int(k),) for k in np.flatnonzero(codes[4] != codes[9])}


# the last holds an ensemble of all others
@pytest.mark.parametrize("model", ["lambdarank", "xgb-pairwise", "sibling"])
def test_nodes_add_up_to_the_columns(model, graph_file):
    graph = read_graph(graph_file(layout_graph(3)))
    assert isinstance(graph, LayoutGraph)
    rows = assemble(graph, SETTINGS)
    ranker = fitted(model, TrainingData.from_graphs([rows]), rounds=10)
    for now, then in ((0, 1), (5, 2), (9, 9)):
        walk = walk_between(graph, rows, SETTINGS, now, then)
        parts = ranker.contributions(Rows.of(rows, walk), int(rows.group[now]), int(rows.group[then]))
        check_sums(parts, model)
        assert set(parts.nodes) <= set(walk.nodes.tolist())
        assert sum(parts.nodes.values()) == pytest.approx(sum(parts.columns.values()), abs=1e-4)


def test_parts_of_two_are_joined_place_by_place():
    one = Parts(-2.0, {"a": -1.0}, (Place((3,), "now", "then", -1.0),), {"c": -1.0}, {"x": -2.0}, {5: -1.0})
    expected = Parts(-3.0, {"a": -1.5}, (Place((3,), "now", "then", -1.5),), {"c": -1.5}, {"x": -3.0}, {5: -1.5})
    assert Parts.total([one, one.scaled(0.5)]) == Parts.total([one, one], 0.75) == expected


def judged(family, seed, *, noise, rows=40):
    """Costs that the mean score follows up to noise, which the seeds share half of."""
    rng = np.random.default_rng(seed)
    cost = rng.random(rows)
    shared = rng.normal(0, noise, rows)
    scores = np.stack([cost + shared + rng.normal(0, noise, rows) for _ in range(3)])
    return ScoredGraph(family, scores, cost)


def many(noise, graphs=24):
    return [judged(f"family{number % 6}", number, noise=noise) for number in range(graphs)]


def test_certain_pairs_are_right_as_often_as_promised_on_other_graphs():
    # seeds differ by a constant (no disagreement), then by +-1 at two of two rows: variance 2 (ddof 1) of (1, -1)
    assert disagreement(np.array([[0.0, 1.0], [5.0, 6.0]])) == 1e-12
    assert disagreement(np.array([[1.0, -1.0], [-1.0, 1.0]])) == pytest.approx(2.0)
    graphs = many(0.15)
    found = Calibration.of(graphs)
    assert 0.05 < found.certain < 0.9 and found.right_low <= found.right <= found.right_high
    assert (found.graphs, found.families, found.seeds, found.by) == (24, 6, 3, "family")
    right, certain = 0, 0
    for one in graphs:
        others = Calibration.of([other for other in graphs if other.family != one.family])
        mean = one.scores.mean(axis=0)
        sure = mean[None, :] - mean[:, None] >= others.threshold * disagreement(one.scores)
        trust = Trust(others, one.scores, np.arange(40))
        assert trust.ahead_of.tolist() == sure.sum(axis=1).tolist()
        assert trust.certain == pytest.approx(sure.sum() / (40 * 39 / 2))
        certain += int(sure.sum())
        right += int((sure & (one.cost[None, :] > one.cost[:, None])).sum())
    assert right / certain == pytest.approx(found.right) == pytest.approx(CERTAIN, abs=0.02)


def test_pure_noise_is_never_certain():
    rng = np.random.default_rng(3)
    found = Calibration.of([ScoredGraph(f"f{n % 5}", rng.random((3, 60)), rng.random(60)) for n in range(20)])
    assert found.threshold == np.inf and found.certain == 0.0 and np.isnan(found.right) and found.first > 0.8
    trust = Trust(found, np.zeros((3, 60)), np.repeat(np.arange(60), 2))  # seeds that agree: inf * 0
    assert trust.certain == 0 and trust.ahead_of.tolist() == [0] * 120
    assert trust.as_json()["certain_right"] is trust.as_json()["certain_right_interval"] is None
    assert trust.lines()[0] == "no pair is certain: out of fold none reached 95% (20 graphs)"


def test_the_first_hold_the_best_of_as_many_graphs_as_promised():
    # of ten graphs the best stands second in nine, behind one that is nearly as good, and last in one
    scores = [np.array([[2.0, 1.0, 3.0, 4.0]] * 2)] * 9 + [np.array([[4.0, 3.0, 2.0, 1.0]] * 2)]
    cost = np.array([1.0, 1.005, 2.0, 3.0])
    graphs = [ScoredGraph(f"f{number % 2}", one, cost) for number, one in enumerate(scores)]
    found, few = Calibration.of([*graphs[:9], *graphs]), Calibration.of(graphs[2:])
    assert (found.first, found.first_nearly) == (0.5, 0.25)
    assert few.first == 1.0, "the worst of 8 is at most the 8/9 quantile of the next one's place"
    assert Trust(found, np.zeros((2, 5)), np.arange(5)).first == 3


@pytest.mark.parametrize("noise", [0.15, 3.0])
def test_it_is_read_back_for_the_same_model_only(noise, tmp_path):
    found = Calibration.of(many(noise))
    found.save(tmp_path, "this")
    file = tmp_path / "calibration.json"
    earlier = json.loads(file.read_text(encoding="utf-8")) | {"bins": [{"distance": 0.5, "pairs": 7}]}
    for text in (file.read_text(encoding="utf-8"), json.dumps(earlier)):
        file.write_text(text, encoding="utf-8")
        again = Calibration.load(tmp_path, "this")
        assert again is not None and again.as_json() == found.as_json()
        assert Calibration.load(tmp_path, "another") is None
    file.write_text("{", encoding="utf-8")
    assert Calibration.load(tmp_path, "this") is None


def test_an_edited_calibration_is_none(tmp_path):
    """It is beside the booster's checksums; rankings go on without it."""
    calibration = Calibration.of(many(noise=0.3))
    calibration.save(tmp_path, "this")
    file = tmp_path / "calibration.json"
    whole = json.loads(file.read_text(encoding="utf-8"))
    edits = [(name, value) for name in whole for value in ("x", [], {}, True, -1)]
    edits += [
        ("first", None),
        ("certain", None),
        ("graphs", None),
        ("first", 1.5),
        ("right", 10**400),
        ("by", "moon"),
    ]
    edits.append(("graphs", 2.5))
    assert isinstance(whole["model"], str) and len(whole) == 12
    scores, group = np.random.default_rng(0).normal(size=(3, 5)), np.arange(5)
    for name, value in edits:
        file.write_text(json.dumps({**whole, name: value}), encoding="utf-8")
        assert Calibration.load(tmp_path, "this") is None, (name, value)
    for text in ("[" * 100_000, "[]", json.dumps({**whole, "more": 1}), '{"model": "this"}'):
        file.write_text(text, encoding="utf-8")
        assert Calibration.load(tmp_path, "this") is None
    file.write_text(json.dumps({**whole, "threshold": None}), encoding="utf-8")
    endless = Calibration.load(tmp_path, "this")
    assert endless is not None and "no pair is certain" in Trust(endless, scores, group).lines()[0]
