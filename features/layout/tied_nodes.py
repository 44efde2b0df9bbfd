"""Tied nodes: configurable nodes whose layouts are chosen together, as in Google's files.

In every real layout file a few choices determine the configurations of hundreds of nodes. The rule
was derived from these files (docs/explanation/layouts.md). Two nodes are tied if they have one
opcode and

- the same dimensions are at stake: batch and feature of a convolution, the last free and the last
  contracted dimension of a dot, the blocks of dimensions that a reshape keeps, splits or merges;
- the same order of these dimensions is cheaper: fewer elements once the minor-most dimension is
  padded to the lanes and the next to the sublanes. The compiler prefers this order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import group_codes
from xlarank.data.schema import MAX_RANK, OPCODES
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.layout_mapping import Layout, Sizes
from xlarank.features.program.slots import CONVOLUTION_ROLES, DOT_ROLES, reshape_blocks
from xlarank.features.program.tensors import LANES, SUBLANES

#: Roles of the dimensions at stake, as indices; at equal cost the first is minor-most, except in
#: kernels.
_AT_STAKE: Final = {
    "convolution": (CONVOLUTION_ROLES.index("feature"), CONVOLUTION_ROLES.index("batch")),
    # in the output, "rows" are the left operand's free dimensions and "contracted" the right's
    "dot": (DOT_ROLES.index("contracted"), DOT_ROLES.index("rows")),
}


@dataclass(frozen=True)
class TiedNode:
    """Possible layouts of a node's output, and the node's group of tied nodes.

    Attributes:
        signature: opcode and more; equal for nodes that are tied.
        orders: distinct orders that the output may be set to, minor-most first: at most two
            dimensions (of reshapes all; the rest keep the default order), first the `cheaper`
            order (of reshapes row-major); an empty one sets nothing.
    """

    signature: tuple[Any, ...]
    orders: tuple[Layout, ...]


def tied_nodes(context: LayoutContext) -> list[TiedNode]:
    """Return the possible layouts and the signature of each configurable node."""
    nodes = context.graph.configurable
    operand_ranks = np.zeros((context.graph.nodes, MAX_RANK + 1), np.int64)
    consumer, operand = context.graph.edges.T
    np.add.at(operand_ranks, (consumer, context.rank[operand]), 1)
    examples, group = group_codes(np.column_stack([context.signature, operand_ranks[nodes]]))
    ranks = map(tuple, operand_ranks[nodes[examples]].tolist())
    distinct = [_tied(context, *node) for node in zip(examples.tolist(), ranks, strict=True)]
    return [distinct[number] for number in group]


def groups_of(tied: Sequence[TiedNode]) -> NDArray[np.intp]:
    """Return the group of each node, ``(nodes,)``, numbered in order of first appearance."""
    numbers: dict[tuple[Any, ...], int] = {}
    return np.array([numbers.setdefault(node.signature, len(numbers)) for node in tied], np.intp)


def _tied(context: LayoutContext, k: int, operand_ranks: tuple[int, ...]) -> TiedNode:
    tensors = context.slot_tensor[k]
    opcode = OPCODES[int(context.graph.opcode[context.graph.configurable[k]])]
    output, *operands = (
        tuple(context.dims[t, : context.rank[t]].tolist()) if t >= 0 else () for t in tensors
    )
    if opcode == "reshape" and tensors[1] >= 0:
        return _reshape(output, operands[0], reshape_blocks(context, tensors[None])[0].tolist())
    pairs = None
    if (tensors >= 0).all():
        pairs = _at_stake(opcode, [output, *operands], context.roles[k])
    if pairs is None:  # another opcode, a missing operand, or sizes that do not fit
        first = cheaper(output, tuple(reversed(range(len(output))))[:2])
        key: tuple[Any, ...] = (operand_ranks, first)
    else:
        key = tuple(map(cheaper, (output, *operands), pairs))
        first, *operand_orders = key
        if opcode == "dot" and {len(output), *map(len, operands)} == {2}:
            key = (first,)
        elif opcode == "dot":  # either operand may come first
            ordered = zip(operands, operand_orders, strict=True)
            key = (first, *sorted((len(shape), *order) for shape, order in ordered))
    return TiedNode((opcode, len(output), *key), tuple(dict.fromkeys([first, first[::-1]])))


def _at_stake(
    opcode: str, shapes: Sequence[Sizes], roles: NDArray[np.integer]
) -> list[Layout] | None:
    """Return the dimensions at stake of each slot; None without any, or if sizes do not fit."""
    if opcode not in _AT_STAKE:
        return None
    at_stake = _AT_STAKE[opcode]
    slots = [[np.flatnonzero(slot == role).tolist() for role in at_stake] for slot in roles]
    if opcode == "dot":
        batch = [shapes[0][d] for d in np.flatnonzero(roles[0] == DOT_ROLES.index("batch"))]
        right_free, left_free = ([shapes[0][d] for d in dims] for dims in slots[0])
        slots[1] = _contracted_and_free(shapes[1], left_free, batch)
        slots[2] = _contracted_and_free(shapes[2], right_free, batch)
    output, left, right = (tuple(dim for dims in slot for dim in dims[-1:]) for slot in slots)
    sizes = [
        [sorted(shape[d] for d in dims) for dims in slot]
        for shape, slot in zip(shapes, slots, strict=True)
    ]
    if opcode == "convolution":
        fits = len(output) == len(left) == len(right) == 2
        fits = fits and sizes[1][1] == sizes[0][1] and sizes[2][0] == sizes[0][0]
    else:
        fits = sizes[1][0] == sizes[2][0] != []
    # at equal cost the kernel's later dimension comes first
    return [output, left, tuple(sorted(right, reverse=True))] if fits else None


def _contracted_and_free(
    shape: Sizes, free: Sequence[int], batch: Sequence[int]
) -> list[list[int]]:
    """Return the contracted and the free dimensions of a dot's operand, by its output's sizes.

    Among dimensions of equal size, the first are free and the next batch dimensions. `slot_roles`
    may differ, and with it the groups of a real file.
    """
    dims: list[int] = []
    for size in free:
        dims += [d for d in range(dims[-1] + 1 if dims else 0, len(shape)) if shape[d] == size][:1]
    batches = Counter(batch)
    contracted = []
    for d in sorted({*range(len(shape))} - {*dims}):
        if batches[shape[d]]:
            batches[shape[d]] -= 1
        else:
            contracted.append(d)
    return [contracted, dims]


def _reshape(output: Sizes, operand: Sizes, blocks: Sequence[Sequence[int]]) -> TiedNode:
    """Return a reshape's orders: one for each order of its blocks, sizes of 1 major-most."""
    shapes = (output, operand)
    count = max(map(max, blocks)) + 1
    orders = []
    for block_order in permutations(reversed(range(count))):
        position = {number: index for index, number in enumerate(block_order)} | {-1: count}
        order = []
        for numbers, shape in zip(blocks, shapes, strict=True):
            keys = [(position[numbers[d]], shape[d] == 1, -d) for d in range(len(shape))]
            order.append(tuple(sorted(range(len(shape)), key=keys.__getitem__)))
        orders.append(tuple(order))
    preferred = [cheaper(shape, tuple(reversed(range(len(shape))))) for shape in shapes]
    signature = ("reshape", len(output), len(operand), *orders, *(preferred if count > 1 else []))
    return TiedNode(signature, tuple(dict.fromkeys(out for out, _ in orders)))


def cheaper(shape: Sizes, dimensions: Layout) -> Layout:
    """Return the dimensions along lanes and sublanes that pad least, the first ones in ties.

    >>> cheaper((4096, 1000), (1, 0)), cheaper((32, 1000), (1, 0))
    ((0, 1), (1, 0))
    """

    def padded(order: Layout) -> int:
        lanes, sublanes = (max(1, shape[d]) for d in order)
        rest = math.prod(max(1, shape[d]) for d in dimensions if d not in order)
        return -(-lanes // LANES) * LANES * -(-sublanes // SUBLANES) * SUBLANES * rest

    return min(permutations(dimensions, 2), key=padded, default=dimensions)
