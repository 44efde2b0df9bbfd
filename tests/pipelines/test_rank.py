"""Ranking one graph: which model is taken, and what is told of the order."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import xlarank
from tests.graphs import layout_row, save_npz
from tests.pipelines.trees import LAYOUT, TILE, graph_path, layout_graph, model_of, stored, tile_graph
from xlarank.data.errors import CollectionError, GraphFileError, ModelError, WorkspaceError
from xlarank.data.schema import TILE_COLUMNS
from xlarank.data.workspace import Workspace
from xlarank.models.validation.metrics import graph_metrics
from xlarank.pipelines.rank import rank, rank_folder
from xlarank.pipelines.ranking.result import Ranking, write_rankings
from xlarank.pipelines.support.workspace_collections import trained_collections

OTHER = "layout:cpu:default"


def run(workspace: Path, path: Path, collection: str | None = None) -> Ranking:
    return rank(Workspace(workspace), path, collection=collection)


def test_the_order_is_that_of_the_scores_of_the_stored_rows(shared_tree: Path, shared_trained: Path) -> None:
    """The best are distinct, with their twins beside them."""
    ranking = run(shared_trained, graph_path(shared_tree, LAYOUT, "valid", "delta__a"))
    graph = stored(shared_trained, LAYOUT, "valid")["delta__a"]
    score = model_of(shared_trained).score(graph).mean[graph.group]
    assert np.array_equal(ranking.scores, score) and np.array_equal(ranking.runtime, graph.runtime)
    assert ranking.order.tolist() == sorted(range(24), key=lambda config: (score[config], config))
    assert (ranking.graph, ranking.collection) == ("delta__a", LAYOUT)
    assert ranking.metrics == graph_metrics("layout", score, graph.cost, graph.group)
    assert ranking.metrics["tau"] > 0.6

    best = ranking.best()
    assert [entry.rank for entry in best] == list(range(1, 23))
    assert sorted(config for entry in best for config in (entry.configuration, *entry.identical)) == list(range(24))
    ((configuration, identical),) = ((one.configuration, one.identical) for one in best if one.identical)
    assert (configuration, identical) == (0, [22, 23])
    assert [entry.score for entry in best] == sorted(entry.score for entry in best)
    assert all(entry.score == ranking.scores[entry.configuration] for entry in best)
    assert ranking.best(3) == best[:3] and ranking.best(100) == best


def test_every_view_shows_a_configurations_own_runtime(shared_trained: Path, tmp_path: Path) -> None:
    """Its twin was the faster: once the fastest of them was shown as the first one's own."""
    arrays = layout_graph(71)
    arrays["config_runtime"][[0, 22, 23]] = 900, 100, 0  # identical: no layouts set, the compiler's default
    path = save_npz(tmp_path / "x__a.npz", arrays)
    ranking = xlarank.rank(str(path), workspace=str(shared_trained))
    assert isinstance(ranking, xlarank.Ranking)
    assert ranking.order.tolist() == xlarank.rank(xlarank.read_graph(path), shared_trained).order.tolist()
    (entry,) = (one for one in ranking.best() if one.configuration == 0)
    assert (entry.runtime_ns, entry.identical, entry.identical_runtime_ns) == (900, [22, 23], [100, None])
    assert entry.speedup == pytest.approx(100 / 900) and entry.as_json() in ranking.as_json()["best"]
    assert ranking.explain(0, 5).runtime == (900, arrays["config_runtime"][5])
    table = ranking.to_polars()
    assert table.columns == ["rank", "configuration", "score", "same_as", "runtime_ns", "speedup"]
    assert table["rank"].to_list() == list(range(1, 25)) and table["score"].is_sorted()
    assert table.filter(pl.col("same_as") != pl.col("configuration"))["configuration"].sort().to_list() == [22, 23]
    measured = [int(runtime) or None for runtime in arrays["config_runtime"]]
    assert table.sort("configuration")["runtime_ns"].to_list() == measured
    assert table.filter(pl.col("configuration") == 0)["speedup"].item() == entry.speedup
    frame = ranking.to_pandas()
    assert frame.columns.tolist() == table.columns and frame["configuration"].tolist() == ranking.order.tolist()


