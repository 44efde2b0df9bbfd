"""Scores of trained models: what is judged, on what, and what a reader is told beside the numbers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
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
    stored,
    tile_graph,
    write_tree,
)
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError, XlarankError
from xlarank.data.workspace import Workspace
from xlarank.features.block import Tier
from xlarank.features.recipe import FeatureSettings
from xlarank.features.store import stored_roots
from xlarank.models.trained import load_model
from xlarank.models.validation.metrics import METRICS, judge, kendall_tau, summarise
from xlarank.pipelines.evaluate import Evaluation, evaluate
from xlarank.pipelines.train import train


def run(workspace: Path, **options: Any) -> Evaluation:
    return evaluate(Workspace(workspace), **options)


def of_the_model(metrics: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Without what stands beside it."""
    return {
        name: {key: value for key, value in about.items() if key not in ("baselines", "repeats_once", "seeds_std")}
        for name, about in metrics.items()
    }


def by_hand(workspace: Path, collection: str, split: str) -> dict[str, dict[str, float]]:
    """Each graph's metrics from its rows and the model, all configurations."""
    model = load_model(Workspace(workspace).model(Collection.parse(collection)))
    kind = "layout" if collection == LAYOUT else "tile"
    return {
        name: judge(kind, model.score(graph).mean[graph.group], graph.cost, graph.group)
        for name, graph in stored(workspace, collection, split).items()
    }


# The report -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["valid", "train"])
def test_the_report_has_every_metric_of_every_graph(shared_trained: Path, split: str) -> None:
    found = run(shared_trained, split=split)
    assert list(found.report) == [LAYOUT, TILE]
    for collection, metrics in found.report.items():
        assert tuple(metrics) == METRICS
        assert of_the_model(metrics) == summarise(by_hand(shared_trained, collection, split))
        for values in metrics.values():
            assert set(values) == {"mean", "std", "low", "high", "graphs", "baselines", "repeats_once", "seeds_std"}
            assert list(values["graphs"]) == list(TREE[collection][split])
    assert (found.judged, found.left_out, found.notes) == (split, {}, [])
    assert json.loads(json.dumps(found.report)) == found.report


def test_the_spread_over_seeds_is_that_of_the_means_of_each_seed(shared_trained: Path) -> None:
    model = load_model(Workspace(shared_trained).model(Collection.parse(LAYOUT)))
    taus = [
        [judge("layout", each[graph.group], graph.cost)["tau"] for each in model.score(graph).per_seed]
        for graph in stored(shared_trained, LAYOUT, "valid").values()
    ]
    one, other = np.mean(taus, axis=0)
    found = run(shared_trained, collections=[LAYOUT]).report[LAYOUT]["tau"]["seeds_std"]
    assert found == pytest.approx(abs(one - other) / np.sqrt(2)) and found > 0


def test_valid_is_the_default(shared_trained: Path) -> None:
    assert run(shared_trained).report == run(shared_trained, split="valid").report


def test_repeats_are_judged_each_with_its_own_runtime(shared_trained: Path) -> None:
    """24 configurations of 22 rows: tau over the distinct rows alone would be another number."""
    report = run(shared_trained, collections=[LAYOUT]).report[LAYOUT]
    model = load_model(Workspace(shared_trained).model(Collection.parse(LAYOUT)))
    graph = stored(shared_trained, LAYOUT, "valid")["delta__a"]
    rows_alone = judge("layout", model.score(graph).mean, graph.row_cost)
    assert len(graph.ids) == 24
    assert report["tau"]["graphs"]["delta__a"] != rows_alone["tau"]


def test_a_note_when_valid_was_learned_from(trained: Path) -> None:
    """Its score means nothing then."""
    train(Workspace(trained), collections=[LAYOUT], with_valid=True, seeds=1, rounds=5, threads=1)
    found = run(trained)
    (note,) = found.notes
    assert note == f"{LAYOUT}: the model was trained on 2 of the 2 graphs scored here"
    assert run(trained, collections=[TILE]).notes == []


# Another collection's model ---------------------------------------------------------------------------------

OTHER = "layout:cpu:default"


