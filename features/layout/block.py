"""Blocks of layout graphs: what they ask to be summed, and the one pass that answers them all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.features.block import Block
from xlarank.features.layout.aggregation import Asked, Piece, Sums
from xlarank.features.layout.context import LayoutContext
from xlarank.features.program.tensors import Floats

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
    context: LayoutContext,
    blocks: Sequence[tuple[LayoutBlock, int]],
    found: NDArray[np.float32],
    codes: NDArray[np.int32] | None = None,
) -> None:
    """Fill columns of zeros in ``found`` ``(configs, ...)``: those of each block from a given place on.

    ``codes`` ``(configs, nodes)`` are other configurations than the graph's candidates, which still are what
    transductive columns look at.
    """
    sums = Sums(context)
    direct: list[tuple[Asked, int]] = []
    later: list[tuple[Finish, int, LayoutBlock]] = []
    for block, at in blocks:
        finish = block.prepare(context, sums)
        if not isinstance(finish, Asked):
            later.append((finish, at, block))
        elif finish.count == len(block.columns):
            direct.append((finish, at))
        else:
            raise AssertionError(f"{type(block).__name__} asked for {finish.count} columns")
    answer = sums.answer()
    codes = context.table.codes if codes is None else codes
    low, high = _CONFIGS
    step = min(high, max(low, _CODES // context.configurable_nodes))
    for start in range(0, len(codes), step):
        piece = answer(codes[start : start + step])
        mine = found[start : start + step]
        piece.write(direct, mine)
        for finish, at, block in later:
            values = finish(piece)
            if values.shape != (len(piece), len(block.columns)):
                raise AssertionError(f"{type(block).__name__} gave {values.shape}")
            mine[:, at : at + len(block.columns)] = values
