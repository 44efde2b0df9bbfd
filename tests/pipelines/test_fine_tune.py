"""Training that begins from a model or takes graphs of other collections along; commands that use such a model."""

import json
import shutil

import pytest

from tests.pipelines.trees import LAYOUT, TILE, TREE, build, graph_path, stored, write_tree
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError
from xlarank.data.workspace import Workspace
from xlarank.features.catalogue import FeatureSettings
from xlarank.models.trained import fingerprint, load_model, pretrained_model
from xlarank.models.validation.metrics import kendall_tau
from xlarank.pipelines.calibrate import calibrate
from xlarank.pipelines.cross_validate import cross_validate
from xlarank.pipelines.explain import explain
from xlarank.pipelines.rank import rank
from xlarank.pipelines.support.results import read_results
from xlarank.pipelines.train import (
    CONTINUED_RATE,
    CONTINUED_ROUNDS,
    RATES,
    find_model,
    fine_tune,
    new_families,
    train,
)
from xlarank.pipelines.training.fitting import TrainRequest
from xlarank.pipelines.training.training_sets import extra_collections, read_training_set

OTHER = "layout:tpu-estimate:random"


@pytest.fixture
def two(trained):
    """A workspace with a model of another collection, said to be of other graphs, and none of the own."""
    shutil.copytree(trained / "features/layout/cpu/random", trained / "features/layout/tpu-estimate/random")
    place = Workspace(trained)
    folder = place.model(Collection.parse(OTHER))
    folder.parent.mkdir(parents=True)
    shutil.move(place.model(Collection.parse(LAYOUT)), folder)
    card = json.loads((folder / "model.json").read_text("utf-8"))
    card |= {"collection": OTHER, "trained_on": {"train": ["elsewhere__a", "elsewhere__b"]}}  # all families are new
    (folder / "model.json").write_text(json.dumps(card), "utf-8")
    return place


def tune(place, start, **options):
    chosen = {"collections": [LAYOUT], "seeds": 1, "rounds": 30, "threads": 1, **options}
    (result,) = fine_tune(place, start, TrainRequest(**chosen))
    return result, load_model(place.model(Collection.parse(LAYOUT)))


@pytest.mark.slow
def test_folds_choose_rounds_and_rate_and_the_card_says_which(two, shared_tree):
    base = load_model(two.model(Collection.parse(OTHER)))
    result, model = tune(two, OTHER, seeds=3)
    card = model.card
    assert (card.continues.collection, card.continues.fingerprint) == (OTHER, fingerprint(base.card))
    assert card.continues.graphs == ["elsewhere__a", "elsewhere__b"] and card.continues.rate in RATES
    assert result.chosen_by == "3 folds by family" and result.rounds == card.rounds <= 30
    assert set(card.folds) == {"alpha__a", "alpha__b", "beta__a", "beta__b", "gamma__a"}
    assert f"fine-tuned from the model at {two.model(Collection.parse(OTHER))} ({OTHER}, 2 programs)" in result.why
    assert "5 graphs of new families" in result.why
    kept = read_results(two).filter(collection=LAYOUT, split="train", held_out_by="family", tuned=card.tuned)
    assert len(kept) == sum(map(len, card.folds.values())), "of the chosen rate alone"
    path = graph_path(shared_tree, LAYOUT, "valid", "delta__a")
    ranking, found = rank(two, path, collection=LAYOUT), explain(two, path, collection=LAYOUT, config=3, against=9)
    assert found.difference == pytest.approx(ranking.scores[3] - ranking.scores[9])
    assert sum(found.columns.values()) == pytest.approx(found.difference, abs=1e-6)
    boosters = [ranker._booster.trees for ranker in (*base.rankers, *model.rankers)]
    trees = [booster.num_trees() for booster in boosters]
    assert trees[2:] == [trees[0] + card.rounds, trees[1] + card.rounds, trees[0] + card.rounds]
    firsts = [booster.dump_model(num_iteration=1)["tree_info"] for booster in boosters]
    assert firsts[2:] == [firsts[0], firsts[1], firsts[0]] != [firsts[0]] * 3, "seeds take the rankers in turn"


