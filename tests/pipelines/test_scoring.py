"""Scores on a split and of held-out graphs; unmeasured configurations, unseen kinds."""

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.graphs import save_npz
from tests.pipelines import trees
from tests.pipelines.trees import LAYOUT, LAYOUTS, TILE, TREE, build, graph_path, model_of, stored
from xlarank.data.collection import SAMPLE
from xlarank.data.errors import CollectionError, ModelError, XlarankError
from xlarank.data.workspace import Workspace
from xlarank.models.card import FALLBACK
from xlarank.models.stored import ESTIMATED_TIME
from xlarank.models.validation.metrics import graph_metrics, kendall_tau, summarise
from xlarank.pipelines.cross_validate import cross_validate
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.rank import rank
from xlarank.pipelines.ranking.score_difference import explain
from xlarank.pipelines.report import section
from xlarank.pipelines.submit import submit
from xlarank.pipelines.support import evaluation


def graphs_of(report):
    """Return the values of a report by metric and graph, without summaries."""
    return {metric: values["graphs"] for metric, values in report.items()}


def held_out(workspace, rounds=300, **options):
    return cross_validate(workspace, rounds=rounds, threads=1, **options)


def is_by_hand(metrics, workspace, model, collection, split="valid"):
    """Return whether a report is that of the model's scores of the stored graphs."""
    expected = {}
    for name, graph in stored(workspace, collection, split).items():
        score = model.score(graph)[graph.group]
        expected[name] = graph_metrics(model.card.kind, score, graph.cost, graph.group)
    return all(
        values.items() <= metrics[name].items() for name, values in summarise(expected).items()
    )


def test_scores_have_baselines_beside_them(shared_trained):
    folders = [shared_trained / name for name in ("features", "models", "studies")]
    before = [(path, path.stat().st_mtime_ns) for at in folders for path in at.rglob("*")]
    with trees.Listener() as listener:
        result = evaluate(shared_trained)
    after = [(path, path.stat().st_mtime_ns) for at in folders for path in at.rglob("*")]
    assert after == before, "models and rows are only read"
    assert listener.jobs == [("evaluating on valid", 2)] and listener.ended == 1
    assert listener.notes == [LAYOUT, TILE]
    report = result.report
    assert json.loads(json.dumps(report)) == report and (result.left_out, result.notes) == ({}, [])
    for collection, metrics in report.items():
        assert is_by_hand(metrics, shared_trained, model_of(shared_trained, collection), collection)
    tau = report[LAYOUT]["tau"]
    graphs = stored(shared_trained, LAYOUT, "valid").values()
    in_order = [kendall_tau(np.arange(len(graph.cost)), graph.cost) for graph in graphs]
    assert tau["baselines"]["file order"] == pytest.approx(np.mean(in_order))


def test_a_ceiling_stands_beside_tau_if_labels_are_measured_again(shared_trained, monkeypatch):
    # one of 22 configurations has three runs
    assert evaluate(shared_trained).report[LAYOUT]["tau"]["ceiling"] is None

    def made_up(cost, group):
        return cost[0] / cost[group == 0].sum()

    monkeypatch.setattr(evaluation, "tau_ceiling", made_up)
    report = evaluate(shared_trained).report
    graphs = stored(shared_trained, LAYOUT, "valid").items()
    expected = {name: graph.cost[0] / graph.cost[[0, -2, -1]].sum() for name, graph in graphs}
    assert report[LAYOUT]["tau"]["ceiling"] == expected
    assert "ceiling" not in report[TILE]["tau"] and "ceiling" not in report[LAYOUT]["slowdown@1"]


