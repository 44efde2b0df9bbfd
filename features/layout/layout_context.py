"""Context of layout blocks: tensors of slots, and physical quantities per type of row.

Nodes repeat (a transformer has its layers many times over), so equal rows of equal nodes are one
*type*. Quantities that depend only on the operation, its tensors and their layouts are computed
once per type. Shapes name

- nodes: the nodes of the graph, and their output tensors (`NodeIndex`);
- K: the configurable nodes, in the order of ``graph.configurable`` (`ConfigurableIndex`);
- R: the distinct rows of the configuration table, each of one node;
- T: the types of rows.

Configurations are codes, ``(configs, K)`` indices of rows. An attribute ``a_b`` maps from a to b:
``row_type`` is ``(R,)`` and holds types.
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
from xlarank.features.program.slots import slot_roles, slot_tensors
from xlarank.features.program.tensors import LANES, SUBLANES, Floats, Ints, layout_key, minor_sizes

NodeIndex = Ints
ConfigurableIndex = Ints


def tensor_physics(dims: Ints, layout: Ints, element_bytes: Floats) -> dict[str, NDArray[Any]]:
    """Return padding and misfits of tensors under a layout, each ``(tensors,)``.

    Misfits are a largest dimension that is not minor-most, a minor-most size that is no multiple of
    the lanes, and a second minor-most size that is no multiple of the sublanes.
    """
    minor, second = minor_sizes(dims, layout)
    return {
        "padding": tensors.padding_waste(dims, layout),
        "packed": tensors.packed_waste(dims, layout, element_bytes),
        "largest": (layout[:, 0] >= 0) & (dims.max(axis=1) > minor),
        "lanes": (layout[:, 0] >= 0) & (minor % LANES != 0),
        "sublanes": (layout[:, 1] >= 0) & (second % SUBLANES != 0),
    }


class SlotRows:
    """One slot (output, input or kernel) of every type of row; arrays are ``(T,)``.

    Attributes:
        bytes: size of the tensor; 0 if the node has none.
        is_set: whether the row sets a layout.
        layout, key: the full layout, ``(T, 6)``, and its `layout_key`.
        minor: size of the minor-most dimension, 0 for none.
        now, default: `tensor_physics` under the full and the default layout.
        node_bytes, total_bytes: ``(K,)`` bytes of the slot in each node, and their sum, at least 1.
    """

    def __init__(self, context: LayoutContext, number: int) -> None:
        node_tensor = context.slot_tensor[:, number]
        node = context.type_configurable
        self.node_bytes = np.where(node_tensor >= 0, context.bytes[node_tensor], 0.0)
        tensor = node_tensor[node]
        present = (tensor >= 0)[:, None]
        dims = np.where(present, context.dims[tensor], 0)
        default = np.where(present, context.default_layout[tensor], -1)
        element = np.where(present[:, 0], context.element_bytes[tensor], 0.0)
        columns = slice(MAX_RANK * number, MAX_RANK * (number + 1))
        rows = context.table.rows[context.type_row, columns].astype(np.int64)
        layout = np.where(present, rows, -1)
        self.bytes: Floats = self.node_bytes[node]
        self.is_set = layout[:, 0] >= 0
        self.layout = tensors.complete_layout(layout, default)
        self.key = layout_key(self.layout)
        minor = self.layout[:, 0]
        self.minor = np.where(minor < 0, 0, minor_sizes(dims, self.layout)[0])
        self.changed = (self.layout != default).any(axis=1)
        self.minor_changed = minor != default[:, 0]
        self.distance = tensors.permutation_distance(self.layout, default)
        self.contiguity = tensors.contiguity(dims, self.layout, default)
        self.now = tensor_physics(dims, self.layout, element)
        self.default = tensor_physics(dims, default, element)
        self.total_bytes = max(1.0, float(self.node_bytes.sum()))


class LayoutContext(ProgramContext):
    """Tensors and rows of a graph's distinct configurations, in order of first appearance.

    Attributes:
        hardware: name of the hardware whose copies are priced; None for none.
        configurable_nodes: number of configurable nodes, at least 1, as it is used as a divisor.
        configurable_index: ``(nodes,)`` index of each node among the configurable ones, -1 for
            others.
        configurable_class, coarse_class: ``(K,)`` index into `OPCODE_CLASSES` and `COARSE_CLASSES`.
        slot_tensor: ``(K, 3)`` the node whose output each slot lays out; -1 for none.
        roles: ``(K, 3, 6)`` role of each dimension of each slot's tensor (`slot_roles`).
        signature: ``(K,)`` equal for nodes of one opcode whose tensors are equal: shapes, element
            types, default layouts and roles.
        type_row, type_configurable: ``(T,)`` first row of each type, and its node.
        row_type: ``(R,)`` type of each row.
    """

    graph: LayoutGraph

    def __init__(self, graph: LayoutGraph, hardware: str | None = None) -> None:
        super().__init__(graph)
        self.hardware = hardware
        nodes = graph.configurable
        distinct = len(graph.first) == graph.configs
        self.table: ConfigTable = graph.table if distinct else graph.table.select(graph.first)
        self.configurable_nodes = max(1, self.table.nodes)
        self.configurable_index: ConfigurableIndex = np.full(graph.nodes, -1)
        self.configurable_index[nodes] = np.arange(len(nodes))
        self.configurable_class = self.opcode_class[nodes]
        # The last is "other".
        self.coarse_class = np.minimum(self.configurable_class, len(COARSE_CLASSES) - 1)
        table = graph.table if graph.configs else None
        self.slot_tensor: NodeIndex = slot_tensors(self, nodes, table)
        self.roles = slot_roles(self, self.slot_tensor)
        tensor = self.slot_tensor
        parts = [self.dims[tensor], self.default_layout[tensor], self.roles]
        parts.append(self.element_type[tensor][:, :, None])
        slots = np.where((tensor >= 0)[:, :, None], np.concatenate(parts, axis=2), -2)
        opcode = graph.opcode[nodes][:, None]
        self.signature = group_codes(np.concatenate([opcode, *slots.transpose(1, 0, 2)], axis=1))[1]
        types = np.column_stack([self.signature[self.table.node], self.table.rows])
        self.type_row, self.row_type = group_codes(types)
        self.type_configurable: ConfigurableIndex = self.table.node[self.type_row].astype(np.int64)

    @cached_property
    def slots(self) -> dict[str, SlotRows]:
        return {slot: SlotRows(self, number) for number, slot in enumerate(LAYOUT_SLOTS)}

    @cached_property
    def type_changed(self) -> NDArray[np.bool_]:
        """``(T,)`` whether any slot differs from the default."""
        return np.asarray(np.any([rows.changed for rows in self.slots.values()], axis=0))
