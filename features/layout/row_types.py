"""Facts of a layout graph: the tensors behind slots, and physics per type of row.

Nodes repeat (a transformer has its layers many times over), so distinct rows of equal nodes are one *type*.
Quantities that depend only on the operation, its tensors and their layouts are computed once per type; the codes of
a configuration lead from rows to types. Five index spaces meet here:

===================  =====  ==================================================================
index                shape  points to
===================  =====  ==================================================================
`NodeIndex`          nodes  a node of the graph, and its output tensor
`ConfigurableIndex`  K      a configurable node, in the order of ``graph.configurable``
`RowIndex`           R      a distinct row of the configuration table; it belongs to one node
`TypeIndex`          T      a type of row
(codes)              C      a distinct configuration: ``(C, K)`` row indices
===================  =====  ==================================================================

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
from xlarank.features.program.program_context import COARSE_CLASSES, ProgramContext, coarse_class
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
    complete_layout,
    contiguity,
    layout_key,
    minor_sizes,
    packed_waste,
    padding_waste,
    permutation_distance,
)  # fmt: skip


def tensor_physics(dims: Ints, layout: Ints, element_bytes: Floats, tiling: Tiling) -> dict[str, NDArray[Any]]:
    """Return padding and misfits of tensors under a layout, each ``(tensors,)``.

    ``padding``: padded over true size, minus 1; ``packed``: the same with narrow elements packed and small tiles
    for few rows; ``violation``: the largest dimension is not minor-most; ``minor_misfit``, ``second_misfit``: the
    size is no multiple of the lanes, the second one of the sublanes.
    """
    minor, second = minor_sizes(dims, layout)
    return {
        "padding": padding_waste(dims, layout, tiling),
        "packed": packed_waste(dims, layout, element_bytes, tiling),
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
        minor, minor_place, minor_role: size of its minor-most dimension, 0 for none; its place, counted from the
            last dimension, and its role, -1 for none.
        total_bytes, bytes_of_class: of all configurable nodes, and of those of each coarse class.
    """

    def __init__(self, facts: LayoutFacts, number: int) -> None:
        of_node = facts.slot_tensor[:, number]
        node_bytes = np.where(of_node >= 0, facts.bytes[of_node], 0.0)
        tensor = of_node[facts.type_configurable]
        present = (tensor >= 0)[:, None]
        dims = np.where(present, facts.dims[tensor], 0)
        default = np.where(present, facts.default_layout[tensor], -1)
        element = np.where(present[:, 0], facts.element_bytes[tensor], 0.0)
        rows = facts.table.rows[facts.type_row, MAX_RANK * number : MAX_RANK * (number + 1)].astype(np.int64)
        layout = np.where(present, rows, -1)
        self.bytes: Floats = node_bytes[facts.type_configurable]
        self.is_set = layout[:, 0] >= 0
        self.layout = complete_layout(layout, default)
        self.key = layout_key(self.layout)
        minor, no_minor = self.layout[:, 0], self.layout[:, 0] < 0
        self.minor, self.default_minor = (
            np.where(no_minor, 0, minor_sizes(dims, of)[0]) for of in (self.layout, default)
        )
        self.minor_place = np.where(no_minor, -1, facts.rank[tensor] - 1 - minor)
        roles = facts.roles[facts.type_configurable, number]
        self.minor_role = np.where(no_minor, -1, roles[np.arange(len(roles)), minor])
        self.changed = (self.layout != default).any(axis=1)
        self.minor_changed = minor != default[:, 0]
        self.distance = permutation_distance(self.layout, default)
        self.contiguity = contiguity(dims, self.layout, default)
        self.now = tensor_physics(dims, self.layout, element, facts.tiling)
        self.default = tensor_physics(dims, default, element, facts.tiling)
        self.total_bytes = max(1.0, float(node_bytes.sum()))
        by_class = np.bincount(facts.coarse_class, node_bytes, minlength=len(COARSE_CLASSES))
        self.bytes_of_class = np.maximum(by_class, 1.0)


