"""Tensors behind the slots of configurable nodes, and the role of each of their dimensions.

The output slot is the node's own output. The input and kernel slots lay out its first and second operand, but the
dataset's edge list does not keep the operand order (real convolutions list the kernel first about half the time),
so it is inferred from shapes and, last, from the order of the edges.

A convolution's dimension numbers are in the file. Those of a dot are not: they follow from the shapes, with the
conventions that JAX and TensorFlow lower to (batch dimensions lead, the output lists what is left of the left
operand before what is left of the right one). A reshape's follow from where the products of the leading sizes meet.
"""

from __future__ import annotations

from collections import Counter
from math import prod, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import ConfigTable, group_codes
from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK, OPCODE
from xlarank.features.program.opcode_classes import OPCODE_CLASSES
from xlarank.features.program.program_context import ProgramContext
from xlarank.features.program.tensors import Floats, Ints

Sizes = tuple[int, ...]

#: Roles by operation, in column order.
CONVOLUTION_ROLES: Final = ("batch", "feature", "spatial")
DOT_ROLES: Final = ("batch", "rows", "contracted")
RESHAPE_ROLES: Final = ("kept", "split", "merged")
_DOT, _RESHAPE, _REDUCE = (OPCODE_CLASSES.index(name) for name in ("dot", "reshape", "reduce"))
#: What one piece of evidence weighs: a layout that names a dimension the operand lacks outweighs shapes.
_RANK_FITS, _SHAPE_FITS = 4.0, 1.0
#: Opcodes that only name or bundle what is there.
_FREE: Final = [
    OPCODE[name] for name in ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all")
]


def slot_tensors(facts: ProgramContext, nodes: Ints, table: ConfigTable | None = None) -> Ints:
    """Return the nodes whose outputs are the output, input and kernel tensors, ``(nodes, 3)``; -1 for none.

    With the ``table`` of these nodes, its layouts are evidence too.
    """
    first, second = _two_operands(facts.graph.edges, nodes, facts.rank)
    named = np.zeros((len(nodes), 2), np.int64) if table is None else _ranks_named(table)
    straight = _fit(facts, nodes, first, second, named)
    swapped = _fit(facts, nodes, second, first, named)
    swap = (second >= 0) & (swapped > straight)
    # x * x has one edge for two operands
    twice = facts.opcode_class[nodes] == _DOT if table is None else named[:, 1] > 0
    second = np.where((second < 0) & twice, first, second)
    return np.stack([nodes, np.where(swap, second, first), np.where(swap, first, second)], axis=1)


def _two_operands(edges: Ints, nodes: Ints, rank: Ints) -> tuple[Ints, Ints]:
    """Return the first two operands of each node in the order of the edges; -1 for none.

    A scalar comes last: it has no layout, and a reduction's initial value often stands first.
    """
    order = np.lexsort((rank[edges[:, 1]] == 0, edges[:, 0]))
    consumer, operand = edges[order, 0], np.append(edges[order, 1], -1)
    at = np.searchsorted(consumer, nodes)
    count = np.searchsorted(consumer, nodes, side="right") - at
    first = np.where(count > 0, operand[np.minimum(at, len(consumer))], -1)
    second = np.where(count > 1, operand[np.minimum(at + 1, len(consumer))], -1)
    return first, second


def _ranks_named(table: ConfigTable) -> Ints:
    """Return the least rank that the layouts of the input and kernel slots imply, ``(K, 2)``."""
    named = np.zeros((table.nodes, 2), np.int64)
    for number in (0, 1):
        slot = table.rows[:, MAX_RANK * (number + 1) : MAX_RANK * (number + 2)]
        np.maximum.at(named[:, number], table.node, slot.max(axis=1, initial=-1) + 1)
    return named


