"""The report, one page about a workspace; counts of a data root's graphs; meanings of columns."""

import os
import re
import shutil
from dataclasses import replace
from threading import Thread
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.graphs import LAYOUT_PROGRAM, save_npz
from tests.pipelines import trees
from tests.pipelines.trees import LAYOUT, LAYOUTS, TILE, TREE, graph_path, layout_graph, tile_graph
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, XlarankError
from xlarank.data.workspace import Workspace
from xlarank.features.block import Scope, Tier
from xlarank.features.catalogue import BLOCKS
from xlarank.features.meanings import blocks_by_column
from xlarank.models.stored import ESTIMATED_TIME
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.info import info
from xlarank.pipelines.report import compared, mean_row, paired_test, report
from xlarank.pipelines.reporting import charts
from xlarank.pipelines.reporting.facts import gather
from xlarank.pipelines.support.verdicts import comparison_cells


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
    report(Workspace(shared_trained), page)
    text, words = read(page)
    sites = set(re.findall(r"https?://[^\s\"'<>)/]+", text))
    assert sites == {"http://www.w3.org"}, "names of XML, never fetched"
    assert not re.search(r"<(script|img|iframe|link)[^>]+(src|href)=\"(?!data:)", text)
    assert "prefers-color-scheme:dark" in text and "width=device-width" in text
    assert page.stat().st_size < 1_000_000
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids)) and set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)
    assert str(shared_trained.parent) not in text.split("Time and memory")[0], "no local path"
    assert "withheld" in words, "labels of the test split"
    assert "Beside the best simple count, of 2 models: " in words
    assert "Leaderboard" in words and "train, held out by family" in words
    evaluated = evaluate(Workspace(shared_trained), split="valid")
    for collection in (LAYOUT, TILE):
        assert evaluated.verdicts[collection] in words
        facts = gather(Workspace(shared_trained), Collection.parse(collection))
        assert sum(facts.importance.values()) == pytest.approx(bool(facts.ranker.members))
        shown = {row["graph"]: row["slowdown@1"] for row in facts.score_rows()}
        assert "ceiling of tau" not in facts.score_rows()[0], "no graph was measured twice"
        used = evaluated.rankings[collection][facts.ranker.name, None]
        assert shown == {name: values["slowdown@1"] for name, values in used.items()}
        for row in comparison_cells(evaluated.comparison[collection]):
            assert " ".join(row.values()) in words
        for values in used.values():
            assert f"{values['score']:.3f}" in words


@pytest.mark.slow
def test_graphs_of_other_collections_are_in_the_training_set(trained, tmp_path):
    place = Workspace(trained)
    card = place.model(LAYOUTS) / "model.json"
    trees.edit_json(card, also_from={"layout:cpu:default": ["delta__z"]})
    report(place, tmp_path / "a.html")
    words = read(tmp_path / "a.html")[1]
    known = "in the training set of the model"
    assert f"Valid graphs: 2 of 2 graphs are of families {known}" in words
    trees.edit_json(card, also_from={"layout:cpu:default": ["delta__b"]})
    facts = gather(place, LAYOUTS)
    assert facts.left_out == {"delta__b": known}
    assert [*facts.metrics] == ["delta__a"]
    result = evaluate(place, split="valid", collections=[LAYOUT])
    assert result.left_out == {f"{LAYOUT} delta__b": "the model was trained on it"}
    assert result.notes == [f"{LAYOUT}: 1 of 1 graph is of a family {known}"]


@pytest.mark.parametrize("with_valid", [False, True])
def test_without_other_valid_graphs_scores_are_out_of_fold(trained, tmp_path, with_valid):
    """The root has train alone, or the model learned from valid, too."""
    place = Workspace(trained)
    trees.train_models(trained, collections=[LAYOUT], rounds=5, with_valid=with_valid)
    if not with_valid:
        shutil.rmtree(place.features(LAYOUTS, "valid"))
    (facts,), _ = report(place, tmp_path / "report.html", collections=[LAYOUT])
    folds = trees.model_of(trained).card.folds
    mean = np.mean([metrics["score"] for metrics in folds.values()])
    assert facts.score == (pytest.approx(mean), 5 + 2 * with_valid)
    words = read(tmp_path / "report.html")[1]
    assert "each scored by rankers fitted without it" in words and "rule: file order" in words
    assert facts.reason == ""
    assert facts.sentence.startswith(f"Kendall tau {mean:.3f} by lambdarank on ")
    assert ", out of fold" in facts.sentence


