"""Scores of trained models: of which configurations, what stands beside them, and what has no score."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.graphs import save_npz
from tests.pipelines.trees import (
    LAYOUT,
    TILE,
    TREE,
    Listener,
    build,
    graph_path,
    layout_graph,
    model_of,
    stored,
    tile_graph,
    write_tree,
)
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError, XlarankError
from xlarank.data.workspace import Workspace
from xlarank.features.block import Tier
from xlarank.features.recipe import FeatureSettings
from xlarank.features.store import read_manifest
from xlarank.models.trained import TrainedModel
from xlarank.models.validation.metrics import METRICS, graph_metrics, kendall_tau, summarise
from xlarank.pipelines.evaluate import Evaluation, evaluate

BESIDE = {"baselines", "repeats_once", "seeds_std"}


def run(workspace: Path, **options: Any) -> Evaluation:
    return evaluate(Workspace(workspace), **options)


def is_by_hand(
    metrics: dict[str, dict[str, Any]], workspace: Path, model: TrainedModel, collection: str, split: str = "valid"
) -> bool:
    """Whether a report is that of each graph's rows and the model, all configurations."""
    expected = {
        name: graph_metrics(model.card.kind, model.score(graph).mean[graph.group], graph.cost, graph.group)
        for name, graph in stored(workspace, collection, split).items()
    }
    own = {name: {key: about[key] for key in about.keys() - BESIDE} for name, about in metrics.items()}
    return own == summarise(expected)


@pytest.mark.parametrize("split", ["valid", "train"])
def test_the_report_has_every_metric_of_every_graph(trained: Path, split: str) -> None:
    files = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    listener = Listener()
    found = run(trained, **({} if split == "valid" else {"split": split}), progress=listener)
    assert list(found.report) == [LAYOUT, TILE]
    for collection, metrics in found.report.items():
        assert tuple(metrics) == METRICS
        assert is_by_hand(metrics, trained, model_of(trained, collection), collection, split)
        for values in metrics.values():
            assert set(values) == {"mean", "std", "low", "high", "graphs", *BESIDE}
            assert list(values["graphs"]) == list(TREE[collection][split])
    assert (found.judged, found.left_out, found.notes) == (split, {}, [])
    assert json.loads(json.dumps(found.report)) == found.report
    assert (listener.jobs, listener.notes, listener.ended) == ([(f"evaluating on {split}", 2)], [LAYOUT, TILE], 1)
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == files, "nothing is written"


def test_what_stands_beside_a_score(shared_trained: Path) -> None:
    """Baselines, each of identical configurations with its own runtime or counted once, and the spread of seeds."""
    report, model = run(shared_trained).report, model_of(shared_trained)
    tau, graphs = report[LAYOUT]["tau"], stored(shared_trained, LAYOUT, "valid").values()
    assert set(tau["baselines"]) == {"file order", "random", "fewest layouts set"}
    assert set(report[TILE]["tau"]["baselines"]) == {
        "file order", "random", "estimated time",
        "largest output tile", "largest tile", "nearest to the first configuration",
    }  # fmt: skip
    in_order = [kendall_tau(np.arange(len(graph.cost)), graph.cost) for graph in graphs]
    assert tau["baselines"]["file order"] == pytest.approx(np.mean(in_order)) and tau["baselines"]["random"] == 0
    once = [kendall_tau(model.score(graph).mean, graph.row_cost) for graph in graphs]
    assert tau["repeats_once"] == pytest.approx(np.mean(once)) and tau["repeats_once"] != tau["mean"]
    taus = [
        [kendall_tau(each[graph.group], graph.cost) for each in model.score(graph).per_seed] for graph in graphs
    ]
    one, other = np.mean(taus, axis=0)
    assert tau["seeds_std"] == pytest.approx(abs(one - other) / np.sqrt(2)) and tau["seeds_std"] > 0


# Another collection's model ---------------------------------------------------------------------------------

OTHER = "layout:cpu:default"


