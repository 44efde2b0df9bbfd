"""The layouts that rows request of the tensors behind a node's slots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK
from xlarank.features.layout.facts import LayoutFacts
from xlarank.features.program.tensors import Ints


@dataclass(frozen=True)
class RequestedLayouts:
    """The distinct layouts that nodes of one signature request of each slot; the slots lie one after the other.

    Attributes:
        signatures: number of different nodes (`xlarank.features.layout.facts.LayoutFacts.signature`).
        number: ``(3 * T,)`` which of its node's requested layouts a type of row holds.
        count: ``(3 * signatures,)`` how many requested layouts there are.
        first: ``(3 * signatures,)`` where they start in ``types``.
        types: one type of row for each requested layout.
    """

    signatures: int
    number: Ints
    count: Ints
    first: Ints
    types: Ints

    @classmethod
    def of(cls, facts: LayoutFacts) -> RequestedLayouts:
        """Two rows request one layout when both set it, or both leave it, and the full layouts agree."""
        signature = facts.signature[facts.type_node]
        signatures, total = int(facts.signature.max(initial=-1)) + 1, len(facts.type_node)
        keys = []
        for slot, rows in enumerate(facts.slots.values()):
            keys.append(((slot * signatures + signature) * 2 + rows.given) * 7**MAX_RANK + rows.key)
        distinct, example, requested = np.unique(np.concatenate(keys), return_index=True, return_inverse=True)
        owner = distinct // (2 * 7**MAX_RANK)
        first = np.searchsorted(owner, np.arange(len(LAYOUT_SLOTS) * signatures))
        count = np.bincount(owner, minlength=len(LAYOUT_SLOTS) * signatures)
        return cls(signatures, requested - first[owner[requested]], count, first, example % max(1, total))

    def by_row(self, facts: LayoutFacts) -> Ints:
        """``(R, 3)`` which of the requested layouts of each slot a distinct row of the table holds."""
        of_types = self.number.reshape(len(LAYOUT_SLOTS), -1).T
        found: Ints = of_types[facts.row_type]
        return found
