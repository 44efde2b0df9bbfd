"""Graphs for the feature tests, and features by the name of their column."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.graphs import Arrays, Node, program_arrays, save_npz
from xlarank.data.graph import LayoutGraph, TileGraph, read_graph
from xlarank.features.rows import GraphRows

SAMPLE = Path(__file__).parents[2] / "data" / "sample" / "npz"


def graph_of(arrays: Mapping[str, np.ndarray]) -> Any:
    """The graph that is read back from arrays written as a file."""
    with tempfile.TemporaryDirectory() as folder:
        return read_graph(save_npz(Path(folder) / "graph.npz", arrays, compressed=False))


layout_of: Callable[[Mapping[str, np.ndarray]], LayoutGraph] = graph_of
tile_of: Callable[[Mapping[str, np.ndarray]], TileGraph] = graph_of


def load(path: Path) -> Arrays:
    """The arrays of a file as they are."""
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def by_name(features: GraphRows) -> dict[str, np.ndarray]:
    """Columns of single configurations by name, each ``(distinct configurations,)`` float32."""
    return {name: features.config_values[:, number] for number, name in enumerate(features.config_columns)}


def wrong_columns(
    features: GraphRows, expected: Mapping[str, object], absolute: float = 1e-7, relative: float = 1e-6
) -> list[str]:
    """Columns of configurations or of the graph whose values are not those expected, with what they are."""
    found: dict[str, object] = {**by_name(features), **features.constants}
    return [
        f"{name}: {found[name]}, expected {values}"
        for name, values in expected.items()
        if not np.allclose(found[name], values, rtol=relative, atol=absolute)
    ]


def layout_file(
    nodes: Sequence[Node],
    configurable: Sequence[int],
    configs: Sequence[Sequence[np.ndarray]],
    edges: Sequence[tuple[int, int]] | None = None,
) -> Arrays:
    """A layout graph from rows ``configs[c][k]``; ``edges`` replaces those of the operands, order and all."""
    arrays = program_arrays(nodes)
    if edges is not None:
        arrays["edge_index"] = np.array(edges, np.int64).reshape(-1, 2)
    return arrays | {
        "node_splits": np.array([[0, len(nodes)]], np.int64),
        "node_config_ids": np.array(configurable, np.int64),
        "node_config_feat": np.array(configs, np.float32).reshape(len(configs), len(configurable), 18),
        "config_runtime": np.arange(1, len(configs) + 1),
    }


def tile_file(nodes: Sequence[Node], configs: Sequence[np.ndarray]) -> Arrays:
    """A tile graph from rows as `tests.graphs.tile_row` makes them."""
    return program_arrays(nodes) | {
        "config_feat": np.stack(configs),
        "config_runtime": np.arange(1, len(configs) + 1),
        "config_runtime_normalizers": np.ones(len(configs), np.int64),
    }
