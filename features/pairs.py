"""Pairs of slots that speak of one tensor: what a consumer wishes and what a producer makes, or two readers.

Layouts pass unchanged through elementwise operations and, permuted, through transposes; all others (reshape,
dot, reduce, ...) choose anew. So from an operand slot the operands are followed down through such nodes to
the configurable nodes whose output it is. A pair takes only few distinct combinations of rows; everything is
computed per combination and looked up (`features.sums`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from data.schema import LAYOUT_SLOTS, MAX_RANK, NODE_COLUMN, OPCODE
from features.opcode_classes import OPCODE_CLASSES
from features.tensors import Floats, Ints

if TYPE_CHECKING:
    from features.layout import LayoutContext
    from features.program import ProgramContext

#: Pairs are told apart by the edges between them: 1, 2, or 3 up to `FARTHEST`.
HOPS: Final = 3
FARTHEST: Final = 8
_OUTPUT: Final = LAYOUT_SLOTS.index("output")
_TRANSPOSE: Final = OPCODE["transpose"]
#: Other opcodes than elementwise ones whose output has the layout of its operand.
_PASSING: Final = tuple(OPCODE[name] for name in ("copy", "reverse", "all-reduce", "collective-permute"))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Two slots each; arrays are ``(pairs,)``.

    Attributes:
        left, right: places among the configurable nodes (consumer and producer, or two consumers).
        left_slot, right_slot: index into `data.schema.LAYOUT_SLOTS`.
        bytes: size of the tensor that is handed on.
        place: ``(pairs, 6)`` dimension of the left tensor -> dimension of the right one.
    """

    left: Ints
    right: Ints
    left_slot: Ints
    right_slot: Ints
    bytes: Floats
    place: Ints

    def __len__(self) -> int:
        return len(self.left)

    def take(self, index: Ints) -> Pairs:
        """Some of the pairs."""
        return Pairs(*(getattr(self, field.name)[index] for field in fields(self)))

    @classmethod
    def together(cls, parts: Sequence[Pairs]) -> Pairs:
        """Several sets of pairs in one."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


@dataclass(frozen=True)
class Wishes:
    """The distinct layouts that each node wishes of each slot; the three slots lie one after the other.

    Attributes:
        nodes: number of configurable nodes.
        number: ``(3 * R,)`` which of its node's wishes a row holds.
        count: ``(3 * nodes,)`` how many wishes a node has.
        first: ``(3 * nodes,)`` where its wishes start in ``rows``.
        rows: one row for each wish.
    """

    nodes: int
    number: Ints
    count: Ints
    first: Ints
    rows: Ints

    @classmethod
    def of(cls, context: LayoutContext) -> Wishes:
        """Two rows hold one wish of a slot when both set it, or both leave it, and the full layouts agree."""
        nodes, total = context.table.nodes, len(context.table.rows)
        keys = []
        for slot, rows in enumerate(context.slots.values()):
            keys.append(((slot * nodes + context.table.node) * 2 + rows.given) * 7**MAX_RANK + rows.key)
        distinct, example, wish = np.unique(np.concatenate(keys), return_index=True, return_inverse=True)
        owner = distinct // (2 * 7**MAX_RANK)
        first = np.searchsorted(owner, np.arange(len(LAYOUT_SLOTS) * nodes))
        count = np.bincount(owner, minlength=len(LAYOUT_SLOTS) * nodes)
        return cls(nodes, wish - first[owner[wish]], count, first, example % max(1, total))


def operand_starts(context: LayoutContext) -> tuple[Ints, Ints, Ints]:
    """Operand slots with a tensor that has dimensions: (configurable node, slot, tensor)."""
    node, slot = np.nonzero(context.slot_tensor[:, 1:] >= 0)
    tensor = context.slot_tensor[node, slot + 1]
    real = context.rank[tensor] > 0
    return node[real], slot[real] + 1, tensor[real]


def connected_pairs(context: LayoutContext) -> list[Pairs]:
    """Pairs of consumer and producer with no other configurable node between: 1, 2, and 3 to 8 edges apart.

    The shortest way counts where there are several.
    """
    consumer, slot, tensor = operand_starts(context)
    walk = _Walk(context)
    start = np.arange(len(tensor))
    frontier = start, tensor, np.tile(np.arange(MAX_RANK), (len(tensor), 1))
    seen = start * context.graph.nodes + tensor
    ends: list[tuple[Ints, Ints, Ints]] = []
    for _ in range(FARTHEST):
        configurable = context.position[frontier[1]] >= 0
        ends.append((start[configurable], frontier[1][configurable], frontier[2][configurable]))
        start, node, place = (part[~configurable] for part in frontier)
        frontier, seen = walk.down((start, node, place), seen)
        start = frontier[0]
    found = []
    for parts in (ends[:1], ends[1:2], ends[2:]):
        start, node, place = (np.concatenate(side) for side in zip(*parts, strict=True))
        order = np.lexsort((node, start))
        start, node, place = start[order], node[order], place[order]
        producer = np.full(len(start), _OUTPUT)
        bytes_ = context.bytes[tensor[start]]
        found.append(Pairs(consumer[start], context.position[node], slot[start], producer, bytes_, place))
    return found


def sibling_pairs(context: LayoutContext) -> Pairs:
    """Neighbours in the row of operand slots that read one tensor directly, in order of node and slot.

    Nodes stand as in ``node_config_ids``, which real files sort.
    """
    consumer, slot, tensor = operand_starts(context)
    order = np.lexsort((slot, consumer, tensor))
    consumer, slot, tensor = consumer[order], slot[order], tensor[order]
    same = np.flatnonzero(tensor[1:] == tensor[:-1])
    return Pairs(
        consumer[same],
        consumer[same + 1],
        slot[same],
        slot[same + 1],
        context.bytes[tensor[same]],
        np.tile(np.arange(MAX_RANK), (len(same), 1)),
    )


class _Walk:
    """Follows operands through the nodes that keep layouts."""

    def __init__(self, context: ProgramContext) -> None:
        edges, dims, opcode = context.graph.edges, context.dims, context.graph.opcode
        keeps = (context.opcode_class == OPCODE_CLASSES.index("elementwise")) | np.isin(opcode, _PASSING)
        transposes = opcode == _TRANSPOSE
        self._turn = np.tile(np.arange(MAX_RANK), (len(dims), 1))
        at = NODE_COLUMN["dimensions_0"]
        given = context.graph.node_feat[transposes, at : at + MAX_RANK].astype(np.int64).clip(0, MAX_RANK - 1)
        inside = np.arange(MAX_RANK) < context.rank[transposes][:, None]
        self._turn[transposes] = np.where(inside, given, np.arange(MAX_RANK))
        proper = (np.sort(self._turn, axis=1) == np.arange(MAX_RANK)).all(axis=1)  # a permutation is given
        node, operand = edges[:, 0], edges[:, 1]
        turned = np.take_along_axis(dims[operand], self._turn[node], axis=1)
        passes = ((keeps | transposes) & proper & (context.rank > 0))[node] & (turned == dims[node]).all(axis=1)
        passes &= context.rank[node] == context.rank[operand]  # unlike only where sizes are 0
        order = np.lexsort((operand[passes], node[passes]))
        self._operand = operand[passes][order]
        self._first = np.searchsorted(node[passes][order], np.arange(len(dims) + 1))
        self._nodes = len(dims)

    def down(
        self, states: tuple[Ints, Ints, Ints], seen: NDArray[np.int64]
    ) -> tuple[tuple[Ints, Ints, Ints], NDArray[np.int64]]:
        """One edge further from states (start, node, place); leaves out what was ``seen``, and adds to it.

        Of several ways to one node, the least place (dimension by dimension) is taken.
        """
        start, node, place = states
        count = self._first[node + 1] - self._first[node]
        ends = np.cumsum(count)
        offset = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - count, count)
        operand = self._operand[np.repeat(self._first[node], count) + offset]
        place = np.take_along_axis(
            np.repeat(self._turn[node], count, axis=0), np.repeat(place, count, axis=0), axis=1
        )
        state = np.repeat(start, count) * self._nodes + operand
        order = np.argsort(place @ MAX_RANK ** np.arange(MAX_RANK - 1, -1, -1), kind="stable")
        key, first = np.unique(state[order], return_index=True)
        fresh = ~np.isin(key, seen)
        first = order[first[fresh]]
        return (np.repeat(start, count)[first], operand[first], place[first]), np.concatenate([seen, key[fresh]])
