"""The peers know what they claim to know, and every ranker gets its line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers import NaivePooled, Split, compare, load
from tests.models.rows import COLUMNS, easy_data
from tests.pipelines.trees import LAYOUT, TILE, TREE, graph_path, layout_graph, tile_graph, write_tree
from xlarank.data.graph import read_graph
from xlarank.models.fit_settings import FitSettings
from xlarank.models.objectives import MAX_GROUP
from xlarank.models.registry import DEFAULT, RANKERS
from xlarank.models.validation.metrics import kendall_tau


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(RANKERS, NaivePooled.name, NaivePooled)
    yield


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("tree")).path


def split(root: Path, collection: str, name: str) -> Split:
    paths = [graph_path(root, collection, name, graph) for graph in TREE[collection][name]]
    return load(paths, "layout" if collection == LAYOUT else "tile")


def test_naive_rows_are_the_mean_of_the_raw_columns_of_a_layout(root: Path) -> None:
    raw = layout_graph(0)["node_config_feat"]
    graph = read_graph(graph_path(root, LAYOUT, "train", "alpha__a"), "layout")
    rows = split(root, LAYOUT, "train").naive[0]
    assert rows.columns[:3] == ["nodes", "edges", "configurable nodes"]
    assert rows.graph_values.tolist() == [graph.nodes, len(graph.edges), 2]
    assert rows.config_values[rows.group] == pytest.approx(raw.mean(axis=1))


def test_naive_rows_of_a_tile_are_its_columns(root: Path) -> None:
    number = sum(len(names) for names in TREE[LAYOUT].values())  # the first tile graph that the tree made
    rows = split(root, TILE, "train").naive[0]
    assert np.array_equal(rows.config_values[rows.group], tile_graph(number)["config_feat"])
    assert split(root, TILE, "test") == Split([], []), "graphs without labels are left out"


@pytest.mark.parametrize(("graphs", "configs"), [(6, 60), (1, MAX_GROUP + 1)])
def test_the_naive_ranker_learns_also_from_more_rows_than_lightgbm_takes(graphs: int, configs: int) -> None:
    data = easy_data(graphs, configs)
    ranker = NaivePooled(kind="layout").fit(data, FitSettings(10, threads=1))
    scores = ranker.predict(data.rows[:configs], COLUMNS)
    assert kendall_tau(scores, data.cost[:configs]) > 0.5


@pytest.mark.parametrize("collection", [LAYOUT, TILE])
def test_every_ranker_gets_its_line(root: Path, collection: str) -> None:
    kind = "layout" if collection == LAYOUT else "tile"
    train, valid = split(root, collection, "train"), split(root, collection, "valid")
    lines = list(compare(kind, train, valid, [DEFAULT], seeds=2, rounds=3, threads=1))
    first = "number of layouts set" if kind == "layout" else "random order"
    between = lines.index("")
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:between]] == [first, NaivePooled.name, DEFAULT]
    assert len({line.count("|") for line in lines[:between]}) == 1
    assert f"valid ({len(TREE[collection]['valid'])} graphs)" in lines[0]
    assert f"less {DEFAULT} (95 %, paired)" in lines[between + 1]
    assert [line.split(" | ")[0].strip("| ") for line in lines[between + 3 :]] == [first, NaivePooled.name]
    assert len({line.count("|") for line in lines[between + 1 :]}) == 1