@pytest.mark.parametrize("graphs", [["alpha__a"], ["alpha__a", "beta__a"]])
def test_one_or_two_measured_graphs_are_enough(two, graphs):
    keep_graphs(two, graphs)
    result, model = tune(two, OTHER, rounds=300)
    assert (model.card.rounds, result.rounds) == (CONTINUED_ROUNDS, CONTINUED_ROUNDS)
    assert (model.card.continues.rate, model.card.folds) == (CONTINUED_RATE, {})
    assert result.chosen_by.startswith("default (fewer than")
    for graph in stored(two.root, LAYOUT, "valid").values():
        assert kendall_tau(model.score(graph).mean, graph.row_cost) > 0.6


def keep_graphs(place, names):
    manifest = place.features(Collection.parse(LAYOUT), "train") / "manifest.json"
    value = json.loads(manifest.read_text("utf-8"))
    value["graphs"] = {name: value["graphs"][name] for name in names}
    manifest.write_text(json.dumps(value), "utf-8")


def test_families_that_the_model_knows_are_not_judged(two):
    folder = two.model(Collection.parse(OTHER))
    card = json.loads((folder / "model.json").read_text("utf-8"))
    card["trained_on"] = {"train": ["alpha__z"]}
    (folder / "model.json").write_text(json.dumps(card), "utf-8")
    training = read_training_set(two, Collection.parse(LAYOUT), ("train", "valid"))
    data = training.data
    known = {data.names[group] for group in range(data.groups) if data.families[group] == "alpha"}
    held = new_families(find_model(OTHER, two, "layout")[0], training).held
    assert len(held) == 3 and {data.names[group] for fold in held for group in fold} == {*data.names} - known
    assert tune(two, OTHER)[0].chosen_by == "default (fewer than 3 families that are new to the model)"


