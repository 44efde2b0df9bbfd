"""Through all commands: configurations without a runtime, instances, and kinds of kernels never seen."""

import shutil

import numpy as np
import pytest

from tests.graphs import save_npz
from tests.pipelines.trees import LAYOUT, TILE, TREE, build, data_root, graph_path, layout_graph, stored, tile_graph
from xlarank.data.collection import SAMPLE, Collection
from xlarank.data.workspace import Workspace
from xlarank.models.trained import load_model
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.folds import Fallback
from xlarank.models.validation.metrics import kendall_tau
from xlarank.pipelines.cross_validate import cross_validate
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.explain import explain
from xlarank.pipelines.info import info
from xlarank.pipelines.rank import rank
from xlarank.pipelines.submit import submit
from xlarank.pipelines.support.results import read_results
from xlarank.pipelines.train import train
from xlarank.pipelines.training.fitting import TrainRequest
from xlarank.pipelines.training.training_sets import read_training_set

FAILED = (3, 5, 8)


@pytest.mark.slow
def test_the_measured_are_learned_from_and_all_are_ranked(tree, tmp_path):
    """Three configurations of a train and of a valid graph of each collection were not measured."""
    for make, collection, split, name in (
        (layout_graph, LAYOUT, "train", "alpha__a"), (layout_graph, LAYOUT, "valid", "delta__a"),
        (tile_graph, TILE, "train", "conv__a"), (tile_graph, TILE, "valid", "pool__a"),
    ):  # fmt: skip
        arrays = make(7)
        arrays["config_runtime"][list(FAILED)] = 0
        save_npz(graph_path(tree, collection, split, name), arrays)
    work = Workspace(tmp_path / "work")
    assert not build(tree, work.root).broken
    assert all(part.labelled == part.graphs for part in info(data_root(tree)) if part.split != "test")
    data = read_training_set(work, Collection.parse(LAYOUT)).data
    assert np.isfinite(data.cost).all()
    (graph,) = (graph for graph in data.parts if graph.name == "alpha__a")
    assert not set(FAILED) & set(graph.ids.tolist())
    train(work, TrainRequest(seeds=1, rounds=10, threads=1))
    report = evaluate(work).report
    assert {name: len(metrics["tau"]["graphs"]) for name, metrics in report.items()} == {LAYOUT: 2, TILE: 1}
    assert all(np.isfinite(metric["mean"]) for metrics in report.values() for metric in metrics.values())
    ranking = rank(work, graph_path(tree, LAYOUT, "valid", "delta__a"))
    assert sorted(ranking.order.tolist()) == list(range(24)), "a submission lists them all"
    assert ranking.metrics is not None and np.isfinite(ranking.metrics["tau"])
    assert {entry.configuration for entry in ranking.best() if entry.runtime_ns is None} == set(FAILED)
    assert submit(work, tmp_path / "submission.csv").rows == {LAYOUT: 2, TILE: 2}


def test_a_program_without_configurable_nodes_is_explained(tmp_path):
    arrays = layout_graph(7)
    arrays["node_config_ids"] = arrays["node_config_ids"][:0]
    arrays["node_config_feat"] = arrays["node_config_feat"][:, :0]
    path = save_npz(tmp_path / "fixed.npz", arrays)
    explanation = explain(Workspace(tmp_path), path, config=1, against=0)
    assert explanation.difference == 0 and "identical" in explanation.notes[-1]