@pytest.mark.slow
def test_model_of_another_collection(shared_trained, shared_built, tmp_path):
    root = tmp_path / "tree"
    work = shutil.copytree(shared_trained, tmp_path / "work")
    other = "layout:cpu:default"
    # a graph with a learned name, one of a learned family, and a new one
    splits = {"train": ("delta__x",), "valid": ("alpha__a", "beta__z", "kappa__a")}
    trees.write_tree(root, {**TREE, other: splits})
    build(root, work, collection=[other])
    result = evaluate(work, model_from=LAYOUT)
    assert list(result.report) == [other, LAYOUT]
    assert is_by_hand(result.report[other], work, model_of(work), other)
    assert result.report[LAYOUT] == evaluate(work, collection=[LAYOUT]).report[LAYOUT]
    known = "1 of these 3 programs (by name) and on the families of 2"
    (note,) = result.notes
    assert note == f"{other}: the model of {LAYOUT} was trained on {known}"
    kinds = f"the model of {LAYOUT} ranks layout graphs; expected a model of tile graphs"
    assert kinds in result.left_out[TILE]
    trees.build_fewer_columns(root, work, collection=[other], split=["valid"])
    lacking = rf"of {LAYOUT} cannot score {other}: the rows lack \d+ \("
    for place, collections, model_from, message in (
        (work, [other], LAYOUT, lacking),
        (work, [other], TILE, f"{TILE} ranks tile graphs; expected a model of layout graphs"),
        (work, [], "layout:cpu:randm", "no model .*randm.*; expected trained, shipped, layout:cpu"),
        (shared_built, [], LAYOUT, f"no model .*{LAYOUT}.*; expected trained, shipped"),
    ):
        with pytest.raises((ModelError, CollectionError), match=message):
            evaluate(place, collection=collections, model_from=model_from)


@pytest.mark.parametrize("with_valid", [False, True])
def test_graphs_that_the_model_was_trained_on_are_no_result(trained, tmp_path, with_valid):
    if with_valid:
        trees.train_models(trained, collection=[LAYOUT], rounds=5, with_valid=True)
        split, options = "valid", {}
    else:
        folder = shutil.copytree(Workspace(trained).model(LAYOUTS), tmp_path / "model")
        trees.edit_json(folder / "model.json", trained_on={"train": [*TREE[LAYOUT]["train"][1:]]})
        split, options = "train", {"model_from": str(folder), "collection": [LAYOUT]}
        result = evaluate(trained, split=split, **options)
        assert list(result.report[LAYOUT]["tau"]["graphs"]) == ["alpha__a"]
        known = [f"{LAYOUT} {name}" for name in TREE[LAYOUT]["train"][1:]]
        assert result.left_out == dict.fromkeys(known, "the model was trained on it")
        options["model_from"] = str(Workspace(trained).model(LAYOUTS))
    options["collection"] = [LAYOUT]
    nothing = f"{LAYOUT} has no graph to score in {split} .*: the model was trained on it"
    with pytest.raises(CollectionError, match=nothing):
        evaluate(trained, split=split, **options)


def test_what_ranks_is_first_and_the_trained_model_beside_it(trained):
    card = model_of(trained).card
    path = Workspace(trained).model(LAYOUTS) / "model.json"
    for value, first, second in ((2.0, ESTIMATED_TIME, "lambdarank"), (-1.0, "lambdarank", None)):
        trees.edit_json(path, others={ESTIMATED_TIME: dict.fromkeys(card.folds, value)})
        result = evaluate(trained, collection=[LAYOUT])
        rows = result.comparison[LAYOUT]
        assert rows[0]["ranker"] == first and rows[0]["difference"] is None
        assert second in (None, *(row["ranker"] for row in rows[1:]))
        assert result.ranked_by[LAYOUT].startswith(f"{first}, ")
        scores = result.report[LAYOUT]["score"]["graphs"]
        assert scores == rows[0]["score"]["graphs"]
        assert f" by {first} on " in section(Workspace(trained), LAYOUTS)["sentence"]
    asked = evaluate(trained, collection=[LAYOUT], model_from="trained")
    assert asked.ranked_by[LAYOUT] == "lambdarank, its trained model"


