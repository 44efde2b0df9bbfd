"""Blocks of layout graphs: what they request to be aggregated, and the one pass that computes it all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.features.block import Block
from xlarank.features.layout.aggregation import Aggregation, Batch, Request
from xlarank.features.layout.context import LayoutContext
from xlarank.features.program.tensors import Floats

#: Turns the aggregates of some configurations into a block's columns, ``(configs, columns)``.
Finalize = Callable[[Batch], Floats]
#: Codes and configurations in one batch: small enough for the cache, large enough to be worth a turn.
_CODES: Final = 1 << 17
_CONFIGS: Final = (128, 2048)


class LayoutBlock(Block, abstract=True):
    """Columns that are sums or maxima over the nodes and pairs of a configuration, or follow from such.

    `prepare` runs once a graph and requests the aggregates; where they are the columns themselves it returns the
    `Request`, else how to finalize them.
    """

    kinds = ("layout",)

    @abstractmethod
    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Request | Finalize:
        """Request aggregates; return the request, or how they become the columns."""

    def compute(self, context: LayoutContext) -> NDArray[np.float32]:
        columns = np.zeros((len(self.columns), context.table.configs), np.float32).T
        compute_together(context, [(self, 0)], columns)
        return columns


def compute_together(
    context: LayoutContext,
    blocks: Sequence[tuple[LayoutBlock, int]],
    target: NDArray[np.float32],
    codes: NDArray[np.int32] | None = None,
) -> None:
    """Fill columns of zeros in ``target`` ``(configs, ...)``: those of each block from a given column on.

    ``codes`` ``(configs, nodes)`` are other configurations than the graph's candidates, which still are what
    transductive columns look at.
    """
    aggregation = Aggregation(context)
    direct: list[tuple[Request, int]] = []
    later: list[tuple[Finalize, int, LayoutBlock]] = []
    for block, at in blocks:
        finalize = block.prepare(context, aggregation)
        if not isinstance(finalize, Request):
            later.append((finalize, at, block))
        elif finalize.count == len(block.columns):
            direct.append((finalize, at))
        else:
            raise AssertionError(f"{type(block).__name__} requested {finalize.count} columns")
    batch_of = aggregation.plan()
    codes = context.table.codes if codes is None else codes
    low, high = _CONFIGS
    step = min(high, max(low, _CODES // context.configurable_nodes))
    for start in range(0, len(codes), step):
        batch = batch_of(codes[start : start + step])
        mine = target[start : start + step]
        batch.write(direct, mine)
        for finalize, at, block in later:
            values = finalize(batch)
            if values.shape != (len(batch), len(block.columns)):
                raise AssertionError(f"{type(block).__name__} gave {values.shape}")
            mine[:, at : at + len(block.columns)] = values
