"""Facts of a layout graph: the tensors of slots, and physical quantities per type of row.

Nodes repeat (a transformer has its layers many times over), so distinct rows of equal nodes are one *type*.
Quantities that depend only on the operation, its tensors and their layouts are computed once per type. There are
five index spaces:

- `NodeIndex` (nodes): a node of the graph, and its output tensor;
- `ConfigurableIndex` (K): a configurable node, in the order of ``graph.configurable``;
- `RowIndex` (R): a distinct row of the configuration table; it belongs to one node;
- `TypeIndex` (T): a type of row;
- codes (C): a distinct configuration, ``(C, K)`` row indices.

An attribute ``a_b`` of two of these spaces maps from a to b: ``row_type`` is ``(R,)`` and holds types.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import ConfigTable, group_codes
from xlarank.data.graph import LayoutGraph
from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK
from xlarank.features.program import tensors
from xlarank.features.program.program_context import COARSE_CLASSES, ProgramContext
from xlarank.features.program.slots import node_flops, slot_roles, slot_tensors
from xlarank.features.program.tensors import (
    TPU,
    ConfigurableIndex,
    Floats,
    Ints,
    NodeIndex,
    RowIndex,
    Tiling,
    TypeIndex,
)


def tensor_physics(dims: Ints, layout: Ints, element_bytes: Floats, tiling: Tiling) -> dict[str, NDArray[Any]]:
    """Return padding and misfits of tensors under a layout, each ``(tensors,)``.

    ``padding``: padded over true size, minus 1; ``packed``: the same with narrow elements packed and small tiles
    for few rows; ``violation``: the largest dimension is not minor-most; ``minor_misfit``, ``second_misfit``: the
    size is no multiple of the lanes, the second one of the sublanes.
    """
    minor, second = tensors.minor_sizes(dims, layout)
    return {
        "padding": tensors.padding_waste(dims, layout, tiling),
        "packed": tensors.packed_waste(dims, layout, element_bytes, tiling),
        "violation": (layout[:, 0] >= 0) & (dims.max(axis=1) > minor),
        "minor_misfit": (layout[:, 0] >= 0) & (minor % tiling.lanes != 0),
        "second_misfit": (layout[:, 1] >= 0) & (second % tiling.sublanes != 0),
    }


class SlotRows:
    """One slot (output, input or kernel) of every type of row; arrays are ``(T,)``.

    Attributes:
        bytes: size of the tensor; 0 if the node has none.
        is_set: whether the row sets a layout.
        layout, key: the full layout, ``(T, 6)``, and its `layout_key`.
        minor, minor_place, minor_role: size of its minor-most dimension, 0 for none; its position, counted
            from the last dimension, and its role, -1 for none.
        total_bytes, bytes_of_class: bytes over all configurable nodes, and over those of each coarse class.
    """

    def __init__(self, facts: LayoutFacts, number: int) -> None:
        of_node, node = facts.slot_tensor[:, number], facts.type_configurable
        node_bytes = np.where(of_node >= 0, facts.bytes[of_node], 0.0)
        tensor = of_node[node]
        present = (tensor >= 0)[:, None]
        dims = np.where(present, facts.dims[tensor], 0)
        default = np.where(present, facts.default_layout[tensor], -1)
        element = np.where(present[:, 0], facts.element_bytes[tensor], 0.0)
        rows = facts.table.rows[facts.type_row, MAX_RANK * number : MAX_RANK * (number + 1)].astype(np.int64)
        layout = np.where(present, rows, -1)
        self.bytes: Floats = node_bytes[node]
        self.is_set = layout[:, 0] >= 0
        self.layout = tensors.complete_layout(layout, default)
        self.key = tensors.layout_key(self.layout)
        minor, no_minor = self.layout[:, 0], self.layout[:, 0] < 0
        self.minor, self.default_minor = (
            np.where(no_minor, 0, tensors.minor_sizes(dims, of)[0]) for of in (self.layout, default)
        )
        self.minor_place = np.where(no_minor, -1, facts.rank[tensor] - 1 - minor)
        self.minor_role = np.where(no_minor, -1, facts.roles[node, number, minor])
        self.changed = (self.layout != default).any(axis=1)
        self.minor_changed = minor != default[:, 0]
        self.distance = tensors.permutation_distance(self.layout, default)
        self.contiguity = tensors.contiguity(dims, self.layout, default)
        self.now = tensor_physics(dims, self.layout, element, facts.tiling)
        self.default = tensor_physics(dims, default, element, facts.tiling)
        self.total_bytes = max(1.0, float(node_bytes.sum()))
        by_class = np.bincount(facts.coarse_class, node_bytes, minlength=len(COARSE_CLASSES))
        self.bytes_of_class = np.maximum(by_class, 1.0)


class LayoutFacts(ProgramContext):
    """Tensors and rows of one graph; configurations are the distinct ones, in order of first appearance.

    Attributes:
        configurable_nodes: number of configurable nodes, at least 1, as it is used as a divisor.
        configurable_index: ``(nodes,)`` index of each node among the configurable ones, -1 for others.
        configurable_class, coarse_class: ``(K,)`` index into `OPCODE_CLASSES` and `COARSE_CLASSES`.
        nodes_of_class: ``(4,)`` configurable nodes of each coarse class, at least 1.
        slot_tensor: ``(K, 3)`` the node whose output each slot lays out; -1 for none.
        roles: ``(K, 3, 6)`` role of each dimension of each slot's tensor (`slot_roles`).
        signature: ``(K,)`` equal for nodes of one operation whose tensors are equal: shapes, element types, default
            layouts and roles.
        type_row, row_type: ``(T,)`` the first row of each type, and ``(R,)`` the type of each row.
        type_configurable, type_coarse_class: ``(T,)`` the node that the first row of each type belongs to, and its
            coarse class.
    """

    graph: LayoutGraph
    type_row: RowIndex
    row_type: TypeIndex

    def __init__(self, graph: LayoutGraph, tiling: Tiling = TPU) -> None:
        super().__init__(graph)
        nodes, distinct = graph.configurable, graph.duplicates.distinct == graph.configs
        self.table: ConfigTable = graph.table if distinct else graph.table.select(graph.duplicates.first)
        self.tiling, self.configurable_nodes = tiling, max(1, self.table.nodes)
        self.configurable_index: ConfigurableIndex = np.full(graph.nodes, -1)
        self.configurable_index[nodes] = np.arange(len(nodes))
        self.configurable_class = self.opcode_class[nodes]
        self.coarse_class = np.minimum(self.configurable_class, len(COARSE_CLASSES) - 1)  # the last is "other"
        self.nodes_of_class = np.maximum(np.bincount(self.coarse_class, minlength=len(COARSE_CLASSES)), 1.0)
        self.slot_tensor: NodeIndex = slot_tensors(self, nodes, graph.table if graph.configs else None)
        self.roles = slot_roles(self, self.slot_tensor)
        tensor = self.slot_tensor
        parts = [self.dims[tensor], self.default_layout[tensor], self.roles, self.element_type[tensor][:, :, None]]
        slots = np.where((tensor >= 0)[:, :, None], np.concatenate(parts, axis=2), -2)
        operation = np.concatenate([graph.opcode[nodes][:, None], *slots.transpose(1, 0, 2)], axis=1)
        self.signature = group_codes(operation).group
        rows = self.table.rows.reshape(len(self.table.rows), len(LAYOUT_SLOTS), MAX_RANK).astype(np.int64)
        # a number for all three layouts of a row
        key = tensors.layout_key(rows) @ (MAX_RANK + 1) ** (MAX_RANK * np.arange(len(LAYOUT_SLOTS)))
        signed = self.signature[self.table.node] * max(1, len(key)) + np.unique(key, return_inverse=True)[1]
        _, self.type_row, self.row_type = np.unique(signed, return_index=True, return_inverse=True)
        self.type_configurable: ConfigurableIndex = self.table.node[self.type_row].astype(np.int64)
        self.type_coarse_class = self.coarse_class[self.type_configurable]

    flops = cached_property(node_flops)

    @cached_property
    def slots(self) -> dict[str, SlotRows]:
        """Physical quantities of each slot, ``(T,)``."""
        return {slot: SlotRows(self, number) for number, slot in enumerate(LAYOUT_SLOTS)}

    @cached_property
    def type_changed(self) -> NDArray[np.bool_]:
        """``(T,)`` whether any slot of the rows differs from the default."""
        return np.asarray(np.any([rows.changed for rows in self.slots.values()], axis=0))
