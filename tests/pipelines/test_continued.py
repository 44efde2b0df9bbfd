"""Training that begins from a model or takes graphs of other collections along; commands that use
such a model.
"""

import json
import shutil
from datetime import UTC, datetime

import polars as pl
import pytest

from tests.pipelines import trees
from tests.pipelines.trees import (
    LAYOUT,
    LAYOUTS,
    TILE,
    TREE,
    build,
    edit_json,
    graph_path,
    model_of,
    stored,
)
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError
from xlarank.data.workspace import Workspace
from xlarank.models.stored import pretrained_model
from xlarank.models.validation.metrics import kendall_tau
from xlarank.pipelines.cross_validate import cross_validate
from xlarank.pipelines.explain import explain
from xlarank.pipelines.rank import rank
from xlarank.pipelines.ranking.model_choice import find_model
from xlarank.pipelines.support.results import read_results
from xlarank.pipelines.train import train
from xlarank.pipelines.training.continued import (
    CONTINUED_RATE,
    CONTINUED_ROUNDS,
    RATES,
    continued_contenders,
)
from xlarank.pipelines.training.settings import TrainSettings
from xlarank.pipelines.training.training_sets import extra_collections, read_training_set

OTHER = "layout:tpu-estimate:random"
OTHERS = Collection.parse(OTHER)


@pytest.fixture
def two(trained):
    """A workspace whose only layout model is of another collection and, by its card, of other
    families.
    """
    features = trained / "features/layout"
    shutil.copytree(features / "cpu/random", features / "tpu-estimate/random")
    place = Workspace(trained)
    folder = place.model(OTHERS)
    folder.parent.mkdir(parents=True)
    shutil.move(place.model(LAYOUTS), folder)
    elsewhere = {"train": ["elsewhere__a", "elsewhere__b"]}
    edit_json(folder / "model.json", collection=OTHER, trained_on=elsewhere)
    return place


def tune(place, start, **options):
    chosen = {"collections": [LAYOUT], "seeds": 1, "rounds": 30, "threads": 1, **options}
    (result,) = train(place, TrainSettings(fine_tune=start, **chosen))
    return result, model_of(place.root)


@pytest.mark.slow
def test_folds_choose_rounds_and_rate_and_the_card_says_which(two, shared_tree):
    base = model_of(two.root, OTHER)
    began = datetime.now(UTC)
    result, model = tune(two, OTHER, seeds=3)
    card = model.card
    assert (card.continues.collection, card.continues.fingerprint) == (OTHER, base.card.fingerprint)
    assert card.continues.graphs == ["elsewhere__a", "elsewhere__b"]
    assert card.continues.rate in RATES
    assert result.chosen_by == "3 folds by family" and result.rounds == card.rounds <= 30
    assert set(card.folds) == {"alpha__a", "alpha__b", "beta__a", "beta__b", "gamma__a"}
    assert f"fine-tuned from the model at {two.model(OTHERS)} ({OTHER}, 2 programs)" in result.why
    assert "5 graphs of new families" in result.why
    kept = read_results(two).filter(pl.col("time") >= began, tuned=card.tuned)
    assert len(kept) == sum(map(len, card.folds.values())), "of the chosen rate alone"
    path = graph_path(shared_tree, LAYOUT, "valid", "delta__a")
    chosen = {"collection": LAYOUT, "model_from": "trained"}
    ranking = rank(two, path, **chosen)
    parts = explain(two, path, config=3, against=9, **chosen)
    assert parts.difference == pytest.approx(ranking.scores[3] - ranking.scores[9])
    assert sum(parts.columns.values()) == pytest.approx(parts.difference, abs=1e-6)
    first, second = (member.booster.text() for member in base.members)
    starts = [earlier.text() for member in model.members for earlier in member.warm_start]
    assert starts == [first, second, first], "seeds take the rankers in turn"
    assert [member.booster.rounds for member in model.members] == [card.rounds] * 3


