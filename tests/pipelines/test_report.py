"""The report, one page about a workspace; counts of a data root's graphs; meanings of columns."""

import os
import re
import shutil
from threading import Thread
from xml.etree import ElementTree

import pytest

from tests.graphs import LAYOUT_PROGRAM, save_npz
from tests.pipelines import trees
from tests.pipelines.trees import LAYOUT, LAYOUTS, TILE, TREE, graph_path, layout_graph, tile_graph
from xlarank.data.collection import SAMPLE
from xlarank.data.errors import CollectionError, XlarankError
from xlarank.data.workspace import Workspace
from xlarank.features.catalogue import BLOCKS, blocks_by_column
from xlarank.models.stored import ESTIMATED_TIME
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.info import info
from xlarank.pipelines.ranking.score_difference import explain
from xlarank.pipelines.report import copy_rows, report, section
from xlarank.pipelines.support.evaluation import comparison_cells


def read(page):
    """Return the text of a page and its words; raise an error if tags are not closed."""
    text = page.read_text(encoding="utf-8")
    plain = re.sub(
        r"<!doctype html>|<(meta|link)[^>]*>|<(style|script)>.*?</\2>", "", text, flags=re.S
    )
    return text, re.sub(r"\s+", " ", " ".join(ElementTree.fromstring(plain).itertext()))


@pytest.mark.slow
def test_the_page_needs_nothing_from_elsewhere_and_shows_the_scores_of_evaluate(
    shared_trained, tmp_path
):
    page = tmp_path / "report.html"
    sections = report(shared_trained, page)
    text, words = read(page)
    assert not re.findall(r"https?://[^\s\"'<>)/]+", text)
    assert not re.search(r"<(script|img|iframe|link)[^>]+(src|href)=\"(?!data:)", text)
    assert "prefers-color-scheme:dark" in text and "width=device-width" in text
    assert page.stat().st_size < 1_000_000
    assert str(shared_trained.parent) not in text, "no local path"
    evaluated = evaluate(shared_trained, split="valid")
    for shown in sections:
        used = evaluated.rankings[shown["name"]][shown["ranker"].name]
        assert shown["metrics"] == used and shown["sentence"] in words
        for row in comparison_cells(evaluated.comparison[shown["name"]]):
            assert " ".join(row.values()) in words
        for values in used.values():
            assert f"{values['score']:.3f}" in words
        assert shown["sentence"].startswith([*shown["graphs"][0]][1])
        assert not shown["worst"] or shown["worst"].graph == shown["graphs"][0]["graph"]
    asked = any(shown["copies"] for shown in sections)
    assert asked == ("fastest configuration of the worst graph not the first?" in words)
    assert "Which columns decide the order?" in words


def test_graphs_of_other_collections_are_in_the_training_set(trained):
    place = Workspace(trained)
    card = place.model(LAYOUTS) / "model.json"
    trees.edit_json(card, also_from={"layout:cpu:default": ["delta__b"]})
    shown = section(place, LAYOUTS)
    assert shown["left_out"] == {"delta__b": "in the training set of the model"}
    assert [*shown["metrics"]] == ["delta__a"]
    result = evaluate(place, split="valid", collection=[LAYOUT])
    assert result.left_out == {f"{LAYOUT} delta__b": "the model was trained on it"}


@pytest.mark.parametrize("with_valid", [False, True])
def test_without_other_valid_graphs_scores_are_out_of_fold(trained, tmp_path, with_valid):
    """The root has train alone, or the model learned from valid, too."""
    place = Workspace(trained)
    trees.train_models(trained, collection=[LAYOUT], rounds=5, with_valid=with_valid)
    if not with_valid:
        shutil.rmtree(place.features(LAYOUTS, "valid"))
    (shown,) = report(place, tmp_path / "report.html", collection=[LAYOUT])
    folds = trees.model_of(trained).card.folds
    assert folds.keys() == shown["metrics"].keys() and len(folds) == 5 + 2 * with_valid
    words = read(tmp_path / "report.html")[1]
    assert shown["sentence"] in words and ", out of fold by family" in words
    assert "rule: file order" in words and not shown["charts"]
    assert not shown["left_out"]


def test_the_report_describes_the_formula_that_ranks(trained, tmp_path):
    """Ranks, scores of graphs and columns are those of the formula."""
    place = Workspace(trained)
    folds = trees.model_of(trained).card.folds
    card = place.model(LAYOUTS) / "model.json"
    trees.edit_json(card, others={ESTIMATED_TIME: dict.fromkeys(folds, 2.0)})
    (shown,) = report(place, tmp_path / "report.html", collection=[LAYOUT])
    rankers = [row["ranker"] for row in shown["board"]]
    assert shown["ranker"].name == rankers[0] == ESTIMATED_TIME
    assert "lambdarank" in rankers, "the trained model stands beside it"
    assert [row["column"] for row in shown["columns"]] == [*shown["ranker"].rule.columns]
    words = read(tmp_path / "report.html")[1]
    assert f"{ESTIMATED_TIME} is the sum of" in words and "share of the gain" not in words


