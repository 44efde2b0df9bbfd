"""Small graphs in the TpuGraphs format, as dicts of the arrays of their npz files.

Only `unconfigured` uses the code under test; the others use names of `xlarank.data.schema` alone.
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
#: Maximum number of examples of a property without the slow tests.
FEW = 8


@dataclass(frozen=True)
class Node:
    """An instruction."""

    opcode: str
    dims: tuple[int, ...]  # of the output, outermost first
    operands: tuple[int, ...] = ()  # ids, first operand first
    element: str = "f32"
    layout: tuple[int, ...] | None = None  # minor-to-major; None is row major
    window: tuple[int, ...] = ()  # sizes (stride 1, no padding), for convolutions and the like
    columns: Mapping[str, float] = field(default_factory=dict)  # others, by name

    @property
    def minor_to_major(self) -> tuple[int, ...]:
        return tuple(reversed(range(len(self.dims)))) if self.layout is None else self.layout


def node_row(node: Node) -> np.ndarray:
    """Return ``(140,)`` float32: a row of ``node_feat`` with sums and products."""
    row = np.zeros(len(NODE_COLUMNS), np.float32)

    def put(stem: str, values: Sequence[float]) -> None:
        for i, value in enumerate(values):
            row[NODE_COLUMN[f"{stem}_{i}"]] = value
        row[NODE_COLUMN[f"{stem}_sum"]] = sum(values)
        row[NODE_COLUMN[f"{stem}_product"]] = np.prod(values)

    # products of no dimensions, as in real files
    row[[name.endswith("_product") for name in NODE_COLUMNS]] = 1
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
    edges = [
        (consumer, operand) for consumer, node in enumerate(nodes) for operand in node.operands
    ]
    return {
        "node_feat": np.stack([node_row(node) for node in nodes]),
        "node_opcode": np.array([OPCODE[node.opcode] for node in nodes], np.uint8),
        "edge_index": np.array(edges, np.int64).reshape(-1, 2),
    }


def parameter(*dims: int) -> Node:
    return Node("parameter", dims)


def unconfigured(*nodes: Node, configurable: tuple[int, ...]) -> LayoutGraph:
    """Return a graph without configurations."""
    features, opcodes, edges = program_arrays(nodes).values()
    program = "p", features, opcodes.astype(np.int64), edges
    table = ConfigTable.from_blocks([], configs=0, nodes=len(configurable))
    splits = np.array([0, len(nodes)])
    dots = [np.full((list(opcodes).count(OPCODE["dot"]), *shape), -1) for shape in ((2,), (4, 6))]
    runtime = np.zeros(0, np.int64)
    return LayoutGraph(*program, runtime, splits, np.array(configurable), table, *dots)


def layout_row(
    output: Sequence[int] = (), input: Sequence[int] = (), kernel: Sequence[int] = ()
) -> np.ndarray:
    """Return ``(18,)`` int8: the layouts of a node; other entries are unset (-1)."""
    row = np.full(len(LAYOUT_COLUMNS), -1, np.int8)
    for slot, layout in enumerate((output, input, kernel)):
        row[MAX_RANK * slot : MAX_RANK * slot + len(layout)] = layout
    return row


def tile_row(
    kernel: Sequence[int] = (), output: Sequence[int] = (), input: Sequence[int] = ()
) -> np.ndarray:
    """Return ``(24,)`` float32: a tile configuration; the product over no bounds is 0."""
    row = np.zeros((3, 8), np.float32)
    for slot, bounds in zip(row, (kernel, output, input), strict=True):
        slot[: len(bounds)] = bounds
        slot[6] = sum(bounds)
        slot[7] = np.prod(bounds) if len(bounds) else 0
    return row.reshape(-1)


_ROLES = {"feature_group_count": 1, "batch_group_count": 1} | {
    f"convolution_dim_numbers_{role}": dimension
    for role, dimension in {
        "input_batch_dim": 0,
        "input_feature_dim": 3,
        "input_spatial_dims_0": 1,
        "input_spatial_dims_1": 2,
        "kernel_input_feature_dim": 2,
        "kernel_output_feature_dim": 3,
        "kernel_spatial_dims_0": 0,
        "kernel_spatial_dims_1": 1,
        "output_batch_dim": 0,
        "output_feature_dim": 3,
    }.items()
}
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


def layout_arrays() -> Arrays:
    """Return a valid layout graph: `LAYOUT_PROGRAM` with six configurations.

    1 and 3 are identical. Runtimes are above 2**24 ns and some differ by 1: lost in float32.
    """
    none = layout_row()
    # Partial layouts, as in real files, have the minor-most dimensions only.
    partial = layout_row(output=(3, 0), input=(3, 0), kernel=(3, 2))
    full = layout_row(output=(0, 3, 2, 1), input=(3, 2, 1, 0), kernel=(2, 3, 1, 0))
    reshape_full = layout_row(output=(0, 1), input=(0, 3, 2, 1))
    reshape_partial = layout_row(output=(1,), input=(3, 2))
    convolution = [none, partial, full, partial, none, full]
    reshape = [none, none, reshape_full, none, reshape_partial, none]
    return {
        **program_arrays(LAYOUT_PROGRAM),
        "node_splits": np.array([[0, len(LAYOUT_PROGRAM)]], np.int64),
        "node_config_ids": np.array([2, 4], np.int64),
        "node_config_feat": np.stack([convolution, reshape], axis=1).astype(np.float32),
        "config_runtime": np.array(
            [20000003, 20000001, 20000007, 20000002, 40000001, 40000000], np.int64
        ),
    }


#: A matrix product with an activation: dot(0, 1) f32[256,1024], then tanh, the root.
TILE_PROGRAM = (
    Node("parameter", (256, 512), columns={"parameter_number": 0}),
    Node("parameter", (512, 1024), columns={"parameter_number": 1}),
    Node("dot", (256, 1024), (0, 1)),
    Node("tanh", (256, 1024), (2,), columns={"is_root": 1}),
)


def tile_arrays() -> Arrays:
    """Return a valid tile graph: `TILE_PROGRAM` with five configurations; 1 and 4 are identical.

    Runtime over normalizer: 2, 1, 0.5, 4, 1.25; runtimes alone have another order.
    """
    wide = tile_row(output=(8, 128), kernel=(512,))
    twice = tile_row(output=(64, 256), kernel=(128,))
    whole = tile_row(output=(256, 1024))
    flat = tile_row(output=(1, 1024), input=(1, 512))
    return {
        **program_arrays(TILE_PROGRAM),
        "config_feat": np.stack([wide, twice, whole, flat, twice]),
        "config_runtime": np.array([20_000, 30_000, 40_000, 10_000, 25_000], np.int64),
        "config_runtime_normalizers": np.array([10_000, 30_000, 80_000, 2_500, 20_000], np.int64),
    }


LAYOUT_KEYS = tuple(layout_arrays())
#: Arrays of programs that TpuGraphs' files do not have.
DOT_KEYS = ("node_dot_operands", "node_dot_dimensions")
TILE_KEYS = tuple(tile_arrays())


def save_npz(path: Path, arrays: Mapping[str, Any], *, compressed: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        (np.savez_compressed if compressed else np.savez)(stream, **dict(arrays))
    return path


def arrays_of(graph: Any) -> Arrays:
    """Return the arrays of the file of a graph, configurable nodes in ascending order."""
    program = {"node_feat": graph.node_feat, "node_opcode": graph.opcode, "edge_index": graph.edges}
    program["config_runtime"] = graph.runtime
    if hasattr(graph, "config_feat"):
        times = {"config_runtime_normalizers": graph.normalizers}
        return program | times | {"config_feat": graph.config_feat}
    program |= {"node_splits": graph.splits[None], "node_config_ids": graph.configurable}
    if (graph.dot_operands >= 0).any():
        program |= dict(zip(DOT_KEYS, (graph.dot_operands, graph.dot_dimensions), strict=True))
    return program | {"node_config_feat": graph.table.rows[graph.table.codes]}


def dot_arrays(
    operands: Sequence[Sequence[int]], dimensions: Sequence[Sequence[Sequence[int]]]
) -> Arrays:
    """Return the arrays of dots from their operands and dimension numbers, without padding."""
    padded = [
        [[*listed, *[-1] * (MAX_RANK - len(listed))] for listed in numbers]
        for numbers in dimensions
    ]
    return dict(zip(DOT_KEYS, (np.array(operands), np.array(padded)), strict=True))


def examples(most: int) -> settings:
    """Return settings with at most ``most`` examples, for expensive properties."""
    assert settings.default is not None
    return settings(max_examples=min(most, FEW) if settings.default.max_examples == FEW else most)


def relabelled(arrays: Mapping[str, np.ndarray], new_id: Sequence[int]) -> Arrays:
    """Return the same graph with node ``i`` renamed to ``new_id[i]``, for both kinds."""
    new = np.asarray(new_id, np.int64)
    order = np.argsort(new)
    moved = {key: arrays[key][order] for key in ("node_feat", "node_opcode")}
    for key in {"edge_index", "node_config_ids"} & set(arrays):
        moved[key] = new[arrays[key]].reshape(arrays[key].shape)
    return {**arrays, **moved}