@pytest.mark.slow
def test_a_folder_and_a_model_that_itself_went_on(two, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    shutil.move(two.model(Collection.parse(OTHER)), elsewhere)
    assert tune(two, str(elsewhere))[1].card.continues.where == str(elsewhere)
    _, second = tune(two, LAYOUT, also_from=[f"{OTHER}=0.5"], rounds=5)
    assert second.card.also_weights == {OTHER: 0.5}
    assert set(second.card.continues.graphs) == {"elsewhere__a", "elsewhere__b", *stored(two.root)}


@pytest.mark.slow
def test_the_ranker_that_comes_along_goes_on(tmp_path):
    write_tree(tmp_path / "tree", {LAYOUT: {"train": ("alpha__a", "beta__a", "gamma__a"), "valid": ("delta__a",)}})
    place = Workspace(tmp_path / "work")
    build(tmp_path / "tree", place.root, settings=FeatureSettings())
    result, model = tune(place, "shipped", rounds=25)
    assert "fine-tuned from the shipped ranker (layout:tpu:any" in result.why
    assert (model.card.model, model.shipped) == ("time-trees", False)
    shipped = pretrained_model()
    assert model.card.continues.where == "shipped"
    assert fingerprint(shipped.card) == model.card.continues.fingerprint
    (graph,) = stored(place.root, LAYOUT, "valid").values()
    seen = shipped.select(graph)
    pairs = ((shipped, seen), (model, graph))
    before, tuned = (kendall_tau(ranker.score(rows).mean, graph.row_cost) for ranker, rows in pairs)
    assert tuned > before + 0.05


def test_every_collection_continues_the_model_from_before(two):
    """The model of the first collection is replaced while the second one is still to come."""
    base = load_model(two.model(Collection.parse(OTHER)))
    fine_tune(two, OTHER, TrainRequest(collections=[OTHER, LAYOUT], seeds=1, rounds=2, threads=1))
    cards = [load_model(two.model(Collection.parse(name))).card for name in (OTHER, LAYOUT)]
    assert {card.continues.fingerprint for card in cards} == {fingerprint(base.card)}


def test_shipped_is_the_ranker_of_the_collections_kind(tmp_path):
    write_tree(tmp_path / "tree", {TILE: {"train": ("dot__a", "conv__a")}})
    place = Workspace(tmp_path / "work")
    build(tmp_path / "tree", place.root, settings=FeatureSettings())
    (result,) = fine_tune(place, "shipped", TrainRequest(seeds=1, rounds=2, threads=1))
    card = load_model(place.model(Collection.parse(TILE))).card
    assert card.continues is not None and card.continues.fingerprint == fingerprint(pretrained_model("tile").card)
    assert "fine-tuned from the shipped ranker (tile:" in result.why


@pytest.mark.slow
def test_what_cannot_be_continued(two):
    for start, options, error, message in (
        ("nowhere", {}, ModelError, "no model 'nowhere' to fine-tune; expected shipped, a folder with model.json"),
        (TILE, {}, CollectionError, f"{LAYOUT} holds layout graphs; expected tile graphs"),
        (OTHER, {"model": "ranknet"}, ModelError, "`model=ranknet` beside a model to fine-tune, .* of lambdarank"),
    ):
        with pytest.raises(error, match=message):
            tune(two, start, **options)
    path = two.model(Collection.parse(OTHER)) / "model.json"
    path.write_text(path.read_text("utf-8").replace('"code_hash": "', '"code_hash": "0'), "utf-8")
    with pytest.raises(
        ModelError,
        match=r"computed by version .* which the model of layout:tpu-estimate",
    ):
        tune(two, OTHER)


@pytest.fixture
def pair(built):
    shutil.copytree(built / "features" / "layout/cpu/random", built / "features" / "layout/tpu-estimate/random")
    return Workspace(built)


def learn(place, also, **options):
    given = {"seeds": 1, "rounds": 10, **options}
    train(place, TrainRequest(collections=[LAYOUT], also_from=[also], threads=1, **given))
    return load_model(place.model(Collection.parse(LAYOUT)))


def lacks_a_family(fold):
    """Whether a fold of three families in two collections lacks one in both."""
    return sorted(fold.names) == sorted(2 * sorted(set(fold.names))) and len(set(fold.families)) == 2


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


@pytest.mark.slow
def test_calibration_learns_from_what_the_model_learned_from_and_is_shown_by_rank(pair, shared_tree, fits):
    folder, path = pair.model(Collection.parse(LAYOUT)), graph_path(shared_tree, LAYOUT, "valid", "delta__a")
    learn(pair, f"{OTHER}=0.5", seeds=2)
    assert cross_validate(pair, collections=[LAYOUT], by="graph").report[LAYOUT]
    assert rank(pair, path, collection=LAYOUT).trust is None
    fits.clear()
    found, left_out = calibrate(pair, collections=[LAYOUT], threads=1)
    assert not left_out and found[LAYOUT].graphs == 5, "only graphs of the collection itself are judged"
    assert (found[LAYOUT].seeds, found[LAYOUT].families) == (2, 3)
    assert len(fits) == 2 * 3
    folds = [fit["data"] for fit in fits]
    assert all(lacks_a_family(fold) and set(fold.group_weight) == {0.5, 1.0} for fold in folds)
    ranking = rank(pair, path, collection=LAYOUT)
    assert ranking.trust.calibration.as_json() == found[LAYOUT].as_json()
    shown = json.loads(json.dumps(ranking.as_json()))["trust"]
    assert shown["best_among_first"] == ranking.trust.first and len(ranking.trust.lines()) == 2
    ahead = [entry.certainly_ahead_of for entry in ranking.best()]
    assert ahead == sorted(ahead, key=lambda count: -(count or 0)), "the better the rank, the more lie behind"

    text = folder.joinpath("model.json").read_text(encoding="utf-8")
    before, also, after = text.partition('"also_from"')
    folder.joinpath("model.json").write_text(before + also + after.replace("alpha__a", "alpha__z", 1), "utf-8")
    with pytest.raises(ModelError, match="are of other graphs than its model was trained on"):
        calibrate(pair, collections=[LAYOUT], threads=1)
    assert learn(pair, OTHER, seeds=2, rounds=2).calibration is None, "that of another model is not used"
    shutil.rmtree(pair.root / "features/layout/tpu-estimate")
    with pytest.raises(CollectionError, match=f"{OTHER} has no train split"):
        calibrate(pair, collections=[LAYOUT], threads=1)
    shutil.rmtree(pair.root / "models")
    with pytest.raises(ModelError, match="there is no trained model"):
        calibrate(pair)


def test_weights_that_are_refused(pair):
    for weight in ("0", "-1", "half", "", "nan", "inf", "1001"):
        with pytest.raises(CollectionError, match=rf"weight of {OTHER} is '{weight}'; expected a number"):
            learn(pair, f"{OTHER}={weight}")
    with pytest.raises(CollectionError, match="layout:cpu:random is given two weights, 1 and 2"):
        extra_collections(pair, ["layout:cpu:random", "layout:cpu:random=2"])
    with pytest.raises(CollectionError, match=r"collection 'layout:tpu:random' is not in .*did you mean"):
        learn(pair, "layout:tpu:random=0.5")
