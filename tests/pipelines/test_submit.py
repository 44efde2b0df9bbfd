"""The submission of all test graphs: complete, checked, and whole or not there."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.graphs import save_npz
from tests.pipelines.trees import LAYOUT, TILE, TREE, Listener, build, graph_path, model_of, stored, tile_graph
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError, SubmissionError, WorkspaceError
from xlarank.data.submission import check_submission
from xlarank.data.workspace import Workspace
from xlarank.features.block import Tier
from xlarank.features.recipe import FeatureSettings
from xlarank.models.rankers.wide_rows import LambdaRank
from xlarank.models.trained import CARD
from xlarank.pipelines.rank import rank
from xlarank.pipelines.submit import Submission, submit


def run(workspace: Path, out: Path, **options: Any) -> Submission:
    return submit(Workspace(workspace), out, **options)


def rows_of(path: Path) -> dict[str, list[int]]:
    with path.open(newline="") as stream:
        header, *lines = csv.reader(stream)
    assert header == ["ID", "TopConfigs"]
    assert len({row_id for row_id, _ in lines}) == len(lines), "every id once"
    return {row_id: [int(entry) for entry in listed.split(";")] for row_id, listed in lines}


def test_every_test_graph_stands_there_the_best_first(shared_trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out.csv"
    report = run(shared_trained, out)
    rows = rows_of(out)
    assert list(rows) == [
        f"{collection}:{name}" for collection in (LAYOUT, TILE) for name in TREE[collection]["test"]
    ]
    assert report.rows == {LAYOUT: 2, TILE: 2}
    assert (report.out, report.left_out, report.broken) == (out, {}, {})
    check_submission(out, dict.fromkeys(rows, 24))
    for row_id, order in rows.items():
        collection, _, name = row_id.rpartition(":")
        graph = stored(shared_trained, collection, "test")[name]
        group = graph.group
        score = model_of(shared_trained, collection).score(graph).mean[group]
        if collection == LAYOUT:
            assert sorted(order) == list(range(24)), "repeated configurations too"
            assert (np.diff(score[order]) >= 0).all() and score[order[0]] < score[order[-1]]
            assert group[[0, 22, 23]].tolist() == [0, 0, 0]
        else:
            assert len(set(group[order].tolist())) == len(order) == 5, "no repeat among them"
            distinct = sorted({int(g): score[group == g].min() for g in group}.values())
            assert sorted(score[order].tolist()) == distinct[:5]


def test_labels_do_not_matter(tree: Path, trained: Path, tmp_path: Path) -> None:
    """Nothing of a runtime may leak into a submission."""
    run(trained, tmp_path / "without.csv")
    for collection in (LAYOUT, TILE):
        path = graph_path(tree, collection, "test", TREE[collection]["test"][0])
        with np.load(path) as file:
            arrays = dict(file)
        arrays["config_runtime"] = np.arange(1, len(arrays["config_runtime"]) + 1)[::-1].copy()
        save_npz(path, arrays)
    build(tree, trained, splits=["test"])
    run(trained, tmp_path / "with.csv")
    assert (tmp_path / "with.csv").read_bytes() == (tmp_path / "without.csv").read_bytes()


def test_files_without_features_are_named_and_stand_there_as_far_as_they_can_be_read(
    tree: Path, trained: Path, tmp_path: Path
) -> None:
    odd = 'ü✓ "quoted", and;\ttabs\r\n'
    save_npz(graph_path(tree, TILE, "test", odd), tile_graph(80, labelled=False))
    save_npz(graph_path(tree, TILE, "test", "not UTF-8 \udcff"), tile_graph(80, labelled=False))
    graph_path(tree, LAYOUT, "test", "omega__a").write_bytes(b"no zip")
    build(tree, trained)
    report = run(trained, tmp_path / "out.csv")
    assert sorted(report.broken) == [f"{LAYOUT} omega__a", f"{TILE} not UTF-8 \udcff", f"{TILE} {odd}"]
    assert "omega__a.npz" in report.broken[f"{LAYOUT} omega__a"]
    rows = rows_of(tmp_path / "out.csv")
    assert list(rows) == [f"{LAYOUT}:omega__b", f"{TILE}:sort__a", f"{TILE}:sort__b", f"{TILE}:{odd}"]
    assert rows[f"{TILE}:{odd}"] == [0, 1, 2, 3, 4] and report.origin[f"{TILE}:{odd}"] == "default"
    assert report.rows == {LAYOUT: 1, TILE: 2}
    named = run(trained, tmp_path / "named.csv", collections=[TILE])
    assert f"{TILE}:{odd}" in rows_of(tmp_path / "named.csv") and len(named.origin) == 3


@pytest.mark.slow
def test_the_model_of_each_collection_is_chosen_as_by_rank(trained: Path, tmp_path: Path) -> None:
    """Its own, that of --model-from, the only one of its kind; and it is said."""
    default, place, rows = "layout:cpu:default", Workspace(trained), trained / "features/layout/cpu/random"
    shutil.copytree(rows, trained / "features/layout/cpu/default")
    for model_from in (None, LAYOUT, TILE):
        report = submit(place, tmp_path / "out.csv", model_from=model_from)
        assert report.models == {default: LAYOUT, LAYOUT: LAYOUT, TILE: TILE} and not report.unranked()
    orders = rows_of(tmp_path / "out.csv")
    assert all(orders[f"{default}:{name}"] == orders[f"{LAYOUT}:{name}"] for name in TREE[LAYOUT]["test"])

    place.model(Collection.parse(LAYOUT)).rename(trained / "aside")
    for collection in (default, LAYOUT):
        copy_model(trained / "aside", place, collection)
    another = "layout:xla:random"
    shutil.copytree(rows, trained / "features/layout/xla/random")
    report = submit(place, tmp_path / "out.csv", model_from=LAYOUT)
    assert report.models == {default: default, LAYOUT: LAYOUT, another: LAYOUT, TILE: TILE}
    report = submit(place, tmp_path / "out.csv")
    assert f"{another} could be ranked by 2 models" in report.left_out[another]
    with pytest.raises(CollectionError, match="did you mean"):
        submit(place, tmp_path / "out.csv", model_from="layout:cpu:randm")


def copy_model(source: Path, workspace: Workspace, collection: str) -> None:
    """The same boosters as the model of another collection."""
    folder = Path(shutil.copytree(source, workspace.model(Collection.parse(collection))))
    card = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps({**card, "collection": collection}))


def test_layouts_without_any_model_are_ranked_as_rank_does(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, out = tmp_path / "work", tmp_path / "out.csv"
    build(tree, work, collections=[LAYOUT], splits=["test"], settings=FeatureSettings())
    report = run(work, out, collections=[LAYOUT])
    assert report.models == {LAYOUT: "the shipped ranker"}
    for name in TREE[LAYOUT]["test"]:
        ranking = rank(Workspace(work), graph_path(tree, LAYOUT, "test", name))
        assert rows_of(out)[f"{LAYOUT}:{name}"] == ranking.order.tolist() and ranking.shipped
    monkeypatch.setattr("xlarank.features.recipe.source_hash", lambda: "other code")
    with pytest.raises(ModelError, match="stored rows were made by earlier feature code"):
        run(work, out, collections=[LAYOUT])


def test_small_and_unrankable_graphs_are_listed(tree: Path, trained: Path, tmp_path: Path) -> None:
    """Of 4 and 6 the last repeats the first: repeats fill up where there are not enough different ones."""
    listed = {1: 1, 3: 3, 4: 4, 6: 5}
    for configs in listed:
        save_npz(
            graph_path(tree, TILE, "test", f"tiny__{configs}"), tile_graph(80, configs=configs, labelled=False)
        )
    alike = tile_graph(80, labelled=False)
    alike["config_feat"][:] = alike["config_feat"][0]
    save_npz(graph_path(tree, TILE, "test", "alike__a"), alike)
    build(tree, trained, collections=[TILE], splits=["test"])
    report = run(trained, tmp_path / "out.csv", collections=[TILE])
    assert report.rows == {TILE: 7}
    rows = rows_of(tmp_path / "out.csv")
    for configs, count in listed.items():
        order = rows[f"{TILE}:tiny__{configs}"]
        assert len(order) == len(set(order)) == count and set(order) <= set(range(configs))
    assert rows[f"{TILE}:alike__a"] == [0, 1, 2, 3, 4]


def test_what_is_not_built_or_not_ranked(tree: Path, trained: Path, tmp_path: Path) -> None:
    out, named = tmp_path / "out.csv", tmp_path / "named.csv"
    run(trained, out)
    build(tree, trained, splits=["test"], collections=[TILE], settings=FeatureSettings(Tier.FAST, candidates=False))
    with pytest.raises(ModelError, match=r"the rows lack \d+ \("):
        run(trained, named, collections=[TILE])
    assert "the rows lack" in run(trained, out).left_out[TILE]

    shutil.rmtree(trained / "models" / "tile")
    report, none = run(trained, out), "there is no trained tile model"
    assert set(report.rows) == {LAYOUT} and none in report.left_out[TILE]
    rows = rows_of(out)
    assert [rows[f"{TILE}:{name}"] for name in TREE[TILE]["test"]] == [[0, 1, 2, 3, 4]] * 2, "Kaggle needs every id"
    assert report.unranked() == {"default": 2}, "rows of the older file are not taken over"
    assert run(trained, out, keep=True).unranked() == {"kept": 2}
    with pytest.raises(ModelError, match=none):
        run(trained, named, collections=[TILE])
    run(trained, out)
    shutil.rmtree(trained / "features" / "tile" / "cpu" / "test")
    assert f"{TILE} has no test graphs" in run(trained, out).left_out[TILE]
    with pytest.raises(CollectionError, match=f"{TILE} has no test graphs"):
        run(trained, named, collections=[TILE])
    shutil.rmtree(trained / "features/tile")
    report = run(trained, out)
    assert report.left_out == {TILE: "its features were not built"}
    assert report.unranked() == {"default": 2} and len(rows_of(out)) == 4
    shutil.rmtree(trained / "features")
    build(tree, trained, collections=[TILE], splits=["train"])
    with pytest.raises(CollectionError, match=f"nothing to submit: {TILE}"):
        run(trained, named)
    assert not named.exists()


def test_a_submission_is_written_whole_or_not_at_all(
    shared_trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.csv"
    out.write_text("what was there before")

    def refuse(path: Path, configs: dict[str, int]) -> None:
        assert path != out, "it is checked before it is in place"
        raise SubmissionError("made up")

    def fill(path: Path, rows: dict[str, list[int]]) -> None:
        path.write_text("ID,Top")
        raise OSError(28, "No space left on device")

    for what, function, error, said in (
        ("data.submission.check_submission", refuse, SubmissionError, "made up"),
        ("data.submission.write_submission", fill, WorkspaceError, r"out\.csv \(No space left on device\)"),
    ):
        with monkeypatch.context() as patched, pytest.raises(error, match=said):
            patched.setattr(f"xlarank.{what}", function)
            run(shared_trained, out)
    with pytest.raises(KeyboardInterrupt):
        run(shared_trained, out, progress=Listener(stop_at=2))
    for value in (np.nan, np.inf):
        monkeypatch.setattr(LambdaRank, "predict", lambda self, rows, *_, value=value: np.full(len(rows), value))
        with pytest.raises(ModelError, match="scores that are no numbers"):
            run(shared_trained, out, collections=[TILE])
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert out.read_text() == "what was there before"