def test_copies_of_the_explained_configurations(tmp_path):
    path = SAMPLE / "npz/layout/nvidia-h200/random/valid/crossattn__a.npz"
    explained = explain(path, tmp_path, config=25, against=0)
    rows = copy_rows(explained)
    assert [row["needed by"] for row in rows] == ["configuration 25"] * 6 + ["configuration 0"] * 4
    assert rows[0] == {
        "needed by": "configuration 25",
        "output of node": 48,
        "layout": "{0,1} to {1,0}",
        "µs": pytest.approx(11.486, abs=1e-3),
    }


def test_without_models_and_with_names_that_look_like_html(built, tmp_path):
    page = tmp_path / "report.html"
    sections = report(Workspace(built.rename(tmp_path / "<b>own")), page)
    assert {shown["ranker"].name for shown in sections} == {ESTIMATED_TIME}, "without training"
    text, words = read(page)
    assert "<b>" not in text and "Workspace <b>own, written" in words
    with pytest.raises(CollectionError):
        report(tmp_path, tmp_path / "empty.html")
    assert not (tmp_path / "empty.html").exists()


def splits_of(root, **options):
    return {(part.collection, part.split): part for part in info(root, **options)}


def test_every_split_is_counted(shared_tree):
    parts = splits_of(shared_tree)
    assert list(parts) == [(collection, split) for collection in TREE for split in TREE[collection]]
    for (collection, split), part in parts.items():
        names = TREE[collection][split]
        assert (part.graphs, part.labelled) == (len(names), 0 if split == "test" else len(names))
        assert part.families == {name.split("__")[0] for name in names}
        paths = [graph_path(shared_tree, collection, split, name) for name in names]
        assert part.bytes == sum(path.stat().st_size for path in paths)
        assert (part.unrankable, part.broken) == ([], {})
    layout = parts[LAYOUT, "train"]
    tile = parts[TILE, "train"]
    assert (layout.configs, layout.distinct) == (5 * 24, 5 * 22)
    assert (layout.nodes, layout.configurable) == ([len(LAYOUT_PROGRAM)] * 5, [2] * 5)
    assert (tile.configs, tile.distinct, tile.configurable) == (4 * 24, 4 * 23, [])


def test_broken_and_unrankable_files_are_named(tree):
    """A named pipe is not waited for: opening one blocks until something is written to it."""
    graph_path(tree, LAYOUT, "train", "alpha__a").write_bytes(b"no zip")
    (graph_path(tree, LAYOUT, "train", "folder")).mkdir()
    save_npz(graph_path(tree, LAYOUT, "train", "even"), trees.even(layout_graph(0)))
    save_npz(graph_path(tree, LAYOUT, "train", "alike"), trees.identical(layout_graph(1)))
    partly = trees.even(tile_graph(9))  # equal costs, and configurations that were not measured
    partly["config_runtime"][2:] = 0
    save_npz(graph_path(tree, TILE, "valid", "even"), partly)
    save_npz(graph_path(tree, TILE, "valid", "without"), tile_graph(3, labelled=False))
    os.mkfifo(graph_path(tree, TILE, "valid", "pipe__a"))
    part = splits_of(tree)[LAYOUT, "train"]
    assert set(part.broken) == {"alpha__a", "folder"}
    assert "alpha__a.npz cannot be opened" in part.broken["alpha__a"]
    assert (part.graphs, part.labelled, part.unrankable) == (5 + 3, 6, ["alike", "even"])
    parts = {}
    reader = Thread(target=lambda: parts.update(splits_of(tree, collection=[TILE])), daemon=True)
    reader.start()
    reader.join(10)
    assert {collection for collection, _ in parts} == {TILE}
    part = parts[TILE, "valid"]
    assert (part.graphs, part.labelled) == (4, 2)
    assert (part.unrankable, [*part.broken]) == (["even"], ["pipe__a"])


def test_columns_are_found_by_name_or_pattern():
    (block,) = blocks_by_column("padding__output_waste__max").values()
    meaning = block.columns["padding__output_waste__max"].meaning
    assert meaning == "largest waste of output tensors of configurable nodes"
    assert (block.kinds, block.name, block.scope) == (("layout",), "padding", "configuration")
    assert "8 sublanes x 128 lanes" in block.about and not block.listwise
    (block,) = blocks_by_column("size__nodes__log").values()
    assert (block.kinds, block.scope) == (("layout", "tile"), "graph"), "one of both kinds"
    assert blocks_by_column("candidates__minority__share").popitem()[1].listwise
    declared = {name: block.name for block in BLOCKS for name in block.columns}
    assert blocks_by_column("*").keys() == declared.keys()
    in_order = [name for name, block in declared.items() if block == "violation"]
    assert [*blocks_by_column("violation__*")] == in_order
    typo = r"outptu_waste__max' is not a column.*padding__output_waste__max"
    for name, message in (("padding__outptu_waste__max", typo), ("qqq", "one of [0-9]+ columns;")):
        with pytest.raises(XlarankError, match=message):
            blocks_by_column(name)
