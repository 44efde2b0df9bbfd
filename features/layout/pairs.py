"""Pairs of slots that lay out one tensor: consumer and producer.

Elementwise operations and `_PASSING` keep a layout, transposes permute it, and all others (reshape,
dot, reduce, ...) choose anew. From a slot, operands are followed through operations that keep or
permute a layout to configurable nodes. Shapes are as in `LayoutContext`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK, OPCODE
from xlarank.features.layout.layout_context import (
    ConfigurableIndex,
    LayoutContext,
    NodeIndex,
    TypeIndex,
)
from xlarank.features.program.program_context import OPCODE_CLASSES
from xlarank.features.program.tensors import Floats, Ints, layout_key

#: Pairs are grouped by distance in edges: 1, 2, and 3 to `FARTHEST`.
HOPS: Final = 3
FARTHEST: Final = 8
#: Opcodes, besides elementwise ones, whose output keeps the layout of the operand.
_PASSING: Final = tuple(
    OPCODE[name] for name in ("copy", "reverse", "all-reduce", "collective-permute")
)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of slots; arrays are ``(pairs,)``.

    Attributes:
        left, right: consumer and producer.
        left_slot, right_slot: index into `xlarank.data.schema.LAYOUT_SLOTS`.
        bytes: size of the left tensor.
        permutation: ``(pairs, 6)`` dimension of the left tensor -> dimension of the right one.
    """

    left: ConfigurableIndex
    right: ConfigurableIndex
    left_slot: Ints
    right_slot: Ints
    bytes: Floats
    permutation: Ints

    def __len__(self) -> int:
        return len(self.left)

    def take(self, index: Ints) -> Pairs:
        return Pairs(*(getattr(self, field.name)[index] for field in fields(self)))


def _operands(context: LayoutContext) -> tuple[ConfigurableIndex, Ints, NodeIndex]:
    """Return operand slots whose tensor has dimensions: (configurable node, slot, tensor)."""
    present = (context.slot_tensor >= 0) & (context.rank[context.slot_tensor] > 0)
    node, slot = np.nonzero(present[:, 1:])
    return node, slot + 1, context.slot_tensor[node, slot + 1]


def connected_pairs(context: LayoutContext) -> list[Pairs]:
    """Return pairs 1, 2 and 3 to 8 edges apart, without a configurable node between.

    If there are several paths, the shortest counts.
    """
    consumer, slot, tensor = _operands(context)
    follow = _passing(context)
    state = np.arange(len(tensor)), tensor, np.tile(np.arange(MAX_RANK), (len(tensor), 1))
    reached = []
    for distance in range(1, FARTHEST + 1):
        configurable = context.configurable_index[state[1]] >= 0
        hops = np.full(configurable.sum(), min(distance, HOPS))
        reached.append((*(part[configurable] for part in state), hops))
        state = follow(*(part[~configurable] for part in state))
    start, node, permutation, hops = (np.concatenate(part) for part in zip(*reached, strict=True))
    _, first = np.unique(start * context.graph.nodes + node, return_index=True)
    start = start[first]
    node = context.configurable_index[node[first]]
    output = np.full(len(start), LAYOUT_SLOTS.index("output"))
    ends = consumer[start], node, slot[start], output
    pairs = Pairs(*ends, context.bytes[tensor[start]], permutation[first])
    return [pairs.take(np.flatnonzero(hops[first] == hop)) for hop in range(1, HOPS + 1)]


