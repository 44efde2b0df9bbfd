"""Compact configuration table: the layouts of each configurable node in each configuration.

``node_config_feat`` is ``(configs, nodes, 18)`` and unpacks to gigabytes, yet a node has only a few
distinct rows over all configurations (1-9 in Google's files). The table stores each node's distinct
rows once and an integer code per (configuration, node). It is built block by block, so the full
array is never in memory. Features are computed on the distinct rows and gathered by the codes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import GraphFileError
from xlarank.data.schema import LAYOUT_COLUMNS, MAX_RANK

if TYPE_CHECKING:  # slow to import; not all columns need it
    from scipy import sparse

_WIDTH = len(LAYOUT_COLUMNS)
#: A layout entry is -1 (unset) or a dimension 0-5, so a row is an 18-digit number in base 7, which
#: fits into 64 bits.
_BASE = MAX_RANK + 1
#: Number of codes processed at a time; they fit into the cache.
_PIECE = 1 << 20


@dataclass(frozen=True, eq=False)
class ConfigTable:
    """Codes and distinct rows of a layout graph's configurations.

    Rows are sorted by node, then by their entries from the last to the first, so their order does
    not depend on the order of the configurations.

    Attributes:
        codes: ``(configs, nodes)`` indices into ``rows``.
        rows: ``(R, 18)`` distinct rows of each node.
        node: ``(R,)`` node of each row, as an index into the configurable nodes.
        start: ``(nodes + 1,)``; node k has rows ``start[k]:start[k + 1]``.
    """

    codes: NDArray[np.int32]
    rows: NDArray[np.int8]
    node: NDArray[np.int32]
    start: NDArray[np.int32]

    @property
    def configs(self) -> int:
        return int(self.codes.shape[0])

    @property
    def nodes(self) -> int:
        return int(self.codes.shape[1])

    @cached_property
    def frequency(self) -> NDArray[np.int64]:
        """``(R,)`` number of configurations that use each row."""
        # in steps, because bincount casts its input to int64
        step = max(1, _PIECE // max(1, self.nodes))
        count = np.zeros(len(self.rows), np.int64)
        for at in range(0, self.configs, step):
            count += np.bincount(self.codes[at : at + step].reshape(-1), minlength=len(self.rows))
        return count

    def select(self, configs: NDArray[np.intp]) -> ConfigTable:
        """Return the table of the given configurations; all rows are kept."""
        return ConfigTable(self.codes[configs], self.rows, self.node, self.start)

    @classmethod
    def from_blocks(
        cls, blocks: Iterable[NDArray[Any]], *, configs: int, nodes: int
    ) -> ConfigTable:
        """Build from blocks of ``node_config_feat``; raises `GraphFileError` for wrong entries."""
        keys = np.full(1, -1)  # sorted keys of the distinct rows so far, after the sentinel -1
        seen = keys  # the same keys in order of appearance, indexed by codes
        order = np.zeros(1, np.int32)  # keys[i] == seen[order[i]]
        codes = np.empty((configs, nodes), np.int32)
        filled = 0
        for block in blocks:
            block_keys = _row_keys(block)
            position = np.minimum(np.searchsorted(keys, block_keys), len(keys) - 1)
            if len(new := np.unique(block_keys[keys[position] != block_keys])):
                seen = np.concatenate([seen, new])
                order = np.argsort(seen).astype(np.int32)
                keys = seen[order]
                position = np.searchsorted(keys, block_keys)
            codes[filled : filled + len(block)] = order[position].reshape(len(block), nodes)
            filled += len(block)
        if filled != configs:
            raise GraphFileError(f"{filled} configurations were read", expected=f"{configs}")
        return cls._renumber(codes, keys, np.argsort(order).astype(np.int32))

    @classmethod
    def _renumber(
        cls, codes: NDArray[np.int32], keys: NDArray[np.int64], rank: NDArray[np.int32]
    ) -> ConfigTable:
        """Renumber codes of all nodes by (node, row), in place; ``rank`` maps codes to ``keys``."""
        configs, nodes = codes.shape
        step = max(1, _PIECE // max(1, nodes))
        nodes_at_once = max(1, 4 * _PIECE // len(keys))
        pairs = [np.empty(0, np.int64)]
        total = 0
        for first in range(0, nodes, nodes_at_once):
            part = codes[:, first : first + nodes_at_once]
            pieces = [part[at : at + step] for at in range(0, configs, step)]
            base = np.arange(part.shape[1], dtype=np.int32) * np.int32(len(keys))
            present = np.zeros(len(base) * len(keys), bool)
            for piece in pieces:
                piece[...] = rank[piece] + base
                present[piece] = True
            numbering = np.cumsum(present, dtype=np.int32)
            numbering += total - 1
            for piece in pieces:
                piece[...] = numbering[piece]
            new = np.flatnonzero(present)
            pairs.append(new + first * len(keys))
            total += len(new)
        node, row = np.divmod(np.concatenate(pairs), len(keys))
        start = np.searchsorted(node, np.arange(nodes + 1)).astype(np.int32)
        digits = np.unravel_index(keys[row], (_BASE,) * _WIDTH, order="F")  # as in `_row_keys`
        rows = np.stack(digits, axis=1).astype(np.int8) - np.int8(1)
        return cls(codes, rows, node.astype(np.int32), start)


def group_minimum(values: NDArray[Any], group: NDArray[np.int64], groups: int) -> NDArray[Any]:
    """Return the minimum of each group, ``(groups,)``; the largest possible number if empty.

    Repeated measurements are reduced to the fastest, because noise only adds to a runtime.
    """
    largest = np.inf if values.dtype.kind == "f" else np.iinfo(values.dtype).max
    smallest = np.full(groups, largest, values.dtype)
    np.minimum.at(smallest, group, values)
    return smallest


def group_codes(codes: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group equal rows of ``(configs, nodes)`` whole numbers, in order of first appearance.

    Returns the first row of each group, ``(groups,)``, and the group of each row, ``(configs,)``.

    >>> first, group = group_codes(np.array([[5, 5], [1, 2], [5, 5]]))
    >>> first.tolist(), group.tolist()
    ([0, 1], [0, 1, 0])
    """
    if not codes.size:
        return np.zeros(min(1, len(codes)), np.int64), np.zeros(len(codes), np.int64)
    lowest = codes.min(axis=0)
    span = max(map(int.__sub__, codes.max(axis=0).tolist(), lowest.tolist()))
    # in the smallest type, as the rows become keys
    rows = np.empty(codes.shape, np.min_scalar_type(span))
    np.subtract(codes, lowest, out=rows, casting="unsafe")
    keys = rows.view(f"V{rows.itemsize * rows.shape[1]}")[:, 0].tolist()
    group_of: dict[bytes, int] = {}
    group = [group_of.setdefault(key, len(group_of)) for key in keys]
    first = np.unique(group, return_index=True)[1]
    return first.astype(np.int64), np.array(group, np.int64)


