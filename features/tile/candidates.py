"""Where a tile configuration stands among the candidates of its kernel (transductive)."""

from __future__ import annotations

from typing import Final

import numpy as np

from xlarank.features.block import Block
from xlarank.features.layout.candidates import placed_name, standard_score, within_graph_rank
from xlarank.features.program.tensors import Floats
from xlarank.features.tile.context import TileContext

_PLACED: Final = (
    "bounds__output_volume__log",
    "bounds__kernel_volume__log",
    "bounds__input_volume__log",
    "tiles__output_all__log",
    "traffic__working_set__log",
    "traffic__total__ratio",
    "traffic__intensity__log",
    "traffic__inner_step__log",
)


class TileCandidateRanks(Block):
    """Rank of important columns among the distinct candidates of the kernel, 0 to 1, ties averaged."""

    kinds = ("tile",)
    transductive = True
    columns = {placed_name("rank", column): f"rank within the kernel of {column}" for column in _PLACED}

    def compute(self, context: TileContext) -> Floats:
        return np.stack([within_graph_rank(context.columns[column]) for column in _PLACED], axis=1)


class TileCandidateScores(Block):
    """Important columns as standard scores among the distinct candidates: (x - mean) / standard deviation."""

    kinds = ("tile",)
    transductive = True
    columns = {placed_name("zscore", column): f"standard score within the kernel of {column}" for column in _PLACED}

    def compute(self, context: TileContext) -> Floats:
        return np.stack([standard_score(context.columns[column]) for column in _PLACED], axis=1)
