"""Tensors of the slots of nodes, roles of their dimensions, and operations of nodes.

The input and kernel slots lay out the first and second operand. The dataset's edges are not in
operand order (half of real convolutions list the kernel first): it is inferred from layouts, then
shapes, then the order of the edges.

Roles in a convolution are in the file. Roles in a dot follow from its shapes, by the conventions of
JAX and TensorFlow: batch dimensions lead, the output lists the left operand's dimensions first.
Roles in a reshape follow from equal products of leading sizes.
"""

from __future__ import annotations

from collections import Counter
from math import prod, sqrt
from typing import Final

import numpy as np

from xlarank.data.config_table import ConfigTable, group_codes
from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK, OPCODE
from xlarank.features.program.program_context import OPCODE_CLASSES, ProgramContext
from xlarank.features.program.tensors import Floats, Ints

#: Roles by operation, in column order.
CONVOLUTION_ROLES: Final = ("batch", "feature", "spatial")
DOT_ROLES: Final = ("batch", "rows", "contracted")
RESHAPE_ROLES: Final = ("kept", "split", "merged")
_CONVOLUTION, _DOT, _RESHAPE, _REDUCE = map(
    OPCODE_CLASSES.index, ("convolution", "dot", "reshape", "reduce")
)
#: Opcodes that compute nothing.
_FREE: Final = [
    OPCODE[name] for name in "parameter constant tuple get-tuple-element bitcast after-all".split()
]


def slot_tensors(context: ProgramContext, nodes: Ints, table: ConfigTable | None = None) -> Ints:
    """Return the nodes of the output, input and kernel tensors, ``(nodes, 3)``; -1 for none.

    ``table`` has the configurations of these nodes, whose layouts are further evidence.
    """
    # the first two operands of each node in the order of the edges, scalars last; -1 for none
    edges = context.graph.edges
    order = np.lexsort((context.rank[edges[:, 1]] == 0, edges[:, 0]))
    consumer = edges[order, 0]
    operand = np.append(edges[order, 1], -1)
    start, end = (np.searchsorted(consumer, nodes, side) for side in ("left", "right"))
    first = np.where(start < end, operand[start], -1)
    second = np.where(start + 1 < end, operand[np.minimum(start + 1, len(edges))], -1)
    min_ranks = np.zeros((len(nodes), 2), np.int64)  # ranks of input and kernel that layouts imply
    if table is not None:
        slots = table.rows[:, MAX_RANK : 3 * MAX_RANK].reshape(-1, 2, MAX_RANK)
        np.maximum.at(min_ranks, table.node, slots.max(axis=2, initial=-1) + 1)
    in_order = _fit(context, nodes, first, second, min_ranks)
    swapped = _fit(context, nodes, second, first, min_ranks)
    swap = (second >= 0) & (swapped > in_order)
    # x * x has one edge for two operands
    has_kernel = context.opcode_class[nodes] == _DOT if table is None else min_ranks[:, 1] > 0
    second = np.where((second < 0) & has_kernel, first, second)
    return np.stack([nodes, np.where(swap, second, first), np.where(swap, first, second)], axis=1)


def _fit(
    context: ProgramContext, node: Ints, input_: Ints, kernel: Ints, min_ranks: Ints
) -> Floats:
    """Return how well operands fit as input and kernel; ``min_ranks`` are from layouts."""
    at = np.arange(len(node))
    kind = context.opcode_class[node]
    dims = context.dims[node]
    rank = context.rank[node]
    ranks_fit = (context.rank[input_] >= min_ranks[:, 0]).astype(float)
    ranks_fit += context.rank[kernel] >= min_ranks[:, 1]
    # a kernel has the sizes of the window and the output features of its convolution
    spatial = context.column("convolution_dim_numbers_kernel_spatial_dims_0", 4)[node]
    kernel_feature = context.convolution_dimension("kernel_output_feature")[node]
    output_feature = context.convolution_dimension("output_feature")[node]
    unused = np.arange(4) >= (rank - 2)[:, None]
    kernel_sizes = context.dims[kernel][at[:, None], spatial.astype(np.int64)]
    window = (kernel_sizes == context.column("window_size_0", 4)[node]) | unused
    is_kernel = window.all(axis=1)
    is_kernel &= context.dims[kernel, kernel_feature] == dims[at, output_feature]
    # the output of a dot lists the left operand's dimensions before the right one's
    last, before = (dims[at, np.maximum(rank - i, 0)][:, None] for i in (1, 2))
    in_left = (context.dims[input_] == before).any(axis=1)
    in_left &= (context.dims[input_] == dims[:, :1]).any(axis=1)
    in_order = (rank > 0) * ((context.dims[kernel] == last).any(axis=1).astype(float) + in_left)
    shapes_fit = (kind == _CONVOLUTION) * is_kernel + (kind == _DOT) * in_order
    return np.asarray(4 * ranks_fit + shapes_fit)  # ranks that layouts imply outweigh shapes