def _fit(facts: ProgramContext, node: Ints, input_: Ints, kernel: Ints, named: Ints) -> NDArray[np.float64]:
    """Score a pair of operands as input and kernel."""
    fits = _RANK_FITS * ((facts.rank[input_] >= named[:, 0]).astype(float) + (facts.rank[kernel] >= named[:, 1]))
    opcode = facts.graph.opcode[node]
    convolution = opcode == OPCODE["convolution"]
    fits[convolution] += _SHAPE_FITS * _is_kernel(facts, node, kernel)[convolution]
    dot = opcode == OPCODE["dot"]
    fits[dot] += _SHAPE_FITS * _dot_order(facts, node, input_, kernel)[dot]
    return fits


def _is_kernel(facts: ProgramContext, node: Ints, tensor: Ints) -> NDArray[np.bool_]:
    """Return whether a tensor has the window's size and the output's features in a kernel's dimensions."""
    dims = facts.dims[tensor]
    rows = np.arange(len(node))
    spatial = facts.column("convolution_dim_numbers_kernel_spatial_dims_0", 4)[node].astype(np.int64)
    window = facts.column("window_size_0", 4)[node]
    used = np.arange(4) < (facts.rank[node] - 2)[:, None]
    same_window = ((dims[rows[:, None], spatial] == window) | ~used).all(axis=1)
    features = facts.column("convolution_dim_numbers_kernel_output_feature_dim")[node].astype(np.int64)
    produced = facts.column("convolution_dim_numbers_output_feature_dim")[node].astype(np.int64)
    return np.asarray(same_window & (dims[rows, features] == facts.dims[node][rows, produced]))


def _dot_order(facts: ProgramContext, node: Ints, left: Ints, right: Ints) -> NDArray[np.float64]:
    """Score an order of operands: the output lists the left operand's dimensions before the right one's."""
    dims, rank = facts.dims[node], facts.rank[node]
    rows = np.arange(len(node))
    last = dims[rows, np.maximum(rank - 1, 0)][:, None]
    before = dims[rows, np.maximum(rank - 2, 0)][:, None]
    has_last = (facts.dims[right] == last).any(axis=1)
    has_before = (facts.dims[left] == before).any(axis=1) & (facts.dims[left] == dims[:, :1]).any(axis=1)
    return np.where(rank > 0, has_last.astype(float) + has_before, 0.0)


def slot_roles(facts: ProgramContext, tensors: Ints) -> Ints:
    """Return the role of each dimension of output, input and kernel, ``(nodes, 3, 6)``; -1 for none.

    ``tensors`` is ``(nodes, 3)`` as `slots.slot_tensors` gives it. Roles count within the operation:
    `CONVOLUTION_ROLES` (of a kernel, ``batch`` is the input feature and ``feature`` the output feature),
    `DOT_ROLES` (``rows`` are what an operand gives to the output; of the output, those of the left operand,
    and ``contracted`` stands for those of the right one) and `RESHAPE_ROLES`.
    """
    roles = np.full((len(tensors), 3, MAX_RANK), -1)
    node = tensors[:, 0]
    opcode = facts.graph.opcode[node]
    for members, roles_of in (
        (opcode == OPCODE["convolution"], _convolution),
        (opcode == OPCODE["dot"], _dot),
        (facts.opcode_class[node] == _RESHAPE, _reshape),
    ):
        if members.any():
            roles[members] = roles_of(facts, tensors[members])
    inside = np.arange(MAX_RANK) < facts.rank[tensors][:, :, None]
    roles[~inside | (tensors < 0)[:, :, None]] = -1
    return roles


def _convolution(facts: ProgramContext, tensors: Ints) -> Ints:
    """Return the roles of convolutions: the file names batch and feature, all others are spatial."""
    roles = np.full((len(tensors), 3, MAX_RANK), CONVOLUTION_ROLES.index("spatial"))
    rows = np.arange(len(tensors))
    stem = "convolution_dim_numbers"
    named = (
        ("output_batch_dim", "output_feature_dim"),
        ("input_batch_dim", "input_feature_dim"),
        ("kernel_input_feature_dim", "kernel_output_feature_dim"),
    )
    for slot, columns in enumerate(named):
        for role, column in enumerate(columns):
            roles[rows, slot, facts.column(f"{stem}_{column}")[tensors[:, 0]].astype(np.int64)] = role
    return roles


