"""Shared intermediate results of a tile graph: its facts, its innermost loop, and what blocks computed before."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import TileGraph
from xlarank.features.program.tensors import TPU, Tiling
from xlarank.features.tile.facts import TileFacts
from xlarank.features.tile.inner_loop import InnerLoop, inner_loop


class TileContext(TileFacts):
    """Everything tile blocks share; per-configuration results are for the *distinct* configurations.

    Attributes:
        columns: per-configuration columns already computed by earlier blocks, by name.
    """

    def __init__(self, graph: TileGraph, tiling: Tiling = TPU) -> None:
        super().__init__(graph, tiling)
        self.columns: dict[str, NDArray[np.float32]] = {}

    @cached_property
    def inner_loop(self) -> InnerLoop:
        """Of every configuration; only where a vector tile is given."""
        return inner_loop(self)
