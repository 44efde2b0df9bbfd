"""Instances: the nodes and pairs of nodes that configurations of a layout graph consist of.

A configuration consists of one row per node and of the pairs of rows that lay out one tensor. Each
distinct (node, row) and (pair, combination of rows) is an *instance*; instances with equal columns
are merged. A score that is a sum over instances is learned from thousands of them, and shows which
nodes are slow. A configuration's instances follow from the codes of its nodes, so only the codes
are stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK, OPCODES
from xlarank.features.instances.instance_context import pair_combinations

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]

#: Approximate batch size of lookups, in entries (configuration, node or pair).
_BATCH: Final = 1 << 20
#: Relations between the two slots of a pair, by index.
PAIR_RELATIONS: Final = ("1 edge", "2 edges", "3 or more edges", "siblings")


class Occurrence(NamedTuple):
    """An instance (row of `Instances.values`) in a configuration, with its one or two nodes and a
    description.
    """

    instance: int
    nodes: tuple[int, ...]
    text: str


@dataclass(frozen=True, eq=False)
class Instances:
    """The instances of one graph, for its distinct configurations.

    Nodes with one row, and pairs of two such nodes, are constant and left out.

    Attributes:
        values: ``(instances, columns)`` the distinct instances.
        codes: ``(configs, nodes)`` row of each node, counted from ``first``.
        node, opcode: ``(nodes,)`` number in the graph, and opcode, of each configurable node.
        first: ``(nodes,)`` index of each node's first row.
        rows: ``(R, 18)`` distinct rows, as in `xlarank.data.config_table.ConfigTable`.
        row_instance: ``(R,)`` instance of each row; -1 for none.
        request: ``(R, 3)`` index of the layout that a row requests for each slot, among those of
            equal nodes.
        pairs: ``(pairs, 5)`` left node and slot, right node and slot, index into `PAIR_RELATIONS`.
        pair_first: ``(pairs,)`` start of each pair's combinations (left request * width + right
            request).
        pair_width: ``(pairs,)`` number of layouts requested by the right side.
        pair_instance: ``(combinations,)`` instance of each combination; -1 for none.
    """

    columns: list[str]
    values: NDArray[np.float32]
    codes: NDArray[np.unsignedinteger[Any]]
    node: Ints
    opcode: Ints
    first: Ints
    rows: NDArray[np.int8]
    row_instance: Ints
    request: Ints
    pairs: Ints
    pair_first: Ints
    pair_width: Ints
    pair_instance: Ints

    def __len__(self) -> int:
        return len(self.values)

    @property
    def configs(self) -> int:
        return int(self.codes.shape[0])

    def take(self, configs: NDArray[np.integer[Any]]) -> Instances:
        """Return the same instances for a selection of the configurations."""
        return replace(self, codes=self.codes[configs])

    def counts(self, configs: NDArray[np.integer[Any]] | None = None) -> sparse.csr_array:
        """Return how often instances occur in configurations (default: all), sparse ``(configs,
        instances)``.
        """
        parts = [sparse.csr_array((0, len(self)))]
        for instances in self._lookup(np.arange(self.configs) if configs is None else configs):
            present = instances >= 0
            indptr = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
            shape = len(instances), len(self)
            parts.append(
                sparse.csr_array((np.ones(indptr[-1]), instances[present], indptr), shape=shape)
            )
            parts[-1].sum_duplicates()
        return sparse.csr_array(sparse.vstack(parts, format="csr"))

    def sums(self, scores: Floats) -> Floats:
        """Return ``counts() @ scores``, ``(configs,)``, or ``(configs, n)`` for scores
        ``(instances, n)``.
        """
        # Index -1 is no instance.
        padded = np.append(scores, np.zeros((1, *scores.shape[1:])), axis=0)
        parts = [
            padded[instances].sum(axis=1) for instances in self._lookup(np.arange(self.configs))
        ]
        return np.concatenate([padded[:0], *parts])

    def parts(self, config: int) -> list[Occurrence]:
        """Return the instances in a distinct configuration: nodes, then pairs."""
        from xlarank.features.meanings import layout_text, order_text  # not part of the code hash

        instances = next(self._lookup(np.array([config])))[0].tolist()
        rows = self.rows[self.first + self.codes[config]].reshape(-1, len(LAYOUT_SLOTS), MAX_RANK)
        names = [
            f"{OPCODES[opcode]} {node}"
            for opcode, node in zip(self.opcode.tolist(), self.node, strict=True)
        ]
        texts = [
            ([k], f"{names[k]}: {layout_text(rows[k], 'nothing set')}")
            for k in self._nodes.tolist()
        ]
        for left, left_slot, right, right_slot, relation in self.pairs.tolist():
            ends = (
                (names[k], LAYOUT_SLOTS[s], rows[k, s])
                for k, s in ((left, left_slot), (right, right_slot))
            )
            sides = (
                f"{name} {slot} {order_text(layout) or 'default'}" for name, slot, layout in ends
            )
            texts.append(([left, right], f"{' against '.join(sides)} ({PAIR_RELATIONS[relation]})"))
        parts = zip(instances, texts, strict=True)
        return [
            Occurrence(i, tuple(self.node[nodes].tolist()), text)
            for i, (nodes, text) in parts
            if i >= 0
        ]

    @cached_property
    def _nodes(self) -> Ints:
        """Nodes with more than one row."""
        return np.flatnonzero(np.diff(self.first, append=len(self.rows)) > 1)

    def _lookup(self, configs: NDArray[np.integer[Any]]) -> Iterator[Ints]:
        """Yield the instance at each node and pair, ``(configs, nodes + pairs)``, -1 for none,
        batch by batch.
        """
        step = max(1, _BATCH // max(1, len(self._nodes) + len(self.pairs)))
        for at in range(0, len(configs), step):
            rows = self.first + self.codes[configs[at : at + step]]
            combinations = pair_combinations(
                rows, self.request, self.pairs, self.pair_first, self.pair_width
            )
            parts = self.row_instance[rows[:, self._nodes]], self.pair_instance[combinations]
            yield np.concatenate(parts, axis=1, dtype=np.int32)


#: Names of the arrays of `Instances`.
ARRAYS: Final = tuple(field.name for field in fields(Instances) if field.name != "columns")