@pytest.fixture(scope="module")
def two_searches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Workspace with a second layout collection: one graph of a learned name, one of a learned family, one new."""
    root, workspace = tmp_path_factory.mktemp("two"), tmp_path_factory.mktemp("two_work")
    valid = ("alpha__a", "beta__z", "kappa__a")
    write_tree(root, {**TREE, OTHER: {"train": ("delta__x", "eta__x"), "valid": valid}})
    build(root, workspace)
    train(Workspace(workspace), seeds=1, rounds=20, threads=1)
    return workspace


def test_another_collections_model_scores_this_one(two_searches: Path) -> None:
    found = run(two_searches, collections=[OTHER], model_from=LAYOUT)
    model = load_model(Workspace(two_searches).model(Collection.parse(LAYOUT)))
    expected = {
        name: judge("layout", model.score(graph).mean[graph.group], graph.cost, graph.group)
        for name, graph in stored(two_searches, OTHER, "valid").items()
    }
    assert of_the_model(found.report[OTHER]) == summarise(expected)
    assert found.report != run(two_searches, collections=[OTHER]).report
    assert found.notes == [
        f"{OTHER}: scored by the model of {LAYOUT}, which learned from 1 of these 3 programs (by name) "
        "and from the families of 2"
    ]


def test_it_scores_every_collection_of_its_kind_where_none_is_named(two_searches: Path) -> None:
    found = run(two_searches, model_from=LAYOUT)
    assert list(found.report) == [OTHER, LAYOUT]
    assert found.report[LAYOUT] == run(two_searches, collections=[LAYOUT]).report[LAYOUT]
    assert len(found.notes) == 1, "its own collection needs no note"
    assert f"the model of {LAYOUT} ranks layout graphs, those of {TILE} are tile graphs" in found.left_out[TILE]


def test_a_collection_without_a_model_of_its_own_can_be_scored(two_searches: Path, tmp_path: Path) -> None:
    workspace = Path(shutil.copytree(two_searches, tmp_path / "work"))
    shutil.rmtree(Workspace(workspace).model(Collection.parse(OTHER)))
    found = run(workspace, collections=[OTHER], model_from=LAYOUT)
    assert found.report == run(two_searches, collections=[OTHER], model_from=LAYOUT).report


def test_a_model_of_another_kind_is_refused(two_searches: Path) -> None:
    with pytest.raises(
        ModelError, match=rf"{TILE} ranks tile graphs, those of {OTHER} are layout graphs; expected"
    ):
        run(two_searches, collections=[OTHER], model_from=TILE)


def test_a_model_of_other_columns_is_refused_with_the_difference(tmp_path: Path, two_searches: Path) -> None:
    workspace = Path(shutil.copytree(two_searches, tmp_path / "work"))
    (root,) = stored_roots(Workspace(workspace))
    settings = FeatureSettings(Tier.FAST, candidates=False)
    build(Path(root), workspace, collections=[OTHER], splits=["valid"], settings=settings)
    with pytest.raises(ModelError, match=rf"the model of {LAYOUT} cannot score {OTHER}: the rows lack \d+ \("):
        run(workspace, collections=[OTHER], model_from=LAYOUT)


def test_model_from_where_it_makes_no_sense(two_searches: Path, built: Path) -> None:
    with pytest.raises(
        CollectionError, match=rf"'layout:cpu:randm' is not in the models of .*did you mean {LAYOUT}"
    ):
        run(two_searches, model_from="layout:cpu:randm")
    with pytest.raises(ModelError, match=r"there is no trained model in .*run train first"):
        run(built, model_from=LAYOUT)


# Official configurations ----------------------------------------------------------------------------------


def write_indices(folder: Path, indices: Mapping[str, Any] | str, name: str = "cpu_random.json") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(indices if isinstance(indices, str) else json.dumps(indices))
    return folder


def test_official_indices_restrict_layout_graphs(shared_trained: Path, tmp_path: Path) -> None:
    chosen = {"delta__a": [1, 4, 9, 16, 23, 22], "delta__b": [0, 2, 3]}
    found = run(shared_trained, official_indices=write_indices(tmp_path / "indices", chosen))
    model = load_model(Workspace(shared_trained).model(Collection.parse(LAYOUT)))
    for name, graph in stored(shared_trained, LAYOUT, "valid").items():
        picked = chosen[name]
        score = model.score(graph).mean[graph.group]
        expected = judge("layout", score[picked], graph.runtime[picked].astype(np.float64), graph.group[picked])
        assert {metric: found.report[LAYOUT][metric]["graphs"][name] for metric in METRICS} == expected
    assert found.report[LAYOUT] != run(shared_trained).report[LAYOUT]
    assert found.report[TILE] == run(shared_trained).report[TILE], "tiles are judged on all of theirs"
    assert found.left_out == {}


def test_indices_may_stand_in_any_order_of_graphs(shared_trained: Path, tmp_path: Path) -> None:
    one = run(
        shared_trained, official_indices=write_indices(tmp_path / "a", {"delta__a": [1, 5], "delta__b": [7, 2]})
    )
    two = run(
        shared_trained, official_indices=write_indices(tmp_path / "b", {"delta__b": [7, 2], "delta__a": [1, 5]})
    )
    assert one.report == two.report


def test_graphs_without_official_indices_are_named(shared_trained: Path, tmp_path: Path) -> None:
    indices = write_indices(tmp_path / "indices", {"delta__b": [0, 2, 3], "of_another_split": [1]})
    found = run(shared_trained, official_indices=indices)
    assert list(found.report[LAYOUT]["tau"]["graphs"]) == ["delta__b"]
    assert found.left_out == {f"{LAYOUT} delta__a": "it has no official indices"}


@pytest.mark.parametrize("beyond", [[0, 24], [-1, 3], [0, 10**12]])
def test_indices_beyond_the_file_are_refused(shared_trained: Path, tmp_path: Path, beyond: list[int]) -> None:
    indices = write_indices(tmp_path / "indices", {"delta__a": beyond, "delta__b": [0, 1]})
    with pytest.raises(CollectionError, match=r"indices of delta__a reach beyond its 24 configurations"):
        run(shared_trained, collections=[LAYOUT], official_indices=indices)
    found = run(shared_trained, official_indices=indices)
    assert list(found.report) == [TILE]
    assert "delta__a" in found.left_out[LAYOUT]


def test_an_empty_list_of_indices_is_refused_by_name(shared_trained: Path, tmp_path: Path) -> None:
    indices = write_indices(tmp_path / "indices", {"delta__a": [], "delta__b": [0, 1]})
    try:
        found = run(shared_trained, official_indices=indices)
    except CollectionError as error:
        assert "delta__a" in str(error)
    else:
        assert any("delta__a" in f"{name} {why}" for name, why in found.left_out.items())


@pytest.mark.parametrize(
    "content", ["{", "[1, 2]", "7", '{"delta__a": 3}', '{"delta__a": ["x"]}', '{"delta__a": [null]}']
)
def test_unreadable_indices_are_named(shared_trained: Path, tmp_path: Path, content: str) -> None:
    indices = write_indices(tmp_path / "indices", content)
    with pytest.raises(CollectionError, match=r"the official indices .*cpu_random\.json cannot be read"):
        run(shared_trained, collections=[LAYOUT], official_indices=indices)


def test_a_collection_without_an_index_file_is_left_out(shared_trained: Path, tmp_path: Path) -> None:
    indices = write_indices(tmp_path / "indices", {}, name="xla_default.json")
    with pytest.raises(
        CollectionError, match=r"has no file of any layout collection .*; expected cpu_random\.json"
    ):
        run(shared_trained, official_indices=indices)
    with pytest.raises(CollectionError, match="has no file"):
        run(shared_trained, official_indices=tmp_path / "absent")


def test_what_a_model_has_to_beat_stands_beside_it(shared_trained: Path) -> None:
    report = run(shared_trained).report
    assert set(report[LAYOUT]["tau"]["baselines"]) == {"file order", "random", "fewest layouts set"}
    assert set(report[TILE]["tau"]["baselines"]) == {
        "file order", "random", "estimated time",
        "largest output tile", "largest tile", "nearest to the first configuration",
    }  # fmt: skip
    expected = [
        kendall_tau(np.arange(len(graph.cost)), graph.cost)
        for graph in stored(shared_trained, LAYOUT, "valid").values()
    ]
    assert report[LAYOUT]["tau"]["baselines"]["file order"] == pytest.approx(np.mean(expected))


def test_identical_configurations_counted_once_stand_beside_it(shared_trained: Path) -> None:
    """24 configurations of 22 rows; the second and third of one choice are a nanosecond slower each."""
    tau = run(shared_trained).report[LAYOUT]["tau"]
    model = load_model(Workspace(shared_trained).model(Collection.parse(LAYOUT)))
    expected = [
        kendall_tau(model.score(graph).mean, graph.row_cost)
        for graph in stored(shared_trained, LAYOUT, "valid").values()
    ]
    assert tau["repeats_once"] == pytest.approx(np.mean(expected)) and tau["repeats_once"] != tau["mean"]


# What cannot be judged ------------------------------------------------------------------------------------


def test_graphs_without_labels_are_named(tree: Path, trained: Path) -> None:
    save_npz(graph_path(tree, LAYOUT, "test", "omega__c"), layout_graph(70))
    build(tree, trained)
    found = run(trained, split="test", collections=[LAYOUT])
    assert list(found.report[LAYOUT]["tau"]["graphs"]) == ["omega__c"]
    assert found.left_out == dict.fromkeys((f"{LAYOUT} omega__a", f"{LAYOUT} omega__b"), "its labels are withheld")


def test_graphs_that_cannot_be_ranked_are_named(tree: Path, trained: Path) -> None:
    even = tile_graph(60)
    even["config_runtime"] = even["config_runtime_normalizers"] * 3
    save_npz(graph_path(tree, TILE, "valid", "even__a"), even)
    build(tree, trained)
    found = run(trained)
    assert list(found.report[TILE]["tau"]["graphs"]) == ["pool__a"]
    assert found.left_out == {f"{TILE} even__a": "all its configurations cost the same"}


def test_a_split_without_any_labels_is_an_error(shared_trained: Path) -> None:
    with pytest.raises(CollectionError, match=r"tile:cpu has no labelled, rankable graph in test"):
        run(shared_trained, split="test", collections=[TILE])
    with pytest.raises(CollectionError, match=r"nothing could be evaluated on test: .*tile:cpu") as caught:
        run(shared_trained, split="test")
    assert LAYOUT in str(caught.value)


def test_a_collection_without_a_model(trained: Path) -> None:
    shutil.rmtree(trained / "models" / "tile")
    found = run(trained)
    assert list(found.report) == [LAYOUT]
    assert "has no trained model; run train first" in found.left_out[TILE]
    with pytest.raises(ModelError, match=r"tile:cpu has no trained model; run train first"):
        run(trained, collections=[TILE])


def test_a_collection_without_the_split(trained: Path) -> None:
    shutil.rmtree(trained / "features" / "tile" / "cpu" / "valid")
    assert "has no valid split" in run(trained).left_out[TILE]
    with pytest.raises(CollectionError, match=r"tile:cpu has no valid split"):
        run(trained, collections=[TILE])


def test_a_model_trained_on_other_columns_is_refused_with_the_difference(tree: Path, trained: Path) -> None:
    settings = FeatureSettings(Tier.FAST, candidates=False)
    build(tree, trained, collections=[TILE], settings=settings)
    lost = [
        name
        for name in FeatureSettings(Tier.FAST).config_columns("tile")
        if name not in settings.config_columns("tile")
    ]
    with pytest.raises(ModelError, match=rf"the rows lack {len(lost)} \({lost[0]}, .*train again"):
        run(trained, collections=[TILE])
    found = run(trained)
    assert list(found.report) == [LAYOUT]
    assert f"lack {len(lost)} ({lost[0]}" in found.left_out[TILE]


def test_a_model_trained_by_other_code_is_refused(
    tree: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xlarank.features.recipe.source_hash", lambda: "other code")
    build(tree, trained, collections=[TILE])
    with pytest.raises(ModelError, match=r"made by feature code .*train again"):
        run(trained, collections=[TILE])


def test_a_damaged_model_is_named(trained: Path) -> None:
    (trained / "models" / "tile" / "cpu" / "model.json").write_text("{")
    assert "model.json cannot be used" in run(trained).left_out[TILE]
    with pytest.raises(ModelError, match=r"model\.json cannot be used"):
        run(trained, collections=[TILE])


def test_bad_requests(shared_trained: Path, tmp_path: Path) -> None:
    with pytest.raises(XlarankError, match="'validation' is not a split; expected train, valid, test"):
        run(shared_trained, split="validation")
    with pytest.raises(CollectionError, match="did you mean tile:cpu"):
        run(shared_trained, collections=["tile:cpv"])
    with pytest.raises(CollectionError, match="holds no collections"):
        run(tmp_path / "empty")


@pytest.mark.parametrize("collections", [[], [TILE]])
def test_progress_ends_also_when_it_fails(trained: Path, collections: list[str]) -> None:
    listener = Listener()
    run(trained, progress=listener)
    assert listener.jobs == [("evaluating on valid", 2)]
    assert listener.notes == [LAYOUT, TILE]
    assert listener.ended == 1
    shutil.rmtree(trained / "models")
    failing = Listener()
    with pytest.raises(XlarankError):
        run(trained, collections=collections, progress=failing)
    assert failing.ended == 1


def test_evaluation_writes_nothing(trained: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    run(trained)
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == before
