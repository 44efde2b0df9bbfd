"""Ranking and explanation of a graph: the choice of the model, what is shown, parts that add up."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

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
from xlarank.data.collection import SAMPLE, Collection
from xlarank.data.errors import (
    CollectionError,
    GraphFileError,
    ModelError,
    ParameterError,
    XlarankError,
)
from xlarank.data.graph import read_graph
from xlarank.data.workspace import Workspace
from xlarank.models.stored import ESTIMATED_TIME, SHIPPED_TREES, formula
from xlarank.models.validation.metrics import SPEEDUPS, graph_metrics
from xlarank.pipelines.rank import rank, rank_folder, write_rankings
from xlarank.pipelines.ranking.model_choice import best_of, choose_for_collection, rows_for_model
from xlarank.pipelines.ranking.score_difference import explain, explain_graph, segments_of
from xlarank.pipelines.support.evaluation import evaluate_graph


def run(workspace, path, collection=None, model_from="trained"):
    return rank(path, workspace, collection=collection, model_from=model_from)


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
    assert [entry["rank"] for entry in best] == list(range(1, 23))
    repeats = {entry["configuration"]: entry["identical"] for entry in best}
    assert sorted(repeats) == list(range(22)) and repeats.pop(0) == [22, 23]
    assert not any(repeats.values())
    scores = [ranking.scores[entry["configuration"]] for entry in best]
    assert [entry["score"] for entry in best] == scores == sorted(scores)
    assert ranking.best(3) == best[:3] and ranking.best(100) == best


def test_every_view_shows_own_runtimes_and_speedups_by_the_least_of_the_repeats(
    shared_trained, tmp_path
):
    """The default of 5 ms and 3 ms is once as fast as itself; all commands agree."""
    arrays = layout_graph(71)
    arrays["config_runtime"][[0, 22, 23]] = 5_000_000, 3_000_000, 0  # identical: no layouts set
    path = save_npz(tmp_path / "x__a.npz", arrays)
    named = {"collection": LAYOUT, "model_from": "trained"}
    ranking = xlarank.rank(str(path), workspace=str(shared_trained), **named)
    assert isinstance(ranking, xlarank.Ranking)
    of_graph = xlarank.rank(xlarank.read_graph(path), shared_trained, **named)
    assert ranking.order.tolist() == of_graph.order.tolist()
    best = {entry["configuration"]: entry for entry in ranking.best()}
    default = best[0]
    assert (default["runtime_ns"], default["speedup"]) == (5_000_000, 1.0)
    assert default["identical"] == [22, 23]
    assert best[1]["speedup"] == pytest.approx(3_000_000 / arrays["config_runtime"][1])
    assert default in ranking.as_json()["best"]
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


def test_the_highest_mean_out_of_fold_ranks_and_says_why(trained, path):
    """The scores of the formula and of the model are made up, on the graphs that folds scored."""
    card = trained / "models/layout/cpu/random/model.json"
    folds = json.loads(card.read_text())["folds"]
    own = {graph: values["score"] for graph, values in folds.items()}
    mean = np.mean([*own.values()])
    better = {name: 0.001 + score for name, score in own.items()}
    worse = {name: score - 0.001 for name, score in own.items()}
    by_model = run(trained, path)
    assert by_model.ranked_by == "lambdarank"
    on = f"out of fold on {len(own)} graphs"
    for others, chosen, said in (
        ({ESTIMATED_TIME: worse}, False, f"{mean:.3f} {on}; estimated time {mean - 0.001:.3f}"),
        ({ESTIMATED_TIME: better}, True, f"{mean + 0.001:.3f} {on}; lambdarank {mean:.3f}"),
        ({ESTIMATED_TIME: dict.fromkeys([*own][:2], 2.0)}, False, f"{mean:.3f} {on}"),
        ({"rule: fewest layouts set": dict.fromkeys(own, 2.0)}, False, f"{mean:.3f} {on}"),
        ({SHIPPED_TREES: dict.fromkeys(own, 2.0)}, False, f"{mean:.3f} {on}"),  # of tiles
        ({}, False, f"{mean:.3f} {on}"),
    ):
        trees.edit_json(card, others=others)
        ranking = run(trained, path, model_from=None)
        name = ESTIMATED_TIME if chosen else "lambdarank"
        assert (ranking.ranked_by, ranking.reason) == (name, f"{name}, {said}")
        layouts = stored(trained, LAYOUT, "valid")["delta__a"]
        expected = formula("layout", "cpu").score(layouts)[layouts.group]
        assert ranking.scores == pytest.approx(expected if chosen else by_model.scores)
        assert run(trained, path).scores == pytest.approx(by_model.scores)
    trees.edit_json(card, folds={})
    ranking = run(trained, path, model_from=None)
    why = "no families were held out to score lambdarank"
    assert ranking.reason == f"{ESTIMATED_TIME}: {why}"


def test_the_highest_value_by_the_criterion_of_the_model_ranks(shared_trained):
    """Means 0.5 and 0.45; less a quarter of the standard deviations 0.5 and 0: 0.375 and 0.45."""
    model = trees.model_of(shared_trained, LAYOUT)
    spread = {"a": {"score": 0.0}, "b": {"score": 1.0}}
    even = {ESTIMATED_TIME: dict.fromkeys("ab", 0.45)}
    for select, name, value in (("mean", "lambdarank", 0.5), ("robust", ESTIMATED_TIME, 0.45)):
        card = replace(model.card, folds=spread, others=even, select=select)
        choice = best_of(replace(model, card=card))
        assert choice.model.name == name and choice.trained.card is card
        assert choice.reason.startswith(f"{name}, {value:.3f} out of fold on 2 graphs; ")


def test_a_graph_that_the_model_was_trained_on_is_named(trained, shared_tree):
    known = run(trained, graph_path(shared_tree, LAYOUT, "train", "alpha__a"))
    score = trees.model_of(trained, LAYOUT).card.folds["alpha__a"]["score"]
    (note,) = known.notes
    assert "was trained on this graph" in note and f"out of fold, its score is {score:.3f}" in note


def test_without_labels_or_default(shared_tree, shared_trained, tmp_path):
    ranking = run(shared_trained, graph_path(shared_tree, TILE, "test", "sort__a"))
    assert ranking.metrics is None and {entry["runtime_ns"] for entry in ranking.best()} == {None}
    assert ranking.to_polars()["runtime_ns"].null_count() == 24
    value = json.loads(json.dumps(ranking.as_json(4), allow_nan=False))
    assert value["order"] == ranking.order.tolist()
    assert value["best"] == ranking.best(4)
    lone = run(shared_trained, save_npz(tmp_path / "lone.npz", tile_graph(0, configs=1)), TILE)
    assert (lone.order.tolist(), lone.metrics) == ([0], None)
    arrays = layout_graph(71)
    arrays["node_config_feat"][:, 1] = layout_row(output=(0, 1))  # no configuration sets nothing
    ranking = run(shared_trained, save_npz(tmp_path / "b.npz", arrays), LAYOUT)
    assert ranking.metrics is not None and ranking.speedups is None
    assert ranking.best(1)[0]["speedup"] is None


def test_the_trained_model_is_that_of_the_collection_or_of_the_folder(
    trained, tmp_path, monkeypatch
):
    other = "layout:cpu:default"
    shutil.rmtree(trained / "features")
    layout = save_npz(tmp_path / "x.npz", layout_graph(5))
    with pytest.raises(CollectionError, match=f"{TILE} is a collection of tile graphs"):
        run(trained, layout, TILE)
    with pytest.raises(ModelError, match=f"{other} has no trained model in .*run train first"):
        run(trained, layout, other)
    ranking = run(trained, layout, other, model_from=None)
    assert ranking.reason.endswith("on cpu; no trained model")
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
    for name in (other, str(new)):
        ranking = run(trained, layout, LAYOUT, model_from=name)
        assert (ranking.collection, ranking.reason) == (other, f"lambdarank of {name}")
    with pytest.raises(ModelError, match=f"the model of {TILE} ranks tile graphs"):
        run(trained, layout, LAYOUT, model_from=TILE)
    expected = f"no model 'x'; expected trained, shipped, {other}, {LAYOUT}, {TILE}, a folder with"
    with pytest.raises(ModelError, match=expected):
        run(trained, layout, LAYOUT, model_from="x")


@pytest.mark.parametrize(
    ("target", "reason"),
    [("tpugraphs", "of the matrix unit (TpuGraphs)"), ("nvidia-h100", "of copies on nvidia-h100")],
)
def test_the_hardware_of_a_file_is_its_folder_its_own_word_or_an_argument(
    trained, tmp_path, target, reason
):
    """Nothing is taken from the workspace, which has a model of a CPU."""
    bare = save_npz(tmp_path / "x.npz", layout_graph(5))
    with pytest.raises(ParameterError, match="x does not say its hardware; expected tpugraphs for"):
        run(trained, bare, model_from=None)
    tagged = save_npz(tmp_path / "y.npz", layout_graph(5) | {"target": np.array(target)})
    by_argument = rank(bare, trained, target=target)
    by_tag = run(trained, tagged, model_from=None)
    for ranking in (by_argument, by_tag):
        assert (ranking.ranked_by, ranking.target) == (ESTIMATED_TIME, target)
        assert ranking.reason == f"{ESTIMATED_TIME} {reason}"
    assert by_argument.scores.tolist() == by_tag.scores.tolist()
    folder = graph_path(tmp_path, "layout:nvidia-a100:random", "valid", "z__a")
    in_tree = save_npz(folder, layout_graph(5) | {"target": np.array(target)})
    assert run(trained, in_tree, model_from=None).target == "nvidia-a100"
    assert rank(in_tree, trained, target=target).target == target
    with pytest.raises(ParameterError, match="both `target` and `collection` are given"):
        rank(bare, trained, target=target, collection=LAYOUT)
    with pytest.raises(ParameterError, match="`target` is 'tpu'; expected tpugraphs"):
        rank(bare, trained, target="tpu")


def test_what_ships_needs_no_workspace_and_tiles_of_tpus_are_ranked_by_trees(tmp_path):
    tile = save_npz(tmp_path / "t.npz", tile_graph(5))
    absent = tmp_path / "absent"
    ranking = run(absent, tile, "tile:xla", model_from=None)
    assert (ranking.ranked_by, ranking.collection) == (SHIPPED_TREES, None)
    times = [entry["estimated_ns"] for entry in ranking.best()]
    assert times == sorted(times, key=float)
    assert times[0] == ranking.as_json(1)["best"][0]["estimated_ns"]
    assert ranking.as_json()["scores"] == ranking.scores.tolist()
    of_cpu = run(absent, tile, TILE, model_from=None)
    assert of_cpu.reason == f"{ESTIMATED_TIME} of the loops on cpu"
    shipped = choose_for_collection(Workspace(absent), Collection.parse("tile:xla"))
    assert shipped.model.card.collection == "tile:tpu-estimate" and shipped.trained is None
    with pytest.raises(ModelError, match="no ranker of tiles for nvidia-h100 is shipped"):
        run(absent, tile, "tile:nvidia-h100", model_from=None)
    unnamed = "nothing ranks layouts of hardware that is not named.*cpu-mine"
    with pytest.raises(ModelError, match=unnamed):
        run(absent, save_npz(tmp_path / "x.npz", layout_graph(5)), "layout:mine:x", model_from=None)


def test_graphs_of_a_folder_are_ranked_and_other_files_named(tree, shared_trained, tmp_path):
    with pytest.raises(GraphFileError, match="cannot be opened"):
        xlarank.rank(tmp_path, shared_trained)
    with pytest.raises(GraphFileError, match="holds no npz files"):
        rank_folder(shared_trained / "models", shared_trained)
    folder = graph_path(tree, LAYOUT, "valid", "x").parent
    (folder / "broken.npz").write_bytes(b"no zip")
    for ignored in (".venv/lib", "env/lib"):
        (folder / ignored).mkdir(parents=True)
        shutil.copy(folder / "delta__a.npz", folder / ignored / "test-data.npz")
    for environment in ("env", "."):  # a folder that was named is read
        (folder / environment / "pyvenv.cfg").touch()
    rankings, broken = rank_folder(folder, shared_trained)
    assert set(rankings) == {"delta__a", "delta__b"} and set(broken) == {"broken"}
    alone = run(shared_trained, folder / "delta__a.npz")
    write_rankings(tmp_path / "out.csv", rankings)
    first = pl.read_csv(tmp_path / "out.csv").filter(graph="delta__a")
    columns = ("configuration", "score", "speedup")
    assert first[columns].rows() == [
        tuple(entry[name] for name in columns) for entry in alone.best()
    ]
    write_rankings(tmp_path / "out.csv", {"caf\udce9": alone})
    assert r"caf\udce9" in (tmp_path / "out.csv").read_text(), "all UTF-8"


def explained(workspace, path, **asked):
    return explain(path, workspace, collection=LAYOUT, **asked)


def test_causes_and_columns_add_up_to_the_difference(shared_trained, path, capsys):
    ranking = run(shared_trained, path)
    explain_command(path, config=2, against="13", workspace=shared_trained)
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r" 13 \(rank \d+\), by ", shown)
    assert "configuration 13" not in shown, "named once"
    behind = replace(explained(shared_trained, path, config=2, against=13), difference=0.5)
    _show_difference(replace(behind, ranks=(1, 2)))
    assert "is ranked ahead of" in capsys.readouterr().out, "a fallback may decide"
    for config in (0, 5, 11):
        result = explained(shared_trained, path, config=config, against=20)
        assert result.difference == pytest.approx(ranking.scores[config] - ranking.scores[20])
        for parts in (result.causes, result.columns):
            assert sum(parts.values()) == pytest.approx(result.difference, abs=1e-6)
        assert ranking.explain(config, 20) == result


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
    assert (alike.difference, alike.nodes, alike.segments) == (0, (), ())
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

    def sums(changes):
        return [tuple(segment.values()) for segment in segments_of(graph, changes)]

    assert sums({0: -1.0, 1: -1.0, 3: -0.9}) == [((0, 1), -2.0), ((3,), -0.9)]
    assert sums({0: -1.0, 4: 0.8}) == [((0, 4), pytest.approx(-0.2))]
    # 5 of 5.2 is more than four fifths: the rest is left out
    assert sums({0: 5.0, 1: 0.1, 4: -0.1}) == [((0,), 5.0)]
    assert sums({}) == sums({0: 0.0}) == []


def test_the_time_model_explains_itself_in_nanoseconds_that_add_up():
    """Times are those of the model to the last bit; contributions are float32 sums."""
    graph = read_graph(SAMPLE / "npz/layout/tpu-estimate/random/valid/unet__a.npz", "layout")
    explanation = explain_graph(graph, formula("layout", "tpugraphs"), config=13, against="default")
    assert explanation.estimated_ns is not None and explanation.nodes
    difference = pytest.approx(np.subtract(*explanation.estimated_ns), rel=1e-3)
    assert sum(node["nanoseconds"] for node in explanation.nodes) == difference
    log_ratio = np.log2(np.divide(*explanation.estimated_ns))
    assert explanation.difference == pytest.approx(log_ratio, abs=1e-5)


def printed(path, *options):
    """Return the output of `rank` and the next command."""
    text = " ".join(here("rank", path, *options).out.split())
    out, _, following = text.partition("next: python run.py ")
    return out, following


def test_ties_share_a_line_and_a_lone_configuration_has_no_next_step(tmp_path):
    arrays = layout_graph(5)
    words = ("--workspace", tmp_path, "--target", "tpugraphs")
    out, following = printed(save_npz(tmp_path / "a.npz", arrays), *words, "--top", "1")
    printed_all, _ = printed(tmp_path / "a.npz", *words)
    ranking = rank(tmp_path / "a.npz", tmp_path, target="tpugraphs")
    tied = np.flatnonzero(ranking.scores == ranking.scores.min())
    assert len(tied) == ranking.tied_first > 1
    options = f"--workspace {tmp_path} --target tpugraphs"
    assert following.startswith(f"explain {tmp_path}/a.npz {options}")
    first, *others = ranking.ties()
    assert first.tolist() == tied.tolist()
    runtimes = arrays["config_runtime"][tied]
    assert f" {', '.join(map(str, tied))} " in out
    span = f"{runtimes.min() / 1e6:.4f} to {runtimes.max() / 1e6:.4f}"
    assert span in out and f"(expected over {len(tied)} ties)" in out
    assert [len(tie) for tie in ranking.ties(2)] == [len(tied), len(others[0])]
    assert f" {1 + len(tied)} {others[0][0]}" in printed_all
    default, place, with_it = ranking.default_place
    assert (arrays["node_config_feat"][default] < 0).all()
    ahead = (ranking.scores < ranking.scores[default]).sum()
    assert (place, with_it) == (ahead + 1, (ranking.scores == ranking.scores[default]).sum() - 1)
    assert f"the compiler's default, configuration {default}: place {place}, with {with_it}" in out
    alike = save_npz(tmp_path / "b.npz", trees.identical(arrays))
    out, following = printed(alike, *words)
    assert "ties)" not in out and not following


def test_a_program_without_configurable_nodes_is_explained(tmp_path):
    arrays = layout_graph(7)
    arrays["node_config_ids"] = arrays["node_config_ids"][:0]
    arrays["node_config_feat"] = arrays["node_config_feat"][:, :0]
    path = save_npz(tmp_path / "fixed.npz", arrays)
    explanation = explain(path, tmp_path, config=1, against=0, target="cpu")
    assert explanation.difference == 0 and "identical" in explanation.notes[-1]


GPU_GRAPH = SAMPLE / "npz/layout/nvidia-h200/random/valid/crossattn__a.npz"


def test_layouts_of_a_gpu_are_ranked_and_explained_by_their_relayouts(tmp_path, capsys):
    """The first dot of attention is read across its rows: copies, in the words of a GPU."""
    work = Workspace(tmp_path)
    ranking = rank(GPU_GRAPH, work)
    assert ranking.reason == "estimated time of copies on nvidia-h200"
    assert repr(ranking).startswith("<Ranking of 'crossattn__a' by estimated time: ")
    write_rankings(tmp_path / "out.csv", {"a": ranking})
    assert set(pl.read_csv(tmp_path / "out.csv")["model"]) == {"estimated time"}
    assert ranking.metrics["tau"] > 0.5
    measured = ranking.runtime[0]
    assert 0.5 < ranking.best(1)[0]["estimated_ns"] / measured < 2, "nanoseconds of a data sheet"
    last = int(ranking.order[-1])
    parts = explain(GPU_GRAPH, work, config=0, against=last)
    spared = sum(copy.nanoseconds for copy in parts.copies_against)
    assert spared > sum(copy.nanoseconds for copy in parts.copies) > 0
    slowest = parts.copies_against[0]
    graph = read_graph(GPU_GRAPH)
    assert slowest.before != slowest.after and slowest.readers and slowest.node < graph.nodes
    times = [copy.nanoseconds for copy in parts.copies_against]
    assert times == sorted(times, reverse=True)
    assert {*parts.columns} == {"relayout__time__log"}
    difference = sum(node["nanoseconds"] for node in parts.nodes)
    assert parts.estimated_ns == (ranking.estimated[0], ranking.estimated[last])
    assert difference == pytest.approx(np.subtract(*parts.estimated_ns), rel=1e-4)
    of_tpu = SAMPLE / "npz/tile/tpu-estimate/valid/otherconvolutions__k04_4aac514ba348.npz"
    tile = explain(of_tpu, work, config=1)
    assert (tile.copies, tile.nodes) == ((), ())
    assert tile.against == 0, "the first tile is the compiler's default"
    explain_command(GPU_GRAPH, workspace=tmp_path, config=0, against="25")
    shown = capsys.readouterr().out
    assert "only 25 needs 6 copies, estimated" in shown
    assert "lanes" not in shown, "a GPU has none"


def test_an_unknown_gpu_is_named_with_its_substitute(tmp_path):
    place = graph_path(tmp_path, "layout:nvidia-h300:random", "train", "x__a")
    path = save_npz(place, layout_graph(5))
    note = "nvidia-h300 is unknown and taken as nvidia-a100"
    assert note in run(tmp_path, path, model_from=None).reason
    with pytest.warns(UserWarning, match=f"{note}.*known: nvidia-a100, nvidia-h100"):
        xlarank.GraphRanker(n_estimators=2, n_jobs=1).fit([path])