@pytest.mark.parametrize("graphs", [["alpha__a"], ["alpha__a", "beta__a"]])
def test_one_or_two_measured_graphs_are_enough(two, graphs):
    manifest = two.features(LAYOUTS, "train") / "manifest.json"
    entries = json.loads(manifest.read_text("utf-8"))["graphs"]
    edit_json(manifest, graphs={name: entries[name] for name in graphs})
    result, model = tune(two, OTHER, rounds=300)
    assert (model.card.rounds, result.rounds) == (CONTINUED_ROUNDS, CONTINUED_ROUNDS)
    assert (model.card.continues.rate, model.card.folds) == (CONTINUED_RATE, {})
    assert result.chosen_by.startswith("default (fewer than")
    for graph in stored(two.root, LAYOUT, "valid").values():
        assert kendall_tau(model.score(graph), graph.row_cost) > 0.6


def test_families_that_the_model_knows_are_not_judged(two):
    edit_json(two.model(OTHERS) / "model.json", trained_on={"train": ["alpha__z"]})
    training = read_training_set(two, LAYOUTS, ("train", "valid"))
    data = training.data
    known = {data.names[group] for group in range(data.groups) if data.families[group] == "alpha"}
    start = find_model(OTHER, two, "layout")
    plan, _ = continued_contenders(*start, training, TrainSettings())
    held = {data.names[group] for fold in plan.folds for group in fold.held}
    assert len(plan.folds) == 3 and held == {*data.names} - known
    few = "default (fewer than 3 families that are new to the model)"
    assert tune(two, OTHER)[0].chosen_by == few


def test_a_graph_that_the_start_has_seen_is_not_cross_validated(two):
    edit_json(two.model(OTHERS) / "model.json", trained_on={"train": ["alpha__a", "elsewhere__a"]})
    tune(two, OTHER, rounds=5)
    evaluation = cross_validate(two, by="graph", collections=[LAYOUT])
    graphs = evaluation.report[LAYOUT]["score"]["graphs"]
    assert graphs.keys() == {"alpha__b", "beta__a", "beta__b"}
    reason = evaluation.left_out[f"{LAYOUT} alpha__a"]
    assert reason == "the model that was fine-tuned was trained on it"


@pytest.mark.slow
def test_a_model_in_a_folder_and_one_that_continues_another_are_continued(two, tmp_path):
    elsewhere = shutil.move(two.model(OTHERS), tmp_path / "elsewhere")
    assert tune(two, str(elsewhere))[1].card.continues.where == str(elsewhere)
    _, second = tune(two, LAYOUT, also_from=[f"{OTHER}=0.5"], rounds=5)
    assert second.card.also_weights == {OTHER: 0.5}
    assert set(second.card.continues.graphs) == {"elsewhere__a", "elsewhere__b", *stored(two.root)}


@pytest.mark.slow
def test_the_shipped_ranker_of_a_collections_kind_is_continued(tmp_path):
    splits = {"train": ("alpha__a", "beta__a", "gamma__a"), "valid": ("delta__a",)}
    own = "layout:mine:random"
    dots = {"train": ("dot__a", "conv__a")}
    trees.write_tree(tmp_path / "tree", {own: splits, LAYOUT: splits, TILE: dots})
    place = Workspace(tmp_path / "work")
    build(tmp_path / "tree", place.root, settings=trees.FULL)
    settings = TrainSettings(fine_tune="shipped", seeds=1, rounds=50, threads=1)
    *results, refused = train(place, settings)
    assert refused.collection == LAYOUT and "describes TPUs" in refused.skipped
    for result, kind, collection in zip(
        results, ("layout", "tile"), ("layout:tpu:any", "tile:"), strict=True
    ):
        continues = model_of(place.root, result.collection).card.continues
        assert continues.where == "shipped"
        assert continues.fingerprint == pretrained_model(kind).card.fingerprint
        assert f"fine-tuned from the shipped ranker ({collection}" in result.why
    model = model_of(place.root, own)
    shipped = pretrained_model()
    assert (model.card.model, model.shipped) == ("time-trees", False)
    (graph,) = stored(place.root, own, "valid").values()
    before = kendall_tau(shipped.score(graph), graph.row_cost)
    assert kendall_tau(model.score(graph), graph.row_cost) > before + 0.05


