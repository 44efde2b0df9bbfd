"""One pass over the configurations for all blocks.

Blocks say beforehand what they want added up (or the largest of) over the nodes and pairs of every
configuration; it is then computed together, piece by piece: one product
``counts (configs, T) @ quantities (T, n)`` a piece instead of one a column, and no intermediate result
as long as the graph has configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import code_counts
from xlarank.data.duplicates import group_codes
from xlarank.features.layout.context import LayoutContext
from xlarank.features.layout.pairs import Pairs
from xlarank.features.program.opcode_classes import NODE_KINDS
from xlarank.features.program.tensors import Floats, Ints

#: Judges combinations of pairs' types of rows: (pair, left type, right type) -> ``(combinations, quantities)``.
Judge = Callable[[Ints, Ints, Ints], Floats]
#: Above this many combinations of pairs' rows, only those that a piece really takes are judged.
_COMBINATIONS: Final = 1 << 22
#: Nanoseconds, measured: a multiplication of the sparse and of the dense product, counting one code, and
#: setting up one entry of the dense matrix.
_SPARSE_NS, _DENSE_NS, _COUNT_NS, _ENTRY_NS = 0.18, 0.05, 1.5, 2.0


@dataclass(frozen=True)
class Asked:
    """A place among the results: quantities ``first`` to ``first + count`` of one kind of request."""

    kind: str
    first: int
    count: int


@dataclass(frozen=True)
class _Group:
    """Quantities that are computed together: those numbered ``which`` (ascending) of one kind of request."""

    which: Ints
    values: Floats

    def part(self, asked: Asked) -> tuple[slice, Ints]:
        """The columns of ``values`` that were asked for, and their places in the answer."""
        low, high = np.searchsorted(self.which, (asked.first, asked.first + asked.count))
        return slice(int(low), int(high)), self.which[low:high] - asked.first


class Piece:
    """Results for some configurations; index it with what was `Asked` to get ``(configs, count)``.

    Attributes:
        codes: ``(configs, nodes)`` the type of row that each node takes.
    """

    def __init__(self, codes: NDArray[np.integer], results: dict[str, list[_Group]]) -> None:
        self.codes = codes
        self._results = results

    def __getitem__(self, asked: Asked) -> Floats:
        found = np.zeros((len(self), asked.count))
        for group in self._results[asked.kind]:
            own, place = group.part(asked)
            found[:, place] = group.values[:, own]
        return found

    def write(self, asked: Sequence[tuple[Asked, int]], target: NDArray[np.float32]) -> None:
        """Several requests, each with the column it goes to, into an array ``(configs, columns)`` of zeros.

        Quantities that are 0 for all configurations are not touched.
        """
        for kind in {request.kind for request, _ in asked}:
            of_kind = [(request, at) for request, at in asked if request.kind == kind]
            for group in self._results[kind]:
                parts = [(*group.part(request), at) for request, at in of_kind]
                own = np.concatenate([np.arange(part.start, part.stop) for part, _, _ in parts])
                place = np.concatenate([place + at for _, place, at in parts])
                target.T[place] = group.values.T[own]

    @cached_property
    def by_node(self) -> NDArray[np.integer]:
        """``(nodes, configs)`` the codes turned round, for work node by node."""
        return np.ascontiguousarray(self.codes.T)

    def __len__(self) -> int:
        return len(self.codes)


@dataclass
class _PairRequests:
    """What is asked of one set of pairs."""

    pairs: Pairs
    judges: list[Judge] = field(default_factory=list)
    over: list[float] = field(default_factory=list)


class Sums:
    """Collects requests, then answers them for pieces of the configurations."""

    def __init__(self, context: LayoutContext) -> None:
        self._context = context
        self._tables: dict[str, list[Floats]] = {kind: [] for kind in ("types", "rows", "highest", "highest rows")}
        self._pairs: dict[int, _PairRequests] = {}
        self._counts = dict.fromkeys(self._tables, 0)

    def rows(
        self, values: Sequence[NDArray[Any]], over: Sequence[float] | float = 1.0, *, each_node: bool = False
    ) -> Asked:
        """Sums over nodes of quantities ``(T,)`` of the types of rows, divided by ``over``.

        With ``each_node``, of quantities ``(R,)`` of the distinct rows, where like nodes may differ.
        """
        table = np.stack(values, axis=1).astype(np.float64)
        table /= np.asarray(over, np.float64)
        return self._ask("rows" if each_node else "types", table)

    def highest(self, values: Sequence[NDArray[Any]], *, each_node: bool = False) -> Asked:
        """Largest over nodes of such quantities, at least 0."""
        return self._ask("highest rows" if each_node else "highest", np.stack(values, axis=1).astype(np.float64))

    def pairs(self, pairs: Pairs, judge: Judge, over: Sequence[float]) -> Asked:
        """Sums over pairs of what ``judge`` says of their rows, divided by ``over``.

        ``judge(pair, consumer's type of row, producer's)`` gives ``(combinations, len(over))``. Rows that wish the
        same of the tensor handed on are judged once, so it must depend on the layouts handed on only.
        """
        kind = f"pairs {id(pairs)}"
        requests = self._pairs.setdefault(id(pairs), _PairRequests(pairs))
        requests.judges.append(judge)
        requests.over += over
        first = self._counts.get(kind, 0)
        self._counts[kind] = first + len(over)
        return Asked(kind, first, len(over))

    def _ask(self, kind: str, table: Floats) -> Asked:
        asked = Asked(kind, self._counts[kind], table.shape[1])
        self._tables[kind].append(table)
        self._counts[kind] += table.shape[1]
        return asked

    def answer(self) -> Callable[[NDArray[np.int32]], Piece]:
        """What turns the codes of some configurations into their `Piece`."""
        context = self._context
        joined = {kind: np.concatenate(tables, axis=1) for kind, tables in self._tables.items() if tables}
        row_type = context.row_type.astype(np.int32)
        everywhere = np.ones(context.table.nodes, bool)
        sums: list[tuple[str, list[_Table]]] = []
        if "types" in joined:
            sums.append(("types", _by_nodes(joined["types"], context)))
        if "rows" in joined:
            sums.append(("rows", [_Table(np.arange(joined["rows"].shape[1]), everywhere, joined["rows"])]))
        highest = {
            kind: [
                _Highest(values, values if kind.endswith("rows") else values[row_type], context)
                for values in table.T
            ]
            for kind, table in joined.items()
            if kind.startswith("highest")
        }
        pair_sums = {f"pairs {key}": _PairSums(context, asked) for key, asked in self._pairs.items()}

        def piece(codes: NDArray[np.int32]) -> Piece:
            results: dict[str, list[_Group]] = {}
            found = Piece(row_type[codes], results)
            for kind, tables in sums:
                own = codes if kind == "rows" else found.codes
                results[kind] = [_Group(table.which, table.sum(own)) for table in tables]
            for kind, quantities in highest.items():
                own = np.ascontiguousarray(codes.T) if kind.endswith("rows") else found.by_node
                values = np.stack([most(own) for most in quantities], axis=1)
                results[kind] = [_Group(np.arange(len(quantities)), values)]
            for kind, pairs in pair_sums.items():
                results[kind] = [pairs(found.codes)]
            return found

        return piece


@dataclass(frozen=True)
class _Table:
    """Quantities that are not 0 for the same nodes: those numbered ``which``, ``values`` ``(T or R, which)``."""

    which: Ints
    nodes: NDArray[np.bool_]
    values: Floats

    def sum(self, codes: NDArray[np.integer]) -> Floats:
        return _looked_up(codes if self.nodes.all() else codes[:, self.nodes], self.values)


def _looked_up(codes: NDArray[np.integer], table: Floats) -> Floats:
    """Sum of ``table[code]`` over the codes of each configuration: ``(configs, columns of table)``.

    Where codes repeat within a configuration it pays to count them and multiply the dense counts.
    """
    total: Floats
    nodes, (entries, columns) = codes.shape[1], table.shape
    dense = nodes * _COUNT_NS + entries * (_ENTRY_NS + columns * _DENSE_NS)
    if dense < nodes * columns * _SPARSE_NS:
        place = codes + np.arange(0, len(codes) * len(table), len(table))[:, None]
        counts = np.bincount(place.reshape(-1), minlength=len(codes) * len(table)).reshape(len(codes), -1)
        total = counts.astype(np.float64) @ table
    else:
        total = code_counts(codes, len(table)) @ table
    return total


def _by_nodes(table: Floats, context: LayoutContext) -> list[_Table]:
    """Split quantities ``(T, n)`` by the kinds of nodes they are about.

    Most quantities speak of convolutions only, or of reshapes only; what is 0 everywhere is left out.
    """
    kinds = len(NODE_KINDS)
    used = np.stack([table[context.type_kind == kind].any(axis=0) for kind in range(kinds)])
    together = (1 << np.arange(kinds)) @ used
    found = []
    for members in np.unique(together[together > 0]):
        which = np.flatnonzero(together == members)
        present = (members >> context.node_kind) & 1 > 0
        found.append(_Table(which, present, np.ascontiguousarray(table[:, which])))
    return found


class _Highest:
    """The largest of a quantity over nodes; compares ranks, which are small numbers.

    Every node has at least the smallest of its rows, so nodes that never exceed the largest of these, the
    floor, need not be looked at.
    """

    def __init__(self, values: Floats, row_values: Floats, context: LayoutContext) -> None:
        self._values, rank = np.unique(values, return_inverse=True)
        self._rank = rank.astype(np.min_scalar_type(max(0, len(self._values) - 1)))
        self._floor = 0.0
        self._nodes = np.zeros(0, np.int64)
        if context.table.nodes:
            start = context.table.start[:-1]
            least, most = (reduce.reduceat(row_values, start) for reduce in (np.minimum, np.maximum))
            self._floor = max(0.0, float(least.max()))
            self._nodes = np.flatnonzero(most > self._floor)

    def __call__(self, by_node: NDArray[np.integer]) -> Floats:
        if len(self._nodes) == 0:
            return np.full(by_node.shape[1], self._floor)
        highest: Floats = np.maximum(self._values[self._rank[by_node[self._nodes]].max(axis=0)], self._floor)
        return highest


class _PairSums:
    """Sums over one set of pairs.

    A pair takes few distinct combinations of wishes; every combination is judged once and looked up.
    """

    def __init__(self, context: LayoutContext, asked: _PairRequests) -> None:
        self._asked = asked
        self._pairs = pairs = asked.pairs
        self._over = np.array(asked.over)
        self._wishes = wishes = context.wishes
        left, right = (
            slot * wishes.likes + context.likeness[node]
            for slot, node in ((pairs.left_slot, pairs.left), (pairs.right_slot, pairs.right))
        )
        # like pairs of like nodes take the same combinations
        size = np.unique(pairs.bytes, return_inverse=True)[1]
        about = np.column_stack([left, right, size, pairs.place])
        alike = group_codes(about)
        self._example = alike.first
        self._left, self._right = left[alike.first], right[alike.first]
        sizes = wishes.count[self._left] * wishes.count[self._right]
        self._first = np.cumsum(sizes) - sizes
        self._base = self._first[alike.group]
        self._width = wishes.count[right]
        self._offsets = pairs.left_slot * len(context.type_node), pairs.right_slot * len(context.type_node)
        self._number = wishes.number
        total = int(sizes.sum())
        self._table: Floats | None = None
        self._used = np.arange(len(self._over))
        if 0 < total <= _COMBINATIONS:  # small numbers, so the lookups are half as wide
            table = self._judge(np.arange(total))
            self._used = np.flatnonzero(table.any(axis=0))
            self._table = np.ascontiguousarray(table[:, self._used])
            self._number = wishes.number.astype(np.int32)
            self._width, self._base = self._width.astype(np.int32), self._base.astype(np.int32)

    def _judge(self, combination: Ints) -> Floats:
        which = np.searchsorted(self._first, combination, side="right") - 1
        width = self._wishes.count[self._right[which]]
        left, right = np.divmod(combination - self._first[which], width)
        types, first = self._wishes.types, self._wishes.first
        sides = types[first[self._left[which]] + left], types[first[self._right[which]] + right]
        parts = [judge(self._example[which], *sides) for judge in self._asked.judges]
        judged: Floats = np.concatenate(parts, axis=1) / self._over
        return judged

    def __call__(self, codes: NDArray[np.integer]) -> _Group:
        pairs = self._pairs
        if len(pairs) == 0:
            return _Group(np.zeros(0, np.int64), np.zeros((len(codes), 0)))
        combination = self._number[codes[:, pairs.left] + self._offsets[0]] * self._width
        combination += self._number[codes[:, pairs.right] + self._offsets[1]]
        combination += self._base
        table, used = self._table, self._used
        if table is None:
            taken, place = np.unique(combination, return_inverse=True)
            table, combination = self._judge(taken), place.reshape(combination.shape)
        return _Group(used, _looked_up(combination, table))
