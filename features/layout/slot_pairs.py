"""Pairs of slots that lay out one tensor (consumer and producer, or two readers), and the layouts they request.

Layouts pass unchanged through elementwise operations and, permuted, through transposes; all others (reshape, dot,
reduce, ...) choose anew. Operands are followed through such nodes from a slot to the configurable nodes before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import group_codes
from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK, OPCODE
from xlarank.features.layout.row_types import LayoutFacts
from xlarank.features.program.program_context import OPCODE_CLASSES, ProgramContext
from xlarank.features.program.tensors import ConfigurableIndex, Floats, Ints, NodeIndex, TypeIndex, layout_key

#: Pairs are grouped by distance in edges: 1, 2, and 3 to `FARTHEST`.
HOPS: Final = 3
FARTHEST: Final = 8
#: Opcodes, besides elementwise ones, whose output keeps the layout of the operand.
_PASSING: Final = tuple(OPCODE[name] for name in ("copy", "reverse", "all-reduce", "collective-permute"))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of slots; arrays are ``(pairs,)``.

    Attributes:
        left, right: consumer and producer, or two consumers.
        left_slot, right_slot: index into `xlarank.data.schema.LAYOUT_SLOTS`.
        bytes: size of the shared tensor.
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

    @property
    def straight(self) -> NDArray[np.bool_]:
        """``(pairs,)`` whether the dimensions keep their order along the path."""
        return np.asarray((self.permutation == np.arange(MAX_RANK)).all(axis=1))


def operand_starts(facts: LayoutFacts) -> tuple[ConfigurableIndex, Ints, NodeIndex]:
    """Return operand slots whose tensor has dimensions: (configurable node, slot, tensor)."""
    node, slot = np.nonzero(facts.slot_tensor[:, 1:] >= 0)
    tensor = facts.slot_tensor[node, slot + 1]
    real = facts.rank[tensor] > 0
    return node[real], slot[real] + 1, tensor[real]


def connected_pairs(facts: LayoutFacts) -> list[Pairs]:
    """Return pairs of consumer and producer without a configurable node between, 1, 2 and 3 to 8 edges apart.

    If there are several paths, the shortest counts.
    """
    consumer, slot, tensor = operand_starts(facts)
    follow = _passing(facts)
    state = np.arange(len(tensor)), tensor, np.tile(np.arange(MAX_RANK), (len(tensor), 1))
    reached, distances = [], []
    for distance in range(1, FARTHEST + 1):
        configurable = facts.configurable_index[state[1]] >= 0
        reached.append(tuple(part[configurable] for part in state))
        distances.append(np.full(configurable.sum(), distance))
        state = follow(*(part[~configurable] for part in state))
    start, node, permutation = (np.concatenate(part) for part in zip(*reached, strict=True))
    _, first = np.unique(start * facts.graph.nodes + node, return_index=True)
    distance = np.minimum(np.concatenate(distances)[first], HOPS)
    start, node = start[first], facts.configurable_index[node[first]]
    output = np.full(len(start), LAYOUT_SLOTS.index("output"))
    pairs = Pairs(consumer[start], node, slot[start], output, facts.bytes[tensor[start]], permutation[first])
    return [pairs.take(np.flatnonzero(distance == hop)) for hop in range(1, HOPS + 1)]


def sibling_pairs(facts: LayoutFacts) -> Pairs:
    """Return consecutive operand slots that read the same tensor directly, ordered by node and slot."""
    consumer, slot, tensor = operand_starts(facts)
    order = np.lexsort((slot, consumer, tensor))
    consumer, slot, tensor = consumer[order], slot[order], tensor[order]
    same = np.flatnonzero(tensor[1:] == tensor[:-1])
    ends = consumer[same], consumer[same + 1], slot[same], slot[same + 1]
    return Pairs(*ends, facts.bytes[tensor[same]], np.tile(np.arange(MAX_RANK), (len(same), 1)))


def _passing(facts: ProgramContext) -> Callable[[Ints, NodeIndex, Ints], tuple[Ints, Ints, Ints]]:
    """Return a function that follows one more edge from each state (start, node, permutation), if layouts are kept.

    If several paths lead from a start to a node, the lexicographically least permutation is kept.
    """
    edges, dims, opcode = facts.graph.edges, facts.dims, facts.graph.opcode
    transposes = opcode == OPCODE["transpose"]
    keeps = (facts.opcode_class == OPCODE_CLASSES.index("elementwise")) | np.isin(opcode, _PASSING)
    listed = facts.column("dimensions_0", MAX_RANK).astype(np.int64).clip(0, MAX_RANK - 1)
    inside = transposes[:, None] & (np.arange(MAX_RANK) < facts.rank[:, None])
    axes = np.where(inside, listed, np.arange(MAX_RANK))
    proper = (np.sort(axes, axis=1) == np.arange(MAX_RANK)).all(axis=1)  # a valid permutation
    nodes, operands = edges.T
    turned_dims = np.take_along_axis(dims[operands], axes[nodes], axis=1)
    passes = ((keeps | transposes) & proper & (facts.rank > 0))[nodes] & (turned_dims == dims[nodes]).all(axis=1)
    passes &= facts.rank[nodes] == facts.rank[operands]  # ranks differ only if sizes are 0
    order = np.lexsort((operands[passes], nodes[passes]))
    operands, first_edge = operands[passes][order], np.searchsorted(nodes[passes][order], np.arange(len(dims) + 1))

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


class PairLayouts:
    """Layouts that both sides of a pair request for the tensor between them."""

    def __init__(self, facts: LayoutFacts, pairs: Pairs) -> None:
        self.pairs = pairs
        slots = facts.slots.values()
        self._key, self._is_set = np.stack([s.key for s in slots]), np.stack([s.is_set for s in slots])
        self._layout, self._turned = np.stack([s.layout for s in slots]), ~pairs.straight

    def layouts(self, pair: Ints, left: TypeIndex, right: TypeIndex) -> tuple[Ints, Ints, Ints]:
        """Return the keys of both full layouts in the left tensor's dimensions, and how many are set, 0 to 2."""
        left_slot, right_slot = self.pairs.left_slot[pair], self.pairs.right_slot[pair]
        right_key = self._key[right_slot, right]
        turned = np.flatnonzero(self._turned[pair])
        if len(turned):
            layout = self._layout[right_slot[turned], right[turned]]
            # dimension of the right tensor -> of the left one
            back = np.argsort(self.pairs.permutation[pair[turned]], axis=1)
            turned_back = np.take_along_axis(back, np.maximum(layout, 0), axis=1)
            right_key[turned] = layout_key(np.where(layout >= 0, turned_back, -1))
        sides_set = self._is_set[left_slot, left].astype(np.int64) + self._is_set[right_slot, right]
        return self._key[left_slot, left], right_key, sides_set

    def disagreement(self, pair: Ints, left: TypeIndex, right: TypeIndex) -> Floats:
        """Return clash, mismatch and half, each with its bytes, and agreement: ``(combinations, 7)``."""
        left_key, right_key, sides_set = self.layouts(pair, left, right)
        unlike = left_key != right_key
        bytes_ = self.pairs.bytes[pair]
        clash, half = unlike & (sides_set == 2), unlike & (sides_set == 1)
        columns = [clash, clash * bytes_, unlike, unlike * bytes_, half, half * bytes_, ~unlike & (sides_set == 2)]
        return np.stack(columns, axis=1).astype(np.float64)

    def over(self) -> list[float]:
        """Return the divisors of sums of `disagreement`: the number of pairs or their bytes, at least 1."""
        count, bytes_ = max(1.0, len(self.pairs)), max(1.0, float(self.pairs.bytes.sum()))
        return [count, bytes_] * 3 + [count]


