"""One pass over the configurations for all blocks.

Blocks say beforehand what they want added up (or the largest of) over the nodes and pairs of every
configuration; it is then computed together, piece by piece and on several threads: one sparse product
``counts (configs, R) @ quantities (R, n)`` a piece instead of one a column, and no intermediate result
as long as the graph has configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from data.config_table import code_counts
from features.opcode_classes import NODE_KINDS
from features.tensors import Floats, Ints

if TYPE_CHECKING:
    from features.layout import LayoutContext
    from features.pairs import Pairs

#: Judges combinations of pairs' rows: (pair, consumer row, producer row) -> ``(combinations, quantities)``.
Judge = Callable[[Ints, Ints, Ints], Floats]
#: Above this many combinations of pairs' rows, only those that a piece really takes are judged.
_COMBINATIONS: Final = 1 << 22


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
        codes: ``(configs, nodes)`` int32, the configurations' part of the table.
    """

    def __init__(self, codes: NDArray[np.int32], results: dict[str, list[_Group]]) -> None:
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
    def by_node(self) -> NDArray[np.int32]:
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
        self._rows: list[Floats] = []
        self._highest: list[Floats] = []
        self._pairs: dict[int, _PairRequests] = {}
        self._counts = {"rows": 0, "highest": 0}

    def rows(self, per_row: Sequence[NDArray[Any]], over: Sequence[float] | float = 1.0) -> Asked:
        """Sums over nodes of quantities ``(R,)`` of the distinct rows, divided by ``over``."""
        table = np.stack(per_row, axis=1).astype(np.float64)
        table /= np.asarray(over, np.float64)
        self._rows.append(table)
        return self._ask("rows", table.shape[1])

    def highest(self, per_row: Sequence[NDArray[Any]]) -> Asked:
        """Largest over nodes of quantities ``(R,)``, at least 0."""
        self._highest += [np.asarray(values, np.float64) for values in per_row]
        return self._ask("highest", len(per_row))

    def pairs(self, pairs: Pairs, judge: Judge, over: Sequence[float]) -> Asked:
        """Sums over pairs of what ``judge`` says of their rows, divided by ``over``.

        ``judge(pair, consumer row, producer row)`` gives ``(combinations, len(over))``. Rows that wish the
        same of the tensor handed on are judged once, so it must depend on the layouts handed on only.
        """
        kind = f"pairs {id(pairs)}"
        requests = self._pairs.setdefault(id(pairs), _PairRequests(pairs))
        requests.judges.append(judge)
        requests.over += over
        self._counts.setdefault(kind, 0)
        return self._ask(kind, len(over))

    def _ask(self, kind: str, count: int) -> Asked:
        asked = Asked(kind, self._counts[kind], count)
        self._counts[kind] += count
        return asked

    def answer(self) -> Callable[[NDArray[np.int32]], Piece]:
        """What turns the codes of some configurations into their `Piece`; may be called from several threads."""
        context = self._context
        rows = _by_nodes(_beside(self._rows, context), context)
        highest = [_Highest(values, context.table.node, context.table.nodes) for values in self._highest]
        pair_sums = {f"pairs {key}": _PairSums(context, asked) for key, asked in self._pairs.items()}

        def piece(codes: NDArray[np.int32]) -> Piece:
            results: dict[str, list[_Group]] = {"rows": []}
            for which, nodes, table in rows:
                mine = codes if nodes is None else codes[:, nodes]
                results["rows"].append(_Group(which, code_counts(mine, len(table)) @ table))
            for kind, sums in pair_sums.items():
                results[kind] = [sums(codes)]
            found = Piece(codes, results)
            values = np.zeros((len(codes), len(highest)))
            for number, most in enumerate(highest):
                values[:, number] = most(found.by_node)
            results["highest"] = [_Group(np.arange(len(highest)), values)]
            return found

        return piece


def _beside(tables: list[Floats], context: LayoutContext) -> Floats:
    return np.concatenate(tables, axis=1) if tables else np.zeros((len(context.table.rows), 0))


def _by_nodes(table: Floats, context: LayoutContext) -> list[tuple[Ints, NDArray[np.intp] | None, Floats]]:
    """Split quantities ``(R, n)`` by the kinds of nodes they are about: (which, nodes or None for all, table).

    Most quantities speak of convolutions only, or of reshapes only; what is 0 everywhere is left out.
    """
    kind = context.node_kind
    kinds = len(NODE_KINDS)
    used = np.zeros((kinds, table.shape[1]), bool)
    row_kind = context.row_kind
    for number in range(kinds):
        used[number] = table[row_kind == number].any(axis=0)
    together = (1 << np.arange(kinds)) @ used
    found = []
    for members in np.unique(together[together > 0]):
        which = np.flatnonzero(together == members)
        present = (members >> kind) & 1 > 0
        nodes = None if present.all() else np.flatnonzero(present)
        found.append((which, nodes, np.ascontiguousarray(table[:, which])))
    return found


class _Highest:
    """The largest of a quantity over the nodes where it is ever above 0; compares ranks, which are small."""

    def __init__(self, values: Floats, node: NDArray[np.int32], nodes: int) -> None:
        self._values, rank = np.unique(np.maximum(values, 0.0), return_inverse=True)
        self._rank = rank.astype(np.min_scalar_type(max(0, len(self._values) - 1)))
        self._nodes = np.unique(node[values > 0])
        self._all = len(self._nodes) == nodes

    def __call__(self, by_node: NDArray[np.int32]) -> Floats | float:
        if len(self._nodes) == 0:
            return 0.0
        mine = by_node if self._all else by_node[self._nodes]
        highest: Floats = self._values[self._rank[mine].max(axis=0)]
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
        self._left, self._right = (
            slot * wishes.nodes + node
            for slot, node in ((pairs.left_slot, pairs.left), (pairs.right_slot, pairs.right))
        )
        sizes = wishes.count[self._left] * wishes.count[self._right]
        self._base = np.cumsum(sizes) - sizes
        self._width = wishes.count[self._right]
        self._offsets = pairs.left_slot * len(context.table.rows), pairs.right_slot * len(context.table.rows)
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
        pair = np.searchsorted(self._base, combination, side="right") - 1
        left, right = np.divmod(combination - self._base[pair], self._width[pair])
        rows, first = self._wishes.rows, self._wishes.first
        sides = rows[first[self._left[pair]] + left], rows[first[self._right[pair]] + right]
        parts = [judge(pair, *sides) for judge in self._asked.judges]
        return np.concatenate(parts, axis=1) / self._over

    def __call__(self, codes: NDArray[np.int32]) -> _Group:
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
        return _Group(used, code_counts(combination, len(table)) @ table)