def test_speedup_over_the_compilers_own_choice(shared_trained: Path, tmp_path: Path) -> None:
    """A tile's normalizer is the compiler's own runtime, a layout's that of the configuration without layouts."""
    arrays = tile_graph(3)
    arrays["config_runtime_normalizers"][:] = 500
    ranking = run(shared_trained, save_npz(tmp_path / "a.npz", arrays))
    runtime = arrays["config_runtime"]
    best = ranking.best(5)
    assert [one.speedup for one in best] == pytest.approx([500 / runtime[one.configuration] for one in best])
    assert ranking.speedups == pytest.approx(
        {"speedup@1": best[0].speedup, "speedup@5": max(one.speedup or 0 for one in best)}
    )
    assert json.loads(json.dumps(ranking.as_json()))["speedups"] == ranking.speedups
    write_rankings(tmp_path / "out.csv", {"a": ranking})
    assert pl.read_csv(tmp_path / "out.csv")["speedup"].to_list()[:5] == [one.speedup for one in best]

    arrays = layout_graph(71)
    arrays["node_config_feat"][4] = -1
    ranking = run(shared_trained, save_npz(tmp_path / "b.npz", arrays))
    own, first = arrays["config_runtime"][4], ranking.best(1)[0]
    assert first.runtime_ns is not None and first.speedup == pytest.approx(own / first.runtime_ns)
    assert ranking.speedups is not None and ranking.speedups["speedup@5"] >= ranking.speedups["speedup@1"]


def test_without_labels_or_the_compilers_own_choice(
    shared_tree: Path, shared_trained: Path, tmp_path: Path
) -> None:
    ranking = run(shared_trained, graph_path(shared_tree, TILE, "test", "sort__a"))
    assert ranking.metrics is None and {entry.runtime_ns for entry in ranking.best()} == {None}
    assert ranking.to_polars()["runtime_ns"].null_count() == 24
    value = json.loads(json.dumps(ranking.as_json(4), allow_nan=False))
    assert value["order"] == ranking.order.tolist()
    assert value["best"] == [entry.as_json() for entry in ranking.best(4)]
    lone = run(shared_trained, save_npz(tmp_path / "lone.npz", tile_graph(0, configs=1)))
    assert (lone.order.tolist(), lone.metrics) == ([0], None)
    arrays = layout_graph(71)
    arrays["node_config_feat"][:, 1] = layout_row(output=(0, 1))  # no configuration sets nothing
    ranking = run(shared_trained, save_npz(tmp_path / "b.npz", arrays))
    assert ranking.metrics is not None and ranking.speedups is None
    assert "speedup" not in ranking.best(1)[0].as_json()


