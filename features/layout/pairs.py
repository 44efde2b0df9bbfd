"""Pairs of slots that lay out one tensor: consumer and producer.

Elementwise operations and `_PASSING` keep a layout, transposes permute it, and all others (reshape,
dot, reduce, ...) choose anew. From a slot, operands are followed through operations that keep or
permute a layout to configurable nodes. Shapes are as in `LayoutContext`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import group_codes
from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK, OPCODE
from xlarank.features.layout.aggregation import Batch
from xlarank.features.layout.layout_context import ConfigurableIndex, LayoutContext, NodeIndex
from xlarank.features.program.program_context import OPCODE_CLASSES
from xlarank.features.program.tensors import Floats, Ints, layout_key

#: Number of states of a pair (`pair_states`).
STATES: Final = 8
#: Pairs are grouped by distance in edges: 1, 2, and 3 to `FARTHEST`.
HOPS: Final = 3
FARTHEST: Final = 8
#: Opcodes, besides elementwise ones, whose output keeps the layout of the operand.
_PASSING: Final = tuple(
    OPCODE[name] for name in ("copy", "reverse", "all-reduce", "collective-permute")
)


class Pairs(NamedTuple):
    """Pairs of slots; arrays are ``(pairs,)``.

    Attributes:
        left, right: consumer and producer.
        left_slot: index into `xlarank.data.schema.LAYOUT_SLOTS`; on the right it is the output.
        bytes: size of the left tensor.
        permutation: ``(pairs, 6)`` dimension of the left tensor -> dimension of the right one.
    """

    left: ConfigurableIndex
    right: ConfigurableIndex
    left_slot: Ints
    bytes: Floats
    permutation: Ints


def connected_pairs(context: LayoutContext) -> list[Pairs]:
    """Return pairs 1, 2 and 3 to 8 edges apart, without a configurable node between.

    If there are several paths, the shortest counts.
    """
    present = (context.slot_tensor >= 0) & (context.rank[context.slot_tensor] > 0)
    present[:, LAYOUT_SLOTS.index("output")] = False
    consumer, slot = np.nonzero(present)
    tensor = context.slot_tensor[consumer, slot]
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
    pairs = []
    for hop in range(1, HOPS + 1):
        path = first[hops[first] == hop]
        at = start[path]
        producer = context.configurable_index[node[path]]
        bytes_ = context.bytes[tensor[at]]
        pairs.append(Pairs(consumer[at], producer, slot[at], bytes_, permutation[path]))
    return pairs


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


def pair_states(context: LayoutContext, pairs: Pairs) -> Callable[[Batch], NDArray[np.int32]]:
    """Return a function from a batch to the state of every pair, ``(configs, pairs)``.

    A state is 4 if the full layouts of both sides differ, plus 2 if the left one is set, plus 1 if
    the right one is set.
    """
    output = context.slots["output"]
    examples, turn = group_codes(pairs.permutation)
    # dimension of the right tensor -> of the left one
    back = np.argsort(pairs.permutation[examples], axis=1)[:, output.layout]
    turned = np.where(output.layout >= 0, back, -1)
    left = np.concatenate([4 * rows.key + 2 * rows.is_set for rows in context.slots.values()])
    right = (4 * layout_key(turned) + output.is_set).reshape(-1)
    types = len(context.type_configurable)
    starts = pairs.left_slot * types, turn * types
    # half the memory of int64
    wanted, made, left_start, right_start = (
        array.astype(np.int32) for array in (left, right, *starts)
    )

    def states(batch: Batch) -> NDArray[np.int32]:
        unlike = wanted[batch.types[:, pairs.left] + left_start]
        unlike ^= made[batch.types[:, pairs.right] + right_start]
        return np.asarray((unlike & 3) + (unlike > 3) * np.int32(4))

    return states
