"""The compact configuration table: the layouts of each configurable node in each configuration.

``node_config_feat`` is ``(configs, nodes, 18)`` and unpacks to gigabytes, yet one node takes only a
handful of distinct rows over all configurations (5-9 in Google's files). The table keeps the distinct
rows once and one integer code per (configuration, node). It is filled block by block, so the full array
is never in memory. Features are computed on the distinct rows and gathered through the codes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xlarank.data.errors import GraphFileError
from xlarank.data.schema import LAYOUT_COLUMNS, MAX_RANK

_WIDTH = len(LAYOUT_COLUMNS)
#: A layout entry is -1 (unset) or a dimension 0..5: seven values, so a row is a number in base 7, and
#: 18 digits of it fit into 64 bits.
_BASE = MAX_RANK + 1
#: Renumbering works on pieces of about this many codes, to stay inside the cache.
_PIECE = 1 << 20


@dataclass(frozen=True, eq=False)
class ConfigTable:
    """Codes and distinct rows of a layout graph's configurations.

    Attributes:
        codes: ``(configs, nodes)`` int32; the row of a node in a configuration, as an index into ``rows``.
        rows: ``(R, 18)`` int8; the distinct rows, sorted by node, then by their entries (the last one counts most).
        node: ``(R,)`` int32; the node of each row, as a position in the list of configurable nodes.
        start: ``(nodes + 1,)`` int32; rows of node ``k`` are ``start[k]:start[k + 1]``.

    The order of rows depends on their values alone, not on the order of configurations.
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
        step = max(1, _PIECE // max(1, self.nodes))  # bincount widens what it counts
        count = np.zeros(len(self.rows), np.int64)
        for at in range(0, self.configs, step):
            count += np.bincount(self.codes[at : at + step].reshape(-1), minlength=len(self.rows))
        return count

    def select(self, configs: NDArray[np.intp]) -> ConfigTable:
        """Return the table of some configurations; all rows are kept."""
        return ConfigTable(self.codes[configs], self.rows, self.node, self.start)

    @classmethod
    def from_blocks(cls, blocks: Iterable[NDArray[Any]], *, configs: int, nodes: int) -> ConfigTable:
        """Build from blocks ``(some configs, nodes, 18)`` in order.

        Raises `GraphFileError` when an entry is not a whole number from -1 to 5.
        """
        keys = np.empty(0, np.int64)  # distinct rows of all nodes so far, sorted
        seen = np.empty(0, np.int64)  # the same in order of arrival: what the codes point to
        order = np.empty(0, np.int32)  # keys[i] == seen[order[i]]
        codes = np.empty((configs, nodes), np.int32)
        done = 0
        for block in blocks:
            key = _row_keys(block)
            at = np.searchsorted(keys, key)
            known = np.zeros(len(key), bool)
            if len(keys):
                np.minimum(at, len(keys) - 1, out=at)
                known = keys[at] == key
            if not known.all():
                seen = np.concatenate([seen, np.unique(key[~known])])
                order = np.argsort(seen).astype(np.int32)
                keys = seen[order]
                at = np.searchsorted(keys, key)
            codes[done : done + len(block)] = order[at].reshape(len(block), nodes)
            done += len(block)
        if done != configs:
            raise GraphFileError(f"{done} configurations were read", expected=f"{configs}")
        return cls._renumber(codes, seen)

    @classmethod
    def _renumber(cls, codes: NDArray[np.int32], keys: NDArray[np.int64]) -> ConfigTable:
        """Turn indices into ``keys`` (shared by all nodes) into codes of (node, row), in place."""
        configs, nodes = codes.shape
        rank = np.empty(len(keys), np.int64)
        rank[np.argsort(keys)] = np.arange(len(keys))
        base = np.arange(nodes, dtype=np.int64) * len(keys)
        step = max(1, _PIECE // max(1, nodes))
        pieces = [slice(at, at + step) for at in range(0, configs, step)]
        if nodes * len(keys) <= min(max(_PIECE * 64, codes.size), np.iinfo(np.int32).max):
            present = np.zeros(nodes * len(keys), bool)
            small_rank, small_base = rank.astype(np.int32), base.astype(np.int32)
            for piece in pieces:
                codes[piece] = small_rank[codes[piece]]
                codes[piece] += small_base
                present[codes[piece]] = True
            pairs = np.flatnonzero(present)
            number = np.cumsum(present, dtype=np.int32) - np.int32(1)
            for piece in pieces:
                codes[piece] = number[codes[piece]]
        else:  # hardly any row repeats: a lookup of all combinations would outgrow the codes themselves
            pairs, inverse = np.unique(base + rank[codes], return_inverse=True)
            codes[...] = inverse.reshape(codes.shape)
        node = (pairs // max(1, len(keys))).astype(np.int32)
        rows = _rows_of(np.sort(keys)[pairs % max(1, len(keys))])
        start = np.searchsorted(node, np.arange(nodes + 1)).astype(np.int32)
        return cls(codes, rows, node, start)


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Groups of identical configurations, numbered by first appearance.

    Attributes:
        first: ``(distinct,)`` int64; the first configuration of each group.
        group: ``(configs,)`` int64; the group of each configuration.
    """

    first: NDArray[np.int64]
    group: NDArray[np.int64]

    @property
    def distinct(self) -> int:
        return len(self.first)


def group_minimum(values: NDArray[Any], group: NDArray[np.int64], groups: int) -> NDArray[Any]:
    """Return the smallest value of each group, ``(groups,)``; the largest possible number for an empty group.

    The cost of a configuration that was measured several times is that of its fastest repeat, because noise only
    ever adds to a runtime.

    >>> group_minimum(np.array([30, 10, 20]), np.array([0, 1, 0]), 2).tolist()
    [20, 10]
    """
    largest = np.inf if values.dtype.kind == "f" else np.iinfo(values.dtype).max
    smallest = np.full(groups, largest, values.dtype)
    np.minimum.at(smallest, group, values)
    return smallest


def group_codes(codes: NDArray[np.integer]) -> Duplicates:
    """Group equal rows of whole numbers, ``(configs, nodes)``.

    >>> groups = group_codes(np.array([[5, 5], [1, 2], [5, 5]]))
    >>> groups.first.tolist(), groups.group.tolist()
    ([0, 1], [0, 1, 0])
    """
    number: dict[bytes, int] = {}  # digests, as whole rows would take as much memory as the codes
    rows = np.ascontiguousarray(codes)
    group = [number.setdefault(blake2b(row, digest_size=16).digest(), len(number)) for row in rows]
    first = np.unique(group, return_index=True)[1]
    return Duplicates(first.astype(np.int64), np.array(group, np.int64))


def code_counts(codes: NDArray[np.integer], width: int) -> sparse.csr_array:
    """Return sparse counts of codes, ``(configs, width)``."""
    configs, nodes = codes.shape
    indptr = np.arange(configs + 1, dtype=np.int64) * nodes
    return sparse.csr_array((np.ones(codes.size), codes.reshape(-1), indptr), shape=(configs, width))


def _row_keys(block: NDArray[Any]) -> NDArray[np.int64]:
    """Return each row of 18 entries as one number, ``(configs * nodes,)``: digits in base 7, first entry lowest."""
    low, high = (block.min(), block.max()) if block.size else (-1, -1)
    if not (low >= -1 and high < MAX_RANK):  # written so that a NaN fails too
        bad = low if not low >= -1 else high
        raise GraphFileError(f"node_config_feat holds {bad}", expected=f"dimensions 0-{MAX_RANK - 1}, or -1")
    whole = block.astype(np.int8, copy=False)
    if whole is not block and not np.array_equal(whole, block):
        raise GraphFileError(f"node_config_feat holds {block[whole != block][0]}", expected="whole numbers")
    # Two digits at a time: a row of 18 bytes is read as 9 little-endian numbers low + 256 * high.
    pairs = np.ascontiguousarray(whole + np.int8(1)).reshape(-1, _WIDTH).view("<u2")
    digits = pairs - (256 - _BASE) * (pairs >> 8)
    key: NDArray[np.int64] = digits[:, -1].astype(np.int64)
    for place in range(_WIDTH // 2 - 2, -1, -1):
        key *= _BASE * _BASE
        key += digits[:, place]
    return key


def _rows_of(keys: NDArray[np.int64]) -> NDArray[np.int8]:
    """Return the rows ``(R, 18)`` of keys; inverse of `_row_keys`."""
    left = keys
    rows = np.empty((len(keys), _WIDTH), np.int8)
    for entry in range(_WIDTH):
        left, digit = np.divmod(left, _BASE)
        rows[:, entry] = digit - 1
    return rows