def test_pictures_are_files_that_stand_alone(shared_trained, tmp_path):
    options = {"collections": [LAYOUT], "figures": tmp_path / "figures"}
    _, pictures = report(Workspace(shared_trained), tmp_path / "report.html", **options)
    names = {path.stem for path in pictures}
    kinds = ("scores", "slowdown1", "slowdown5", "causes")
    assert {f"{kind}-layout-cpu-random" for kind in kinds} <= names
    assert "ranks-layout-cpu-random-worst" in names
    for path in pictures:
        text = path.read_text(encoding="utf-8")
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        assert not re.search(r"var\(--|currentColor|<style|system-ui", text), "no style of a page"
        assert re.search(r'<svg [^>]*width="[\d.]+pt" height="[\d.]+pt"[^>]*><rect ', text)


def test_the_report_describes_the_formula_that_ranks(trained, tmp_path):
    """Ranks, scores of graphs and columns are those of the formula."""
    place = Workspace(trained)
    card = place.model(LAYOUTS) / "model.json"
    folds = trees.model_of(trained).card.folds
    trees.edit_json(card, others={ESTIMATED_TIME: dict.fromkeys(folds, 2.0)})
    facts = gather(place, LAYOUTS)
    assert facts.ranker.name == ESTIMATED_TIME and not facts.importance
    for row in facts.score_rows():
        assert row["slowdown@1"] == facts.rankings[ESTIMATED_TIME, None][row["graph"]]["slowdown@1"]
    report(place, tmp_path / "report.html", collections=[LAYOUT])
    words = read(tmp_path / "report.html")[1]
    assert f"The following describes {ESTIMATED_TIME}, which ranks." in words
    assert "Column importance" not in words


def test_equal_scores_do_not_hide_each_other(monkeypatch):
    drawn = []
    monkeypatch.setattr(charts, "_to_svg", lambda axes, _: drawn.append(axes) or "")
    rankings = ("lambdarank", "rule: file order", "rule: largest tile")
    values = dict.fromkeys(rankings, np.array([0.5, 0.6]))
    charts.metric_chart("x", ["a", "b"], values, "tau", np.arange(2))
    lines = {line.get_label(): line for line in drawn[0].get_lines()}
    assert len({tuple(line.get_ydata()) for line in lines.values()}) == len(rankings)
    assert all(abs(line.get_ydata() - [0, 1]).max() < 0.5 for line in lines.values())
    styles = {name: line.get_fillstyle() for name, line in lines.items()}
    assert styles == dict.fromkeys(rankings, "none") | {"lambdarank": "full"}
    charts.ranks_chart("x", "a graph", predicted=np.array([0.0, 0.5]), measured=np.ones(2))
    points = drawn.pop().get_lines()[-1]
    assert (*points.get_xdata(), *points.get_ydata()) == (1, 1, 0, 0.5), "labels along x"
    many = {"lambdarank": np.arange(70) / 100}
    charts.metric_chart("x", list(map(str, range(70))), many, "tau", np.arange(70))
    (line,) = drawn.pop().get_lines()
    assert line.get_xdata().tolist() == many["lambdarank"][:60].tolist(), "the worst"


def test_without_models_and_with_names_that_look_like_html(built, tmp_path):
    manifest = Workspace(built).features(LAYOUTS, "train") / "manifest.json"
    trees.edit_json(manifest, broken={"<script>alert(1)</script>": "a & b <i>"})
    picture = built / "reports" / "tune-layout-cpu-random-lambdarank.svg"
    picture.parent.mkdir(exist_ok=True)
    picture.write_text('<svg xmlns="http://www.w3.org/2000/svg"><script>alert(2)</script></svg>')
    page = tmp_path / "report.html"
    all_facts, _ = report(Workspace(built), page)
    assert {facts.ranker.name for facts in all_facts} == {ESTIMATED_TIME}, "without training"
    text, words = read(page)
    assert 'src="data:image/svg+xml;base64,' in text, "browsers run no script of an image"
    assert "<script>alert" not in text and "<script>alert(1)</script>" in words
    with pytest.raises(CollectionError):
        report(Workspace(tmp_path), tmp_path / "empty.html")
    assert not (tmp_path / "empty.html").exists()