@pytest.fixture(scope="module")
def two_searches(shared_trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Workspace with a second layout collection: one graph of a learned name, one of a learned family, one new."""
    root, workspace = tmp_path_factory.mktemp("two"), tmp_path_factory.mktemp("two_work") / "work"
    write_tree(root, {**TREE, OTHER: {"train": ("delta__x",), "valid": ("alpha__a", "beta__z", "kappa__a")}})
    shutil.copytree(shared_trained, workspace)
    build(root, workspace, replace=True, collections=[OTHER])
    return workspace


def test_another_collections_model_scores_this_one(two_searches: Path) -> None:
    """Every collection of its kind where none is named."""
    found = run(two_searches, model_from=LAYOUT)
    assert list(found.report) == [OTHER, LAYOUT]
    assert is_by_hand(found.report[OTHER], two_searches, model_of(two_searches), OTHER)
    assert found.report[LAYOUT] == run(two_searches, collections=[LAYOUT]).report[LAYOUT]
    assert found.notes == [
        f"{OTHER}: scored by the model of {LAYOUT}, which was trained on 1 of these 3 programs (by name) "
        "and on the families of 2"
    ]
    assert f"the model of {LAYOUT} ranks layout graphs, {TILE} has tile graphs" in found.left_out[TILE]


def test_what_another_collections_model_cannot_score(two_searches: Path, built: Path, tmp_path: Path) -> None:
    workspace = Path(shutil.copytree(two_searches, tmp_path / "work"))
    manifest = read_manifest(Workspace(workspace), Collection.parse(OTHER), "valid")
    assert manifest is not None
    settings = FeatureSettings(Tier.FAST, candidates=False)
    build(Path(manifest.data_root), workspace, collections=[OTHER], splits=["valid"], settings=settings)
    for place, collections, model_from, error, message in (
        (workspace, [OTHER], LAYOUT, ModelError, rf"of {LAYOUT} cannot score {OTHER}: the rows lack \d+ \("),
        (two_searches, [OTHER], TILE, ModelError, f"{TILE} ranks tile graphs, {OTHER} has layout graphs"),
        (two_searches, [], "layout:cpu:randm", CollectionError, f"is not in .*did you mean {LAYOUT}"),
        (built, [], LAYOUT, ModelError, r"there is no trained model in .*run train first"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            run(place, collections=collections, model_from=model_from)


# Official configurations ----------------------------------------------------------------------------------


def write_indices(folder: Path, indices: Any, name: str = "cpu_random.json") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(indices if isinstance(indices, str) else json.dumps(indices))
    return folder


def test_official_indices_restrict_layout_graphs(shared_trained: Path, tmp_path: Path) -> None:
    chosen = {"delta__b": [0, 2, 3], "of_another_split": [1], "delta__a": [1, 4, 9, 16, 23, 22]}
    found = run(shared_trained, official_indices=write_indices(tmp_path / "indices", chosen))
    for name, graph in stored(shared_trained, LAYOUT, "valid").items():
        at = chosen[name]
        score = model_of(shared_trained).score(graph).mean[graph.group]
        expected = graph_metrics("layout", score[at], graph.runtime[at].astype(np.float64), graph.group[at])
        assert {metric: found.report[LAYOUT][metric]["graphs"][name] for metric in METRICS} == expected
    assert found.report[TILE] == run(shared_trained).report[TILE], "tiles are judged on all of theirs"
    assert found.left_out == {}
    del chosen["delta__a"]
    found = run(shared_trained, official_indices=write_indices(tmp_path / "indices", chosen))
    assert list(found.report[LAYOUT]["tau"]["graphs"]) == ["delta__b"]
    assert found.left_out == {f"{LAYOUT} delta__a": "it has no official indices"}


def test_indices_that_cannot_be_used_are_named(shared_trained: Path, tmp_path: Path) -> None:
    folder, few, unreadable = tmp_path / "indices", {"delta__b": [0, 1]}, r"indices .*cpu_random\.json cannot be"
    for content, message in (
        ({**few, "delta__a": [0, 24]}, "indices of delta__a reach beyond its 24 configurations"),
        ({**few, "delta__a": [-1, 3]}, "indices of delta__a reach beyond its 24 configurations"),
        ({**few, "delta__a": []}, "none of the official configurations of delta__a was measured"),
        *((text, unreadable) for text in ("[1, 2]", "7", '{"delta__a": 3}', '{"delta__a": ["x"]}', "{")),
    ):
        with pytest.raises(CollectionError, match=message):
            run(shared_trained, collections=[LAYOUT], official_indices=write_indices(folder, content))
    found = run(shared_trained, official_indices=folder)
    assert list(found.report) == [TILE] and "cannot be read" in found.left_out[LAYOUT]
    for place in (write_indices(tmp_path / "other", {}, name="xla_default.json"), tmp_path / "absent"):
        with pytest.raises(CollectionError, match=r"no file of any chosen .*; expected cpu_random\.json"):
            run(shared_trained, official_indices=place)


# What cannot be judged ------------------------------------------------------------------------------------


def test_graphs_without_labels_and_those_that_cannot_be_ranked_are_named(tree: Path, trained: Path) -> None:
    for collections, message in (
        ([TILE], "tile:cpu has no labelled, rankable graph in test"),
        ([], f"nothing could be evaluated on test: .*{LAYOUT}.*{TILE}"),
    ):
        listener = Listener()
        with pytest.raises(CollectionError, match=message):
            run(trained, split="test", collections=collections, progress=listener)
        assert listener.ended == 1
    even = tile_graph(60)
    even["config_runtime"] = even["config_runtime_normalizers"] * 3
    save_npz(graph_path(tree, TILE, "test", "even__a"), even)
    save_npz(graph_path(tree, LAYOUT, "test", "omega__c"), layout_graph(70))
    build(tree, trained, splits=["test"])
    found = run(trained, split="test")
    assert list(found.report) == [LAYOUT]
    assert list(found.report[LAYOUT]["tau"]["graphs"]) == ["omega__c"]
    assert found.left_out.pop(f"{TILE} even__a") == "all its configurations cost the same"
    assert found.left_out.pop(TILE) == f"{TILE} has no labelled, rankable graph in test"
    withheld = [f"{LAYOUT} omega__a", f"{LAYOUT} omega__b", f"{TILE} sort__a", f"{TILE} sort__b"]
    assert found.left_out == dict.fromkeys(withheld, "its labels are withheld")


def test_a_collection_that_cannot_be_scored_is_left_out_or_an_error_where_it_was_named(
    tree: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scored(error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            run(trained, collections=[TILE])
        found = run(trained)
        assert list(found.report) == [LAYOUT] and found.left_out[TILE]

    valid = {"collections": [TILE], "splits": ["valid"]}
    build(tree, trained, settings=FeatureSettings(Tier.FAST, candidates=False), **valid)
    scored(ModelError, r"the rows lack \d+ \(.*train again")
    with monkeypatch.context() as patch:
        patch.setattr("xlarank.features.recipe.source_hash", lambda: "other code")
        build(tree, trained, **valid)
        scored(ModelError, r"made by feature code .*train again")
    (trained / "models" / "tile" / "cpu" / "model.json").write_text("{")
    scored(ModelError, r"model\.json cannot be used")
    shutil.rmtree(trained / "models" / "tile")
    scored(ModelError, "tile:cpu has no trained model; run train first")
    shutil.rmtree(trained / "features" / "tile" / "cpu" / "valid")
    scored(XlarankError, "tile:cpu has no ")


def test_bad_requests(shared_trained: Path, tmp_path: Path) -> None:
    with pytest.raises(XlarankError, match="'validation' is not a split; expected"):
        run(shared_trained, split="validation")
    with pytest.raises(CollectionError, match="holds no collections"):
        run(tmp_path / "empty")
