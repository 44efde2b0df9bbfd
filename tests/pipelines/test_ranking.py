"""Ranking and explanation of a graph: the choice of the model, what is shown, parts that add up."""

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest

import xlarank
from tests.cli.conftest import here
from tests.features.helpers import graph_of, layout_file
from tests.graphs import Node, layout_row, save_npz
from tests.pipelines import trees
from tests.pipelines.trees import LAYOUT, TILE, graph_path, layout_graph, stored, tile_graph
from xlarank.cli.explaining import _show_difference
from xlarank.cli.explaining import explain as explain_command
from xlarank.cli.ranking import rank as command
from xlarank.data.collection import SAMPLE, Collection
from xlarank.data.errors import (
    CollectionError,
    GraphFileError,
    ModelError,
    WorkspaceError,
    XlarankError,
)
from xlarank.data.graph import read_graph
from xlarank.data.schema import TILE_COLUMNS
from xlarank.data.workspace import Workspace
from xlarank.models.model import Model
from xlarank.models.stored import pretrained_model
from xlarank.models.validation.metrics import LAYOUTS_SET, SPEEDUPS, graph_metrics
from xlarank.pipelines.explain import explain
from xlarank.pipelines.rank import rank, rank_folder, write_rankings
from xlarank.pipelines.ranking.model_choice import model_for_collection, rows_for_model
from xlarank.pipelines.ranking.score_difference import explain_graph, segments_of
from xlarank.pipelines.ranking.winner import best_of
from xlarank.pipelines.support.evaluation import evaluate_graph


def run(workspace, path, collection=None, model_from="trained"):
    return rank(Workspace(workspace), path, collection=collection, model_from=model_from)


@pytest.fixture
def path(shared_tree):
    return graph_path(shared_tree, LAYOUT, "valid", "delta__a")


def test_the_order_is_that_of_the_scores_of_the_stored_rows(path, shared_trained):
    ranking = run(shared_trained, path)
    graph = stored(shared_trained, LAYOUT, "valid")["delta__a"]
    score = trees.scores_by_model(shared_trained, graph)
    assert np.array_equal(ranking.scores, score) and np.array_equal(ranking.runtime, graph.runtime)
    assert ranking.order.tolist() == sorted(range(24), key=lambda config: (score[config], config))
    assert (ranking.graph, ranking.collection) == ("delta__a", LAYOUT)
    assert ranking.metrics == graph_metrics("layout", score, graph.cost, graph.group)
    best = ranking.best()
    assert [entry.rank for entry in best] == list(range(1, 23))
    repeats = {entry.configuration: entry.identical for entry in best}
    assert sorted(repeats) == list(range(22)) and repeats.pop(0) == [22, 23]
    assert not any(repeats.values())
    scores = [ranking.scores[entry.configuration] for entry in best]
    assert [entry.score for entry in best] == scores == sorted(scores)
    assert ranking.best(3) == best[:3] and ranking.best(100) == best