def code_counts(codes: NDArray[np.integer], width: int) -> sparse.csr_array:
    """Return how often each configuration has each code below ``width``, ``(configs, width)``."""
    from scipy import sparse

    configs, nodes = codes.shape
    indptr = np.arange(configs + 1, dtype=np.int64) * nodes
    entries = (np.ones(codes.size), codes.reshape(-1), indptr)
    return sparse.csr_array(entries, shape=(configs, width))


def _row_keys(block: NDArray[Any]) -> NDArray[np.int64]:
    """Return each row of 18 entries as a number in base 7, lowest digit first."""
    low, high = (block.min(), block.max()) if block.size else (-1, -1)
    if not (low >= -1 and high < MAX_RANK):  # NaN fails the comparison
        bad = low if not low >= -1 else high
        got = f"node_config_feat holds {bad}"
        raise GraphFileError(got, expected=f"dimensions 0-{MAX_RANK - 1}, or -1")
    integers = block.astype(np.int8, copy=False)
    if integers is not block and not np.array_equal(integers, block):
        got = f"node_config_feat holds {block[integers != block][0]}"
        raise GraphFileError(got, expected="whole numbers")
    # Two digits at a time: a row of 18 bytes is read as 9 little-endian numbers low + 256 * high.
    pairs = np.ascontiguousarray(integers + np.int8(1)).reshape(-1, _WIDTH).view("<u2")
    digits = pairs - (256 - _BASE) * (pairs >> 8)
    key: NDArray[np.int64] = digits[:, -1].astype(np.int64)
    for digit in range(_WIDTH // 2 - 2, -1, -1):
        key *= _BASE * _BASE
        key += digits[:, digit]
    return key
