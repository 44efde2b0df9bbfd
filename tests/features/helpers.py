"""Graphs for the feature tests, and a look at features by the name of their column.

The random programs of `tests.graphs` hardly ever hand one shape on over two edges, which is what
disagreement, cut and copies are about; those made here take their shapes from a small pool.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.graphs import Arrays, Node, layout_row, program_arrays, runtimes, save_npz, tile_row
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
    feat = np.array(configs, np.float32).reshape(len(configs), len(configurable), 18)
    return {
        **arrays,
        "node_splits": np.array([[0, len(nodes)]], np.int64),
        "node_config_ids": np.array(configurable, np.int64),
        "node_config_feat": feat,
        "config_runtime": np.arange(1, len(configs) + 1),
    }


def tile_file(nodes: Sequence[Node], configs: Sequence[np.ndarray]) -> Arrays:
    """A tile graph from rows as `tests.graphs.tile_row` makes them."""
    return {
        **program_arrays(nodes),
        "config_feat": np.stack(configs),
        "config_runtime": np.arange(1, len(configs) + 1),
        "config_runtime_normalizers": np.ones(len(configs), np.int64),
    }


# Random graphs whose tensors share shapes ------------------------------------------------------------------

#: Sizes around the tile of 8 x 128, and some that no power of two divides.
_SIZES = st.sampled_from((1, 2, 3, 5, 7, 8, 9, 12, 16, 20, 100, 127, 128, 129, 256, 300))
_ELEMENTS = st.sampled_from(("f32", "f32", "f32", "bf16", "s32", "pred", "s8", "f64", "tuple"))
_INNER = st.sampled_from(
    (
        *("add", "multiply", "select", "convolution", "dot", "reshape", "bitcast", "transpose", "copy"),
        *("broadcast", "reduce", "sort", "concatenate", "slice", "pad", "tuple", "fusion", "all-reduce"),
    )
)
_SOURCES = st.sampled_from(("parameter", "constant", "iota"))


@st.composite
def shared_shape_programs(draw: st.DrawFn, *, min_nodes: int = 1, max_nodes: int = 9) -> list[Node]:
    """A random DAG whose outputs take one of at most three shapes; some nodes use an operand twice.

    Some default layouts are missing (all 0 in the file), which means row major.
    """
    shapes = draw(st.lists(st.lists(_SIZES, max_size=5).map(tuple), min_size=1, max_size=3))
    nodes: list[Node] = []
    for number in range(draw(st.integers(min_nodes, max_nodes))):
        near = st.integers(max(0, number - 3), number - 1)
        operands = draw(st.lists(near, max_size=3)) if number else []
        dims = draw(st.sampled_from(shapes))
        known = draw(st.integers(0, 5)) > 0
        opcode = draw(_INNER if operands else _SOURCES)
        columns, window = {"is_root": float(draw(st.booleans()))}, ()
        if opcode == "convolution" and len(dims) > 2:
            columns |= _convolution(draw(st.permutations(range(len(dims)))))
            window = tuple(draw(st.sampled_from((1, 3, 5))) for _ in dims[2:])
        element = draw(_ELEMENTS)
        layout = tuple(draw(st.permutations(range(len(dims))))) if known else ()
        nodes.append(Node(opcode, dims, tuple(operands), element, layout, window, columns))
    return nodes


def _convolution(order: Sequence[int]) -> dict[str, float]:
    """Dimension numbers of a convolution's kernel in some order; the output is batch, spatial, features."""
    stem = "convolution_dim_numbers"
    columns: dict[str, float] = {
        f"{stem}_kernel_input_feature_dim": order[0],
        f"{stem}_kernel_output_feature_dim": order[1],
        f"{stem}_output_batch_dim": 0,
        f"{stem}_output_feature_dim": len(order) - 1,
    }
    return columns | {f"{stem}_kernel_spatial_dims_{i}": dim for i, dim in enumerate(order[2:6])}


@st.composite
def _layouts(draw: st.DrawFn, rank: int) -> tuple[int, ...]:
    """Unset, partial or full."""
    order = draw(st.permutations(range(rank)))
    return tuple(order[: draw(st.integers(0, rank))])


@st.composite
def _rows(draw: st.DrawFn, nodes: Sequence[Node], node: int) -> np.ndarray:
    """A choice for one node; a node with one operand may take it twice (x * x has one edge)."""
    operands = nodes[node].operands[:2]
    if len(operands) == 1 and draw(st.booleans()):
        operands = operands * 2
    ranks = [len(nodes[node].dims), *(len(nodes[operand].dims) for operand in operands)]
    return layout_row(*(draw(_layouts(rank)) for rank in ranks))


@st.composite
def shared_shape_graphs(
    draw: st.DrawFn, *, min_configurable: int = 0, max_nodes: int = 9, max_configs: int = 12
) -> Arrays:
    """A random layout graph over `shared_shape_programs`; configurations repeat."""
    nodes = draw(shared_shape_programs(min_nodes=max(1, min_configurable), max_nodes=max_nodes))
    count = draw(st.integers(min_configurable, len(nodes)))
    configurable = draw(st.permutations(range(len(nodes))))[:count]
    pools = [draw(st.lists(_rows(nodes, node), min_size=1, max_size=4)) for node in configurable]
    choices = st.tuples(*(st.sampled_from(pool) for pool in pools))
    candidates = draw(st.lists(choices, min_size=1, max_size=max_configs))
    configs = draw(st.lists(st.sampled_from(candidates), min_size=1, max_size=max_configs))
    arrays = layout_file(nodes, configurable, configs)
    arrays["config_runtime"] = draw(runtimes(len(configs)))
    return arrays


@st.composite
def kernel_graphs(draw: st.DrawFn, *, max_configs: int = 10) -> Arrays:
    """A random tile graph whose bounds stay within some tensor's extents, in one of the two conventions."""
    nodes = draw(shared_shape_programs(max_nodes=6))
    node = nodes[draw(st.integers(0, len(nodes) - 1))]
    extents = list(node.dims)
    if draw(st.booleans()):
        minor_to_major = node.layout or tuple(reversed(range(len(node.dims))))
        sizes = [node.dims[dimension] for dimension in minor_to_major]
        tile = (128, 8, *([1] * len(sizes)))
        extents = [-(-size // multiple) for size, multiple in zip(sizes, tile, strict=False)][::-1]
    bounds = st.tuples(*(st.one_of(st.just(extent), st.integers(0, extent)) for extent in extents))
    others = st.lists(st.integers(0, 130), max_size=6)
    rows = st.tuples(others, bounds, others)
    candidates = draw(st.lists(rows, min_size=1, max_size=max_configs))
    configs = draw(st.lists(st.sampled_from(candidates), min_size=1, max_size=max_configs))
    arrays = tile_file(nodes, [tile_row(*row) for row in configs])
    arrays["config_runtime"] = draw(runtimes(len(configs)))
    return arrays