def test_every_view_shows_own_runtimes_and_speedups_by_the_least_of_the_repeats(
    shared_trained, tmp_path
):
    """The default of 5 ms and 3 ms is once as fast as itself; all commands agree."""
    arrays = layout_graph(71)
    arrays["config_runtime"][[0, 22, 23]] = 5_000_000, 3_000_000, 0  # identical: no layouts set
    path = save_npz(tmp_path / "x__a.npz", arrays)
    ranking = xlarank.rank(str(path), workspace=str(shared_trained))
    assert isinstance(ranking, xlarank.Ranking)
    of_graph = xlarank.rank(xlarank.read_graph(path), shared_trained)
    assert ranking.order.tolist() == of_graph.order.tolist()
    best = {entry.configuration: entry for entry in ranking.best()}
    default = best[0]
    assert (default.runtime_ns, default.speedup) == (5_000_000, 1.0)
    assert (default.identical, default.identical_runtime_ns) == ([22, 23], [3_000_000, None])
    assert best[1].speedup == pytest.approx(3_000_000 / arrays["config_runtime"][1])
    assert default.as_json() in ranking.as_json()["best"]
    assert ranking.explain(0, 5).runtime_ns == (5_000_000, arrays["config_runtime"][5])
    table = ranking.to_polars()
    assert table.columns == ["rank", "configuration", "score", "same_as", "runtime_ns", "speedup"]
    assert table["rank"].to_list() == list(range(1, 25)) and table["score"].is_sorted()
    repeats = table.filter(pl.col("same_as") != pl.col("configuration"))
    assert {*repeats["configuration"]} == {22, 23}
    measured = [int(runtime) or None for runtime in arrays["config_runtime"]]
    assert table.sort("configuration")["runtime_ns"].to_list() == measured
    # the repeat that was not measured, too
    assert table.filter(same_as=0)["speedup"].to_list() == [1.0] * 3
    frame = ranking.to_pandas()
    assert frame.columns.tolist() == table.columns
    assert frame["configuration"].tolist() == ranking.order.tolist()
    rows = rows_for_model(ranking.data, ranking.model)
    scores = (rows.row_cost != 3_000_000).astype(float)  # the default first
    for picked in (slice(None), np.array([0, 5])):
        assert evaluate_graph(trees.LAYOUTS, rows, scores, picked)["speedup@1"] == 1.0
    by_rank = evaluate_graph(trees.LAYOUTS, rows, ranking.scores[np.unique(rows.group, True)[1]])
    assert {metric: by_rank[metric] for metric in SPEEDUPS} == ranking.speedups


def test_the_best_ranker_out_of_fold_ranks_and_says_why(trained, path):
    """The scores of rules and of the model are made up, on the graphs that folds scored."""
    card = trained / "models/layout/cpu/random/model.json"
    folds = json.loads(card.read_text())["folds"]
    own = {graph: values["score"] for graph, values in folds.items()}
    rule = "rule: fewest layouts set"
    better = {name: 2.0 + score for name, score in own.items()}
    worse = {graph: score - 0.1 - 0.01 * n for n, (graph, score) in enumerate(own.items())}
    by_model = run(trained, path)
    assert by_model.notes == [] and by_model.ranked_by == f"the model of {LAYOUT}"
    for others, chosen, said in (
        ({rule: worse}, False, ""),
        ({rule: own}, True, "is simpler, and not clearly worse out of fold"),
        ({rule: better}, True, "is better out of fold"),
        ({rule: dict.fromkeys([*own][:2], 2.0)}, False, ""),  # not on the same graphs
        ({"rule: file order": dict.fromkeys(own, 2.0)}, False, ""),  # no column to rank by
        ({"shipped ranker": dict.fromkeys(own, 2.0)}, False, ""),  # columns that rows lack
        ({}, False, ""),
    ):
        trees.edit_json(card, others=others)
        ranking = run(trained, path, model_from=None)
        assert (ranking.ranked_by != by_model.ranked_by) is chosen
        assert said in "".join(ranking.notes)
        layouts = stored(trained, LAYOUT, "valid")["delta__a"]
        fewest = layouts.matrix()[:, layouts.columns.index(LAYOUTS_SET)][layouts.group]
        expected = fewest if chosen else by_model.scores
        assert ranking.scores == pytest.approx(expected)
        assert run(trained, path).scores == pytest.approx(by_model.scores)


def test_the_best_rule_is_that_by_the_criterion_of_the_model(shared_trained):
    """Means 0.5 and 0.45; less a quarter of the standard deviations 0.5 and 0: 0.375 and 0.45."""
    model = trees.model_of(shared_trained, LAYOUT)
    spread = {"a": 0.0, "b": 1.0}
    even = dict.fromkeys("ab", 0.45)
    first = "rule: fewest layouts set"
    second = "rule: bytes of changed layouts"
    folds = {graph: {"score": 0.1} for graph in "ab"}
    for select, name, value in (("mean", first, 0.5), ("robust", second, 0.45)):
        others = {first: spread, second: even}
        card = replace(model.card, folds=folds, others=others, select=select)
        chosen, why = best_of(replace(model, card=card))
        assert chosen.name == name and f"out of fold: {value:.3f}, the trained" in why