class LayoutFacts(ProgramContext):
    """Tensors and rows of one graph; configurations are the distinct ones, in order of first appearance."""

    graph: LayoutGraph

    def __init__(self, graph: LayoutGraph, tiling: Tiling = TPU) -> None:
        super().__init__(graph)
        distinct = graph.duplicates.distinct == graph.configs
        self.table: ConfigTable = graph.table if distinct else graph.table.select(graph.duplicates.first)
        self.tiling = tiling

    @cached_property
    def configurable_nodes(self) -> int:
        """Number of configurable nodes, at least 1, as it is used as a divisor."""
        return max(1, self.table.nodes)

    @cached_property
    def slot_tensor(self) -> NodeIndex:
        """``(K, 3)`` the node whose output each slot lays out; -1 for none."""
        return slot_tensors(self, self.graph.configurable, self.graph.table if self.graph.configs else None)

    @cached_property
    def flops(self) -> Floats:
        """``(nodes,)`` floating-point operations: `node_flops`."""
        return node_flops(self)

    @cached_property
    def roles(self) -> Ints:
        """``(K, 3, 6)`` role of each dimension of each slot's tensor (`slot_roles`)."""
        return slot_roles(self, self.slot_tensor)

    @cached_property
    def configurable_class(self) -> Ints:
        """``(K,)`` index into `OPCODE_CLASSES`."""
        return self.opcode_class[self.graph.configurable]

    @cached_property
    def coarse_class(self) -> Ints:
        """``(K,)`` index into `COARSE_CLASSES`."""
        return coarse_class(self.configurable_class)

    @cached_property
    def nodes_of_class(self) -> Floats:
        """``(4,)`` configurable nodes of each coarse class, at least 1."""
        return np.maximum(np.bincount(self.coarse_class, minlength=len(COARSE_CLASSES)), 1.0)

    @cached_property
    def signature(self) -> Ints:
        """``(K,)`` signature: equal for nodes of one operation whose tensors are equal.

        Tensors are equal in shape, element type, default layout and in what their dimensions are to the operation.
        """
        tensor = self.slot_tensor
        facts = [self.dims[tensor], self.default_layout[tensor], self.roles, self.element_type[tensor][:, :, None]]
        slots = np.where((tensor >= 0)[:, :, None], np.concatenate(facts, axis=2), -2)
        opcode = self.graph.opcode[self.graph.configurable]
        table = np.concatenate([opcode[:, None], *slots.transpose(1, 0, 2)], axis=1)
        return group_codes(table).group

    @cached_property
    def _types(self) -> tuple[RowIndex, TypeIndex]:
        """``(T,)`` the first row of each type, and ``(R,)`` the type of each row."""
        slots = self.table.rows.reshape(len(self.table.rows), len(LAYOUT_SLOTS), MAX_RANK).astype(np.int64)
        key = layout_key(slots) @ (MAX_RANK + 1) ** (MAX_RANK * np.arange(len(LAYOUT_SLOTS)))
        choice = np.unique(key, return_inverse=True)[1]
        signed = self.signature[self.table.node] * max(1, len(key)) + choice
        _, example, row_type = np.unique(signed, return_index=True, return_inverse=True)
        return example, row_type

    @property
    def type_row(self) -> RowIndex:
        return self._types[0]

    @property
    def row_type(self) -> TypeIndex:
        return self._types[1]

    @cached_property
    def type_configurable(self) -> ConfigurableIndex:
        """``(T,)`` the node that the first row of each type belongs to."""
        return self.table.node[self.type_row].astype(np.int64)

    @cached_property
    def type_coarse_class(self) -> Ints:
        """``(T,)`` coarse class of the nodes of each type."""
        return self.coarse_class[self.type_configurable]

    @cached_property
    def slots(self) -> dict[str, SlotRows]:
        """Physics of each slot, ``(T,)``."""
        return {slot: SlotRows(self, number) for number, slot in enumerate(LAYOUT_SLOTS)}

    @cached_property
    def type_changed(self) -> NDArray[np.bool_]:
        """``(T,)`` whether any slot of the rows differs from the default."""
        return np.asarray(np.any([rows.changed for rows in self.slots.values()], axis=0))

    @cached_property
    def configurable_index(self) -> ConfigurableIndex:
        """``(nodes,)`` index of each node among the configurable ones, -1 for others."""
        index = np.full(self.graph.nodes, -1)
        index[self.graph.configurable] = np.arange(len(self.graph.configurable))
        return index
