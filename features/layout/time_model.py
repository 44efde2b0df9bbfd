"""Times of configurable nodes on a TPU: matrix-unit work and memory traffic, by layout.

The matrix unit multiplies tiles of 128 x 128. An output of 64 features along 128 lanes takes as
long as one of 128, so the work of a convolution or dot is its floating-point operations times the
padded over the true size of its output. Measured layouts of TPU v3 follow this model without fitted
parameters (docs/explanation/tpu-time.md).
"""

from __future__ import annotations

from itertools import permutations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import LayoutGraph
from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK, OPCODE
from xlarank.features.layout.layout_context import ConfigurableIndex, LayoutContext
from xlarank.features.program.slots import node_flops
from xlarank.features.program.tensors import (
    LANES,
    SUBLANES,
    WORD_BYTES,
    Floats,
    Ints,
    tile_sublanes,
)

# A core of TPU v3 (Google Cloud, *TPU v3*).
#: Operations per second of two matrix units of 128 x 128 at 940 MHz, in bfloat16, XLA's default for
#: float32.
PEAK_FLOPS: Final = 2 * 2 * 128 * 128 * 940e6
#: Bytes per second between memory and the core, half of the chip's.
BANDWIDTH: Final = 450e9

#: Kinds of configurable nodes -> description.
KINDS: Final = {
    "convolution": "convolutions other than gradients of kernel operands",
    "kernel_gradient": "gradients of kernel operands",
    "dot": "dots",
    "other": "other nodes",
}
_GRADIENT, _DOT, _OTHER = range(1, len(KINDS))
#: Role of the output's dimension that an operand supplies, of this dimension in the operand, and of
#: the operand's contracted dimension; the input comes first, then the kernel.
_OPERANDS: Final = (
    ("output_batch", "input_batch", "input_feature"),
    ("output_feature", "kernel_output_feature", "kernel_input_feature"),
)
_PAIRS: Final = np.array([*permutations(range(MAX_RANK), 2)])


def output_padding(
    dims: Ints, layout: Ints, element_bytes: Floats, batch: Ints, *, skip: bool = True
) -> Floats:
    """Return the padded over the true size of tensors as the matrix unit sees them, ``(tensors,)``.

    The minor-most dimension is rounded up to the lanes, the next to the sublanes times the elements
    per word. If the next one is the ``batch`` ``(tensors,)``, -1 for none, it shares tiles with
    other dimensions and is not rounded up. With ``skip``, minor-most dimensions of size 1 are
    skipped: the next one lies along the lanes.

    >>> dims = np.array([[3, 3, 1, 32, 0, 0]] * 2)
    >>> layout = np.array([[3, 2, 1, 0, -1, -1], [2, 3, 1, 0, -1, -1]])
    >>> word = np.array([4.0, 4.0])
    >>> output_padding(dims, layout, word, np.array([-1, -1])).tolist()  # 128/32 * 8/1 and * 8/3
    [32.0, 10.666666666666666]
    """
    tensor = np.arange(len(dims))
    sizes = np.where(layout >= 0, np.take_along_axis(dims, np.maximum(layout, 0), axis=1), 1)
    sizes = np.concatenate([np.maximum(sizes, 1), np.ones((len(dims), 1), np.int64)], axis=1)
    rank = (layout >= 0).sum(axis=1)
    only_ones = (sizes == 1).all(axis=1)
    first = np.where(only_ones, np.maximum(rank, 1) - 1, (sizes != 1).argmax(axis=1)) * skip
    packing = np.maximum(1.0, WORD_BYTES / np.maximum(element_bytes, 1.0))
    has_second = first + 1 < rank
    lanes = _round_up(sizes[tensor, first], LANES) / sizes[tensor, first]
    second = sizes[tensor, first + 1]
    sublanes = np.where(has_second, _round_up(second, SUBLANES * packing) / second, 1.0)
    dimension = layout[tensor, np.minimum(first + 1, MAX_RANK - 1)]
    sublanes[has_second & (dimension == batch)] = 1.0
    return np.where(layout[:, 0] < 0, 1.0, lanes * sublanes)