def test_a_graph_that_the_model_was_trained_on_is_named(trained, shared_tree):
    known = run(trained, graph_path(shared_tree, LAYOUT, "train", "alpha__a"))
    score = trees.model_of(trained, LAYOUT).card.folds["alpha__a"]["score"]
    (note,) = known.notes
    assert "was trained on this graph" in note and f"out of fold, its score is {score:.3f}" in note


def test_speedup_over_the_compilers_own_choice(shared_trained, tmp_path):
    """A tile's normalizer is the compiler's own runtime."""
    arrays = tile_graph(3)
    arrays["config_runtime_normalizers"][:] = 500
    ranking = run(shared_trained, save_npz(tmp_path / "a.npz", arrays))
    best = ranking.best(5)
    speedups = [entry.speedup for entry in best]
    runtimes = arrays["config_runtime"][[entry.configuration for entry in best]]
    assert speedups == pytest.approx(500 / runtimes)
    assert ranking.speedups == pytest.approx({"speedup@1": speedups[0], "speedup@5": max(speedups)})
    assert json.loads(json.dumps(ranking.as_json()))["speedups"] == ranking.speedups
    write_rankings(tmp_path / "out.csv", {"a": ranking})
    assert pl.read_csv(tmp_path / "out.csv")["speedup"].to_list()[:5] == speedups


def test_without_labels_or_default(shared_tree, shared_trained, tmp_path):
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


def test_the_model_is_chosen_by_collection_folder_or_kind(trained, tmp_path, monkeypatch):
    """That named, that of the file's folder, or the only one of kind and target."""
    other = "layout:cpu:default"
    shutil.rmtree(trained / "features")
    for collection, shipped in (("layout:tpu-estimate:random", True), (other, False)):
        path = save_npz(graph_path(tmp_path, collection, "valid", "x__a"), layout_graph(5))
        assert run(trained, path).shipped is shipped, "the only layout model is of a CPU"
    layout = save_npz(tmp_path / "x.npz", layout_graph(5))
    tile = save_npz(tmp_path / "b.npz", tile_graph(5))
    assert (run(trained, layout).collection, run(trained, tile).collection) == (LAYOUT, TILE)
    with pytest.raises(ModelError, match=rf"x is a layout graph; expected a tile graph for {TILE}"):
        run(trained, layout, TILE)
    with pytest.raises(CollectionError, match=f"did you mean {LAYOUT}"):
        run(trained, layout, "layout:cpu:rando")
    models = trained / "models/layout/cpu"
    new = shutil.copytree(models / "random", models / "default")
    trees.edit_json(new / "model.json", collection=other)
    for collection in (LAYOUT, other):
        path = save_npz(graph_path(tmp_path / "tree", collection, "valid", "x__a"), layout_graph(5))
        assert run(trained, path).collection == collection
        assert run(trained, path, other).collection == other
    link = tmp_path / "link.npz"
    link.symlink_to(path)
    monkeypatch.chdir(path.parent)
    for name in (Path("x__a.npz"), link):
        assert run(trained, name).collection == other
    several = f"by 2 models; expected {other}, {LAYOUT}; pass `collection`"
    with pytest.raises(ModelError, match=several):
        run(trained, layout)
    with pytest.raises(ModelError, match="`model_from` is 'tile:cpu'; expected shipped or trained"):
        run(trained, tile, model_from=TILE)


