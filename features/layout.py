"""Shared intermediate results of a layout graph: tensors behind slots, physics per distinct row, pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from data.config_table import ConfigTable
from data.graph import LayoutGraph
from data.schema import LAYOUT_SLOTS, MAX_RANK
from features.pairs import HOPS, Pairs, connected_pairs, shells
from features.program import ProgramContext
from features.slots import slot_tensors
from features.tensors import (
    TPU,
    Floats,
    Ints,
    Tiling,
    complete_layout,
    largest_not_minor,
    minor_sizes,
    padding_waste,
    permutation_distance,
)


@dataclass(frozen=True)
class TensorPhysics:
    """What a layout does to a tensor; every array is ``(tensors,)``.

    Attributes:
        waste: padded over true size under the tiling, minus 1.
        violation: the largest dimension is not minor-most.
        minor_misfit: the minor-most size is no multiple of the lanes.
        second_misfit: the second minor-most size is no multiple of the sublanes.
    """

    waste: Floats
    violation: NDArray[np.bool_]
    minor_misfit: NDArray[np.bool_]
    second_misfit: NDArray[np.bool_]

    @classmethod
    def of(cls, dims: Ints, layout: Ints, tiling: Tiling) -> TensorPhysics:
        minor, second = minor_sizes(dims, layout)
        return cls(
            waste=padding_waste(dims, layout, tiling),
            violation=largest_not_minor(dims, layout),
            minor_misfit=(layout[:, 0] >= 0) & (minor % tiling.lanes != 0),
            second_misfit=(layout[:, 1] >= 0) & (second % tiling.sublanes != 0),
        )


@dataclass(frozen=True)
class SlotRows:
    """One slot (output, input or kernel) of every distinct row of the table; arrays are ``(R,)``.

    Attributes:
        bytes: size of the tensor; 0 where the node has no such tensor.
        given: the row sets a layout.
        layout: ``(R, 6)`` the full layout: the one given, completed by the default.
        key: one number per full layout, for comparing.
        changed: the full layout differs from the default.
        distance: share of dimension pairs ordered differently from the default.
        now, default: physics of the full layout and of the default.
        total_bytes: bytes of this slot's tensors over all configurable nodes, at least 1.
    """

    bytes: Floats
    given: NDArray[np.bool_]
    layout: Ints
    key: Ints
    changed: NDArray[np.bool_]
    distance: Floats
    now: TensorPhysics
    default: TensorPhysics
    total_bytes: float


class LayoutContext(ProgramContext):
    """Everything layout blocks share; per-configuration results are for the *distinct* configurations.

    Attributes:
        table: the configuration table of the distinct configurations, in order of first appearance.
        tiling: the hardware's tile.
        columns: per-configuration columns already computed by earlier blocks, by name.
    """

    graph: LayoutGraph

    def __init__(self, graph: LayoutGraph, tiling: Tiling = TPU) -> None:
        super().__init__(graph)
        self.table: ConfigTable = graph.table.select(graph.duplicates.first)
        self.tiling = tiling
        self.columns: dict[str, Floats] = {}

    def sum_rows(self, per_row: Sequence[NDArray[Any]], over: Sequence[float] | float = 1.0) -> Floats:
        """Sum quantities ``(R,)`` of the distinct rows over the nodes of each configuration.

        ``over`` divides the sums, one number each or one for all. Returns ``(configs, quantities)``.
        """
        table = np.stack(per_row, axis=1).astype(np.float64)
        total: Floats = (self.table.counts @ table) / np.asarray(over, np.float64)
        return total

    def max_rows(self, per_row: Floats) -> Floats:
        """Largest ``(R,)`` quantity over the nodes of each configuration: ``(configs,)``; 0 without nodes."""
        if self.table.nodes == 0:
            return np.zeros(self.table.configs)
        highest: Floats = per_row[self.table.codes].max(axis=1)
        return highest

    @cached_property
    def configurable_nodes(self) -> int:
        """Number of configurable nodes, at least 1 (it is divided by)."""
        return max(1, self.table.nodes)

    @cached_property
    def slot_tensor(self) -> Ints:
        """``(configurable nodes, 3)`` node whose output each slot lays out; -1 for none."""
        return slot_tensors(self, self.graph.configurable, self.graph.table)

    @cached_property
    def row_class(self) -> Ints:
        """``(R,)`` opcode class of the node each distinct row belongs to."""
        return self.opcode_class[self.graph.configurable[self.table.node]]

    @cached_property
    def slots(self) -> dict[str, SlotRows]:
        """The distinct rows seen slot by slot."""
        return {slot: self._slot_rows(number) for number, slot in enumerate(LAYOUT_SLOTS)}

    def _slot_rows(self, number: int) -> SlotRows:
        tensor = self.slot_tensor[:, number]
        node_bytes = np.where(tensor >= 0, self.bytes[tensor], 0.0)
        tensor = tensor[self.table.node]
        present = tensor >= 0
        dims = np.where(present[:, None], self.dims[tensor], 0)
        default = np.where(present[:, None], self.default_layout[tensor], -1)
        given = self.table.rows[:, MAX_RANK * number : MAX_RANK * (number + 1)].astype(np.int64)
        given = np.where(present[:, None], given, -1)
        layout = complete_layout(given, default)
        return SlotRows(
            bytes=node_bytes[self.table.node],
            given=given[:, 0] >= 0,
            layout=layout,
            key=(layout + 1) @ (MAX_RANK + 1) ** np.arange(MAX_RANK),
            changed=(layout != default).any(axis=1),
            distance=permutation_distance(layout, default),
            now=TensorPhysics.of(dims, layout, self.tiling),
            default=TensorPhysics.of(dims, default, self.tiling),
            total_bytes=max(1.0, float(node_bytes.sum())),
        )

    @cached_property
    def row_changed(self) -> NDArray[np.bool_]:
        """``(R,)`` whether any slot of the row differs from the default."""
        changed: NDArray[np.bool_] = np.any([rows.changed for rows in self.slots.values()], axis=0)
        return changed

    @cached_property
    def position(self) -> Ints:
        """``(nodes,)`` place of a node among the configurable ones, -1 for the others."""
        position = np.full(self.graph.nodes, -1)
        position[self.graph.configurable] = np.arange(len(self.graph.configurable))
        return position

    @cached_property
    def pairs(self) -> list[Pairs]:
        """Connected pairs of configurable nodes 1, 2 and 3 edges apart."""
        return connected_pairs(self)

    @cached_property
    def reach(self) -> list[sparse.csr_array]:
        """Sparse ``(configurable nodes, nodes)`` for 0, 1, 2, 3 hops, either direction.

        Entry h is 1 where a node is exactly h edges away from a configurable node.
        """
        here = sparse.csr_array(
            (
                np.ones(len(self.graph.configurable)),
                self.graph.configurable,
                np.arange(len(self.graph.configurable) + 1),
            ),
            shape=(len(self.graph.configurable), self.graph.nodes),
        )
        return shells(here, self.neighbours, hops=HOPS)
