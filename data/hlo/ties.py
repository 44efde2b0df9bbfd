"""Which configurable nodes take their layouts together, as in Google's files.

In every real layout file a handful of choices stands behind the configurations of hundreds of nodes. The rule here
was found on those files (docs/tied.md). Two nodes are tied when they are of one opcode and

- the same dimensions are at stake: of a convolution batch and feature dimensions, of a dot the last free and the
  last contracted ones, of a reshape the blocks of dimensions that are split or merged;
- the cheaper order of these dimensions is the same: fewer elements once the minor-most dimension is padded to 128
  lanes and the next to 8 sublanes. It is what the compiler takes where it may choose.

The format names no dimensions of a dot and keeps no order of operands: both are inferred from sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations, product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import LayoutGraph, tensor_ranks
from xlarank.data.schema import MAX_RANK, NODE_COLUMN, OPCODES

Shape = tuple[int, ...]
#: Minor-most dimensions first.
Order = tuple[int, ...]
#: Shapes of output and two operands, and the two dimensions of each that are at stake.
_Pairs = tuple[tuple[Shape, Shape, Shape], tuple[Order, Order, Order]]

_LANES: Final = 128
_SUBLANES: Final = 8
_DIMS: Final = NODE_COLUMN["shape_dimensions_0"]


@dataclass(frozen=True)
class Tied:
    """What a node may take together with others."""

    signature: tuple[Any, ...]  # equal for nodes that are tied
    orders: tuple[Order, ...]  # distinct ones of the output that may be set; an empty one sets nothing
    optional: bool = False  # random configurations also leave it to the compiler, as Google's do with reshapes


def tied_nodes(graph: LayoutGraph) -> list[Tied]:
    """What each configurable node takes together with those of an equal signature."""
    ranks = tensor_ranks(graph.node_feat)
    sizes = graph.node_feat[:, _DIMS : _DIMS + MAX_RANK].astype(np.int64)

    def shape(node: int) -> Shape:
        return tuple(sizes[node, : ranks[node]].tolist())

    edges = graph.edges[np.argsort(graph.edges[:, 0], kind="stable")]
    first, last = (np.searchsorted(edges[:, 0], graph.configurable, side) for side in ("left", "right"))
    tied = []
    for node, low, high in zip(graph.configurable.tolist(), first, last, strict=True):
        kind = OPCODES[int(graph.opcode[node])]
        roles = tuple(int(graph.node_feat[node, column]) for column in _ROLES) if kind == "convolution" else ()
        tied.append(_tied(kind, shape(node), tuple(map(shape, edges[low:high, 1].tolist())), roles))
    return tied


def groups_of(tied: Sequence[Tied]) -> NDArray[np.intp]:
    """``(nodes,)`` number of each node's group, in order of first appearance."""
    numbers: dict[tuple[Any, ...], int] = {}
    return np.array([numbers.setdefault(node.signature, len(numbers)) for node in tied], np.intp)


#: Batch and feature of the output, of the input; input and output feature of the kernel.
_ROLES: Final = [
    NODE_COLUMN[f"convolution_dim_numbers_{name}_dim"]
    for name in (
        "output_batch", "output_feature", "input_batch", "input_feature", "kernel_input_feature",
        "kernel_output_feature",
    )
]  # fmt: skip


@lru_cache(maxsize=4096)
def _tied(kind: str, output: Shape, operands: tuple[Shape, ...], roles: tuple[int, ...]) -> Tied:
    if kind == "reshape" and operands:
        return _reshape(output, operands[0])
    both = (operands * 2)[:2]  # a node that takes one value twice has one edge
    found = None
    if kind == "convolution" and len(both) == 2:
        found = _convolution_pairs(output, both, roles)
    elif kind == "dot" and len(both) == 2:
        found = _dot_pairs(output, both)
    key: tuple[Any, ...]
    if found is None:  # sizes that do not fit, or another opcode
        pair = tuple(reversed(range(len(output))))[:2]
        key = tuple(sorted(map(len, operands))), cheaper(output, pair)
    else:
        costs = [cheaper(*each) for each in zip(*found, strict=True)]
        pair, key = found[1][0], tuple(costs)
        if kind == "dot" and {len(shape) for shape in found[0]} == {2}:
            key = (costs[0],)
        elif kind == "dot":  # which operand stands first says nothing
            key = costs[0], *sorted((len(found[0][slot]), *costs[slot]) for slot in (1, 2))
    first = cheaper(output, pair)
    return Tied((kind, len(output), *key), tuple(dict.fromkeys([first, first[::-1]])))


