"""One pass over the configurations for all blocks.

Blocks request sums and maxima over the nodes and pairs of every configuration. They are computed together, batch by
batch: one product ``counts (configs, T) @ quantities (T, n)`` a batch instead of one a column, and no
intermediate result as long as the graph has configurations.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import code_counts
from xlarank.features.block import Block
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.slot_pairs import Combinations, Pairs
from xlarank.features.program.program_context import COARSE_CLASSES
from xlarank.features.program.tensors import Floats, Ints

#: Quantities of combinations of rows: (pair, left type, right type) -> ``(combinations, n)``.
PairQuantities = Callable[[Ints, Ints, Ints], Floats]
#: Turns the aggregates of some configurations into a block's columns, ``(configs, columns)``.
Finalize = Callable[["Batch"], Floats]
#: Codes and configurations in one batch: small enough for the cache, large enough to amortise overhead.
_CODES: Final = 1 << 17
_CONFIGS: Final = (128, 2048)
#: With more combinations of rows, quantities are computed only for those in each batch.
_COMBINATIONS: Final = 1 << 22
#: Nanoseconds, measured: a multiplication of the sparse and of the dense product, counting one code, and
#: setting up one entry of the dense matrix.
_SPARSE_NS, _DENSE_NS, _COUNT_NS, _ENTRY_NS = 0.18, 0.05, 1.5, 2.0


class _OverNodes(NamedTuple):
    """Sums or maxima over nodes of quantities per type of row or, with ``each_node``, per distinct row."""

    maximum: bool
    each_node: bool


_Kind = _OverNodes | Pairs
#: Quantities that are nonzero for the same nodes: their columns, the nodes, and values ``(T or R, columns)``.
_Table = tuple[Ints | slice, NDArray[np.bool_] | slice, Floats]


class Request(NamedTuple):
    """Slice of the quantities of one kind of aggregation."""

    kind: _Kind
    columns: slice


class Batch:
    """Aggregates of a batch of configurations; index it with a `Request` to get ``(configs, quantities)``."""

    def __init__(self, types: NDArray[np.integer], results: dict[_Kind, Floats]) -> None:
        self._types, self._results = types, results

    def __getitem__(self, request: Request) -> Floats:
        return self._results[request.kind][:, request.columns]

    @cached_property
    def by_node(self) -> NDArray[np.integer]:
        """``(nodes, configs)`` the type of row that each node takes."""
        return np.ascontiguousarray(self._types.T)

    def __len__(self) -> int:
        return len(self._types)


class Aggregation:
    """Collects requests, then computes them for batches of the configurations."""

    def __init__(self, context: LayoutContext) -> None:
        self._context = context
        self._tables: dict[_OverNodes, list[Floats]] = {}
        self._pairs: dict[Pairs, list[tuple[PairQuantities, Sequence[float]]]] = {}

    def sum(
        self, values: Sequence[NDArray[Any]], over: Sequence[float] | float = 1.0, *, each_node: bool = False
    ) -> Request:
        """Request sums over nodes of quantities ``(T,)`` of the types of rows, divided by ``over``.

        With ``each_node``, of quantities ``(R,)`` of the distinct rows, where nodes of one signature may differ.
        """
        table = np.stack(values, axis=1).astype(np.float64)
        table /= np.asarray(over, np.float64)
        return self._request(_OverNodes(maximum=False, each_node=each_node), table)

    def shares(self, parts: Iterable[tuple[NDArray[Any], float]]) -> Request:
        """Request `sum` of (quantity, divisor) pairs."""
        return self.sum(*zip(*parts, strict=True))

    def maximum(self, values: Sequence[NDArray[Any]], *, each_node: bool = False) -> Request:
        """Request the largest over nodes of quantities as in `sum`, at least 0."""
        kind = _OverNodes(maximum=True, each_node=each_node)
        return self._request(kind, np.stack(values, axis=1).astype(np.float64))

    def sum_pairs(self, pairs: Pairs, quantities: PairQuantities, over: Sequence[float]) -> Request:
        """Request sums over pairs of quantities of their rows, divided by ``over``.

        ``quantities(pair, consumer's type of row, producer's)`` returns ``(combinations, len(over))``. It is
        evaluated once per combination of requested layouts and must depend on these only.
        """
        earlier = self._pairs.setdefault(pairs, [])
        first = sum(len(divisors) for _, divisors in earlier)
        earlier.append((quantities, over))
        return Request(pairs, slice(first, first + len(over)))

    def _request(self, kind: _OverNodes, table: Floats) -> Request:
        tables = self._tables.setdefault(kind, [])
        first = sum(part.shape[1] for part in tables)
        tables.append(table)
        return Request(kind, slice(first, first + table.shape[1]))

    def plan(self) -> Callable[[NDArray[np.int32]], Batch]:
        """Return the function that computes the `Batch` of the codes of configurations."""
        context, row_type = self._context, self._context.row_type.astype(np.int32)
        sums: dict[_OverNodes, list[_Table]] = {}
        maxima: dict[_OverNodes, list[Callable[[NDArray[np.integer]], Floats]]] = {}
        for kind, tables in self._tables.items():
            joined = np.concatenate(tables, axis=1)
            if kind.maximum:
                by_row = joined if kind.each_node else joined[row_type]
                maxima[kind] = [_maximum(*both, context) for both in zip(joined.T, by_row.T, strict=True)]
            elif kind.each_node:
                sums[kind] = [(slice(None), slice(None), joined)]
            else:
                sums[kind] = _by_nodes(joined, context)
        count = {kind: sum(table.shape[1] for table in self._tables[kind]) for kind in sums}
        pair_sums = {pairs: _pair_sums(context, pairs, requests) for pairs, requests in self._pairs.items()}

        def batch(codes: NDArray[np.int32]) -> Batch:
            types = row_type[codes]
            results: dict[_Kind, Floats] = {pairs: summed(types) for pairs, summed in pair_sums.items()}
            aggregates = Batch(types, results)
            for kind, tables in sums.items():
                results[kind] = np.zeros((len(codes), count[kind]))
                for columns, nodes, values in tables:
                    entries = (codes if kind.each_node else types)[:, nodes]
                    results[kind][:, columns] = _sum_entries(entries, values)
            for kind, quantities in maxima.items():
                by_node = np.ascontiguousarray(codes.T) if kind.each_node else aggregates.by_node
                results[kind] = np.stack([most(by_node) for most in quantities], axis=1)
            return aggregates

        return batch


def _sum_entries(codes: NDArray[np.integer], table: Floats) -> Floats:
    """Return the sum of ``table[code]`` over the codes of each configuration: ``(configs, columns of table)``.

    If codes repeat within a configuration, it pays to count them and multiply the dense counts.
    """
    nodes, (entries, columns) = codes.shape[1], table.shape
    dense = nodes * _COUNT_NS + entries * (_ENTRY_NS + columns * _DENSE_NS)
    if dense < nodes * columns * _SPARSE_NS:
        entry = codes + np.arange(0, len(codes) * len(table), len(table))[:, None]
        counts = np.bincount(entry.reshape(-1), minlength=len(codes) * len(table)).reshape(len(codes), -1)
        return np.asarray(counts.astype(np.float64) @ table)
    return np.asarray(code_counts(codes, len(table)) @ table)


def _by_nodes(table: Floats, context: LayoutContext) -> list[_Table]:
    """Split quantities ``(T, n)`` by the coarse classes of nodes for which they are not 0; leave out empty ones."""
    classes = range(len(COARSE_CLASSES))
    used = sum((table[context.type_coarse_class == coarse].any(axis=0) << coarse) for coarse in classes)
    tables: list[_Table] = []
    for members in np.unique(used[used > 0]):
        columns, present = np.flatnonzero(used == members), (members >> context.coarse_class) & 1 > 0
        nodes = slice(None) if present.all() else present
        tables.append((columns, nodes, np.ascontiguousarray(table[:, columns])))
    return tables


def _maximum(values: Floats, row_values: Floats, context: LayoutContext) -> Callable[[NDArray[np.integer]], Floats]:
    """Return the function of codes ``(nodes, configs)`` that computes the largest of a quantity over nodes.

    Every node has at least the smallest of its rows. Nodes that never exceed the largest of these are skipped.
    """
    ascending, rank = np.unique(values, return_inverse=True)
    rank = rank.astype(np.min_scalar_type(max(0, len(ascending) - 1)))
    floor, nodes = 0.0, np.zeros(0, np.int64)
    if context.table.nodes:
        start = context.table.start[:-1]
        least, most = (reduce.reduceat(row_values, start) for reduce in (np.minimum, np.maximum))
        floor = max(0.0, float(least.max()))
        nodes = np.flatnonzero(most > floor)

    def largest(by_node: NDArray[np.integer]) -> Floats:
        if len(nodes) == 0:
            return np.full(by_node.shape[1], floor)
        return np.asarray(np.maximum(ascending[rank[by_node[nodes]].max(axis=0)], floor))

    return largest


def _pair_sums(
    context: LayoutContext, pairs: Pairs, requests: Sequence[tuple[PairQuantities, Sequence[float]]]
) -> Callable[[NDArray[np.integer]], Floats]:
    """Return the function of codes ``(configs, nodes)`` that sums over one set of pairs.

    A pair takes few distinct combinations of requested layouts; the quantities of every combination are computed
    once and looked up.
    """
    over = np.concatenate([divisors for _, divisors in requests])
    combinations = Combinations(context.requested, pairs)
    number: NDArray[np.integer] = context.requested.number
    base: NDArray[np.integer] = combinations.pair_first
    width: NDArray[np.integer] = combinations.pair_width
    offsets = pairs.left_slot * len(context.type_configurable), pairs.right_slot * len(context.type_configurable)

    def quantities(combination: Ints) -> Floats:
        sides = combinations.sides(combination)
        return np.asarray(np.concatenate([function(*sides) for function, _ in requests], axis=1) / over)

    known: Floats | None = None
    used = np.arange(len(over))
    if 0 < combinations.total <= _COMBINATIONS:  # indices fit int32, which halves the lookups
        known = quantities(np.arange(combinations.total))
        used = np.flatnonzero(known.any(axis=0))
        known = np.ascontiguousarray(known[:, used])
        number, width, base = (array.astype(np.int32) for array in (number, width, base))

    def summed(codes: NDArray[np.integer]) -> Floats:
        total = np.zeros((len(codes), len(over)))
        if len(pairs) == 0:
            return total
        combination = number[codes[:, pairs.left] + offsets[0]] * width
        combination += number[codes[:, pairs.right] + offsets[1]]
        combination += base
        table = known
        if table is None:
            taken, index = np.unique(combination, return_inverse=True)
            table, combination = quantities(taken), index.reshape(combination.shape)
        total[:, used] = _sum_entries(combination, table)
        return total

    return summed


class LayoutBlock(Block):
    """Columns computed from sums or maxima over the nodes and pairs of a configuration."""

    @abstractmethod
    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Request | Finalize:
        """Request the aggregates of a graph; return the request, or a function that turns them into columns."""

    def compute(self, context: LayoutContext) -> NDArray[np.float32]:
        return compute_together(context, [self], list(self.columns))


def compute_together(
    context: LayoutContext, blocks: Sequence[Block], names: Sequence[str], codes: NDArray[np.int32] | None = None
) -> NDArray[np.float32]:
    """Compute the columns of the layout blocks among ``blocks``, ``(configs, names)``, 0 in all others.

    ``codes`` ``(configs, nodes)`` are other configurations than the graph's candidates; transductive columns still
    look at the candidates.
    """
    codes = context.table.codes if codes is None else codes
    target = np.zeros((len(names), len(codes)), np.float32).T
    aggregation = Aggregation(context)
    prepared = [(block, block.prepare(context, aggregation)) for block in blocks if isinstance(block, LayoutBlock)]
    places = [columns_of(block, names) for block, _ in prepared]
    batch_of = aggregation.plan()
    step = min(max(_CODES // context.configurable_nodes, _CONFIGS[0]), _CONFIGS[1])
    for start in range(0, len(codes), step):
        batch = batch_of(codes[start : start + step])
        for (block, finalize), columns in zip(prepared, places, strict=True):
            values = batch[finalize] if isinstance(finalize, Request) else finalize(batch)
            block.require_shape(values, len(batch), len(block.columns))
            target[start : start + step, columns] = values
    return target


def columns_of(block: Block, names: Sequence[str]) -> slice:
    """Return the slice of ``names`` that holds the columns of a block."""
    first = names.index(next(iter(block.columns)))
    return slice(first, first + len(block.columns))
