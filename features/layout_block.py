"""Blocks of layout graphs: what they ask to be summed, and the one pass that answers them all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from features.block import Block
from features.layout import LayoutContext
from features.sums import Asked, Piece, Sums
from features.tensors import Floats

#: Turns the sums of some configurations into a block's columns, ``(configs, columns)``.
Finish = Callable[[Piece], Floats]
#: Codes and configurations in one piece: small enough for the cache, large enough to be worth a turn.
_CODES: Final = 1 << 17
_CONFIGS: Final = (128, 2048)


class LayoutBlock(Block, abstract=True):
    """Columns that are sums or maxima over the nodes and pairs of a configuration, or follow from such.

    `prepare` runs once a graph and asks for the sums; where they are the columns themselves it returns what
    it `Asked`, else how to finish them.
    """

    kinds = ("layout",)

    @abstractmethod
    def prepare(self, context: LayoutContext, sums: Sums) -> Asked | Finish:
        """Ask for sums; say how they become the columns."""

    def compute(self, context: LayoutContext) -> NDArray[np.float32]:
        found = np.zeros((len(self.columns), context.table.configs), np.float32).T
        compute_together(context, [(self, 0)], found)
        return found


def compute_together(
    context: LayoutContext, blocks: Sequence[tuple[LayoutBlock, int]], found: NDArray[np.float32]
) -> None:
    """Fill columns of zeros in ``found`` ``(configs, ...)``: those of each block from a given place on."""
    sums = Sums(context)
    finishes = [(block.prepare(context, sums), at) for block, at in blocks]
    direct = [(finish, at) for finish, at in finishes if isinstance(finish, Asked)]
    later = [(finish, at) for finish, at in finishes if not isinstance(finish, Asked)]
    answer = sums.answer()
    codes = context.table.codes
    low, high = _CONFIGS
    step = min(high, max(low, _CODES // context.configurable_nodes))
    for start in range(0, len(codes), step):
        piece = answer(codes[start : start + step])
        mine = found[start : start + step]
        piece.write(direct, mine)
        for finish, at in later:
            values = finish(piece)
            mine[:, at : at + values.shape[1]] = values