def _round_up(size: Ints, multiple: Floats | float) -> Floats:
    return np.asarray(np.ceil(size / multiple) * multiple)


class TimeModel:
    """Times of the configurable nodes of a program on one core of a TPU, in nanoseconds.

    A convolution or dot computes for ``padded operations / peak rate`` and moves data for ``bytes /
    bandwidth``; its time is the root of the sum of squares, as both overlap, but not entirely.
    Operations are multiplied by the padding of the output and, in convolutions, of the contracted
    features:

    - One operand supplies the output's lanes: the kernel operand if features are minor-most, the
      input if the batch is. If it holds the contracted features along its own lanes, they are
      rounded up to 128.
    - Otherwise forward convolutions round the contracted features up to the sublanes, gradients of
      kernel operands do not.

    A batch along the sublanes of a forward convolution is not padded: the rows of other positions
    fill its tiles. The compiler gives an operand the layout that pads less, so requested operand
    layouts matter only in ties of padding. Any other node does one operation for each padded
    element of its output, to break ties.

    Attributes:
        kind, work: ``(K,)`` index into `KINDS`, and operations without padding.
        type_ns: ``(T,)`` times of every type of row.
        default_ns: ``(K,)`` times under the compiler's default layouts.
        fastest_ns: ``(K,)`` least times under layouts that need no copy, candidates or not.
    """

    def __init__(self, context: LayoutContext) -> None:
        self._context = context
        self._nodes = context.graph.configurable
        self.kind = self._kind()
        volume = context.volume[self._nodes]
        flops = context.shared(node_flops)[self._nodes]
        self.work: Floats = np.where(self.kind == _OTHER, volume, flops)
        output, *operands = (rows.layout for rows in context.slots.values())
        minor = np.stack([layout[:, 0] for layout in operands], axis=1)
        self.type_ns = self.nanoseconds(context.type_configurable, output, minor)
        default = context.default_layout[context.slot_tensor]
        every = np.arange(len(self._nodes))
        self.default_ns = self.nanoseconds(every, default[:, 0], default[:, 1:, 0])
        self.fastest_ns = self._fastest()

    def _dimension(self, role: str) -> Ints:
        return self._context.convolution_dimension(role)[self._nodes]

    def _size(self, role: str) -> Ints:
        """Return the size of a dimension such as ``input_batch``, ``(K,)``; 1 for none."""
        tensor = self._context.slot_tensor[:, LAYOUT_SLOTS.index(role.partition("_")[0])]
        size = np.maximum(self._context.dims[tensor, self._dimension(role)], 1)
        return np.where(tensor >= 0, size, 1)

    def _kind(self) -> Ints:
        """Return the index into `KINDS` of each node, ``(K,)``.

        The gradient of a kernel operand is a convolution with a window larger than its output, as
        one activation slides over another.
        """
        context = self._context
        opcode = context.graph.opcode[self._nodes]
        spatial = np.arange(MAX_RANK) < (context.rank[self._nodes] - 2)[:, None]
        sizes = context.column("window_size_0", MAX_RANK)[self._nodes]
        window = np.where(spatial, sizes, 1.0).prod(axis=1)
        positions = context.volume[self._nodes] / self._size("output_batch")
        positions = positions / self._size("output_feature")
        convolution = opcode == OPCODE["convolution"]
        conditions = convolution & (window > positions), convolution, opcode == OPCODE["dot"]
        return np.select(conditions, [_GRADIENT, 0, _DOT], _OTHER)

    def _contracted_in_lanes(
        self, dimension: Ints, node: Ints, minor: Ints | None
    ) -> NDArray[np.bool_]:
        """Return whether the operand behind an output's dimension contracts along its lanes.

        ``minor`` ``(n, 2)`` are the minor-most dimensions of input and kernel, which break ties of
        padding; None means the faster order.
        """
        result = np.zeros(len(node), bool)
        contracted = self._size("input_feature")[node]
        for operand, (supplied, free_role, contracted_role) in enumerate(_OPERANDS):
            free = self._size(free_role)[node]
            in_lanes = _round_up(contracted, LANES) * _round_up(free, tile_sublanes(free))
            across = _round_up(free, LANES) * _round_up(contracted, tile_sublanes(contracted))
            along = in_lanes < across
            if minor is not None:
                requested = minor[:, operand] == self._dimension(contracted_role)[node]
                along |= (in_lanes == across) & requested
            result |= along & (dimension == self._dimension(supplied)[node])
        complete = (self._context.slot_tensor[node] >= 0).all(axis=1)
        return result & (self.kind[node] <= _GRADIENT) & complete

    def nanoseconds(
        self, node: ConfigurableIndex, layout: Ints, minor: Ints | None = None
    ) -> Floats:
        """Return the times of nodes, ``(n,)``, whose outputs have (partial) layouts ``(n, 6)``.

        ``minor`` ``(n, 2)`` are the minor-most dimensions of their inputs and kernels, if known.
        """
        context = self._context
        tensor = self._nodes[node]
        kind = self.kind[node]
        dims = context.dims[tensor]
        element = context.element_bytes[tensor]
        batch = np.where(kind == 0, self._dimension("output_batch")[node], -1)
        padding = output_padding(dims, layout, element, batch)
        sizes = np.where(layout >= 0, np.take_along_axis(dims, np.maximum(layout, 0), axis=1), 1)
        lane_dimension = layout[np.arange(len(node)), (sizes != 1).argmax(axis=1)]
        contracted = self._size("input_feature")[node]
        to_lanes = _round_up(contracted, LANES) / contracted
        to_sublanes = np.where(kind == 0, _round_up(contracted, SUBLANES) / contracted, 1.0)
        by_first, by_lanes = (
            self._contracted_in_lanes(dim, node, minor) for dim in (layout[:, 0], lane_dimension)
        )
        with_ones = output_padding(dims, layout, element, batch, skip=False)
        paddings = [with_ones * to_lanes, padding * to_lanes]
        total = np.select([by_first, by_lanes], paddings, padding * to_sublanes)
        operands = context.slot_tensor[node, 1:]
        read = np.where(operands >= 0, context.bytes[operands], 0.0).sum(axis=1)
        moved = padding * context.bytes[tensor] + read
        moving = np.where(kind == _OTHER, 0.0, moved / BANDWIDTH)
        return np.asarray(1e9 * np.hypot(self.work[node] * total / PEAK_FLOPS, moving))

    def _fastest(self) -> Floats:
        """Return `fastest_ns`, computed once per signature.

        Padding depends on two dimensions alone, the minor-most one that is not of size 1 and the
        next; a single one is taken as major-most, without a next. Batch and feature of a
        convolution's output lie along lanes and sublanes: the compiler copies the result into any
        other order.
        """
        context = self._context
        _, example, of_node = np.unique(context.signature, return_index=True, return_inverse=True)
        nodes = self._nodes[example]
        rank = context.rank[nodes]
        sizes = np.maximum(context.dims[nodes], 1)
        single = (sizes != 1).sum(axis=1) <= 1
        free = np.tile(self.kind[example] > _GRADIENT, (MAX_RANK, 1)).T
        for role in ("output_batch", "output_feature"):
            free[np.arange(len(nodes)), self._dimension(role)[example]] = True
        minor, second = _PAIRS.T
        allowed = (rank[:, None] > _PAIRS.max(axis=1)) & (single[:, None] | (sizes[:, minor] != 1))
        at, pair = np.nonzero(allowed & free[:, minor] & free[:, second])
        layout = np.full((len(at), MAX_RANK), -1)
        layout[:, :2] = _PAIRS[pair]
        layout[single[at], 1] = -1
        times = self.nanoseconds(example[at], layout)
        fastest = self.default_ns[example]
        np.minimum.at(fastest, at, times)
        return fastest[of_node]


def config_times(graph: LayoutGraph, config: int) -> Floats:
    """Return the nanoseconds of the configurable nodes in one configuration, ``(K,)``."""
    context = LayoutContext(graph)
    rows = context.table.codes[graph.group[config]]
    return np.asarray(TimeModel(context).type_ns[context.row_type[rows]])