def test_intervals_and_the_paired_test(shared_trained):
    ours = gather(Workspace(shared_trained), LAYOUTS)
    swapped = dict(zip(ours.metrics, reversed(ours.metrics.values()), strict=True))
    first, second = (row["Kendall tau"] for row in ours.score_rows())
    theirs = replace(ours, rankings={("lambdarank", None): swapped})
    assert compared(ours, theirs)[1].tolist() == [first - second, second - first]
    # all of 10 differences of one sign: p = 2 / 2**10
    assert "p = 0.00195, more than chance" in paired_test(np.linspace(0.01, 0.1, 10))
    assert "no more than chance" in paired_test(np.array([0.1, -0.1, 0.2, -0.2, 0.3, -0.3, 0.05]))
    assert paired_test(np.array([0.1, 0.0, 0.2])) == "Too few graphs differ for a test: 2."
    graph = next(iter(ours.metrics))
    ours.metrics[graph]["tau_ceiling"] = 0.75
    assert [row["ceiling of tau"] for row in ours.score_rows()] == [0.75, None]
    rows = [{"graph": "a", "n": 3, "tau": 0.5}, {"graph": "b", "n": 4, "tau": 0.5}]
    assert [*mean_row(rows).values()] == ["mean, 95 % interval", None, "0.500 (0.500 to 0.500)"]


def splits_of(root, **options):
    return {(part.collection, part.split): part for part in info(trees.data_root(root), **options)}


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
    reader = Thread(target=lambda: parts.update(splits_of(tree, collections=[TILE])), daemon=True)
    reader.start()
    reader.join(10)
    assert {collection for collection, _ in parts} == {TILE}
    part = parts[TILE, "valid"]
    assert (part.graphs, part.labelled) == (4, 2)
    assert (part.unrankable, [*part.broken]) == (["even"], ["pipe__a"])


def test_siblings_are_graphs_of_the_structure_of_a_train_graph(tmp_path):
    """One program twice in train and once in valid, another in train and in test."""
    arrays = layout_graph(0)
    cut = {**arrays, "edge_index": arrays["edge_index"][1:]}
    places = {
        "train a__a": arrays,
        "train a__b": arrays,
        "train b__a": cut,
        "valid a__c": arrays,
        "test b__b": cut,
    }
    for place, graph in places.items():
        save_npz(graph_path(tmp_path, LAYOUT, *place.split()), graph)
    siblings = {split: part.siblings for (_, split), part in splits_of(tmp_path).items()}
    assert siblings == {"train": 2, "valid": 1, "test": 1}


def test_columns_are_found_by_name_or_pattern():
    (block,) = blocks_by_column("padding__output_waste__max").values()
    meaning = block.columns["padding__output_waste__max"]
    assert meaning == "largest waste of output tensors of configurable nodes"
    assert (block.kinds, block.title, block.scope) == (("layout",), "Padding", Scope.CONFIG)
    assert (
        block.tier is Tier.FAST
        and "8 sublanes x 128 lanes" in block.about
        and not block.transductive
    )
    (block,) = blocks_by_column("size__nodes__log").values()
    assert (block.kinds, block.scope) == (("layout", "tile"), Scope.GRAPH), "one of both kinds"
    assert blocks_by_column("candidates__minority__share").popitem()[1].transductive
    declared = {name: type(block).__name__ for block in BLOCKS for name in block.columns}
    assert blocks_by_column("*").keys() == declared.keys()
    in_order = [name for name, block in declared.items() if block == "Violation"]
    assert [*blocks_by_column("violation__*")] == in_order
    typo = r"outptu_waste__max' is not a column.*padding__output_waste__max"
    for name, message in (("padding__outptu_waste__max", typo), ("qqq", "one of [0-9]+ columns;")):
        with pytest.raises(XlarankError, match=message):
            blocks_by_column(name)