def test_official_indices_restrict_layout_graphs(shared_trained, tmp_path):
    folder = tmp_path / "indices"
    folder.mkdir()

    def scored(indices, **options):
        text = indices if isinstance(indices, str) else json.dumps(indices)
        (folder / "cpu_random.json").write_text(text)
        return evaluate(shared_trained, official_indices=folder, **options)

    few = {"delta__b": [0, 2, 3], "of_another_split": [1]}
    chosen = [1, 4, 9, 16, 23, 22]
    result = scored({**few, "delta__a": chosen})
    graph = stored(shared_trained, LAYOUT, "valid")["delta__a"]
    score = trees.scores_by_model(shared_trained, graph)[chosen]
    cost = graph.runtime[chosen].astype(float)
    for metric, value in graph_metrics("layout", score, cost, graph.group[chosen]).items():
        assert result.report[LAYOUT][metric]["graphs"]["delta__a"] == value
    assert result.report[TILE] == evaluate(shared_trained).report[TILE], (
        "all configurations of tiles"
    )
    assert result.left_out == {}
    result = scored(few)
    assert list(result.report[LAYOUT]["tau"]["graphs"]) == ["delta__b"]
    assert result.left_out == {f"{LAYOUT} delta__a": "it has no official indices"}
    contents = {
        "indices of delta__a reach beyond its 24 configurations": ([0, 24], [-1, 3]),
        "none of the official configurations of delta__a was measured": ([],),
        r"cpu_random\.json cannot be": ("[1]", "7", '{"a": 3}', '{"a": ["x"]}', "{"),
    }
    for message, wrong in contents.items():
        for indices in wrong:
            text = indices if isinstance(indices, str) else {**few, "delta__a": indices}
            with pytest.raises(CollectionError, match=message):
                scored(text, collection=[LAYOUT])
    result = scored("{")
    assert list(result.report) == [TILE] and "cannot be read" in result.left_out[LAYOUT]
    (folder / "cpu_random.json").rename(folder / "xla_default.json")
    with pytest.raises(CollectionError, match=r"cpu_random\.json cannot be read"):
        evaluate(shared_trained, official_indices=folder, collection=[LAYOUT])
    with pytest.raises(XlarankError, match="absent is no folder; expected a folder of"):
        evaluate(shared_trained, official_indices=tmp_path / "absent")
    with pytest.raises(CollectionError, match="`official_indices` are for layouts"):
        evaluate(shared_trained, official_indices=folder, collection=[TILE])


def test_graphs_without_labels_and_those_that_cannot_be_ranked_are_named(tree, trained, tmp_path):
    build(tree, tmp_path, split=["test"], collection=[LAYOUT])
    with pytest.raises(CollectionError, match=f"nothing could be evaluated on test: .*{LAYOUT}"):
        evaluate(tmp_path, split="test")
    for collections, message in (
        ([TILE], "tile:cpu has no graph to score in test .sort__a, sort__b: it has no labels.;"),
        ([], f"nothing could be evaluated on test: .*{LAYOUT}.*{TILE}"),
    ):
        with pytest.raises(CollectionError, match=message), trees.Listener() as listener:
            evaluate(trained, split="test", collection=collections)
        assert listener.ended == 1
    save_npz(graph_path(tree, TILE, "test", "even__a"), trees.even(trees.tile_graph(60)))
    save_npz(graph_path(tree, LAYOUT, "test", "omega__c"), trees.layout_graph(70))
    build(tree, trained, split=["test"])
    result = evaluate(trained, split="test")
    assert list(result.report) == [LAYOUT]
    assert list(result.report[LAYOUT]["tau"]["graphs"]) == ["omega__c"]
    assert result.left_out.pop(f"{TILE} even__a") == "all its configurations cost the same"
    assert result.left_out.pop(TILE).startswith(f"{TILE} has no graph to score in test (")
    withheld = [f"{LAYOUT} omega__a", f"{LAYOUT} omega__b", f"{TILE} sort__a", f"{TILE} sort__b"]
    assert result.left_out == dict.fromkeys(withheld, "it has no labels")


def test_a_collection_without_labels_is_not_mentioned_unless_named(tree, trained):
    own = "layout:own:default"
    save_npz(graph_path(tree, own, "test", "x__a"), trees.layout_graph(7, labelled=False))
    build(tree, trained, collection=[own])
    assert own not in evaluate(trained).left_out
    assert own not in cross_validate(trained).left_out
    with pytest.raises(ModelError, match="nothing ranks layouts of hardware that is not named"):
        evaluate(trained, split="test", collection=[own])


def test_a_collection_that_cannot_be_scored_is_left_out_or_an_error_if_named(tree, trained):
    def scored(error, message):
        with pytest.raises(error, match=message):
            evaluate(trained, collection=[TILE], model_from="trained")
        result = evaluate(trained, model_from="trained")
        assert list(result.report) == [LAYOUT] and result.left_out[TILE]

    valid = {"collection": [TILE], "split": ["valid"]}
    trees.build_fewer_columns(tree, trained, **valid)
    scored(ModelError, r"the rows lack \d+ \(.*train again")
    build(tree, trained, **valid)
    shutil.rmtree(trained / "models" / "tile")
    scored(ModelError, "tile:cpu has no trained model.*; run train first")
    shutil.rmtree(trained / "features" / "tile" / "cpu" / "valid")
    scored(XlarankError, "tile:cpu has no ")
    shutil.rmtree(trained / "features" / "layout" / "cpu" / "random" / "valid")
    with pytest.raises(CollectionError, match="run cross-validate for scores out of fold"):
        evaluate(trained)