def test_without_a_model_of_the_kind(trained, tmp_path):
    """The shipped ranker orders layouts and tiles of a TPU, with times; no tiles of a CPU."""
    layout = save_npz(tmp_path / "x.npz", layout_graph(5))
    tile = save_npz(tmp_path / "t.npz", tile_graph(5))
    arrays = tile_graph(5)
    arrays["config_feat"][:, TILE_COLUMNS.index("input_bounds_0")] = 1  # a vector tile
    cpu = save_npz(tmp_path / "cpu.npz", arrays)
    assert not run(trained, layout).shipped and run(trained, tile).estimated is None
    shutil.rmtree(trained / "models" / "tile")
    missing = r"there is no trained tile model in .* is for TPUs; run train first"
    with pytest.raises(ModelError, match=missing):
        run(trained, cpu)
    ranking = run(trained, tile)
    assert ranking.shipped and ranking.estimated is not None
    times = [entry.estimated_ns for entry in ranking.best()]
    assert times == sorted(times, key=float)
    assert times[0] == ranking.as_json(1)["best"][0]["estimated_ns"]
    shutil.rmtree(trained / "models" / "layout")
    assert run(trained, layout).shipped
    for collection, message in ((None, "is for TPUs; run train first"), (TILE, "run train first")):
        with pytest.raises(ModelError, match=message):
            run(tmp_path, cpu, collection)
        with pytest.raises(WorkspaceError, match=r"the workspace .*absent does not exist"):
            run(tmp_path / "absent", cpu, collection)
    empty = Workspace(tmp_path)
    shipped = model_for_collection(empty, Collection.parse("tile:xla"))
    assert shipped.card.collection == "tile:tpu-estimate"
    with pytest.raises(ModelError, match="is for TPUs; run train first"):
        model_for_collection(empty, trees.TILES)


def test_graphs_of_a_folder_are_ranked_and_other_files_named(tree, shared_trained, tmp_path):
    no_graph = "42 is no graph; expected a LayoutGraph, a TileGraph or a path"
    with pytest.raises(TypeError, match=no_graph):
        xlarank.rank(42, shared_trained)
    with pytest.raises(GraphFileError, match="cannot be opened"):
        xlarank.rank(tmp_path, shared_trained)
    with pytest.raises(GraphFileError, match="holds no npz files"):
        rank_folder(Workspace(shared_trained), shared_trained / "models")
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
    first = pl.read_csv(tmp_path / "out.csv").filter(graph="delta__a")
    expected = [(entry.configuration, entry.score) for entry in alone.best()]
    assert first["configuration", "score"].rows() == expected
    formulas = ["=1+1", "+1", "-1", "@A1", "\t=1", "\r=1"]
    harmless = [f"a{name}" for name in formulas]
    names = [*formulas, *harmless, "caf\udce9"]
    write_rankings(tmp_path / "out.csv", dict.fromkeys(names, alone))
    with (tmp_path / "out.csv").open(newline="") as stream:
        written = list(dict.fromkeys(row["graph"] for row in csv.DictReader(stream)))
    expected = [f"'{name}" for name in formulas] + harmless + ["caf\\udce9"]
    assert written == [name.replace("\r", " ") for name in expected], "no formulas, all UTF-8"


def test_a_model_is_loaded_once_unless_it_is_replaced(trained, shared_tree, path, monkeypatch):
    load = Mock(wraps=Model.load)
    monkeypatch.setattr(Model, "load", load)
    before = [run(trained, path).scores.tolist() for _ in range(3)]
    assert load.call_count == 1 and before[0] == before[2]
    trees.train_models(trained, collections=[LAYOUT], rounds=7)
    assert run(trained, path).scores.tolist() != before[0]


def test_an_explanation_is_a_line_and_a_table(path, shared_trained):
    result = explained(shared_trained, path, config=3, against=20)
    text = repr(result)
    assert text.startswith(f"<Explanation of 'delta__a' by the lambdarank of {LAYOUT}: ")
    assert "configuration 3 (rank " in text and f"{result.difference:+.4f}" in text
    assert len(text) < 300 and "\n" not in text
    table = result.to_polars()
    assert table.columns == ["part", "name", "contribution"]
    sums = dict(table.group_by("part").agg(pl.col("contribution").sum()).iter_rows())
    assert sums == pytest.approx(dict.fromkeys(("cause", "column"), result.difference))


def explained(workspace, path, **asked):
    return explain(Workspace(workspace), path, collection=LAYOUT, **asked)