@pytest.mark.slow
def test_instances_are_stored_and_scored(tree, built):
    work = Workspace(built)
    train(work, TrainRequest(model="sum-pooled", seeds=2, rounds=30, threads=1))
    assert len(list(built.rglob("*.instances.npz"))) == sum(map(len, TREE[LAYOUT].values()))
    assert {graph.instances for graph in stored(built, TILE).values()} == {None}

    tau, rows = evaluate(work).report[LAYOUT]["tau"], stored(built, split="valid")["delta__a"]
    scores = load_model(work.model(Collection.parse(LAYOUT))).score(rows).mean[rows.group]
    assert tau["mean"] > 0.6 and tau["graphs"]["delta__a"] == pytest.approx(kendall_tau(scores, rows.cost))
    assert rank(work, graph_path(tree, LAYOUT, "valid", "delta__a")).scores == pytest.approx(scores)
    build(tree, built, max_configs=20, collections=[LAYOUT], splits=["train"])
    graph = stored(built)["alpha__a"]
    assert graph.instances.value.configs == len(graph) == 20
    for path in built.rglob("*.instances.npz"):
        path.write_bytes(b"nothing")
    train(work, TrainRequest(collections=[LAYOUT], seeds=1, rounds=3, threads=1))
    evaluate(work, collections=[LAYOUT])  # nobody reads instances who needs none


COLLECTION = Collection.parse(TILE)
LEARNED = ("bmm__a", "matmul__d", "matmul__e", "conv3x3__b")
OTHERS = {"valid": ("expsum__b",), "test": ("transpose__b", "conv3x3_s2__a")}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    root, workspace = tmp_path_factory.mktemp("kernels"), Workspace(tmp_path_factory.mktemp("kernels_work"))
    for split, names in {"train": LEARNED, **OTHERS}.items():
        for name in names:
            path = graph_path(root, TILE, split, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(graph_path(SAMPLE, TILE, split, name), path)
    build(root, workspace.root)
    (result,) = train(workspace, TrainRequest(seeds=1, rounds=5, threads=1))
    return workspace, result


def test_training_and_cross_validation_go_by_kinds(kernels):
    workspace, result = kernels
    assert result.chosen_by == "3 folds by kind"
    card = load_model(workspace.model(COLLECTION)).card
    assert (card.target, card.folds_by) == ("cpu", "kind")
    assert card.kinds == ["convolution", "dot", "dot batched"] and set(card.folds) == set(LEARNED)
    for model in (None, "lambdarank"):  # kernel families are held out by default, as in training
        found = cross_validate(workspace, model, fit=FitSettings(5, threads=1))
        assert found.report[TILE] == result.folds
        assert f"{TILE}: fallback for unseen kernel families: {Fallback()}" in found.notes
    assert f"{TILE}: 3 kernel families in 3 folds" in found.notes
    assert set(read_results(workspace)["held_out_by"]) == {"kind"}
    again = cross_validate(workspace, by="kind", model="lambdarank", with_valid=True, fit=FitSettings(3))
    assert set(again.report[TILE]["score"]["graphs"]) == {*LEARNED, "expsum__b"}


def test_a_kind_never_seen_falls_back_and_is_named(kernels, tmp_path):
    workspace, _ = kernels
    path = graph_path(SAMPLE, TILE, "test", "transpose__b")
    unseen, explained = rank(workspace, path), explain(workspace, path)
    said = "unseen kernel family (transpose): weight 0.5 on the compiler's default, the rest on the model"
    assert unseen.fallback == said
    assert unseen.as_json(1)["fallback"] == unseen.fallback and unseen.order[0] == 0
    assert rank(workspace, graph_path(SAMPLE, TILE, "train", "conv3x3__a")).fallback == ""
    assert explained.notes[0] == f"{unseen.fallback}; ranks are of both, contributions of the model alone"
    assert (explained.now, explained.ranks[0]) == (0, 1)

    submit(workspace, tmp_path / "out.csv", collections=[TILE])
    lines = dict(line.split(",") for line in (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()[1:])
    for name in OTHERS["test"]:
        best = rank(workspace, graph_path(SAMPLE, TILE, "test", name)).best(5)
        assert lines[f"{TILE}:{name}"] == ";".join(str(entry.configuration) for entry in best)
    score = evaluate(workspace, collections=[TILE]).report[TILE]["score"]["graphs"]["expsum__b"]
    assert score == rank(workspace, graph_path(SAMPLE, TILE, "valid", "expsum__b")).metrics["score"]