def dot_split(facts: ProgramContext, tensors: Ints) -> tuple[Ints, Ints, Floats]:
    """Return how many output dimensions are batch and from the left operand, and the size summed over.

    Three arrays ``(dots,)``; see `split_sizes`.
    """
    present = (tensors >= 0)[:, :, None]
    rank = np.where(present, facts.rank[tensors][:, :, None], 0)
    about = np.concatenate([np.where(present, facts.dims[tensors], 0), rank], axis=2).reshape(
        len(tensors), len(LAYOUT_SLOTS) * (MAX_RANK + 1)
    )
    alike = group_codes(about)
    splits = []
    for dot in about[alike.first].reshape(-1, len(LAYOUT_SLOTS), MAX_RANK + 1).tolist():
        out, left, right = (tuple(sizes[: sizes[-1]]) for sizes in dot)
        splits.append(split_sizes(out, left, right))
    table = np.array(splits, np.float64).reshape(-1, 3)[alike.group]
    return table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2]


def split_sizes(out: Sizes, left: Sizes, right: Sizes) -> tuple[int, int, float]:
    """Return for one dot the number of batch dimensions, of the left operand's own, and the size K summed over.

    With b batch and c contracted dimensions the ranks obey o = l + r - b - 2 c, the output's first b sizes and
    the next l - b - c stand in the left operand, the first b and the others in the right one, and what is left
    of both is the same: the contracted sizes. If several b fit, those that contract anything are preferred, then
    those whose batch leads both operands, the largest; else b = 0; else the largest. If none fits, b = 0,
    c = (l + r - o) // 2 and K = sqrt(|left| |right| / |output|).

    >>> split_sizes((8, 12, 128, 128), (8, 128, 12, 64), (8, 128, 12, 64))  # attention
    (2, 1, 64.0)
    >>> split_sizes((64, 64), (8, 128, 64), (8, 128, 64))  # a weight's gradient
    (0, 1, 1024.0)
    """
    spare = len(left) + len(right) - len(out)  # b + 2 c
    splits: list[tuple[bool, bool, bool, int, int, float]] = []
    for batch in range(min(len(out), len(left), len(right)) + 1):
        contracted, odd = divmod(spare - batch, 2)
        rows, columns = len(left) - batch - contracted, len(right) - batch - contracted
        if odd or min(contracted, rows, columns) < 0:
            continue
        of_left, of_right = Counter(left), Counter(right)
        of_left.subtract(out[: batch + rows])
        of_right.subtract(out[:batch] + out[batch + rows :])
        if of_left == of_right and min(of_left.values(), default=0) >= 0:
            leads = batch > 0 and left[0] == right[0] == out[0]
            splits.append((contracted > 0, leads, batch == 0, batch, rows, float(prod(of_left.elements()))))
    if splits:
        return max(splits)[3:]
    rows = len(left) - max(spare, 0) // 2
    return 0, min(max(rows, 0), len(out)), sqrt(float(prod(left)) * prod(right) / max(1, prod(out)))


def _dot(facts: ProgramContext, tensors: Ints) -> Ints:
    """Return the roles of dots: operand dimensions with a size of the output are batch or rows, others contracted.

    The left operand is searched from its first dimension on, the right one for its own part from the last.
    """
    batch_role, rows_role, contracted_role = range(len(DOT_ROLES))
    batch, rows, _ = dot_split(facts, tensors)
    output, rank = facts.dims[tensors[:, 0]], facts.rank[tensors[:, 0]]
    roles = np.full((len(tensors), 3, MAX_RANK), contracted_role)
    roles[:, 0][np.arange(MAX_RANK) < (batch + rows)[:, None]] = rows_role
    roles[:, 0][np.arange(MAX_RANK) < batch[:, None]] = batch_role
    for slot, first, last in ((1, batch, batch + rows), (2, batch + rows, rank)):
        operand = np.where((tensors[:, slot] >= 0)[:, None], facts.dims[tensors[:, slot]], 0)
        for position in range(MAX_RANK):
            _find(operand, output[:, position], position < batch, roles[:, slot], batch_role, contracted_role)
        for position in range(MAX_RANK):
            own = (position >= first) & (position < last)
            _find(operand, output[:, position], own, roles[:, slot], rows_role, contracted_role, ahead=slot == 1)
    return roles


