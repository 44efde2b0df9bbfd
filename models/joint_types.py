"""Exact joint types of configurable nodes, with a vocabulary that is learned from training graphs alone."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xlarank.data.errors import ModelError
from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK, OPCODES
from xlarank.features.instances.instances import Instances
from xlarank.models.ranking_data import RankingData

#: Types that are not in the vocabulary share so many columns, told apart by a hash.
UNKNOWN: Final = 16
#: Largest vocabulary.
MOST_KNOWN: Final = 4096
#: What stored instances know of a node beside its opcode and its row.
_NODE: Final = ("node__rank__dims", *(f"{slot}__minor_role__row" for slot in LAYOUT_SLOTS))
#: Numbers of a type: opcode, rank of the output, roles of the minor-most dimensions by slot, and the row.
_NUMBERS: Final = 1 + len(_NODE) + len(LAYOUT_SLOTS) * MAX_RANK
_LARGEST: Final = 2**15 - 1
#: (Configuration, node) that are looked at at once.
_BATCH: Final = 1 << 20

Type = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class JointTypes:
    """A vocabulary of joint types.

    A type is all at once that is known of a node and the row it takes: opcode, rank, the row's layouts of all
    slots, and the roles of their minor-most dimensions (`xlarank.features.layout.dimension_roles`), which stand for
    the dimension numbers of convolutions and dots. Two nodes of one type may differ in sizes. The 11th place of the
    Kaggle competition counted such types of convolutions, dots and reshapes.

    Attributes:
        known: the types, each `_NUMBERS` whole numbers; the place is the number of its column.
    """

    known: tuple[Type, ...]

    @classmethod
    def learn(cls, data: RankingData, most: int) -> Self | None:
        """The types that most graphs choose from, at most ``most``; None where graphs have no instances (tiles).

        Of equally many graphs the type with more nodes comes first, then the smaller numbers. Raises `ModelError`
        where only some graphs have instances.
        """
        tables = [data.instances_of(group) for group in range(data.groups)]
        if all(table is None for table in tables):
            return None
        graphs: Counter[Type] = Counter()
        nodes: Counter[Type] = Counter()
        for name, table in zip(data.names, tables, strict=True):
            if table is None:
                raise ModelError(f"{name} has no instances", do="run build-features again")
            types = _types(table.value)
            nodes.update(types.values())
            graphs.update(set(types.values()))
        ordered = sorted(graphs, key=lambda one: (-graphs[one], -nodes[one], one))
        return cls(tuple(ordered[:most]))

    @property
    def columns(self) -> list[str]:
        """Names of its columns: how many nodes have the type, or one of those that share a column."""
        known = [f"types__{OPCODES[one[0]]}_{number}__joint" for number, one in enumerate(self.known)]
        return [*known, *(f"types__unknown_{number}__joint" for number in range(UNKNOWN))]

    @cached_property
    def _number(self) -> dict[Type, int]:
        return {one: number for number, one in enumerate(self.known)}

    def of_rows(self, instances: Instances) -> NDArray[np.intp]:
        """``(R,)`` the column of each row of the table; -1 for rows of nodes that have no other."""
        found = np.full(len(instances.rows), -1)
        for row, one in _types(instances).items():
            number = self._number.get(one)
            found[row] = len(self.known) + _hashed(one) if number is None else number
        return found

    def counts(self, instances: Instances) -> NDArray[np.float32]:
        """``(configs, columns)`` how many nodes of each configuration have each type."""
        column = self.of_rows(instances)
        width = len(self.known) + UNKNOWN
        found = np.zeros((instances.configs, width), np.float32)
        step = max(1, _BATCH // max(1, len(instances.node)))
        for at in range(0, instances.configs, step):
            taken = column[instances.first + instances.codes[at : at + step]]
            config, node = np.nonzero(taken >= 0)
            matrix = sparse.csr_array(
                (np.ones(len(config), np.float32), (config, taken[config, node])), shape=(len(taken), width)
            )
            found[at : at + step] = matrix.toarray()
        return found

    def told(self, instances: Instances) -> Instances:
        """The instances with a column for each type, 1 where it is theirs; those of unlike types are kept apart."""
        column = self.of_rows(instances)
        rows = np.flatnonzero(instances.row_instance >= 0)
        of_pairs = np.unique(instances.pair_instance[instances.pair_instance >= 0])
        # a pair has no type; an instance that nodes of several types share becomes several
        keys = np.concatenate(
            [
                np.stack([instances.row_instance[rows], column[rows]], axis=1),
                np.stack([of_pairs, np.full(len(of_pairs), -1)], axis=1),
            ]
        )
        apart, number = np.unique(keys, axis=0, return_inverse=True)
        number = number.reshape(-1)
        kinds = np.zeros((len(apart), len(self.known) + UNKNOWN), np.float32)
        typed = np.flatnonzero(apart[:, 1] >= 0)
        kinds[typed, apart[typed, 1]] = 1
        row_instance = np.full(len(instances.rows), -1, np.int32)
        row_instance[rows] = number[: len(rows)]
        of_pair = np.full(len(instances) + 1, -1, np.int32)  # the last one is of -1
        of_pair[of_pairs] = number[len(rows) :]
        return replace(
            instances,
            columns=[*instances.columns, *self.columns],
            values=np.concatenate([instances.values[apart[:, 0]], kinds], axis=1),
            row_instance=row_instance,
            pair_instance=of_pair[instances.pair_instance],
        )

    def widened(self, data: RankingData) -> RankingData:
        """The groups with the counts as their last columns."""
        parts = []
        for group, part in enumerate(data.parts):
            table = data.instances_of(group)
            assert table is not None, "the vocabulary was learned from all groups"
            values = np.concatenate([part.config_values, self.counts(table.value)], axis=1)
            parts.append(replace(part, columns=[*part.columns, *self.columns], config_values=values))
        return replace(data, parts=parts, columns=[*data.columns, *self.columns])

    def plain(self) -> list[list[int]]:
        """As JSON takes it."""
        return [list(one) for one in self.known]

    @classmethod
    def of_plain(cls, plain: Any) -> Self:
        """Back from `plain`; raises `ValueError` for what is damaged."""
        if not isinstance(plain, list) or not all(_is_type(one) for one in plain):
            raise ValueError("its joint types are not what xlarank writes")
        known = tuple(tuple(one) for one in plain)
        if len(set(known)) != len(known):
            raise ValueError("it knows a joint type twice")
        return cls(known)


def _is_type(plain: Any) -> bool:
    return (
        isinstance(plain, list)
        and len(plain) == _NUMBERS
        and all(type(value) is int and abs(value) <= _LARGEST for value in plain)
        and 0 <= plain[0] < len(OPCODES)
    )


def _types(instances: Instances) -> Mapping[int, Type]:
    """Row -> type of the node that takes it; rows of nodes without a choice are left out."""
    place = {name: number for number, name in enumerate(instances.columns)}
    missing = [name for name in _NODE if name not in place]
    if missing:
        raise ModelError(f"the instances lack {missing[0]}", do="run build-features again")
    rows = np.flatnonzero(instances.row_instance >= 0)
    node = np.searchsorted(instances.first, rows, side="right") - 1
    about = instances.values[instances.row_instance[rows]][:, [place[name] for name in _NODE]]
    numbers = np.column_stack([instances.opcode[node], about, instances.rows[rows]]).astype(np.int64)
    return dict(zip(rows.tolist(), map(tuple, numbers.tolist()), strict=True))


def _hashed(one: Sequence[int]) -> int:
    """Which of the shared columns, the same in every process."""
    return zlib.crc32(np.array(one, "<i2").tobytes()) % UNKNOWN
