"""Shared intermediate results of a layout graph: its facts, the pairs of slots, and what blocks computed before."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xlarank.data.graph import LayoutGraph
from xlarank.features.layout.regions import OutputRows, Regions, layout_regions, output_rows
from xlarank.features.layout.row_types import LayoutFacts
from xlarank.features.layout.slot_pairs import Pairs, RequestedLayouts, connected_pairs, sibling_pairs
from xlarank.features.program.tensors import TPU, Tiling


class LayoutContext(LayoutFacts):
    """Everything layout blocks share; per-configuration results are for the *distinct* configurations."""

    def __init__(self, graph: LayoutGraph, tiling: Tiling = TPU) -> None:
        super().__init__(graph, tiling)
        self.columns: dict[str, NDArray[np.float32]] = {}  # those that earlier blocks have computed, by name

    @cached_property
    def requested(self) -> RequestedLayouts:
        return RequestedLayouts.of(self)

    @cached_property
    def regions(self) -> Regions:
        return layout_regions(self)

    @cached_property
    def output_rows(self) -> OutputRows:
        return output_rows(self, self.regions)

    @cached_property
    def pairs(self) -> list[Pairs]:
        """Consumers and the producers of their operands, by the edges between: 1, 2, and 3 or more."""
        return connected_pairs(self)

    @cached_property
    def straight_pairs(self) -> Pairs:
        """Those of `pairs` whose tensor keeps its dimensions' order on the way, in one."""
        everything = Pairs.together(self.pairs)
        return everything.take(np.flatnonzero(everything.straight))

    @cached_property
    def siblings(self) -> Pairs:
        """Operand slots that read one tensor."""
        return sibling_pairs(self)

    @cached_property
    def near(self) -> list[sparse.csr_array]:
        """Sparse ``(configurable nodes, configurable nodes)`` for 1 and 2 hops, either direction.

        1 where two nodes are exactly that many edges apart.
        """
        ids = self.graph.configurable
        once = sparse.csr_array(self.neighbours[ids])
        one = sparse.csr_array(once[:, ids])
        two = sparse.csr_array(once @ self.neighbours[:, ids])
        two.data[:] = 1.0
        two = sparse.csr_array(two - two.multiply(one))
        two.setdiag(0.0)
        two.eliminate_zeros()
        return [one, two]