class RequestedLayouts:
    """Distinct layouts that nodes of one signature request for each slot, concatenated over slots.

    Two rows request the same layout if their full layouts agree and both set it, or neither does.
    """

    def __init__(self, facts: LayoutFacts) -> None:
        self.signature, signature = facts.signature, facts.signature[facts.type_configurable]
        self.signatures = int(facts.signature.max(initial=-1)) + 1  # number of distinct signatures
        keys = [
            ((slot * self.signatures + signature) * 2 + rows.is_set) * 7**MAX_RANK + rows.key
            for slot, rows in enumerate(facts.slots.values())
        ]
        distinct, example, requested = np.unique(np.concatenate(keys), return_index=True, return_inverse=True)
        owner, owners = distinct // (2 * 7**MAX_RANK), len(LAYOUT_SLOTS) * self.signatures
        # ``(3 * signatures,)`` start and number of the requested layouts
        self.first, self.count = np.searchsorted(owner, np.arange(owners)), np.bincount(owner, minlength=owners)
        # ``(3 * T,)`` index of the layout that each type of row requests
        self.number: Ints = requested - self.first[owner[requested]]
        # an example type of row for each requested layout
        self.types: Ints = example % max(1, len(facts.type_configurable))

    def by_row(self, facts: LayoutFacts) -> Ints:
        """Return the index of the layout that each distinct row requests for each slot, ``(R, 3)``."""
        return np.asarray(self.number.reshape(len(LAYOUT_SLOTS), -1).T[facts.row_type])


class Combinations:
    """All combinations of requested layouts of pairs; equal pairs share theirs.

    A combination is numbered ``pair_first + left * pair_width + right``, with indices of requested layouts on the
    left and right. If ``total`` would exceed ``limit``, the groups of equal pairs with the most combinations are
    left out.
    """

    def __init__(self, requested: RequestedLayouts, pairs: Pairs, limit: int | None = None) -> None:
        self._requested = requested
        group, sizes = self._grouped(pairs)
        if limit is not None and sizes.sum() > limit:
            ascending = np.argsort(sizes, kind="stable")
            selected = ascending[np.cumsum(sizes[ascending]) <= limit]
            pairs = pairs.take(np.flatnonzero(np.isin(group, selected)))
            group, sizes = self._grouped(pairs)
        self.pairs, self.total = pairs, int(sizes.sum())
        self._width, self._first = requested.count[self._right], np.cumsum(sizes) - sizes
        self.pair_width, self.pair_first = self._width[group], self._first[group]

    def _grouped(self, pairs: Pairs) -> tuple[Ints, Ints]:
        """Return the group of each pair, ``(pairs,)``, and the number of combinations of each group."""
        left = pairs.left_slot * self._requested.signatures + self._requested.signature[pairs.left]
        right = pairs.right_slot * self._requested.signatures + self._requested.signature[pairs.right]
        equal = group_codes(np.column_stack([left, right, pairs.permutation]))
        # one pair of each group; slot and signature of its sides, index into `RequestedLayouts.count`
        self._example, self._left, self._right = equal.first, left[equal.first], right[equal.first]
        return equal.group, self._requested.count[self._left] * self._requested.count[self._right]

    def sides(self, combination: Ints) -> tuple[Ints, TypeIndex, TypeIndex]:
        """Return for each combination an example pair, and a type of row on its left and its right side."""
        group = np.searchsorted(self._first, combination, side="right") - 1
        left, right = np.divmod(combination - self._first[group], self._width[group])
        types, first = self._requested.types, self._requested.first
        left, right = first[self._left[group]] + left, first[self._right[group]] + right
        return self._example[group], types[left], types[right]