def test_which_model_is_taken(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The collection asked for, that of the file's folder, or the only one of the kind; no features are needed."""
    shutil.rmtree(trained / "features")
    layout, tile = save_npz(tmp_path / "x.npz", layout_graph(5)), save_npz(tmp_path / "b.npz", tile_graph(5))
    assert (run(trained, layout).collection, run(trained, tile).collection) == (LAYOUT, TILE)
    with pytest.raises(ModelError, match=rf"x is a layout graph; expected a tile graph for {TILE}"):
        run(trained, layout, TILE)
    with pytest.raises(CollectionError, match=f"did you mean {LAYOUT}"):
        run(trained, layout, "layout:cpu:rando")
    new = Path(shutil.copytree(trained / "models/layout/cpu/random", trained / "models/layout/cpu/default"))
    card = json.loads((new / "model.json").read_text())
    (new / "model.json").write_text(json.dumps({**card, "collection": OTHER}))
    for collection in (LAYOUT, OTHER):
        path = save_npz(graph_path(tmp_path / "tree", collection, "valid", "x__a"), layout_graph(5))
        assert run(trained, path).collection == collection
        assert run(trained, path, OTHER).collection == OTHER
    (tmp_path / "link.npz").symlink_to(path)
    monkeypatch.chdir(path.parent)
    assert {run(trained, one).collection for one in (Path("x__a.npz"), tmp_path / "link.npz")} == {OTHER}
    with pytest.raises(
        ModelError, match=rf"could be ranked by 2 models; expected {OTHER}, {LAYOUT}; pass --collection"
    ):
        run(trained, layout)
    given = rank(Workspace(tmp_path / "nothing"), tile, model=model_of(trained, TILE))
    assert given.order.tolist() == run(trained, tile).order.tolist()
    (trained / "models" / "tile" / "cpu" / "model.json").unlink()
    assert [str(collection) for collection in trained_collections(Workspace(trained))] == [OTHER, LAYOUT]
    monkeypatch.setattr("xlarank.features.recipe.source_hash", lambda: "other code")
    with pytest.raises(ModelError, match=r"made by feature code .*train again"):
        run(trained, layout, LAYOUT)


def test_without_a_model_of_the_kind(trained: Path, tmp_path: Path) -> None:
    """The shipped ranker orders layouts and tiles of a TPU, with times; no tiles of a CPU."""
    layout, tile = save_npz(tmp_path / "x.npz", layout_graph(5)), save_npz(tmp_path / "t.npz", tile_graph(5))
    arrays = tile_graph(5)
    arrays["config_feat"][:, TILE_COLUMNS.index("input_bounds_0")] = 1  # a vector tile
    cpu = save_npz(tmp_path / "cpu.npz", arrays)
    assert not run(trained, layout).shipped and run(trained, tile).estimated is None
    shutil.rmtree(trained / "models" / "tile")
    with pytest.raises(ModelError, match=r"there is no trained tile model in .* is for TPUs; run train first"):
        run(trained, cpu)
    ranking = run(trained, tile)
    assert ranking.shipped and ranking.estimated is not None
    times = [one.estimated_ns for one in ranking.best()]
    assert times == sorted(times, key=float) and times[0] == ranking.as_json(1)["best"][0]["estimated_ns"]
    with pytest.raises(CollectionError, match=f"'{TILE}' is not in the models"):
        run(trained, tile, TILE)
    shutil.rmtree(trained / "models" / "layout")
    assert run(trained, layout).shipped
    for asked in (None, TILE):
        with pytest.raises(ModelError, match="run train"):
            run(tmp_path, cpu, asked)
        with pytest.raises(WorkspaceError, match=r"the workspace .*absent does not exist"):
            run(tmp_path / "absent", cpu, asked)


def test_what_is_no_graph(shared_trained: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="42 is no graph; expected a LayoutGraph, a TileGraph or a path"):
        xlarank.rank(42, shared_trained)  # type: ignore[arg-type]
    with pytest.raises(GraphFileError, match="cannot be opened"):
        run(shared_trained, tmp_path)
    with pytest.raises(GraphFileError, match="holds no npz files"):
        rank_folder(Workspace(shared_trained), tmp_path)


def test_every_graph_of_a_folder(tree: Path, shared_trained: Path, tmp_path: Path) -> None:
    """A name is no formula in a spreadsheet."""
    folder = graph_path(tree, LAYOUT, "valid", "x").parent
    (folder / "broken.npz").write_bytes(b"no zip")
    for hidden in (".venv/lib", "env/lib"):
        (folder / hidden).mkdir(parents=True)
        shutil.copy(folder / "delta__a.npz", folder / hidden / "test-data.npz")
    (folder / "env/pyvenv.cfg").write_text("")
    rankings, broken = rank_folder(Workspace(shared_trained), folder)
    assert set(rankings) == {"delta__a", "delta__b"} and set(broken) == {"broken"}
    alone = run(shared_trained, folder / "delta__a.npz")
    write_rankings(tmp_path / "out.csv", rankings)
    first = pl.read_csv(tmp_path / "out.csv").filter(pl.col("graph") == "delta__a")
    assert first["configuration"].to_list() == [entry.configuration for entry in alone.best()]
    assert first["score"].to_list() == [entry.score for entry in alone.best()]
    names = [name for start in ("=1+1", "+1", "-1", "@A1", "\t=1", "\r=1") for name in (start, f"a{start}")]
    write_rankings(tmp_path / "out.csv", dict.fromkeys(names, alone))
    with (tmp_path / "out.csv").open(newline="") as stream:
        written = list(dict.fromkeys(row["graph"] for row in csv.DictReader(stream)))
    assert written == [("" if name[0] == "a" else "'") + name.replace("\r", " ") for name in names]
