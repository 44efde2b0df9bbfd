"""The rehearsal's tree: official totals, and files whose nodes take the rows that their template's take."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.full_size_report import Learning, Line
from benchmarks.full_size_shapes import MOST, MOST_CELLS, OFFICIAL, SPLITS, Shape, draw_shapes, pick_share, scale_to
from benchmarks.full_size_tree import STRETCH, Templates, write_layout, write_tile
from xlarank.data.graph import LayoutGraph, TileGraph, read_graph

SAMPLE = Path(__file__).parents[2] / "data" / "sample" / "npz"


@pytest.fixture(scope="module")
def templates() -> Templates:
    return Templates.below(SAMPLE)


@pytest.mark.parametrize("collection", OFFICIAL)
def test_graphs_and_configurations_are_the_official_numbers(collection: str) -> None:
    shapes = draw_shapes(collection)
    splits, configs = OFFICIAL[collection]
    assert Counter(shape.split for shape in shapes) == dict(zip(SPLITS, splits, strict=True))
    assert sum(shape.configs for shape in shapes) == configs
    assert len({shape.name for shape in shapes}) == len(shapes)
    assert max(shape.configs for shape in shapes) <= MOST
    if collection.startswith("layout"):
        assert max(shape.cells for shape in shapes) <= MOST_CELLS
        assert min(shape.configurable for shape in shapes) >= 20
    assert shapes == draw_shapes(collection), "the same seed, the same sizes"
    assert shapes != draw_shapes(collection, seed=1)


@pytest.mark.parametrize(("total", "low", "high"), [(10, 0, 10), (3, 1, 9), (27, 1, 9), (20, 2, 8)])
def test_scaled_numbers_add_up_within_their_bounds(total: int, low: int, high: int) -> None:
    found = scale_to(np.array([0.1, 1.0, 7.0]), total, low, high)
    assert found.sum() == total
    assert found.min() >= low
    assert found.max() <= high
    assert (np.diff(found) >= 0).all()


def test_numbers_that_cannot_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="2 numbers from 1 to 4 cannot add up to 9"):
        scale_to(np.array([1.0, 2.0]), 9, 1, 4)


def test_a_share_holds_the_largest_of_each_split() -> None:
    shapes = draw_shapes("layout:xla:random")
    picked = pick_share(shapes, 0.1)
    assert Counter(shape.split for shape in picked) == {"train": 7, "valid": 1, "test": 1}
    for split in SPLITS:
        most = [max(shape.cells for shape in part if shape.split == split) for part in (shapes, picked)]
        assert most[0] == most[1]
    assert pick_share(shapes, 1.0) == shapes


def test_a_layout_file_has_the_shape_asked_for_and_rows_of_its_template(
    templates: Templates, tmp_path: Path
) -> None:
    template = templates.of("cpu")[0]
    each = len(template.configurable)
    shape = Shape("train", "conv__7", configs=300, configurable=2 * each + 1)
    unpacked = write_layout(tmp_path / "conv__7.npz", shape, [template])
    graph = read_graph(tmp_path / "conv__7.npz")
    assert isinstance(graph, LayoutGraph)
    assert (graph.configs, len(graph.configurable)) == (300, shape.configurable)
    assert graph.nodes == 3 * template.nodes
    assert unpacked > 300 * shape.configurable * 72
    assert graph.labelled
    assert graph.duplicates.distinct <= 195, "0.65 of them are different at most"
    assert graph.duplicates.distinct > 100
    for node in range(shape.configurable):
        mine = graph.table.rows[graph.table.start[node] : graph.table.start[node + 1]]
        at = node % each
        theirs = template.table.rows[template.table.start[at] : template.table.start[at + 1]]
        assert {row.tobytes() for row in mine} <= {row.tobytes() for row in theirs}
    stretch = graph.table.rows[graph.table.codes[:, : min(STRETCH, each)]].reshape(300, -1)
    known = template.table.rows[template.table.codes[:, : min(STRETCH, each)]].reshape(template.configs, -1)
    assert {row.tobytes() for row in stretch} <= {row.tobytes() for row in known}, "neighbours go together"


def test_a_test_graph_is_withheld_and_a_file_is_written_the_same_again(
    templates: Templates, tmp_path: Path
) -> None:
    shape = Shape("test", "0" * 32, configs=50, configurable=5)
    for name in ("a.npz", "b.npz"):
        write_layout(tmp_path / name, shape, templates.of("xla"))  # the sample has none: any source will do
    first, second = (read_graph(tmp_path / name) for name in ("a.npz", "b.npz"))
    assert not first.labelled
    assert isinstance(first, LayoutGraph)
    assert isinstance(second, LayoutGraph)
    assert np.array_equal(first.table.codes, second.table.codes)
    assert not list(tmp_path.glob("*.partial"))


def test_a_tile_file_is_whole_and_its_sums_and_products_agree(templates: Templates, tmp_path: Path) -> None:
    write_tile(tmp_path / "k.npz", Shape("train", "k", configs=200, configurable=0), templates.tile)
    graph = read_graph(tmp_path / "k.npz")
    assert isinstance(graph, TileGraph)
    assert graph.configs == 200
    assert graph.duplicates.distinct > 20
    for first in (0, 8, 16):
        bounds = graph.config_feat[:, first : first + 6]
        assert np.array_equal(graph.config_feat[:, first + 6], bounds.sum(axis=1))
        assert np.array_equal(graph.config_feat[:, first + 7], bounds.prod(axis=1))


def test_learning_is_a_straight_line_in_rounds_and_in_rows() -> None:
    """100 rows, 3 families: a trial fits 2 x 100 rows, at 0.01 s + 0.001 s a round each."""
    name = "layout:nlp:random"
    rows = {"train_rows": 100, "rows": 120, "families": 3, "all_families": 4}
    steps = {
        f"{name} rows": rows,
        f"{name} tune again": {"cpu": 5.0},
        f"{name} tune 10": {"cpu": 5 + 200 * (0.01 + 10 * 0.001)},
        f"{name} tune 30": {"cpu": 5 + 200 * (0.01 + 30 * 0.001)},
    }
    learning = Learning.of(steps, name, (10, 30))
    assert learning.loading(rows) == pytest.approx(5.0)
    assert learning.bins == pytest.approx(0.01)
    assert learning.trees == pytest.approx(0.001)
    assert learning.trial(rows, 300) == pytest.approx(200 * 0.31)
    assert Learning.of(steps, "layout:nlp:default", (10, 30)) == learning, "of one that was not run: the nearest"
    with pytest.raises(ValueError, match="no collection like tile:xla has trials of 10 and 30 rounds"):
        Learning.of(steps, "tile:xla", (10, 30))
    wanted = 120 * (0.05 + 3 * 0.31 + 2 * (0.01 + 50 * 0.001))
    assert learning.train(rows, 300, 2, 50) == pytest.approx(wanted)


def test_a_line_through_nothing_and_a_run() -> None:
    assert Line.through((0, 2.0), (4, 10.0)).at(8) == 18.0
