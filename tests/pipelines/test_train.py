"""Training of final boosters: data, also of other collections, parameters, what is stored."""

import shutil

import numpy as np
import pytest

from tests.graphs import save_npz
from tests.pipelines import trees
from tests.pipelines.trees import (
    LAYOUT,
    TILE,
    TREE,
    Listener,
    build,
    graph_path,
    model_of,
    stored,
    tile_graph,
)
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError, XlarankError
from xlarank.data.workspace import Workspace
from xlarank.models import tuned
from xlarank.models.losses import params_of
from xlarank.models.validation.folds import Curves, FoldPlan
from xlarank.models.validation.metrics import METRICS, summarise
from xlarank.pipelines.training.training_sets import MIN_CONFIGS, read_training_set, training_set_of


def run(workspace, **options):
    """Train models; by default of the tile collection alone."""
    chosen = {"collection": [TILE], "rounds": 10, "may_be_equal": True, **options}
    return trees.train_models(workspace, **chosen)


def save_best(workspace, collection=TILE, model="lambdarank", params=None):
    params = params or {"learning_rate": 0.125, "labels": "log"}
    study = Workspace(workspace).study(Collection.parse(collection))
    tuned.save_best(study, model, {"params": params})


def test_out_of_fold_scores_are_kept_and_seeds_are_averaged(built, fits):
    with Listener() as listener:
        (result,) = run(built, collection=[LAYOUT], seeds=3, seed=5, rounds=30)
    assert listener.jobs == [(f"training {LAYOUT}", 3 + 3)] and listener.ended == 1
    assert len(listener.notes) == 6 and listener.notes[0].startswith("held out ")
    model = model_of(built, LAYOUT)
    card = model.card
    assert set(card.folds) == set(TREE[LAYOUT]["train"]) and result.rows == 5 * 22
    assert result.folds == summarise(card.folds) and result.folds["score"]["mean"] > 0.3
    assert (result.chosen_by, result.seeds, result.rounds) == ("3 folds by family", 3, card.rounds)
    families = [sorted(set(fit["data"].families)) for fit in fits]
    assert sorted(families[:3]) == [["alpha", "beta"], ["alpha", "gamma"], ["beta", "gamma"]]
    assert families[3:] == [["alpha", "beta", "gamma"]] * 3
    seeds = [(fit["seed"], fit["rounds"]) for fit in fits[3:]]
    assert seeds == [(n, result.rounds) for n in (5, 6, 7)]
    graph = stored(built)["alpha__a"]
    scores = [member.score(graph) for member in model.members]
    assert len(scores) == 3 and not np.array_equal(scores[0], scores[1])
    by_seed = [member.importance() for member in model.members]
    shares = {name: np.mean([seed.get(name, 0) for seed in by_seed]) for name in result.importance}
    assert result.importance == pytest.approx(shares) and by_seed[0] != by_seed[1]
    assert [*result.importance.values()] == sorted(result.importance.values(), reverse=True)


def test_the_number_of_rounds_is_the_best_of_the_folds(built, fits, monkeypatch):
    """From the second case on the mean grows, and so does the spread: robust stops early."""
    peak = (0.0, 0.25, 0.5, 0.25)
    gain = (0.5, 0.6, 0.7, 0.8)
    loss = (0.5, 0.42, 0.34, 0.26)
    cases = (("mean", peak, peak, 75), ("mean", gain, loss, 110), ("robust", gain, loss, 25))

    def curves(plan, data, model, settings, step):
        stages = {}
        for name in data.names:
            stages[name] = [dict.fromkeys(METRICS, v) for v in values[name[:4] == "conv"]]
        return Curves([25, 50, 75, settings.rounds], stages)

    monkeypatch.setattr(FoldPlan, "curves", curves)
    values = {}
    for select, values[True], values[False], rounds in cases:
        (result,) = run(built, rounds=110, select=select)
        card = model_of(built, TILE).card
        assert {result.rounds, card.rounds, fits[-1]["rounds"]} == {rounds}
        assert card.select == select