@pytest.mark.slow
def test_by_family_are_the_scores_that_training_kept(shared_trained, fits):
    result = held_out(shared_trained)
    for collection in (LAYOUT, TILE):
        folds = model_of(shared_trained, collection).card.folds
        assert graphs_of(result.report[collection]) == graphs_of(summarise(folds))
        assert list(result.report[collection]["tau"]["graphs"]) == list(folds)
    assert (result.graphs, result.notes) == ("out of fold, unseen families", [])
    by_family = held_out(shared_trained, by="family")
    assert by_family.report == result.report, "no kernel families are known here"
    assert fits == []
    fitted = held_out(shared_trained, model="lambdarank", rounds=30)
    for collection, metrics in result.report.items():
        # nothing of held-out graphs is in the scores of training, not even bins
        assert graphs_of(fitted.report[collection]) == graphs_of(metrics)


@pytest.mark.slow
def test_the_graphs_are_those_that_the_model_learned_from(tree, built):
    options = {"rounds": 2, "may_be_equal": True}
    trees.train_models(built, collection=[LAYOUT], with_valid=True, **options)
    result = held_out(built, collection=[LAYOUT])
    assert list(result.report[LAYOUT]["tau"]["graphs"])[-2:] == ["delta__a", "delta__b"]
    trees.edit_json(Workspace(built).model(LAYOUTS) / "model.json", folds_by="kernel-family")
    held_out(built, by="family", collection=[LAYOUT])
    for collection, *names in ((LAYOUT, "alpha__b", "beta__b"), (TILE, "dot__a", "tanh__a")):
        for name in names:
            graph_path(tree, collection, "train", name).unlink()
    build(tree, built)
    changed = "are of other graphs than its model was trained on; train again"
    with pytest.raises(ModelError, match=changed):
        held_out(built, by="family", collection=[LAYOUT])
    trees.train_models(built, **options)  # one family of tiles, no two layouts of one family
    result = held_out(built)
    assert list(result.report) == [LAYOUT]
    assert "tile:cpu has no graph with scores out of fold" in result.left_out[TILE]
    expected = "graphs of two or more program families"
    message = f"hold out by family of the 2 graphs of {TILE}; expected {expected}"
    with pytest.raises(CollectionError, match=message):
        held_out(built, by="family", collection=[TILE], model="ranknet")


@pytest.mark.slow
def test_rankers_by_name_need_no_model_and_are_compared_on_the_same_graphs(built, fits):
    names = ("ranknet", "lambdarank")
    layouts = {"collection": [LAYOUT]}
    alone = {name: held_out(built, model=name, rounds=60, **layouts) for name in names}
    assert len(fits) == 2 * 3 and not (built / "models").exists(), "a fit for each family"
    result = held_out(built, model=[*names, "ranknet"], rounds=60, **layouts)
    comparison = {row["ranker"]: row for row in result.comparison[LAYOUT]}
    assert "rule: file order" in comparison
    means = {name: row["score"]["mean"] for name, row in comparison.items()}
    for name, ranker in alone.items():
        scores = comparison[name]["score"]["graphs"]
        assert scores == ranker.report[LAYOUT]["score"]["graphs"]
    assert result.notes == [*alone["ranknet"].notes, *alone["lambdarank"].notes]
    assert result.several == sorted(names, key=lambda name: -means[name])


def test_rules_are_beside_every_ranker(shared_trained):
    """The same list, on the same graphs, in evaluate, out of fold and in cross-validation."""
    workspace = Workspace(shared_trained)
    made = [evaluate(workspace), held_out(shared_trained)]
    page = Path(__file__).parents[2] / "docs/reference/metrics.md"
    documented = " ".join(page.read_text(encoding="utf-8").split())
    for collection in (LAYOUT, TILE):
        names = [{*one.rankings[collection]} for one in made]
        assert names[0] == names[1] and ESTIMATED_TIME in names[0]
        rules = {name.removeprefix("rule: ") for name in names[0] if name.startswith("rule: ")}
        assert len(rules) == (6 if collection == LAYOUT else 5)
        assert all(f"`{rule}`" in documented for rule in rules)
        rows = made[1].comparison[collection]
        assert rows[0]["difference"] is None and all(row["difference"] for row in rows[1:])
        assert {row["graphs"] for row in rows} == {len(TREE[collection]["train"])}
    for one in made:
        mean = np.mean([report["score"]["mean"] for report in one.report.values()])
        assert one.overall == f"mean over 2 collections, equally weighted: {mean:.3f}"
    assert evaluate(workspace, collection=[TILE]).overall == ""