def _convolution_pairs(output: Shape, operands: Sequence[Shape], roles: tuple[int, ...]) -> _Pairs | None:
    """Shapes of output, input and kernel with batch and feature dimensions, or None where sizes do not fit."""
    batch, feature, in_batch, in_feature, from_feature, to_feature = roles
    # at equal cost: features minor-most, of the kernel the later dimension
    kernel = (max(from_feature, to_feature), min(from_feature, to_feature))
    pairs = ((feature, batch), (in_feature, in_batch), kernel)
    for one, other in (tuple(operands), tuple(operands[::-1])):
        shapes = (output, one, other)
        inside = all(a != b and max(a, b) < len(shape) for shape, (a, b) in zip(shapes, pairs, strict=True))
        if inside and one[in_batch] == output[batch] and other[to_feature] == output[feature]:
            return shapes, pairs
    return None


def _dot_pairs(output: Shape, operands: Sequence[Shape]) -> _Pairs | None:
    """Shapes of output, left and right operand with the dimensions at stake, or None where sizes do not fit.

    The output of a dot has the batch dimensions, then the free ones of the left operand, then of the right.
    """
    for left, right in (tuple(operands), tuple(operands[::-1])):
        for batch in range(min(map(len, (output, left, right))), -1, -1):
            free = len(output) + len(left) - len(right) - batch
            if free % 2 or not 0 <= free // 2 <= len(output) - batch:
                continue
            middle = batch + free // 2
            lefts = _contracted(left, output[:batch], output[batch:middle])
            rights = list(_contracted(right, output[:batch], output[middle:]))
            for (a_free, a), (b_free, b) in product(lefts, rights):
                if a and sorted(left[d] for d in a) == sorted(right[d] for d in b):
                    out = (*(len(output) - 1,) * (middle < len(output)), *(middle - 1,) * (middle > batch))
                    kernel = tuple(sorted((*b[-1:], *b_free[-1:]), reverse=True))
                    return (output, left, right), (out, (*a[-1:], *a_free[-1:]), kernel)
    return None


def _contracted(shape: Shape, batch: Shape, free: Shape) -> Iterator[tuple[Order, Order]]:
    """(free, contracted) dimensions of an operand for every way that its sizes allow."""
    for kept in combinations(range(len(shape)), len(free)):
        if tuple(shape[d] for d in kept) == free:
            others = [d for d in range(len(shape)) if d not in kept]
            for shared in combinations(others, len(batch)):
                if sorted(shape[d] for d in shared) == sorted(batch):
                    yield kept, tuple(d for d in others if d not in shared)


def _reshape(output: Shape, operand: Shape) -> Tied:
    """Blocks of dimensions that become one another, in any order; dimensions of one element are major-most."""
    blocks = _blocks(output, operand)
    ones = [tuple(d for d in reversed(range(len(shape))) if shape[d] == 1) for shape in (output, operand)]
    made = [
        tuple(sum((block[side] for block in order), ()) + ones[side] for side in (0, 1))
        for order in permutations(blocks[::-1])
    ]
    preferred = [cheaper(shape, tuple(reversed(range(len(shape))))) for shape in (output, operand)]
    key = ("reshape", len(output), len(operand), *made, *(preferred if len(blocks) > 1 else []))
    return Tied(key, tuple(dict.fromkeys(out for out, _ in made)), optional=True)


def _blocks(output: Shape, operand: Shape) -> list[tuple[Order, Order]]:
    """Smallest runs of dimensions (minor-most first) of both shapes that hold the same number of elements."""
    left, right = ([d for d in range(len(shape)) if shape[d] != 1] for shape in (output, operand))
    blocks: list[tuple[Order, Order]] = []
    out: list[int] = []
    into: list[int] = []
    while left or right:
        sizes = (math.prod(output[d] for d in out), math.prod(operand[d] for d in into))
        if left and (sizes[0] <= sizes[1] or not right):
            out.append(left.pop(0))
        else:
            into.append(right.pop(0))
        if math.prod(output[d] for d in out) == math.prod(operand[d] for d in into) and out and into:
            blocks.append((tuple(out[::-1]), tuple(into[::-1])))
            out, into = [], []
    if out or into:  # an empty array
        blocks.append((tuple(out[::-1]), tuple(into[::-1])))
    return blocks


def cheaper(shape: Shape, dimensions: Order) -> Order:
    """The two of some dimensions that pad a tensor least as its lanes and sublanes.

    At equal cost the earlier given come first.

    >>> cheaper((4096, 1000), (1, 0)), cheaper((32, 1000), (1, 0)), cheaper((2, 96, 96, 96, 4), (4, 0))
    ((0, 1), (1, 0), (4, 0))
    """

    def padded(order: Order) -> int:
        lanes, sublanes = (-(-max(1, shape[d]) // tile) for d, tile in zip(order, (_LANES, _SUBLANES), strict=True))
        others = math.prod(max(1, shape[d]) for d in dimensions if d not in order)
        return lanes * _LANES * sublanes * _SUBLANES * others

    return min(permutations(dimensions, 2), key=padded, default=dimensions)