def test_causes_and_columns_add_up_to_the_difference(shared_trained, path, capsys):
    ranking = run(shared_trained, path)
    explain_command(path, config=2, against="13", workspace=shared_trained)
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r" 13 \(rank \d+\), by the ", shown)
    assert "configuration 13" not in shown, "named once"
    behind = replace(explained(shared_trained, path, config=2, against=13), difference=0.5)
    _show_difference(replace(behind, ranks=(1, 2)))
    assert "is ranked ahead of" in capsys.readouterr().out, "a fallback may decide"
    for config in (0, 5, 11):
        result = explained(shared_trained, path, config=config, against=20)
        assert result.difference == pytest.approx(ranking.scores[config] - ranking.scores[20])
        for parts in (result.causes, result.columns):
            assert sum(parts.values()) == pytest.approx(result.difference, abs=1e-6)
        assert json.dumps(ranking.explain(config, 20).as_json()) == json.dumps(result.as_json())


def test_which_configurations_are_compared(shared_trained, path, tmp_path):
    """The best with the compiler's default if there is one, else with the middle."""
    for asked, message in (
        ({"config": 24}, "no configuration 24; expected a number from 0 to 23"),
        ({"config": -1}, "no configuration -1"),
        ({"against": "99"}, "no configuration 99"),
        ({"against": "best"}, "no configuration best; .*or default"),
    ):
        with pytest.raises(XlarankError, match=message):
            explained(shared_trained, path, **asked)
    alike = explained(shared_trained, path, config=22, against=23)  # the last two repeat the first
    assert (alike.difference, alike.nodes, alike.segments) == (0, (), {})
    assert "identical" in alike.notes[0]
    arrays = layout_graph(3)
    kept = (arrays["node_config_feat"] >= 0).any(axis=(1, 2))
    arrays |= {name: arrays[name][kept] for name in ("node_config_feat", "config_runtime")}
    without = save_npz(tmp_path / "own.npz", arrays)
    with pytest.raises(XlarankError, match="no candidate of own is the compiler's default"):
        explained(shared_trained, without, against="default")
    middle = explained(shared_trained, without)
    assert middle.against_is == "the middle of the ranking"
    assert middle.ranks[1] == middle.configurations // 2 + 1
    arrays["node_config_feat"][[7, 9]] = layout_row()
    with_default = save_npz(tmp_path / "with.npz", arrays)
    best = explained(shared_trained, with_default)
    assert (best.against, best.against_is) == (7, "the compiler's default")
    assert best.ranks[0] == 1 and best.difference < 0
    assert explained(shared_trained, with_default, against="default").against == 7
    assert explained(shared_trained, with_default, config=9).against_is == middle.against_is


def test_segments_are_connected_nodes():
    # 0 and 1 are connected by a matrix, 2 and 3 by a vector only; 4 reads 1
    nodes = [
        Node("parameter", (8, 128)),
        Node("add", (8, 128), (0, 0)),
        Node("reduce", (8,), (1,)),
        Node("broadcast", (4, 4), (2,)),
        Node("multiply", (8, 128), (1, 1)),
    ]
    graph = graph_of(layout_file(nodes, [0], [[layout_row()]]))
    expected = [((0, 1), -2.0), ((3,), -0.9)]
    assert [*segments_of(graph, {0: -1.0, 1: -1.0, 3: -0.9}).items()] == expected
    assert segments_of(graph, {0: -1.0, 4: 0.8}) == {(0, 4): pytest.approx(-0.2)}
    # 5 of 5.2 is more than four fifths: the rest is left out
    assert segments_of(graph, {0: 5.0, 1: 0.1, 4: -0.1}) == {(0,): 5.0}
    assert segments_of(graph, {}) == segments_of(graph, {0: 0.0}) == {}


def test_tiles_have_causes_but_no_nodes(shared_tree, shared_trained):
    path = next((shared_tree / "npz" / "tile" / "cpu" / "valid").glob("*.npz"))
    explanation = explain(Workspace(shared_trained), path, collection=TILE)
    assert not explanation.nodes and not explanation.segments
    assert explanation.against == 0, "the first tile is the compiler's default"
    assert sum(explanation.causes.values()) == pytest.approx(explanation.difference, abs=1e-6)