def test_bad_requests(shared_trained, shared_built, tmp_path):
    trained = Workspace(shared_trained)
    built = Workspace(shared_built)
    tiles = {"collection": TILE}
    scores = pl.DataFrame(schema=["graph", "configuration", "score"])
    for options, message in (
        ({"split": "validation"}, "'validation' is not a split; expected"),
        ({"split": "train"}, "run cross-validate for scores out of fold"),
        ({"scores": scores, "model_from": "shipped"}, "both `scores` and `model_from` are given"),
    ):
        with pytest.raises(XlarankError, match=message):
            evaluate(trained, **options)
    for workspace, options, error, message in (
        (trained, {"by": "program"}, XlarankError, "'program'; expected kernel-family or family"),
        (built, tiles, ModelError, "tile:cpu has no trained model.*; run train first"),
        (built, {}, CollectionError, "nothing could be cross-validated: .*run train first"),
    ):
        with pytest.raises(error, match=message):
            cross_validate(workspace, **options)


KERNELS = {
    "train": ("bmm__a", "matmul__d", "matmul__e", "conv3x3__b"),
    "valid": ("expsum__b",),
    "test": ("transpose__b", "conv3x3_s2__a"),
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """A workspace trained on three kernel families, with the result of training."""
    root = tmp_path_factory.mktemp("kernels")
    workspace = Workspace(tmp_path_factory.mktemp("kernels_work"))
    for split, names in KERNELS.items():
        for name in names:
            copy = graph_path(root, TILE, split, name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(graph_path(SAMPLE, TILE, split, name), copy)
    build(root, workspace.root)
    (result,) = trees.train_models(workspace.root, rounds=5)
    return workspace, result


def test_training_and_cross_validation_go_by_kinds(kernels):
    workspace, result = kernels
    assert result.chosen_by == "3 folds by kernel family"
    card = model_of(workspace.root, TILE).card
    assert (card.target, card.folds_by) == ("cpu", "kernel-family")
    assert card.kernel_families == ["convolution", "dot", "dot batched"]
    assert set(card.folds) == set(KERNELS["train"])
    for model in (None, "lambdarank"):  # kernel families are held out by default, as in training
        found = cross_validate(workspace, model, rounds=5, threads=1)
        assert found.rankings[TILE]["lambdarank"] == card.folds
        assert f"{TILE}: fallback for unseen kernel families: {FALLBACK}" in found.notes
    assert f"{TILE}: 3 kernel families in 3 folds" in found.notes
    rounds = f"{result.rounds} round{'s' * (result.rounds > 1)}, the best on these folds"
    assert found.notes[-1] == f"{TILE}: lambdarank with default parameters, {rounds}"


def test_a_kind_never_seen_falls_back_and_is_named(kernels, tmp_path):
    workspace, _ = kernels
    path = graph_path(SAMPLE, TILE, "test", "transpose__b")
    unseen = rank(path, workspace, model_from="trained")
    explained = explain(path, workspace, model_from="trained")
    weights = "weight 0.5 on the compiler's default"
    assert unseen.fallback == f"unseen kernel family (transpose): {weights}"
    assert unseen.as_json(1)["fallback"] == unseen.fallback
    assert unseen.order[0] == 0
    seen = graph_path(SAMPLE, TILE, "train", "conv3x3__a")
    assert rank(seen, workspace, model_from="trained").fallback == ""
    own = "ranks are of both, contributions of the model alone"
    assert explained.notes[:2] == (unseen.fallback, own)
    assert (explained.configuration, explained.ranks[0]) == (0, 1)
    submit(tmp_path / "out.csv", workspace, collection=[TILE], model_from="trained")
    for name in KERNELS["test"]:
        path = graph_path(SAMPLE, TILE, "test", name)
        best = rank(path, workspace, model_from="trained").best(5)
        listed = trees.read_submission(tmp_path / "out.csv")[f"{TILE}:{name}"]
        assert listed == [entry["configuration"] for entry in best]
    report = evaluate(workspace.root, collection=[TILE], model_from="trained").report[TILE]
    path = graph_path(SAMPLE, TILE, "valid", "expsum__b")
    ranking = rank(path, workspace, model_from="trained")
    assert report["score"]["graphs"]["expsum__b"] == ranking.metrics["score"]
