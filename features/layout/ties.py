"""Groups of configurable nodes whose layouts are chosen together, as in Google's files.

In every real layout file a few choices determine the configurations of hundreds of nodes. The rule was derived from
these files (docs/explanation/layouts.md). Two nodes are tied if they have one opcode and

- the same dimensions are at stake: batch and feature of a convolution, the last free and the last contracted
  dimension of a dot, the blocks of dimensions that a reshape splits or merges;
- the same order of these dimensions is cheaper: fewer elements once the minor-most dimension is padded to the lanes
  and the next to the sublanes. It is the order that the compiler prefers.
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
from xlarank.features.layout.row_types import LayoutFacts
from xlarank.features.program.slots import CONVOLUTION_ROLES, DOT_ROLES, reshape_blocks
from xlarank.features.program.tensors import TPU

Shape = tuple[int, ...]
#: Dimensions, minor-most first.
Order = tuple[int, ...]

#: Roles of the dimensions at stake; the one preferred minor-most first.
_AT_STAKE: Final = {
    "convolution": tuple(map(CONVOLUTION_ROLES.index, ("feature", "batch"))),
    "dot": tuple(map(DOT_ROLES.index, ("contracted", "rows"))),
}


@dataclass(frozen=True)
class Tied:
    """Possible layouts of a node, and its group of tied nodes.

    Attributes:
        signature: equal for nodes that are tied.
        orders: distinct orders that the output may be set to, the preferred one first; an empty one sets nothing.
        optional: whether random configurations may leave the node to the compiler, as Google's do with reshapes.
    """

    signature: tuple[Any, ...]
    orders: tuple[Order, ...]
    optional: bool = False


def tied_nodes(facts: LayoutFacts) -> list[Tied]:
    """Return the possible layouts and the signature of each configurable node."""
    nodes = facts.graph.configurable
    operand_ranks = np.zeros((facts.graph.nodes, MAX_RANK + 1), np.int64)
    consumer, operand = facts.graph.edges.T
    np.add.at(operand_ranks, (consumer, facts.rank[operand]), 1)
    equal = group_codes(np.column_stack([facts.signature, operand_ranks[nodes]]))
    distinct = [_tied(facts, k, tuple(operand_ranks[nodes[k]].tolist())) for k in equal.first.tolist()]
    return [distinct[number] for number in equal.group]


def groups_of(tied: Sequence[Tied]) -> NDArray[np.intp]:
    """Return the group of each node, ``(nodes,)``, numbered in order of first appearance."""
    numbers: dict[tuple[Any, ...], int] = {}
    return np.array([numbers.setdefault(node.signature, len(numbers)) for node in tied], np.intp)


def _tied(facts: LayoutFacts, k: int, operand_ranks: tuple[int, ...]) -> Tied:
    tensors, opcode = facts.slot_tensor[k], OPCODES[int(facts.graph.opcode[facts.graph.configurable[k]])]
    output, *operands = (tuple(facts.dims[t, : facts.rank[t]].tolist()) if t >= 0 else () for t in tensors)
    if opcode == "reshape" and tensors[1] >= 0:
        return _reshape(output, operands[0], reshape_blocks(facts, tensors[None])[0].tolist())
    pairs = _at_stake(opcode, [output, *operands], facts.roles[k]) if (tensors >= 0).all() else None
    key: tuple[Any, ...]
    if pairs is None:  # sizes do not match, or another opcode
        first = cheaper(output, tuple(reversed(range(len(output))))[:2])
        key = operand_ranks, first
    else:
        first, *others = map(cheaper, (output, *operands), pairs)
        if opcode == "convolution":
            key = first, *others
        elif {len(output), *map(len, operands)} == {2}:
            key = (first,)
        else:  # either operand of a dot may come first
            key = first, *sorted((len(shape), *order) for shape, order in zip(operands, others, strict=True))
    return Tied((opcode, len(output), *key), tuple(dict.fromkeys([first, first[::-1]])))


def _at_stake(opcode: str, shapes: Sequence[Shape], roles: NDArray[np.integer]) -> list[Order] | None:
    """Return the dimensions at stake of output, input and kernel; None if there are none or sizes do not fit."""
    if opcode not in _AT_STAKE:
        return None
    held = [[np.flatnonzero(slot == role).tolist() for role in _AT_STAKE[opcode]] for slot in roles]
    if opcode == "dot":
        batch = [shapes[0][d] for d in np.flatnonzero(roles[0] == DOT_ROLES.index("batch"))]
        for slot, free in ((1, held[0][1]), (2, held[0][0])):
            held[slot] = _first_of_equals(shapes[slot], [shapes[0][d] for d in free], batch)
    output, left, right = (tuple(dim for dims in slot for dim in dims[-1:]) for slot in held)
    sizes = [[sorted(shape[d] for d in dims) for dims in slot] for shape, slot in zip(shapes, held, strict=True)]
    if opcode == "convolution":
        whole = len(output) == len(left) == len(right) == 2
        fits = whole and sizes[1][1] == sizes[0][1] and sizes[2][0] == sizes[0][0]
    else:
        fits = sizes[1][0] == sizes[2][0] != []
    # at equal cost the kernel's later dimension comes first
    return [output, left, tuple(sorted(right, reverse=True))] if fits else None


def _first_of_equals(shape: Shape, free: Sequence[int], batch: Sequence[int]) -> list[list[int]]:
    """Return the contracted and the free dimensions of a dot's operand, from the sizes of its output.

    Among dimensions of equal size the first are free, the next batch; `slot_roles` may choose others.
    """
    dims: list[int] = []
    for size in free:
        dims += [d for d in range(dims[-1] + 1 if dims else 0, len(shape)) if shape[d] == size][:1]
    batches, contracted = Counter(batch), []
    for d in sorted({*range(len(shape))} - {*dims}):
        if batches[shape[d]]:
            batches[shape[d]] -= 1
        else:
            contracted.append(d)
    return [contracted, dims]


def _reshape(output: Shape, operand: Shape, blocks: Sequence[Sequence[int]]) -> Tied:
    """Return all orders of the blocks of a reshape; dimensions of size 1 are major-most."""
    shapes, count = (output, operand), max(map(max, blocks)) + 1
    orders = []
    for block_order in permutations(reversed(range(count))):
        rank = {number: index for index, number in enumerate(block_order)} | {-1: count}
        keys = (
            [(rank[block], size == 1, -d) for d, (block, size) in enumerate(zip(numbers, shape, strict=False))]
            for numbers, shape in zip(blocks, shapes, strict=True)
        )
        orders.append(tuple(tuple(-d for *_, d in sorted(key)) for key in keys))
    preferred = [cheaper(shape, tuple(reversed(range(len(shape))))) for shape in shapes]
    signature = ("reshape", len(output), len(operand), *orders, *(preferred if count > 1 else []))
    return Tied(signature, tuple(dict.fromkeys(out for out, _ in orders)), optional=True)


def cheaper(shape: Shape, dimensions: Order) -> Order:
    """Return the two of these dimensions that pad a tensor least along lanes and sublanes, in that order.

    At equal cost the earlier ones come first.

    >>> cheaper((4096, 1000), (1, 0)), cheaper((32, 1000), (1, 0)), cheaper((2, 96, 96, 96, 4), (4, 0))
    ((0, 1), (1, 0), (4, 0))
    """

    def padded(order: Order) -> int:
        lanes, sublanes = (max(1, shape[d]) for d in order)
        rest = math.prod(max(1, shape[d]) for d in dimensions if d not in order)
        return -(-lanes // TPU.lanes) * TPU.lanes * -(-sublanes // TPU.sublanes) * TPU.sublanes * rest

    return min(permutations(dimensions, 2), key=padded, default=dimensions)
