"""Context of the blocks of layouts: shared quantities, each computed on first use."""

from __future__ import annotations

from functools import cached_property

from xlarank.data.graph import LayoutGraph
from xlarank.features.layout.hardware import HARDWARE, Hardware
from xlarank.features.layout.layout_facts import LayoutFacts
from xlarank.features.layout.layout_program import LayoutProgram
from xlarank.features.layout.pairs import connected_pairs, requested_layouts
from xlarank.features.layout.time_model import TimeModel
from xlarank.features.program.tensors import TPU, Tiling


class LayoutContext(LayoutFacts):
    """Quantities that layout blocks share, each computed on first use.

    Attributes:
        hardware: hardware whose relayouts are priced; None for none.
        pairs: `Pairs` of consumer and producer, by distance in edges: 1, 2, and 3 to 8.
    """

    def __init__(
        self, graph: LayoutGraph, tiling: Tiling = TPU, hardware: str | None = None
    ) -> None:
        super().__init__(graph, tiling)
        self.hardware: Hardware | None = None if hardware is None else HARDWARE[hardware]

    @cached_property
    def layout_program(self) -> LayoutProgram:
        """The program as layout assignment for `hardware` sees it."""
        assert self.hardware is not None
        return LayoutProgram(self, self.hardware)

    requested = cached_property(requested_layouts)
    times = cached_property(TimeModel)
    pairs = cached_property(connected_pairs)