def _find(
    operand: Ints, size: Ints, active: NDArray[np.bool_], roles: Ints, role: int, free: int, *, ahead: bool = True
) -> None:
    """Give ``role`` to the first (or last) dimension of this size that is still ``free``, in place."""
    fits = (operand == size[:, None]) & (roles == free) & active[:, None] & (operand > 0)
    at = fits.argmax(axis=1) if ahead else MAX_RANK - 1 - fits[:, ::-1].argmax(axis=1)
    hits = np.flatnonzero(fits.any(axis=1))
    roles[hits, at[hits]] = role


def reshape_blocks(facts: ProgramContext, tensors: Ints) -> Ints:
    """Return the block of each dimension of outputs and inputs, ``(reshapes, 2, 6)``; -1 for none.

    Sizes between two common products of leading sizes form a block. Dimensions of size 1 belong to none, nor do
    those of a tensor without elements.
    """
    tensor = tensors[:, :2]
    inside = (np.arange(MAX_RANK) < facts.rank[tensor][:, :, None]) & (tensor >= 0)[:, :, None]
    sizes = np.where(inside, facts.dims[tensor], 1)
    products = np.cumprod(sizes.astype(np.float64), axis=2)
    real = (sizes > 1) & (products[:, :, -1:] > 0)
    common = products[:, 0, :, None] == products[:, 1, None, :]
    closes = (common & real[:, 1, None, :]).any(axis=2) & real[:, 0]
    ends = np.where(closes, products[:, 0], np.inf)[:, None, None, :]
    return np.where(real, (ends < products[:, :, :, None]).sum(axis=3), -1)


def _reshape(facts: ProgramContext, tensors: Ints) -> Ints:
    """Return the roles of reshapes: a block of one dimension each is kept, one with more in the output split."""
    blocks = reshape_blocks(facts, tensors)
    of_output, of_input = ((blocks[:, side, None, None, :] == blocks[:, :, :, None]).sum(axis=3) for side in (0, 1))
    kept = (blocks < 0) | ((of_output == 1) & (of_input == 1))
    kept_role, split_role, merged_role = range(len(RESHAPE_ROLES))
    roles = np.full((len(tensors), 3, MAX_RANK), kept_role)
    roles[:, :2] = np.select([kept, of_output > of_input], [kept_role, split_role], merged_role)
    return roles


def node_flops(context: ProgramContext) -> Floats:
    """Estimate the floating-point operations of every node, ``(nodes,)``.

    A convolution or dot multiplies and adds once for every output element and element summed over: 2 |out| (kernel
    elements / output features), or 2 |out| K. A reduction touches every element of its largest operand (or of its
    output, where that is larger), any other operation every element of its output. What has no elements of its own
    (tuples, tokens) and what only names or bundles what is there (parameters, bitcasts, ...) costs nothing.
    """
    work = np.where(context.element_bytes > 0, context.volume, 0.0)
    work[np.isin(context.graph.opcode, _FREE)] = 0.0
    reads, read = context.graph.edges[context.opcode_class[context.graph.edges[:, 0]] == _REDUCE].T
    np.maximum.at(work, reads, context.volume[read])
    convolutions, dots = (np.flatnonzero(context.graph.opcode == OPCODE[name]) for name in ("convolution", "dot"))
    kernel = slot_tensors(context, convolutions)[:, 2]
    feature = context.column("convolution_dim_numbers_kernel_output_feature_dim")[convolutions].astype(np.int64)
    summed = context.volume[kernel] / np.maximum(context.dims[kernel, feature], 1)
    work[convolutions] *= 2 * np.where(kernel >= 0, summed, 1.0)
    work[dots] *= 2 * dot_split(context, slot_tensors(context, dots))[2]
    return work