def _passing(context: LayoutContext) -> Callable[[Ints, NodeIndex, Ints], tuple[Ints, Ints, Ints]]:
    """Return a function that follows (start, node, permutation) along one more edge.

    If several paths lead from a start to a node, the lexicographically least permutation is kept.
    """
    edges = context.graph.edges
    dims = context.dims
    opcode = context.graph.opcode
    transposes = opcode == OPCODE["transpose"]
    keeps = context.opcode_class == OPCODE_CLASSES.index("elementwise")
    keeps |= np.isin(opcode, _PASSING)
    listed = context.column("dimensions_0", MAX_RANK).astype(np.int64).clip(0, MAX_RANK - 1)
    inside = transposes[:, None] & (np.arange(MAX_RANK) < context.rank[:, None])
    axes = np.where(inside, listed, np.arange(MAX_RANK))
    valid = (np.sort(axes, axis=1) == np.arange(MAX_RANK)).all(axis=1)  # permutations
    nodes, operands = edges.T
    turned_dims = np.take_along_axis(dims[operands], axes[nodes], axis=1)
    passes = ((keeps | transposes) & valid & (context.rank > 0))[nodes] & (
        turned_dims == dims[nodes]
    ).all(axis=1)
    passes &= context.rank[nodes] == context.rank[operands]  # ranks differ only if sizes are 0
    order = np.lexsort((operands[passes], nodes[passes]))
    operands = operands[passes][order]
    first_edge = np.searchsorted(nodes[passes][order], np.arange(len(dims) + 1))

    def follow(start: Ints, node: NodeIndex, permutation: Ints) -> tuple[Ints, Ints, Ints]:
        count = first_edge[node + 1] - first_edge[node]
        offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        operand = operands[np.repeat(first_edge[node], count) + offset]
        start = np.repeat(start, count)
        turned = np.take_along_axis(axes[node], permutation, axis=1).repeat(count, axis=0)
        end = start * len(dims) + operand
        order = np.lexsort((turned @ MAX_RANK ** np.arange(MAX_RANK - 1, -1, -1), end))
        first = order[np.unique(end[order], return_index=True)[1]]
        return start[first], operand[first], turned[first]

    return follow


def pair_layouts(
    context: LayoutContext, pairs: Pairs, pair: Ints, left: TypeIndex, right: TypeIndex
) -> tuple[Ints, Ints, Ints]:
    """Return the keys of the layouts of both sides of pairs, and how many are set, 0 to 2.

    Keys are of full layouts, in the dimensions of the left tensor.
    """
    slots = context.slots.values()
    key = np.stack([rows.key for rows in slots])
    is_set = np.stack([rows.is_set for rows in slots])
    layout = np.stack([rows.layout for rows in slots])
    left_slot = pairs.left_slot[pair]
    right_slot = pairs.right_slot[pair]
    right_key = key[right_slot, right]
    permutation = pairs.permutation[pair]
    turned = (permutation != np.arange(MAX_RANK)).any(axis=1)
    order = layout[right_slot[turned], right[turned]]
    # dimension of the right tensor -> of the left one
    back = np.argsort(permutation[turned], axis=1)
    turned_back = np.take_along_axis(back, np.maximum(order, 0), axis=1)
    right_key[turned] = layout_key(np.where(order >= 0, turned_back, -1))
    sides_set = is_set[left_slot, left].astype(np.int64) + is_set[right_slot, right]
    return key[left_slot, left], right_key, sides_set


def requested_layouts(context: LayoutContext) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the distinct layouts that nodes of one signature request for each slot.

    Two rows request the same layout if their full layouts are equal, and both or neither are set.
    Layouts are concatenated over slots and signatures; ``first`` and ``count`` are the start and
    the number of layouts of each slot and signature, ``(3 * signatures,)``. ``number``, ``(3 *
    T,)``, is the index of the layout that each type of row requests, counted from ``first``;
    ``types`` are an example type of row for each layout.
    """
    signature = context.signature[context.type_configurable]
    signatures = int(context.signature.max(initial=-1)) + 1
    keys = [
        ((slot * signatures + signature) * 2 + rows.is_set) * 7**MAX_RANK + rows.key
        for slot, rows in enumerate(context.slots.values())
    ]
    key = np.concatenate(keys)
    distinct, example, requested = np.unique(key, return_index=True, return_inverse=True)
    owner = distinct // (2 * 7**MAX_RANK)
    owners = len(LAYOUT_SLOTS) * signatures
    first = np.searchsorted(owner, np.arange(owners))
    count = np.bincount(owner, minlength=owners)
    number = requested - first[owner[requested]]
    return first, count, number, example % max(1, len(context.type_configurable))
