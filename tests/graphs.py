"""Small graphs in the TpuGraphs format, for every test: two made by hand and random ones.

A graph is a plain dict of arrays under the names of the npz file. Nothing here uses the code under test, apart from
the names in `xlarank.data.schema` and the type `LayoutGraph`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import settings

from xlarank.data.config_table import ConfigTable
from xlarank.data.graph import LayoutGraph
from xlarank.data.schema import LAYOUT_COLUMNS, MAX_RANK, NODE_COLUMN, NODE_COLUMNS, OPCODE

Arrays = dict[str, np.ndarray]

#: Stems of node columns whose ``_product`` is 1 where the node has no such dimensions (as in real files).
_EMPTY_PRODUCTS = tuple(n for n in NODE_COLUMNS if n.endswith("_product") and not n.startswith("shape_dimensions"))


@dataclass(frozen=True)
class Node:
    """One instruction, as a person would write it down."""

    opcode: str
    dims: tuple[int, ...]  # of the output, outermost first
    operands: tuple[int, ...] = ()  # ids, first operand first
    element: str = "f32"
    layout: tuple[int, ...] | None = None  # minor-to-major; None is row major
    window: tuple[int, ...] = ()  # sizes (stride 1, no padding), for convolutions and the like
    columns: Mapping[str, float] = field(default_factory=dict)  # any others, by name

    @property
    def minor_to_major(self) -> tuple[int, ...]:
        return tuple(reversed(range(len(self.dims)))) if self.layout is None else self.layout


def node_row(node: Node) -> np.ndarray:
    """``(140,)`` float32: a row of ``node_feat``, with the sums and products of a real file."""
    row = np.zeros(len(NODE_COLUMNS), np.float32)

    def put(stem: str, values: Sequence[float]) -> None:
        for i, value in enumerate(values):
            row[NODE_COLUMN[f"{stem}_{i}"]] = value
        row[NODE_COLUMN[f"{stem}_sum"]] = sum(values)
        row[NODE_COLUMN[f"{stem}_product"]] = np.prod(values)

    for name in _EMPTY_PRODUCTS:
        row[NODE_COLUMN[name]] = 1
    row[NODE_COLUMN[f"shape_element_type_is_{node.element}"]] = 1
    put("shape_dimensions", node.dims)
    if node.window:
        put("window_size", node.window)
        for stem in ("stride", "window_dilation", "base_dilation", "padding_low", "padding_high"):
            put(f"window_{stem}", (0 if stem.startswith("padding") else 1,) * len(node.window))
        row[NODE_COLUMN["window_window_reversal_false_count"]] = len(node.window)
    for i, dimension in enumerate(node.minor_to_major):
        row[NODE_COLUMN[f"layout_minor_to_major_{i}"]] = dimension
    for name, value in node.columns.items():
        row[NODE_COLUMN[name]] = value
    return row


def program_arrays(nodes: Sequence[Node]) -> Arrays:
    """The three arrays that layout and tile graphs share."""
    edges = [(consumer, operand) for consumer, node in enumerate(nodes) for operand in node.operands]
    return {
        "node_feat": np.stack([node_row(node) for node in nodes]),
        "node_opcode": np.array([OPCODE[node.opcode] for node in nodes], np.uint8),
        "edge_index": np.array(edges, np.int64).reshape(-1, 2),
    }


def parameter(*dims: int) -> Node:
    return Node("parameter", dims)


def unconfigured(*nodes: Node, configurable: tuple[int, ...]) -> LayoutGraph:
    """A layout graph of these nodes without configurations."""
    arrays = program_arrays(nodes)
    table = ConfigTable.from_blocks([], configs=0, nodes=len(configurable))
    return LayoutGraph(
        "p", arrays["node_feat"], arrays["node_opcode"].astype(np.int64), arrays["edge_index"],
        np.zeros(0, np.int64), np.array([0, len(nodes)]), np.array(configurable), table,
    )  # fmt: skip


def layout_row(output: Sequence[int] = (), input: Sequence[int] = (), kernel: Sequence[int] = ()) -> np.ndarray:
    """``(18,)`` int8: what one node takes in one configuration; slots left out stay unset (-1)."""
    row = np.full(len(LAYOUT_COLUMNS), -1, np.int8)
    for slot, layout in enumerate((output, input, kernel)):
        row[MAX_RANK * slot : MAX_RANK * slot + len(layout)] = layout
    return row


def tile_row(kernel: Sequence[int] = (), output: Sequence[int] = (), input: Sequence[int] = ()) -> np.ndarray:
    """``(24,)`` float32: one tile configuration; an absent slot is all 0, its product too."""
    slots = ((*bounds, *[0] * (6 - len(bounds)), sum(bounds), np.prod(bounds) if len(bounds) else 0)
             for bounds in (kernel, output, input))  # fmt: skip
    return np.array([value for slot in slots for value in slot], np.float32)


_ROLES = {"feature_group_count": 1, "batch_group_count": 1} | {
    f"convolution_dim_numbers_{role}": dimension
    for role, dimension in {
        "input_batch_dim": 0, "input_feature_dim": 3, "input_spatial_dims_0": 1, "input_spatial_dims_1": 2,
        "kernel_input_feature_dim": 2, "kernel_output_feature_dim": 3,
        "kernel_spatial_dims_0": 0, "kernel_spatial_dims_1": 1, "output_batch_dim": 0, "output_feature_dim": 3,
    }.items()
}  # fmt: skip
#: A residual convolution block. Node 2 and node 4 are configurable:
#:
#:     0 parameter f32[8,32,32,16]  image   \
#:     1 parameter f32[3,3,16,16]   weights  > 2 convolution f32[8,32,32,16] (3x3)
#:     3 add(2, 0)  f32[8,32,32,16]
#:     4 reshape(3) f32[8,16384]  root
LAYOUT_PROGRAM = (
    Node("parameter", (8, 32, 32, 16), columns={"parameter_number": 0}),
    Node("parameter", (3, 3, 16, 16), columns={"parameter_number": 1}),
    Node("convolution", (8, 32, 32, 16), (0, 1), window=(3, 3), columns=_ROLES),
    Node("add", (8, 32, 32, 16), (2, 0)),
    Node("reshape", (8, 16384), (3,), columns={"is_root": 1}),
)
#: Partial, as in real files: only the two minor-most dimensions are named.
_CONV_PARTIAL = layout_row(output=(3, 0), input=(3, 0), kernel=(3, 2))
_CONV_FULL = layout_row(output=(0, 3, 2, 1), input=(3, 2, 1, 0), kernel=(2, 3, 1, 0))
_RESHAPE_FULL = layout_row(output=(0, 1), input=(0, 3, 2, 1))
_RESHAPE_PARTIAL = layout_row(output=(1,), input=(3, 2))


def layout_arrays() -> Arrays:
    """A valid layout graph: `LAYOUT_PROGRAM` with six configurations, of which 1 and 3 are identical.

    Runtimes are beyond 2**24 ns, some one apart: a detour through float32 shows.
    """
    none, part, full = layout_row(), _CONV_PARTIAL, _CONV_FULL
    pairs = (
        (none, none),
        (part, none),
        (full, _RESHAPE_FULL),
        (part, none),
        (none, _RESHAPE_PARTIAL),
        (full, none),
    )
    return {
        **program_arrays(LAYOUT_PROGRAM),
        "node_splits": np.array([[0, len(LAYOUT_PROGRAM)]], np.int64),
        "node_config_ids": np.array([2, 4], np.int64),
        "node_config_feat": np.array(pairs, np.float32),
        "config_runtime": np.array([20000003, 20000001, 20000007, 20000002, 40000001, 40000000], np.int64),
    }


#: A matrix product with an activation: dot(0, 1) f32[256,1024], then tanh, the root.
TILE_PROGRAM = (
    Node("parameter", (256, 512), columns={"parameter_number": 0}),
    Node("parameter", (512, 1024), columns={"parameter_number": 1}),
    Node("dot", (256, 1024), (0, 1)),
    Node("tanh", (256, 1024), (2,), columns={"is_root": 1}),
)


def tile_arrays() -> Arrays:
    """A valid tile graph: `TILE_PROGRAM` with five configurations, of which 1 and 4 are identical.

    Runtime over normalizer: 2, 1, 0.5, 4, 1.25; the order of runtimes alone is another one.
    """
    wide, again = tile_row(output=(8, 128), kernel=(512,)), tile_row(output=(64, 256), kernel=(128,))
    whole, flat = tile_row(output=(256, 1024)), tile_row(output=(1, 1024), input=(1, 512))
    return {
        **program_arrays(TILE_PROGRAM),
        "config_feat": np.stack([wide, again, whole, flat, again]),
        "config_runtime": np.array([20_000, 30_000, 40_000, 10_000, 25_000], np.int64),
        "config_runtime_normalizers": np.array([10_000, 30_000, 80_000, 2_500, 20_000], np.int64),
    }


LAYOUT_KEYS, TILE_KEYS = tuple(layout_arrays()), tuple(tile_arrays())


def save_npz(path: Path, arrays: Mapping[str, Any], *, compressed: bool = True) -> Path:
    """Write arrays as numpy would, object arrays and all; nothing is checked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        (np.savez_compressed if compressed else np.savez)(stream, **dict(arrays))
    return path