def test_one_family_has_no_folds_and_is_left_to_the_time_model_if_measured_on_a_tpu(tmp_path):
    """Folds cannot tell whether trees help; with two families they may choose none."""
    collection = "layout:xla:random"
    tree = {
        collection: {"train": ("alpha__a", "alpha__b"), "valid": ()},
        TILE: {"train": ("conv__a", "conv__b")},
    }
    trees.write_tree(tmp_path / "tree", tree)
    build(tmp_path / "tree", tmp_path / "work")
    (result,) = run(tmp_path / "work", rounds=2, with_valid=True)
    assert result.chosen_by == "default (one family, no folds)"
    assert (result.rounds, result.folds) == (2, {})
    (layout,) = run(tmp_path / "work", collection=[collection], model="time-trees", rounds=3)
    assert (layout.rounds, layout.importance) == (0, {})
    model = model_of(tmp_path / "work", collection)
    assert model.is_time_model and model.card.params["init_score_weight"] == 1
    (result,) = run(tmp_path / "work", collection=[collection], model="lambdarank", rounds=3)
    assert result.rounds == 3


def test_tuned_parameters_of_the_collection_are_used(built, fits):
    for collection, changes in ((LAYOUT, {}), (TILE, {"learning_rate": 0.125, "labels": "log"})):
        save_best(built, collection)
        (result,) = run(built, rounds=2)
        params = params_of("lambdarank", "tile", changes)
        tuned = collection == TILE
        assert [fit["params"] for fit in fits] == [params] * 4
        card = model_of(built, TILE).card
        assert (result.tuned, card.tuned, card.params) == (tuned, tuned, params)
        fits.clear()


@pytest.mark.slow
def test_the_valid_split_is_trained_on_only_if_requested(built, fits):
    run(built, collection=[LAYOUT], rounds=2)
    splits = {split: list(TREE[LAYOUT][split]) for split in ("train", "valid")}
    assert {name for fit in fits for name in fit["data"].names} == {*splits["train"]}
    (result,) = run(built, collection=[LAYOUT], with_valid=True, rounds=2)
    names = splits["train"] + splits["valid"]
    assert (result.graphs, result.families, fits[-1]["data"].names) == (7, 4, names)
    card = model_of(built, LAYOUT).card
    assert card.trained_on == splits and set(card.folds) == set(names)


@pytest.mark.slow
def test_a_valid_graph_gives_no_more_rows_than_a_train_graph(tree, built):
    build(tree, built, max_configs=9, split=["train"], collection=[LAYOUT])
    data = read_training_set(Workspace(built), trees.LAYOUTS, ("train", "valid")).data
    assert np.diff(data.indptr).max() == 9
    whole_graphs = stored(built, LAYOUT, "valid")
    assert min(len(graph) for graph in whole_graphs.values()) > 9, "they are stored whole"
    for graph in [graph for graph in data.parts if graph.name in whole_graphs]:
        whole = whole_graphs[graph.name]
        rows = []
        for row in graph.config_values:
            rows += np.flatnonzero((whole.config_values == row).all(axis=1))[:1].tolist()
        assert rows == sorted(set(rows))
        assert graph.row_cost.tolist() == whole.row_cost[rows].tolist()
    odd = trees.layout_graph(9) | {"config_runtime": np.where(np.arange(24) == 11, 1, 20_000_000)}
    save_npz(graph_path(tree, LAYOUT, "valid", "odd__a"), odd)
    build(tree, built, split=["valid"], collection=[LAYOUT])
    training = read_training_set(Workspace(built), trees.LAYOUTS, ("train", "valid"))
    assert training.data.names == training.splits["train"] + training.splits["valid"]
    assert len(training.data.parts[-1]) == 22, "nine that were drawn cost the same"


def test_collections_that_cannot_be_learned_from(tmp_path):
    """An error if one was named, a reason if all were requested."""
    root = tmp_path / "tree"
    work = tmp_path / "work"
    for collection, split, arrays in (
        ("alike", "train", trees.identical(tile_graph(1))),
        ("withheld", "train", tile_graph(0, labelled=False)),
        ("valid", "valid", tile_graph(0)),
        ("torn", "train", tile_graph(1)),
    ):
        save_npz(graph_path(root, f"tile:{collection}", split, "conv__a"), arrays)
    graph_path(root, "tile:torn", "train", "conv__a").write_bytes(b"no zip")
    none = "has no graph in train that can be trained on"
    only = f"has no graphs in the train split of {work}; rank and submit rank"
    reasons = {"tile:alike": none, "tile:torn": only, "tile:valid": only, "tile:withheld": none}
    build(root, work)
    everything = "; ".join(f"{name} {message}.*" for name, message in reasons.items())
    for name, message in {**reasons, "": everything}.items():
        with pytest.raises(CollectionError, match=f"{name} {message}".strip()):
            run(work, collection=[name] if name else [])
    even = trees.even(tile_graph(60))
    for name, arrays in (("even__a", even), ("conv__a", tile_graph(0)), ("dot__a", tile_graph(1))):
        save_npz(graph_path(root, TILE, "train", name), arrays)
    build(root, work, collection=[TILE])
    with pytest.raises(CollectionError, match=none):
        run(work, collection=[TILE, "tile:alike"])
    results = {result.collection: result for result in run(work, collection=[], rounds=2)}
    assert results.pop(TILE).graphs == 2
    assert model_of(work, TILE).card.trained_on == {"train": ["conv__a", "dot__a"]}
    assert results.keys() == reasons.keys()
    for name, result in results.items():
        assert result.skipped.startswith(f"{name} {reasons[name]}")
    assert [*work.glob("models/tile/*")] == [work / "models/tile/cpu"]