def test_every_collection_continues_the_model_from_before(two):
    """The model of the first collection is replaced while the second one is still to come."""
    before = model_of(two.root, OTHER).card.fingerprint
    few = {"seeds": 1, "rounds": 2, "threads": 1}
    train(two, TrainSettings(fine_tune=OTHER, collections=[OTHER, LAYOUT], **few))
    cards = [model_of(two.root, name).card for name in (OTHER, LAYOUT)]
    assert [card.continues.fingerprint for card in cards] == [before] * 2


@pytest.mark.slow
def test_models_that_cannot_be_continued_are_refused(two):
    nowhere = "no model 'nowhere'; expected shipped, a folder with model.json"
    both = "`model=ranknet` beside a model to fine-tune, .* of lambdarank"
    for start, options, error, message in (
        ("nowhere", {}, ModelError, nowhere),
        (TILE, {}, CollectionError, f"{LAYOUT} holds layout graphs; expected tile graphs"),
        (OTHER, {"model": "ranknet"}, ModelError, both),
    ):
        with pytest.raises(error, match=message):
            tune(two, start, **options)
    path = two.model(OTHERS) / "model.json"
    path.write_text(path.read_text("utf-8").replace('"code_hash": "', '"code_hash": "0'), "utf-8")
    message = r"computed by version .* which the model of layout:tpu-estimate"
    with pytest.raises(ModelError, match=message):
        tune(two, OTHER)


@pytest.fixture
def pair(built):
    """A workspace with two collections of the same layout graphs."""
    features = built / "features/layout"
    shutil.copytree(features / "cpu/random", features / "tpu-estimate/random")
    return Workspace(built)


def learn(place, also, **options):
    chosen = {"collections": [LAYOUT], "also_from": [also], "rounds": 10, **options}
    trees.train_models(place.root, **chosen)
    return model_of(place.root)


def lacks_a_family(fold):
    """Return whether a fold of three families in two collections lacks one in both."""
    are_twice = sorted(fold.names) == sorted(2 * sorted(set(fold.names)))
    return are_twice and len(set(fold.families)) == 2


def test_other_collections_are_learned_from_by_weight_and_not_judged_on(pair, fits):
    card = learn(pair, f"{OTHER}=0.25", rounds=2).card
    *folds, whole = (fit["data"] for fit in fits)
    assert whole.group_weight.tolist() == [1.0] * 5 + [0.25] * 5
    assert whole.columns == card.columns and all(map(lacks_a_family, folds))
    names = list(TREE[LAYOUT]["train"])
    assert (card.trained_on, card.also_from) == ({"train": names}, {OTHER: names})
    assert card.also_weights == {OTHER: 0.25} and set(card.folds) == set(names)
    card = learn(pair, OTHER, rounds=2).card
    assert card.also_weights == {OTHER: 1.0} and set(fits[-1]["data"].group_weight) == {1.0}


def test_weights_that_are_refused(pair):
    for weight in ("0", "-1", "half", "", "nan", "inf", "1001"):
        message = rf"weight of {OTHER} is '{weight}'; expected a number"
        with pytest.raises(CollectionError, match=message):
            learn(pair, f"{OTHER}={weight}")
    with pytest.raises(CollectionError, match="layout:cpu:random is given two weights, 1 and 2"):
        extra_collections(pair, ["layout:cpu:random", "layout:cpu:r*=2"])
    message = r"collection 'layout:tpu:random' is not in .*did you mean"
    with pytest.raises(CollectionError, match=message):
        learn(pair, "layout:tpu:random=0.5")