def test_the_time_model_explains_itself_in_nanoseconds_that_add_up():
    """Times are those of the model to the last bit; contributions are float32 sums."""
    graph = read_graph(SAMPLE / "npz/layout/tpu-estimate/random/valid/unet__a.npz", "layout")
    explanation = explain_graph(graph, pretrained_model("layout"), config=13, against="default")
    assert explanation.estimated_ns is not None and explanation.nodes
    difference = pytest.approx(np.subtract(*explanation.estimated_ns), rel=1e-3)
    assert sum(node.nanoseconds for node in explanation.nodes) == difference
    log_ratio = np.log2(np.divide(*explanation.estimated_ns))
    assert explanation.difference == pytest.approx(log_ratio, abs=1e-5)


def test_rank_names_the_nodes_that_lose_time(tmp_path, capsys):
    in_sample = SAMPLE / "npz/layout/tpu-estimate/random/train/cnn_train__a.npz"
    path = Path(shutil.copy(in_sample, tmp_path))  # outside a tree: its hardware is unknown
    command(path, top=3, workspace=tmp_path, model_from="shipped")
    out = " ".join(capsys.readouterr().out.split())
    assert "the shipped time model of TPU layouts, in which nothing is learned" in out
    share = r"configuration \d+: \d+\.\d% of the estimated \d+\.\d+ ms"
    assert re.search(rf"{share} is lost by node \d+, \w+", out)


def printed(path, *options):
    """Return the output of `rank` and the next command."""
    text = " ".join(here("rank", path, *options).out.split())
    out, _, following = text.partition("next: python run.py ")
    return out, following


def test_rank_says_why_the_shipped_ranker_ranks(trained, tmp_path):
    path = save_npz(tmp_path / "t.npz", tile_graph(5))
    work = ("--workspace", trained)
    asked, following = printed(path, *work, "--model-from", "shipped")
    assert "--model-from asks for the shipped ranker" in asked and "has no tile" not in asked
    assert f"explain {path} --workspace {trained} --model-from shipped #" in following
    shutil.rmtree(trained / "models/tile")
    assert "the workspace has no tile model" in printed(path, *work)[0]


def test_ties_for_first_are_counted_and_a_lone_configuration_has_no_next_step(tmp_path):
    arrays = layout_graph(5)
    out, following = printed(save_npz(tmp_path / "a.npz", arrays), "--workspace", tmp_path)
    ranking = run(tmp_path, tmp_path / "a.npz", model_from=None)
    tied = int((ranking.scores == ranking.scores.min()).sum())
    assert tied == ranking.tied_first > 1 and following.startswith("explain ")
    assert f"{tied} of 24 configurations tie for first, in file order" in out
    default, place = ranking.default_place
    assert (arrays["node_config_feat"][default] < 0).all()
    assert ranking.order[place - 1] == default
    assert f"the compiler's default, configuration {default}: place {place} of 24" in out
    alike = save_npz(tmp_path / "b.npz", trees.identical(arrays))
    out, following = printed(alike, "--workspace", tmp_path)
    assert "tie for first" not in out and not following


def test_a_program_without_configurable_nodes_is_explained(tmp_path):
    arrays = layout_graph(7)
    arrays["node_config_ids"] = arrays["node_config_ids"][:0]
    arrays["node_config_feat"] = arrays["node_config_feat"][:, :0]
    path = save_npz(tmp_path / "fixed.npz", arrays)
    explanation = explain(Workspace(tmp_path), path, config=1, against=0)
    assert explanation.difference == 0 and "identical" in explanation.notes[-1]


GPU_GRAPH = SAMPLE / "npz/layout/nvidia-h200/random/valid/crossattn__a.npz"


