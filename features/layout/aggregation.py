"""One pass over the configurations for all blocks.

Blocks request sums and maxima over the nodes and pairs of every configuration. They are computed
together, batch by batch: one sparse product ``counts (configs, T) @ quantities (T, n)`` per batch
instead of one per column, and no intermediate result for all configurations of the graph. Shapes
are those of `xlarank.features.layout.layout_facts`: K configurable nodes, R distinct rows, T types
of rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import code_counts, group_codes
from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.block import Block
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.pairs import Pairs
from xlarank.features.program.tensors import Floats, Ints

Codes = NDArray[np.integer[Any]]
#: Quantities of combinations of requested layouts: (pair, left type, right type) ->
#: ``(combinations, n)``.
PairQuantities = Callable[[Ints, Ints, Ints], Floats]
#: Function from a batch of configurations to its aggregates, or columns made from them: ``(configs,
#: n)``.
BatchFunction = Callable[["Batch"], Floats]
#: Codes in one batch, and least and most configurations: few enough for the cache, enough to
#: amortise overhead.
_CODES = 1 << 17
_CONFIGS = (128, 2048)
#: With more combinations of requested layouts, quantities are computed only for those in each
#: batch.
_COMBINATIONS: Final = 1 << 22


class Batch:
    """A batch of configurations; a request of `Aggregation`, called with it, returns its
    aggregates, ``(configs, quantities)``.

    Attributes:
        codes, types: ``(configs, K)`` row of each configurable node, and its type.
    """

    def __init__(self, codes: Codes, types: Codes, functions: dict[Any, BatchFunction]) -> None:
        self.codes = codes
        self.types = types
        self._functions = functions
        self._results = dict[Any, Floats]()

    def aggregates(self, key: Any, columns: slice) -> Floats:
        """Return columns of the requests with one ``key`` of `Aggregation.functions`."""
        if key not in self._results:
            self._results[key] = self._functions[key](self)
        return self._results[key][:, columns]

    def __len__(self) -> int:
        return len(self.types)


class Aggregation:
    """Requests for sums and maxima, computed together for each batch of configurations."""

    def __init__(self, context: LayoutContext) -> None:
        self._context = context
        self._parts: dict[Any, list[tuple[int, Any]]] = {}

    def _request(
        self, plan: Callable[..., BatchFunction], domain: Pairs | bool, width: int, part: Any
    ) -> BatchFunction:
        parts = self._parts.setdefault((plan, domain), [])
        first = sum(width for width, _ in parts)
        parts.append((width, part))
        columns = slice(first, first + width)
        return lambda batch: batch.aggregates((plan, domain), columns)

    def sum(
        self,
        values: Sequence[NDArray[Any]],
        over: Sequence[float] | float = 1.0,
        *,
        per_row: bool = False,
    ) -> BatchFunction:
        """Request sums over nodes of quantities ``(T,)``, per type of row, divided by ``over``.

        With ``per_row``, quantities are ``(R,)``, per distinct row, and may differ for nodes of
        one signature.
        """
        table = np.stack(values, axis=1).astype(np.float64) / over
        return self._request(_node_sums, per_row, len(values), table)

    def shares(self, parts: Iterable[tuple[NDArray[Any], float]]) -> BatchFunction:
        """Request `sum` of (quantity, divisor) pairs."""
        return self.sum(*zip(*parts, strict=True))

    def maximum(self, values: Sequence[NDArray[Any]], *, per_row: bool = False) -> BatchFunction:
        """Request maxima over nodes of quantities as in `sum`, at least 0."""
        table = np.stack(values, axis=1).astype(np.float64)
        return self._request(_maxima, per_row, len(values), table)

    def sum_pairs(
        self, pairs: Pairs, quantities: PairQuantities, over: Sequence[float]
    ) -> BatchFunction:
        """Request sums over pairs of quantities of their rows, divided by ``over``.

        ``quantities(pair, left type, right type)`` returns ``(combinations, len(over))``. It is
        evaluated per combination of requested layouts and must depend on these only.
        """
        return self._request(_pair_sums, pairs, len(over), (quantities, over))

    def functions(self) -> dict[Any, BatchFunction]:
        """Return the functions that compute the requests of one plan and domain together."""
        return {
            (plan, domain): plan(self._context, domain, [part for _, part in parts])
            for (plan, domain), parts in self._parts.items()
        }


def _node_sums(context: LayoutContext, per_row: bool, tables: Sequence[Floats]) -> BatchFunction:
    """Return the function that sums quantities, ``(T or R, n)``, over nodes."""
    table = np.concatenate(tables, axis=1)

    def summed(batch: Batch) -> Floats:
        codes = batch.codes if per_row else batch.types
        return np.asarray(code_counts(codes, len(table)) @ table)

    return summed


def _maxima(context: LayoutContext, per_row: bool, tables: Sequence[Floats]) -> BatchFunction:
    """Return the function that computes the largest of quantities, ``(T or R, n)``, over nodes, at
    least 0.
    """
    columns = np.ascontiguousarray(np.concatenate(tables, axis=1).T)

    def largest(batch: Batch) -> Floats:
        # nodes first: a maximum over the first axis is several times as fast
        by_node = np.ascontiguousarray((batch.codes if per_row else batch.types).T)
        return np.stack([values[by_node].max(axis=0, initial=0.0) for values in columns], axis=1)

    return largest


def _pair_sums(
    context: LayoutContext, pairs: Pairs, requests: Sequence[tuple[PairQuantities, Sequence[float]]]
) -> BatchFunction:
    """Return the function that sums quantities over one set of pairs.

    Pairs have few distinct combinations of requested layouts, and equal pairs share theirs, so
    quantities are computed once per combination (beyond `_COMBINATIONS`, once per batch) and looked
    up. A combination has the number ``start + left * width + right``, with indices of the layouts
    requested on both sides.
    """
    over = np.concatenate([divisors for _, divisors in requests])
    first, counts, numbers, layout_types = context.requested
    signatures = len(first) // len(LAYOUT_SLOTS)
    slots = (pairs.left_slot, pairs.left), (pairs.right_slot, pairs.right)
    left, right = (slot * signatures + context.signature[node] for slot, node in slots)
    example, group = group_codes(np.column_stack([left, right, pairs.permutation]))
    width = counts[right[example]]
    sizes = counts[left[example]] * width
    start = np.cumsum(sizes) - sizes
    count = int(sizes.sum())
    types = len(context.type_configurable)
    lookups: list[Codes] = [numbers, start[group], width[group]]

    def quantities(combination: Ints) -> Floats:
        number = np.searchsorted(start, combination, side="right") - 1
        pair = example[number]
        at_left, at_right = np.divmod(combination - start[number], width[number])
        left_type = layout_types[first[left[pair]] + at_left]
        right_type = layout_types[first[right[pair]] + at_right]
        parts = [function(pair, left_type, right_type) for function, _ in requests]
        return np.asarray(np.concatenate(parts, axis=1) / over)

    values_of_all: Floats | None = None
    used = np.arange(len(over))
    if 0 < count <= _COMBINATIONS:  # indices fit int32, half the memory
        values_of_all = quantities(np.arange(count))
        used = np.flatnonzero(values_of_all.any(axis=0))
        values_of_all = np.ascontiguousarray(values_of_all[:, used])
        lookups = [array.astype(np.int32) for array in lookups]
    number, offset, stride = lookups

    def summed(batch: Batch) -> Floats:
        total = np.zeros((len(batch), len(over)))
        if len(pairs) == 0:
            return total
        combination = number[batch.types[:, pairs.left] + pairs.left_slot * types] * stride
        combination += number[batch.types[:, pairs.right] + pairs.right_slot * types]
        combination += offset
        table = values_of_all
        if table is None:
            present, index = np.unique(combination, return_inverse=True)
            table = quantities(present)
            combination = index.reshape(combination.shape)
        total[:, used] = code_counts(combination, len(table)) @ table
        return total

    return summed


class LayoutBlock(Block):
    """Columns computed from sums or maxima over the nodes and pairs of a configuration."""

    @abstractmethod
    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> BatchFunction:
        """Request aggregates of a graph; return a function from a batch to the columns. A single
        request is one.
        """

    def compute(self, context: LayoutContext) -> NDArray[np.float32]:
        return compute_together(context, [self], list(self.columns))


def compute_together(
    context: LayoutContext,
    blocks: Sequence[Block],
    names: Sequence[str],
    codes: NDArray[np.int32] | None = None,
) -> NDArray[np.float32]:
    """Compute the columns of the layout blocks among ``blocks``, ``(configs, names)``; 0 in all
    other columns.

    ``codes`` ``(configs, K)`` are the configurations (default: the distinct candidates of the
    graph); transductive columns refer to the candidates in any case.
    """
    codes = context.table.codes if codes is None else codes
    target = np.zeros((len(names), len(codes)), np.float32).T
    aggregation = Aggregation(context)
    prepared = [
        (block, block.prepare(context, aggregation))
        for block in blocks
        if isinstance(block, LayoutBlock)
    ]
    slices = [columns_of(block, names) for block, _ in prepared]
    functions = aggregation.functions()
    row_type = context.row_type.astype(np.int32)
    step = int(np.clip(_CODES // context.configurable_nodes, *_CONFIGS))
    for start in range(0, len(codes), step):
        rows = codes[start : start + step]
        batch = Batch(rows, row_type[rows], functions)
        for (block, finalize), columns in zip(prepared, slices, strict=True):
            target[start : start + step, columns] = block.require_shape(
                finalize(batch), len(batch), len(block.columns)
            )
    return target


def columns_of(block: Block, names: Sequence[str]) -> slice:
    """Return the slice of ``names`` that holds the columns of a block."""
    first = names.index(next(iter(block.columns)))
    return slice(first, first + len(block.columns))
