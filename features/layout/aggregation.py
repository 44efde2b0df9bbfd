"""Sums and maxima over the nodes of every configuration, for all blocks in one pass.

Configurations are aggregated batch by batch. A sum over nodes is a sparse product ``counts
(configs, T) @ quantities (T, n)``, and all blocks share the counts. Shapes are as in
`xlarank.features.layout.layout_context`: K configurable nodes, R distinct rows, T types of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import code_counts
from xlarank.features.block import Block
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.program.tensors import Floats

Codes = NDArray[np.integer[Any]]
#: Function from a batch to its aggregates, or columns made from them: ``(configs, n)``.
BatchFunction = Callable[["Batch"], Floats]
#: Codes in one batch, and least and most configurations: few enough for the cache, enough to
#: amortise overhead.
_CODES = 1 << 17
_CONFIGS = (128, 2048)


class Batch:
    """A batch of configurations.

    Attributes:
        codes, types: ``(configs, K)`` row of each configurable node, and its type.
    """

    def __init__(self, codes: Codes, types: Codes) -> None:
        self.codes = codes
        self.types = types
        self._counts: dict[bool, Any] = {}

    def __len__(self) -> int:
        return len(self.types)

    def sums(self, table: Floats, per_row: bool) -> Floats:
        """Return the sums over nodes of quantities, ``(R if per_row else T, n)``."""
        if per_row not in self._counts:
            self._counts[per_row] = code_counts(self.codes if per_row else self.types, len(table))
        return np.asarray(self._counts[per_row] @ table)

    def maxima(self, columns: Floats, per_row: bool) -> Floats:
        """Return the maxima over nodes of quantities, ``(n, R if per_row else T)``, at least 0."""
        # nodes first: a maximum over the first axis is several times as fast
        by_node = np.ascontiguousarray((self.codes if per_row else self.types).T)
        return np.stack([values[by_node].max(axis=0, initial=0.0) for values in columns], axis=1)


def sum_nodes(
    values: Sequence[NDArray[Any]], over: Sequence[float] | float = 1.0, *, per_row: bool = False
) -> BatchFunction:
    """Return sums over nodes of quantities ``(T,)``, per type of row, divided by ``over``.

    With ``per_row``, quantities are ``(R,)``, per distinct row, and may differ for nodes of
    one signature.
    """
    table = np.stack(values, axis=1).astype(np.float64) / over
    return lambda batch: batch.sums(table, per_row)


def shares(parts: Iterable[tuple[NDArray[Any], float]]) -> BatchFunction:
    """Return the `sum_nodes` of (quantity, divisor) pairs."""
    return sum_nodes(*zip(*parts, strict=True))


def max_nodes(values: Sequence[NDArray[Any]], *, per_row: bool = False) -> BatchFunction:
    """Return maxima over nodes of quantities as in `sum_nodes`, at least 0."""
    columns = np.stack(values).astype(np.float64)
    return lambda batch: batch.maxima(columns, per_row)


def aggregate(
    context: LayoutContext,
    functions: Sequence[tuple[Block, BatchFunction]],
    columns: Sequence[NDArray[Any]],
) -> None:
    """Write the columns of each layout block into ``(distinct configurations, columns)``."""
    codes = context.table.codes
    row_type = context.row_type.astype(np.int32)
    step = int(np.clip(_CODES // context.configurable_nodes, *_CONFIGS))
    for start in range(0, len(codes), step):
        batch_codes = codes[start : start + step]
        batch = Batch(batch_codes, row_type[batch_codes])
        for (block, function), target in zip(functions, columns, strict=True):
            part = target[start : start + step]
            part[...] = block.require_shape(function(batch), part.shape)