def test_layouts_of_a_gpu_are_ranked_and_explained_by_their_relayouts(tmp_path):
    """The first dot of attention is read across its rows: copies, in the words of a GPU."""
    work = Workspace(tmp_path)
    ranking = rank(work, GPU_GRAPH)
    assert (ranking.ranked_by, ranking.shipped) == ("the shipped relayout time", True)
    note = "this is the relayout time of nvidia-h200, in which nothing is learned"
    assert ranking.notes == [note]
    assert repr(ranking).startswith("<Ranking of 'crossattn__a' by the shipped relayout time: ")
    write_rankings(tmp_path / "out.csv", {"a": ranking})
    assert set(pl.read_csv(tmp_path / "out.csv")["model"]) == {"the shipped relayout time"}
    assert ranking.metrics["tau"] > 0.5 and ranking.node_times(0) == []
    measured = ranking.runtime[0]
    assert 0.5 < ranking.best(1)[0].estimated_ns / measured < 2, "nanoseconds of a data sheet"
    last = int(ranking.order[-1])
    parts = explain(work, GPU_GRAPH, config=0, against=last)
    spared = sum(copy.nanoseconds for copy in parts.copies_against)
    assert spared > sum(copy.nanoseconds for copy in parts.copies) > 0
    slowest = parts.copies_against[0]
    graph = read_graph(GPU_GRAPH)
    assert slowest.before != slowest.after and slowest.readers and slowest.node < graph.nodes
    times = [copy.nanoseconds for copy in parts.copies_against]
    assert times == sorted(times, reverse=True)
    assert {*parts.columns} == {"relayout__time__log"}
    difference = sum(node.nanoseconds for node in parts.nodes)
    times = {entry.configuration: entry.estimated_ns for entry in ranking.best(len(ranking.order))}
    assert difference == pytest.approx(times[0] - times[last], rel=1e-4)
    assert parts.estimated_ns == (times[0], times[last])
    of_tpu = SAMPLE / "npz/tile/tpu-estimate/valid/otherconvolutions__k04_4aac514ba348.npz"
    assert explain(work, of_tpu).copies == ()


def test_explain_prints_the_copies_of_each_configuration(tmp_path, capsys):
    explain_command(GPU_GRAPH, workspace=tmp_path, config=0, against="25")
    printed = capsys.readouterr().out
    assert "only 25 needs 6 copies, estimated" in printed
    assert "lanes" not in printed, "a GPU has none"


def test_a_collection_names_the_hardware_of_a_file_outside_a_tree(trained, tmp_path):
    """Without a model of that hardware, or with the shipped ranker; a typo is still refused."""
    path = save_npz(tmp_path / "x.npz", layout_graph(5))
    gpu = "layout:nvidia-h200:random"
    for options in ({}, {"model_from": "shipped"}):
        ranking = run(trained, path, gpu, **options)
        assert ranking.ranked_by == "the shipped relayout time" and ranking.collection == gpu
        assert ranking.as_json(1)["ranked_by"] == ranking.ranked_by
    assert run(tmp_path, path, "layout:tpu-estimate:random").shipped
    assert run(trained, path, "layout:cpu:random", model_from="shipped").collection == LAYOUT
    with pytest.raises(CollectionError, match="tile:cpu is a collection of tile graphs"):
        run(trained, path, "tile:cpu", model_from="shipped")
    with pytest.raises(CollectionError, match="did you mean"):
        run(trained, path, "layout:cpu")


def test_an_unknown_gpu_is_named_with_its_substitute(tmp_path):
    place = graph_path(tmp_path, "layout:nvidia-h300:random", "train", "x__a")
    path = save_npz(place, layout_graph(5))
    note = "nvidia-h300 is unknown and taken as an nvidia-a100"
    assert note in run(tmp_path, path).notes[0]
    work = ("--workspace", tmp_path / "work")
    for words in (("info",), ("build-features", *work)):
        assert f"note: {note}" in here(*words, "--data-root", tmp_path).out
    with pytest.warns(UserWarning, match=f"{note}.*known GPUs: nvidia-a100, nvidia-h100"):
        xlarank.GraphRanker(n_estimators=2, n_jobs=1).fit([path])


def test_rank_shows_the_span_of_the_runtimes_of_identical_configurations(tmp_path):
    arrays = trees.identical(layout_graph(5, configs=8))
    arrays["config_runtime"][:] = np.arange(1, 9) * 1_000_000
    arrays["config_runtime"][3] = 0
    path = save_npz(tmp_path / "a.npz", arrays)
    out, _ = printed(path, "--workspace", tmp_path)
    assert "1, 2, 3, 4 and 3 more (2.0000 to 8.0000 ms)" in out
