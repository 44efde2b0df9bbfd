"""The few combinations of requested layouts that the sides of a pair can take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xlarank.data.duplicates import group_codes
from xlarank.features.layout.context import LayoutContext
from xlarank.features.layout.pairs import Pairs
from xlarank.features.layout.requested import RequestedLayouts
from xlarank.features.program.tensors import Ints


@dataclass(frozen=True)
class Combinations:
    """Every combination of one set of pairs; pairs of equal tensors between equal nodes share theirs.

    A combination is ``first + left * width + right``, with the number of the requested layout on either side.

    Attributes:
        pairs: the pairs.
        requested: what their sides can request.
        group: ``(pairs,)`` number of the group of equal pairs; the arrays below are per group.
        example: one pair of each.
        left, right: slot and signature of the sides, index into `RequestedLayouts.count`.
        width: requested layouts of the right side.
        first: where their combinations start.
        total: number of combinations.
    """

    pairs: Pairs
    requested: RequestedLayouts
    group: Ints
    example: Ints
    left: Ints
    right: Ints
    width: Ints
    first: Ints
    total: int

    @classmethod
    def of(cls, context: LayoutContext, pairs: Pairs, most: int | None = None) -> Combinations:
        """With more than ``most`` combinations in all, the groups that have most of them are left out."""
        requested = context.requested
        left, right = (
            slot * requested.signatures + context.signature[node]
            for slot, node in ((pairs.left_slot, pairs.left), (pairs.right_slot, pairs.right))
        )
        size = np.unique(pairs.bytes, return_inverse=True)[1]
        equal = group_codes(np.column_stack([left, right, size, pairs.permutation]))
        left, right = left[equal.first], right[equal.first]
        sizes = requested.count[left] * requested.count[right]
        if most is not None:
            allowed = np.zeros(len(sizes), bool)
            ascending = np.argsort(sizes, kind="stable")
            allowed[ascending[np.cumsum(sizes[ascending]) <= most]] = True
            if not allowed.all():
                return cls.of(context, pairs.take(np.flatnonzero(allowed[equal.group])), most)
        first = np.cumsum(sizes) - sizes
        return cls(
            pairs, requested, equal.group, equal.first, left, right, requested.count[right], first, int(sizes.sum())
        )

    def sides(self, combination: Ints) -> tuple[Ints, Ints, Ints]:
        """An example pair of each combination, and a type of row on its left and on its right side."""
        group = np.searchsorted(self.first, combination, side="right") - 1
        left, right = np.divmod(combination - self.first[group], self.width[group])
        types, first = self.requested.types, self.requested.first
        return (
            self.example[group],
            types[first[self.left[group]] + left],
            types[first[self.right[group]] + right],
        )