def slot_roles(context: ProgramContext, tensors: Ints) -> Ints:
    """Return the role of each dimension of each slot, ``(nodes, 3, 6)``; -1 for none.

    ``tensors`` is ``(nodes, 3)`` from `slot_tensors`. Roles are indices into `CONVOLUTION_ROLES` (a
    kernel's ``batch`` is the input feature and ``feature`` the output feature), `DOT_ROLES`
    (``rows`` are an operand's dimensions in the output; in the output, ``contracted`` denotes the
    right operand's) and `RESHAPE_ROLES`.
    """
    roles = np.full((len(tensors), 3, MAX_RANK), -1)
    functions = {_CONVOLUTION: _convolution_roles, _DOT: _dot_roles, _RESHAPE: _reshape_roles}
    for number, roles_of in functions.items():
        if (members := context.opcode_class[tensors[:, 0]] == number).any():
            roles[members] = roles_of(context, tensors[members])
    inside = np.arange(MAX_RANK) < context.rank[tensors][:, :, None]
    roles[~inside | (tensors < 0)[:, :, None]] = -1
    return roles


def _convolution_roles(context: ProgramContext, tensors: Ints) -> Ints:
    roles = np.full((len(tensors), 3, MAX_RANK), CONVOLUTION_ROLES.index("spatial"))
    names = "output_batch output_feature input_batch input_feature kernel_input_feature".split()
    for number, name in enumerate([*names, "kernel_output_feature"]):
        dimension = context.convolution_dimension(name)[tensors[:, 0]]
        roles[np.arange(len(tensors)), number // 2, dimension] = number % 2  # batch or feature
    return roles


def dot_split(context: ProgramContext, tensors: Ints) -> Floats:
    """Return `split_sizes` of every dot, ``(3, dots)``."""
    shapes = np.concatenate([context.dims[tensors], context.rank[tensors][:, :, None]], axis=2)
    shapes = np.where((tensors >= 0)[:, :, None], shapes, 0)
    examples, group = group_codes(shapes.reshape(len(tensors), len(LAYOUT_SLOTS) * (MAX_RANK + 1)))
    splits = []
    for dot in shapes[examples].tolist():
        splits.append(split_sizes(*(tuple(sizes[: sizes[-1]]) for sizes in dot)))
    return np.array(splits, np.float64).reshape(-1, 3)[group].T


def split_sizes(
    out: tuple[int, ...], left: tuple[int, ...], right: tuple[int, ...]
) -> tuple[int, int, float]:
    """Return a dot's batch dimensions, row dimensions (left operand) and contracted size K.

    With b batch and c contracted dimensions the ranks obey o = l + r - b - 2 c. The left operand
    has the output's first b sizes and the next l - b - c, the right one the first b and the rest;
    the remaining sizes of both, the contracted ones, are equal. If several b fit, prefer in this
    order: c > 0, a batch that leads both operands, b = 0, the largest b. If none fits, b = 0, c =
    (l + r - o) // 2 and K = sqrt(|left| |right| / |output|).

    >>> split_sizes((8, 12, 128, 128), (8, 128, 12, 64), (8, 128, 12, 64))  # attention
    (2, 1, 64.0)
    >>> split_sizes((64, 64), (8, 128, 64), (8, 128, 64))  # a weight's gradient
    (0, 1, 1024.0)
    """
    spare = len(left) + len(right) - len(out)  # b + 2 c
    splits = []
    for batch in range(min(len(out), len(left), len(right)) + 1):
        contracted, odd = divmod(spare - batch, 2)
        rows = len(left) - batch - contracted
        columns = len(right) - batch - contracted
        if odd or min(contracted, rows, columns) < 0:
            continue
        rest_left = Counter(left)
        rest_right = Counter(right)
        rest_left.subtract(out[: batch + rows])
        rest_right.subtract(out[:batch] + out[batch + rows :])
        if rest_left == rest_right and min(rest_left.values(), default=0) >= 0:
            leads = batch > 0 and left[0] == right[0] == out[0]
            size = float(prod(rest_left.elements()))
            splits.append((contracted > 0, leads, batch == 0, batch, rows, size))
    if splits:
        return max(splits)[3:]
    rows = len(left) - max(spare, 0) // 2
    return 0, min(max(rows, 0), len(out)), sqrt(float(prod(left)) * prod(right) / max(1, prod(out)))


def _dot_roles(context: ProgramContext, tensors: Ints) -> Ints:
    """Return the roles of dots: batch or rows if in the output, others contracted.

    Rows are matched from the left operand's first dimension on, and from the right operand's last
    one back.
    """
    batch_role, rows_role, contracted_role = range(len(DOT_ROLES))
    batch, rows, _ = dot_split(context, tensors)
    output = context.dims[tensors[:, 0]]
    rank = context.rank[tensors[:, 0]]
    roles = np.full((len(tensors), 3, MAX_RANK), contracted_role)
    roles[:, 0][np.arange(MAX_RANK) < (batch + rows)[:, None]] = rows_role
    roles[:, 0][np.arange(MAX_RANK) < batch[:, None]] = batch_role
    for slot, first, last in ((1, batch, batch + rows), (2, batch + rows, rank)):
        operand = np.where((tensors[:, slot] >= 0)[:, None], context.dims[tensors[:, slot]], 0)
        for role, start, end in ((batch_role, 0 * batch, batch), (rows_role, first, last)):
            for position in range(MAX_RANK):
                fits = (operand == output[:, position, None]) & (operand > 0)
                fits &= roles[:, slot] == contracted_role
                fits &= ((position >= start) & (position < end))[:, None]
                at = fits.argmax(axis=1)
                if slot == 2 and role == rows_role:  # backwards
                    at = MAX_RANK - 1 - fits[:, ::-1].argmax(axis=1)
                matched = np.flatnonzero(fits.any(axis=1))
                roles[matched, slot, at[matched]] = role
    return roles


def reshape_blocks(context: ProgramContext, tensors: Ints) -> Ints:
    """Return the block of each dimension of outputs and inputs, ``(reshapes, 2, 6)``; -1 for none.

    Blocks end where products of leading sizes are equal. Dimensions of size 1 and of empty tensors
    have no block.
    """
    tensor = tensors[:, :2, None]
    inside = (np.arange(MAX_RANK) < context.rank[tensor]) & (tensor >= 0)
    sizes = np.where(inside, context.dims[tensor[:, :, 0]], 1)
    products = np.cumprod(sizes.astype(np.float64), axis=2)
    nontrivial = (sizes > 1) & (products[:, :, -1:] > 0)
    common = products[:, 0, :, None] == products[:, 1, None, :]
    closes = (common & nontrivial[:, 1, None, :]).any(axis=2) & nontrivial[:, 0]
    ends = np.where(closes, products[:, 0], np.inf)[:, None, None, :]
    return np.where(nontrivial, (ends < products[:, :, :, None]).sum(axis=3), -1)


def _reshape_roles(context: ProgramContext, tensors: Ints) -> Ints:
    """Return roles of reshapes: kept (one to one), split (more in the output), else merged."""
    blocks = reshape_blocks(context, tensors)
    in_output = (blocks[:, 0, None, None, :] == blocks[:, :, :, None]).sum(axis=3)
    in_input = (blocks[:, 1, None, None, :] == blocks[:, :, :, None]).sum(axis=3)
    is_kept = (blocks < 0) | ((in_output == 1) & (in_input == 1))
    kept_role, split_role, merged_role = range(len(RESHAPE_ROLES))
    roles = np.full((len(tensors), 3, MAX_RANK), kept_role)
    roles[:, :2] = np.select([is_kept, in_output > in_input], [kept_role, split_role], merged_role)
    return roles


def node_flops(context: ProgramContext) -> Floats:
    """Estimate the floating-point operations of every node, ``(nodes,)``.

    A convolution takes 2 |out| (kernel elements / output features), a dot 2 |out| K, a reduction
    one for each element of its largest operand (or output), any other operation one for each
    element of its output, none if that is a tuple or token; `_FREE` take none.
    """
    work = np.where(context.element_bytes > 0, context.volume, 0.0)
    work[np.isin(context.graph.opcode, _FREE)] = 0.0
    edges = context.graph.edges
    consumer, operand = edges[context.opcode_class[edges[:, 0]] == _REDUCE].T
    np.maximum.at(work, consumer, context.volume[operand])
    convolutions = np.flatnonzero(context.opcode_class == _CONVOLUTION)
    dots = np.flatnonzero(context.opcode_class == _DOT)
    kernel = slot_tensors(context, convolutions)[:, 2]
    feature = context.convolution_dimension("kernel_output_feature")[convolutions]
    summed = context.volume[kernel] / np.maximum(context.dims[kernel, feature], 1)
    work[convolutions] *= 2 * np.where(kernel >= 0, summed, 1.0)
    work[dots] *= 2 * dot_split(context, slot_tensors(context, dots))[2]
    return work