def test_bad_requests(built, tmp_path):
    also = {"collection": [LAYOUT], "also_from": [TILE]}
    for options, error, message in (
        ({"seeds": 1001}, XlarankError, "`seeds` is 1001; expected a whole number from 1 to 1000"),
        ({"model": "forest"}, ModelError, "'forest' is not a model"),
        ({"select": "median"}, ModelError, "select is 'median'; expected mean, robust"),
        (also, CollectionError, f"{LAYOUT} cannot also be trained on {TILE}; expected a layout"),
    ):
        with pytest.raises(error, match=message):
            run(built, **options)
    with pytest.raises(CollectionError, match="holds no collections"):
        run(tmp_path / "empty")


def test_an_interruption_and_a_model_that_learned_nothing_keep_the_model_there_was(trained):
    card = trained / "models/layout/cpu/random/model.json"
    before = card.read_bytes()
    for step in (1, 4):  # the first fold, the first booster
        with pytest.raises(KeyboardInterrupt), Listener(stop_at=step) as listener:
            run(trained, collection=[LAYOUT], seeds=2)
        assert listener.ended == 1 and card.read_bytes() == before
    save_best(trained, LAYOUT, params={"min_data_in_leaf": 5000, "init_score_weight": 0.0})
    message = r"all scores of .* rows\) are equal.*tune"
    with pytest.raises(CollectionError, match=message):
        run(trained, collection=[LAYOUT], may_be_equal=False)
    assert card.read_bytes() == before
    (result,) = run(trained, collection=[LAYOUT])
    assert result.graphs and card.read_bytes() != before


def test_training_rows_are_a_sample(built):
    """Evenly from all graphs, the same in every process, and those of the card."""
    work = Workspace(built)
    every = read_training_set(work, trees.TILES)
    fewer = len(every.data.cost) - 10
    sample = read_training_set(work, trees.TILES, max_rows=fewer)
    assert sample.data.names == every.data.names
    assert all(0 in part.ids for part in sample.data.parts), "the compiler's default is kept"
    sizes = np.diff(sample.data.indptr)
    assert sizes.max() - sizes.min() <= 1 and sizes.min() >= MIN_CONFIGS
    (result,) = run(built, collection=[TILE], max_rows=fewer)
    assert result.rows == len(sample.data.cost)
    model = model_of(built, TILE)
    again = training_set_of(work, trees.TILES, model).data
    ids = [[part.ids.tolist() for part in data.parts] for data in (again, sample.data)]
    assert ids[0] == ids[1]


def test_other_collections_are_learned_from_and_not_judged_on(built, fits):
    """Two collections of the same layout graphs: a fold of three families lacks one in both."""
    other = "layout:tpu-estimate:random"
    features = built / "features/layout"
    shutil.copytree(features / "cpu/random", features / "tpu-estimate/random")
    run(built, collection=[LAYOUT], also_from=[other], rounds=2)
    card = model_of(built).card
    *folds, whole = (fit["data"] for fit in fits)
    for fold in folds:
        assert sorted(fold.names) == sorted([*set(fold.names)] * 2)
        assert len(set(fold.families)) == 2
    names = list(TREE[LAYOUT]["train"])
    assert whole.columns == card.columns and whole.names == [*names, *names]
    assert set(card.folds) == set(names)
    assert (card.trained_on, card.also_from) == ({"train": names}, {other: names})
    message = r"collection 'layout:tpu:random' is not in .*did you mean"
    with pytest.raises(CollectionError, match=message):
        run(built, collection=[LAYOUT], also_from=["layout:tpu:random"])
