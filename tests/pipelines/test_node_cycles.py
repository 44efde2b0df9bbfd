"""Cycles per operation from a graph's file to the rankers that learn from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.graphs import save_npz
from tests.pipelines.trees import LAYOUT, TILE, TREE, build, graph_path, layout_graph, write_tree
from xlarank.data.collection import Collection
from xlarank.data.hlo.compiler.cycle_table import cycle_arrays
from xlarank.data.hlo.compiler.cycles import Estimate, Operation
from xlarank.data.workspace import Workspace
from xlarank.models.ranking_data import RankingData
from xlarank.pipelines.support.training_sets import read_training_set

#: The convolution of the made-up program; what has no mark stays with no node.
_CONVOLUTION = 2


def graph_with_cycles(seed: int, *, marked: bool = True) -> dict[str, np.ndarray]:
    """Configuration c became program c, whose convolution takes 100 + c cycles and something unknown takes 7."""
    arrays = layout_graph(seed)
    configs = len(arrays["config_runtime"])
    node = _CONVOLUTION if marked else -1
    estimates = [
        Estimate(
            (
                Operation("fusion", "fusion", "f32[8]", "", 100 + config, node),
                Operation("copy", "copy", "f32[8]", "", 7),
            )
        )
        for config in range(configs)
    ]
    return {**arrays, **cycle_arrays([str(config) for config in range(configs)], estimates)}


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """Root and workspace of a tree whose first graph has cycles by node, the second without nodes, others none."""
    root, work = tmp_path / "tree", tmp_path / "work"
    write_tree(root)
    first, second, *_ = TREE[LAYOUT]["train"]
    save_npz(graph_path(root, LAYOUT, "train", first), graph_with_cycles(0))
    save_npz(graph_path(root, LAYOUT, "train", second), graph_with_cycles(1, marked=False))
    build(root, work)
    return root, work


def read(work: Path, collection: str = LAYOUT) -> RankingData:
    return read_training_set(Workspace(work), Collection.parse(collection)).data


def test_cycles_are_found_by_row_and_node(place: tuple[Path, Path]) -> None:
    data = read(place[1])
    found = [None if one is None else one.value for one in data.cycles]
    assert found[0] is not None and all(one is None for one in found[1:])
    rows = data.parts[0]
    first = np.unique(rows.group, return_index=True)[1]
    assert found[0].shape == (len(rows), 2)
    assert found[0][:, 0].tolist() == (100 + rows.ids[first]).tolist()
    assert found[0][:, 1].tolist() == [0] * len(rows)


def test_of_a_file_that_is_gone_or_another_one_only_sums_are_known(place: tuple[Path, Path]) -> None:
    root, work = place
    path = graph_path(root, LAYOUT, "train", next(iter(TREE[LAYOUT]["train"])))
    data = read(work)
    path.write_bytes(path.read_bytes() + b" ")
    assert data.cycles[0] is not None and data.cycles[0].value is None
    path.unlink()
    data = read(work)
    assert data.cycles[0] is not None and data.cycles[0].value is None


def test_kernels_are_one_operation_each(place: tuple[Path, Path]) -> None:
    assert set(read(place[1], TILE).cycles) == {None}
