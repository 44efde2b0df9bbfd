"""Pairs of slots that speak of one tensor: what a consumer requests and what a producer makes, or two readers.

Layouts pass unchanged through elementwise operations and, permuted, through transposes; all others (reshape,
dot, reduce, ...) choose anew. So from an operand slot the operands are followed down through such nodes to
the configurable nodes whose output it is. A pair takes only few distinct combinations of rows; everything is
computed per combination and looked up (`xlarank.features.layout.aggregation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK, NODE_COLUMN, OPCODE
from xlarank.features.layout.facts import LayoutFacts
from xlarank.features.program.facts import ProgramFacts
from xlarank.features.program.opcode_classes import OPCODE_CLASSES
from xlarank.features.program.tensors import Floats, Ints

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
        left, right: indices among the configurable nodes (consumer and producer, or two consumers).
        left_slot, right_slot: index into `xlarank.data.schema.LAYOUT_SLOTS`.
        bytes: size of the tensor that is handed on.
        permutation: ``(pairs, 6)`` dimension of the left tensor -> dimension of the right one.
    """

    left: Ints
    right: Ints
    left_slot: Ints
    right_slot: Ints
    bytes: Floats
    permutation: Ints

    def __len__(self) -> int:
        return len(self.left)

    def take(self, index: Ints) -> Pairs:
        """Some of the pairs."""
        return Pairs(*(getattr(self, field.name)[index] for field in fields(self)))

    @classmethod
    def together(cls, parts: Sequence[Pairs]) -> Pairs:
        """Several sets of pairs in one."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def operand_starts(facts: LayoutFacts) -> tuple[Ints, Ints, Ints]:
    """Operand slots with a tensor that has dimensions: (configurable node, slot, tensor)."""
    node, slot = np.nonzero(facts.slot_tensor[:, 1:] >= 0)
    tensor = facts.slot_tensor[node, slot + 1]
    real = facts.rank[tensor] > 0
    return node[real], slot[real] + 1, tensor[real]


def connected_pairs(facts: LayoutFacts) -> list[Pairs]:
    """Pairs of consumer and producer with no other configurable node between: 1, 2, and 3 to 8 edges apart.

    The shortest way counts where there are several.
    """
    consumer, slot, tensor = operand_starts(facts)
    walk = _Walk(facts)
    state = np.arange(len(tensor)), tensor, np.tile(np.arange(MAX_RANK), (len(tensor), 1))
    ends, distances = [], []
    for distance in range(1, FARTHEST + 1):
        configurable = facts.position[state[1]] >= 0
        ends.append(tuple(part[configurable] for part in state))
        distances.append(np.full(len(ends[-1][0]), distance))
        state = walk.down(*(part[~configurable] for part in state))
    start, node, permutation = (np.concatenate(side) for side in zip(*ends, strict=True))
    # of several ways to one producer the shortest counts
    _, first = np.unique(start * facts.graph.nodes + node, return_index=True)
    distance = np.minimum(np.concatenate(distances)[first], HOPS)
    start, node, permutation = start[first], node[first], permutation[first]
    output = np.full(len(start), _OUTPUT)
    everything = Pairs(
        consumer[start], facts.position[node], slot[start], output, facts.bytes[tensor[start]], permutation
    )
    return [everything.take(np.flatnonzero(distance == hop)) for hop in range(1, HOPS + 1)]


def sibling_pairs(facts: LayoutFacts) -> Pairs:
    """Neighbours in the row of operand slots that read one tensor directly, in order of node and slot."""
    consumer, slot, tensor = operand_starts(facts)
    order = np.lexsort((slot, consumer, tensor))
    consumer, slot, tensor = consumer[order], slot[order], tensor[order]
    same = np.flatnonzero(tensor[1:] == tensor[:-1])
    return Pairs(
        consumer[same],
        consumer[same + 1],
        slot[same],
        slot[same + 1],
        facts.bytes[tensor[same]],
        np.tile(np.arange(MAX_RANK), (len(same), 1)),
    )


class _Walk:
    """Follows operands through the nodes that keep layouts."""

    def __init__(self, facts: ProgramFacts) -> None:
        edges, dims, opcode = facts.graph.edges, facts.dims, facts.graph.opcode
        keeps = (facts.opcode_class == OPCODE_CLASSES.index("elementwise")) | np.isin(opcode, _PASSING)
        transposes = opcode == _TRANSPOSE
        self._turn = np.tile(np.arange(MAX_RANK), (len(dims), 1))
        at = NODE_COLUMN["dimensions_0"]
        given = facts.graph.node_feat[transposes, at : at + MAX_RANK].astype(np.int64).clip(0, MAX_RANK - 1)
        inside = np.arange(MAX_RANK) < facts.rank[transposes][:, None]
        self._turn[transposes] = np.where(inside, given, np.arange(MAX_RANK))
        proper = (np.sort(self._turn, axis=1) == np.arange(MAX_RANK)).all(axis=1)  # a permutation is given
        node, operand = edges[:, 0], edges[:, 1]
        turned = np.take_along_axis(dims[operand], self._turn[node], axis=1)
        passes = ((keeps | transposes) & proper & (facts.rank > 0))[node] & (turned == dims[node]).all(axis=1)
        passes &= facts.rank[node] == facts.rank[operand]  # unlike only where sizes are 0
        order = np.lexsort((operand[passes], node[passes]))
        self._operand = operand[passes][order]
        self._first = np.searchsorted(node[passes][order], np.arange(len(dims) + 1))
        self._nodes = len(dims)

    def down(self, start: Ints, node: Ints, permutation: Ints) -> tuple[Ints, Ints, Ints]:
        """One edge further from every state (start, node, permutation).

        Of several ways from one start to one node, the least permutation (dimension by dimension) is taken.
        """
        count = self._first[node + 1] - self._first[node]
        ends = np.cumsum(count)
        offset = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - count, count)
        operand = self._operand[np.repeat(self._first[node], count) + offset]
        start = np.repeat(start, count)
        turned = np.take_along_axis(
            np.repeat(self._turn[node], count, axis=0), np.repeat(permutation, count, axis=0), axis=1
        )
        end = start * self._nodes + operand
        order = np.lexsort((turned @ MAX_RANK ** np.arange(MAX_RANK - 1, -1, -1), end))
        first = order[np.append(True, end[order][1:] != end[order][:-1])] if len(end) else order
        return start[first], operand[first], turned[first]