def arrays_of(graph: Any) -> Arrays:
    """What the file of a graph that was read holds, configurable nodes in their order."""
    program = {"node_feat": graph.node_feat, "node_opcode": graph.opcode, "edge_index": graph.edges}
    program["config_runtime"] = graph.runtime
    if hasattr(graph, "config_feat"):
        return program | {"config_feat": graph.config_feat, "config_runtime_normalizers": graph.normalizers}
    rows = graph.table.rows[graph.table.codes]
    splits = {"node_splits": graph.splits[None], "node_config_ids": graph.configurable}
    return program | splits | {"node_config_feat": rows}


#: Most examples of a property where the slow tests are left out.
FEW = 8


def examples(most: int) -> settings:
    """At most so many; to decorate a property that is dearer than others."""
    assert settings.default is not None
    return settings(max_examples=min(most, FEW) if settings.default.max_examples == FEW else most)


def relabelled(arrays: Mapping[str, np.ndarray], new_id: Sequence[int]) -> Arrays:
    """The same graph with node ``i`` called ``new_id[i]``; works for both kinds."""
    new = np.asarray(new_id, np.int64)
    order = np.argsort(new)
    moved = {key: arrays[key][order] for key in ("node_feat", "node_opcode")}
    for key in {"edge_index", "node_config_ids"} & set(arrays):
        moved[key] = new[arrays[key]].reshape(arrays[key].shape)
    return {**arrays, **moved}
