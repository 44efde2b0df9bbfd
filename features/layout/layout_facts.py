"""Facts of a layout graph: tensors of slots, physical quantities per type of row, and pairs of
slots.

Nodes repeat (a transformer has its layers many times over), so equal rows of equal nodes are one
*type*. Quantities that depend only on the operation, its tensors and their layouts are computed
once per type. Shapes name

- nodes: the nodes of the graph, and their output tensors (`NodeIndex`);
- K: the configurable nodes, in the order of ``graph.configurable`` (`ConfigurableIndex`);
- R: the distinct rows of the configuration table, each of one node;
- T: the types of rows (`TypeIndex`).

Configurations are codes, ``(configs, K)`` indices of rows. An attribute ``a_b`` maps from a to b:
``row_type`` is ``(R,)`` and holds types.

Pairs of slots lay out one tensor (consumer and producer, or two readers). Elementwise operations
and `_PASSING` keep a layout, transposes permute it, and all others (reshape, dot, reduce, ...)
choose anew. From a slot, operands are followed through operations that keep or permute a layout to
configurable nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import ConfigTable, group_codes
from xlarank.data.graph import LayoutGraph
from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK, OPCODE
from xlarank.features.program import tensors
from xlarank.features.program.program_context import COARSE_CLASSES, OPCODE_CLASSES, ProgramContext
from xlarank.features.program.slots import node_flops, slot_roles, slot_tensors
from xlarank.features.program.tensors import TPU, Floats, Ints, Tiling, layout_key, minor_sizes

NodeIndex = Ints
ConfigurableIndex = Ints
TypeIndex = Ints


def tensor_physics(
    dims: Ints, layout: Ints, element_bytes: Floats, tiling: Tiling
) -> dict[str, NDArray[Any]]:
    """Return padding and misfits of tensors under a layout, each ``(tensors,)``.

    Misfits are a largest dimension that is not minor-most, a minor-most size that is no multiple of
    the lanes, and a second one that is no multiple of the sublanes.
    """
    minor, second = minor_sizes(dims, layout)
    return {
        "padding": tensors.padding_waste(dims, layout, tiling),
        "packed": tensors.packed_waste(dims, layout, element_bytes, tiling),
        "largest": (layout[:, 0] >= 0) & (dims.max(axis=1) > minor),
        "lanes": (layout[:, 0] >= 0) & (minor % tiling.lanes != 0),
        "sublanes": (layout[:, 1] >= 0) & (second % tiling.sublanes != 0),
    }


class SlotRows:
    """One slot (output, input or kernel) of every type of row; arrays are ``(T,)``.

    Attributes:
        bytes: size of the tensor; 0 if the node has none.
        is_set: whether the row sets a layout.
        layout, key: the full layout, ``(T, 6)``, and its `layout_key`.
        minor, minor_place, minor_role: size of the minor-most dimension, 0 for none; its position,
            counted from the last one (0), and its role, -1 for none.
        now, default: `tensor_physics` under the full and the default layout.
        total_bytes, bytes_of_class: bytes of the slot in all nodes, and in those of each coarse
            class, at least 1.
    """

    def __init__(self, facts: LayoutFacts, number: int) -> None:
        node_tensor = facts.slot_tensor[:, number]
        node = facts.type_configurable
        node_bytes = np.where(node_tensor >= 0, facts.bytes[node_tensor], 0.0)
        tensor = node_tensor[node]
        present = (tensor >= 0)[:, None]
        dims = np.where(present, facts.dims[tensor], 0)
        default = np.where(present, facts.default_layout[tensor], -1)
        element = np.where(present[:, 0], facts.element_bytes[tensor], 0.0)
        rows = facts.table.rows[facts.type_row, MAX_RANK * number : MAX_RANK * (number + 1)].astype(
            np.int64
        )
        layout = np.where(present, rows, -1)
        self.bytes: Floats = node_bytes[node]
        self.is_set = layout[:, 0] >= 0
        self.layout = tensors.complete_layout(layout, default)
        self.key = layout_key(self.layout)
        minor = self.layout[:, 0]
        empty = self.layout[:, 0] < 0
        layouts = self.layout, default
        self.minor, self.default_minor = (
            np.where(empty, 0, minor_sizes(dims, layout)[0]) for layout in layouts
        )
        self.minor_place = np.where(empty, -1, facts.rank[tensor] - 1 - minor)
        self.minor_role = np.where(empty, -1, facts.roles[node, number, minor])
        self.changed = (self.layout != default).any(axis=1)
        self.minor_changed = minor != default[:, 0]
        self.distance = tensors.permutation_distance(self.layout, default)
        self.contiguity = tensors.contiguity(dims, self.layout, default)
        self.now, self.default = (
            tensor_physics(dims, layout, element, facts.tiling) for layout in layouts
        )
        self.total_bytes = max(1.0, float(node_bytes.sum()))
        by_class = np.bincount(facts.coarse_class, node_bytes, minlength=len(COARSE_CLASSES))
        self.bytes_of_class = np.maximum(by_class, 1.0)


class LayoutFacts(ProgramContext):
    """Tensors and rows of one graph; configurations are the distinct ones, in order of first
    appearance.

    Attributes:
        configurable_nodes: number of configurable nodes, at least 1, as it is used as a divisor.
        configurable_index: ``(nodes,)`` index of each node among the configurable ones, -1 for
            others.
        configurable_class, coarse_class: ``(K,)`` index into `OPCODE_CLASSES` and `COARSE_CLASSES`.
        nodes_of_class: ``(4,)`` configurable nodes of each coarse class, at least 1.
        slot_tensor: ``(K, 3)`` the node whose output each slot lays out; -1 for none.
        roles: ``(K, 3, 6)`` role of each dimension of each slot's tensor (`slot_roles`).
        signature: ``(K,)`` equal for nodes of one opcode whose tensors are equal: shapes, element
            types, default layouts and roles.
        type_row, type_configurable, type_coarse_class: ``(T,)`` first row of each type, its node
            and coarse class.
        row_type: ``(R,)`` type of each row.
    """

    graph: LayoutGraph
    type_row: Ints
    row_type: TypeIndex

    def __init__(self, graph: LayoutGraph, tiling: Tiling = TPU) -> None:
        super().__init__(graph)
        nodes = graph.configurable
        distinct = graph.duplicates.distinct == graph.configs
        self.table: ConfigTable = (
            graph.table if distinct else graph.table.select(graph.duplicates.first)
        )
        self.tiling = tiling
        self.configurable_nodes = max(1, self.table.nodes)
        self.configurable_index: ConfigurableIndex = np.full(graph.nodes, -1)
        self.configurable_index[nodes] = np.arange(len(nodes))
        self.configurable_class = self.opcode_class[nodes]
        # The last is "other".
        self.coarse_class = np.minimum(self.configurable_class, len(COARSE_CLASSES) - 1)
        self.nodes_of_class = np.maximum(
            np.bincount(self.coarse_class, minlength=len(COARSE_CLASSES)), 1.0
        )
        self.slot_tensor: NodeIndex = slot_tensors(
            self, nodes, graph.table if graph.configs else None
        )
        self.roles = slot_roles(self, self.slot_tensor)
        tensor = self.slot_tensor
        parts = [
            self.dims[tensor],
            self.default_layout[tensor],
            self.roles,
            self.element_type[tensor][:, :, None],
        ]
        slots = np.where((tensor >= 0)[:, :, None], np.concatenate(parts, axis=2), -2)
        operation = np.concatenate(
            [graph.opcode[nodes][:, None], *slots.transpose(1, 0, 2)], axis=1
        )
        self.signature = group_codes(operation).group
        rows = self.table.rows.reshape(len(self.table.rows), len(LAYOUT_SLOTS), MAX_RANK).astype(
            np.int64
        )
        # one number for the three layouts of a row
        key = layout_key(rows) @ (MAX_RANK + 1) ** (MAX_RANK * np.arange(len(LAYOUT_SLOTS)))
        type_key = (
            self.signature[self.table.node] * max(1, len(key))
            + np.unique(key, return_inverse=True)[1]
        )
        _, self.type_row, self.row_type = np.unique(
            type_key, return_index=True, return_inverse=True
        )
        self.type_configurable: ConfigurableIndex = self.table.node[self.type_row].astype(np.int64)
        self.type_coarse_class = self.coarse_class[self.type_configurable]

    flops = cached_property(node_flops)

    @cached_property
    def slots(self) -> dict[str, SlotRows]:
        return {slot: SlotRows(self, number) for number, slot in enumerate(LAYOUT_SLOTS)}

    @cached_property
    def by_slot(self) -> dict[str, NDArray[Any]]:
        """Quantities of `SlotRows` for all slots, ``(3, T)``; layouts are ``(3, T, 6)``."""
        names = ("is_set", "layout", "key", "minor", "changed", "distance")
        rows = self.slots.values()
        return {name: np.stack([getattr(slot, name) for slot in rows]) for name in names}

    @cached_property
    def type_changed(self) -> NDArray[np.bool_]:
        """``(T,)`` whether any slot differs from the default."""
        return np.asarray(np.any([rows.changed for rows in self.slots.values()], axis=0))


#: Pairs are grouped by distance in edges: 1, 2, and 3 to `FARTHEST`.
HOPS: Final = 3
FARTHEST: Final = 8
#: Opcodes, besides elementwise ones, whose output keeps the layout of the operand.
_PASSING: Final = tuple(
    OPCODE[name] for name in ("copy", "reverse", "all-reduce", "collective-permute")
)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of slots; arrays are ``(pairs,)``.

    Attributes:
        left, right: consumer and producer, or two consumers.
        left_slot, right_slot: index into `xlarank.data.schema.LAYOUT_SLOTS`.
        bytes: size of the left tensor.
        permutation: ``(pairs, 6)`` dimension of the left tensor -> dimension of the right one.
    """

    left: ConfigurableIndex
    right: ConfigurableIndex
    left_slot: Ints
    right_slot: Ints
    bytes: Floats
    permutation: Ints

    def __len__(self) -> int:
        return len(self.left)

    def take(self, index: Ints) -> Pairs:
        return Pairs(*(getattr(self, field.name)[index] for field in fields(self)))

    @property
    def straight(self) -> NDArray[np.bool_]:
        """``(pairs,)`` whether the dimensions keep their order along the path."""
        return np.asarray((self.permutation == np.arange(MAX_RANK)).all(axis=1))


def _operands(facts: LayoutFacts) -> tuple[ConfigurableIndex, Ints, NodeIndex]:
    """Return operand slots whose tensor has dimensions: (configurable node, slot, tensor)."""
    present = (facts.slot_tensor >= 0) & (facts.rank[facts.slot_tensor] > 0)
    node, slot = np.nonzero(present[:, 1:])
    return node, slot + 1, facts.slot_tensor[node, slot + 1]


def connected_pairs(facts: LayoutFacts) -> list[Pairs]:
    """Return pairs of consumer and producer, 1, 2 and 3 to 8 edges apart, without a configurable
    node between.

    If there are several paths, the shortest counts.
    """
    consumer, slot, tensor = _operands(facts)
    follow = _passing(facts)
    state = np.arange(len(tensor)), tensor, np.tile(np.arange(MAX_RANK), (len(tensor), 1))
    reached = []
    for distance in range(1, FARTHEST + 1):
        configurable = facts.configurable_index[state[1]] >= 0
        hops = np.full(configurable.sum(), min(distance, HOPS))
        reached.append((*(part[configurable] for part in state), hops))
        state = follow(*(part[~configurable] for part in state))
    start, node, permutation, hops = (np.concatenate(part) for part in zip(*reached, strict=True))
    _, first = np.unique(start * facts.graph.nodes + node, return_index=True)
    start = start[first]
    node = facts.configurable_index[node[first]]
    output = np.full(len(start), LAYOUT_SLOTS.index("output"))
    pairs = Pairs(
        consumer[start], node, slot[start], output, facts.bytes[tensor[start]], permutation[first]
    )
    return [pairs.take(np.flatnonzero(hops[first] == hop)) for hop in range(1, HOPS + 1)]


def sibling_pairs(facts: LayoutFacts) -> Pairs:
    """Return consecutive operand slots that read the same tensor directly, ordered by node and
    slot.
    """
    consumer, slot, tensor = _operands(facts)
    order = np.lexsort((slot, consumer, tensor))
    consumer = consumer[order]
    slot = slot[order]
    tensor = tensor[order]
    same = np.flatnonzero(tensor[1:] == tensor[:-1])
    ends = consumer[same], consumer[same + 1], slot[same], slot[same + 1]
    return Pairs(*ends, facts.bytes[tensor[same]], np.tile(np.arange(MAX_RANK), (len(same), 1)))


def _passing(facts: LayoutFacts) -> Callable[[Ints, NodeIndex, Ints], tuple[Ints, Ints, Ints]]:
    """Return a function that follows (start, node, permutation) along one more edge that keeps or
    permutes layouts.

    If several paths lead from a start to a node, the lexicographically least permutation is kept.
    """
    edges = facts.graph.edges
    dims = facts.dims
    opcode = facts.graph.opcode
    transposes = opcode == OPCODE["transpose"]
    keeps = (facts.opcode_class == OPCODE_CLASSES.index("elementwise")) | np.isin(opcode, _PASSING)
    listed = facts.column("dimensions_0", MAX_RANK).astype(np.int64).clip(0, MAX_RANK - 1)
    inside = transposes[:, None] & (np.arange(MAX_RANK) < facts.rank[:, None])
    axes = np.where(inside, listed, np.arange(MAX_RANK))
    valid = (np.sort(axes, axis=1) == np.arange(MAX_RANK)).all(axis=1)  # permutations
    nodes, operands = edges.T
    turned_dims = np.take_along_axis(dims[operands], axes[nodes], axis=1)
    passes = ((keeps | transposes) & valid & (facts.rank > 0))[nodes] & (
        turned_dims == dims[nodes]
    ).all(axis=1)
    passes &= facts.rank[nodes] == facts.rank[operands]  # ranks differ only if sizes are 0
    order = np.lexsort((operands[passes], nodes[passes]))
    operands = operands[passes][order]
    first_edge = np.searchsorted(nodes[passes][order], np.arange(len(dims) + 1))

    def follow(start: Ints, node: NodeIndex, permutation: Ints) -> tuple[Ints, Ints, Ints]:
        count = first_edge[node + 1] - first_edge[node]
        offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        operand = operands[np.repeat(first_edge[node], count) + offset]
        start = np.repeat(start, count)
        turned = np.take_along_axis(axes[node], permutation, axis=1).repeat(count, axis=0)
        end = start * len(dims) + operand
        order = np.lexsort((turned @ MAX_RANK ** np.arange(MAX_RANK - 1, -1, -1), end))
        first = order[np.unique(end[order], return_index=True)[1]]
        return start[first], operand[first], turned[first]

    return follow


def pair_layouts(
    facts: LayoutFacts, pairs: Pairs, pair: Ints, left: TypeIndex, right: TypeIndex
) -> tuple[Ints, Ints, Ints]:
    """Return the full layouts that both sides of pairs request, as keys in the left tensor's
    dimensions, and how many are set, 0 to 2.
    """
    key, is_set, layout = (facts.by_slot[name] for name in ("key", "is_set", "layout"))
    left_slot = pairs.left_slot[pair]
    right_slot = pairs.right_slot[pair]
    right_key = key[right_slot, right]
    turned = np.flatnonzero(~pairs.straight[pair])
    if len(turned):
        order = layout[right_slot[turned], right[turned]]
        # dimension of the right tensor -> of the left one
        back = np.argsort(pairs.permutation[pair[turned]], axis=1)
        turned_back = np.take_along_axis(back, np.maximum(order, 0), axis=1)
        right_key[turned] = layout_key(np.where(order >= 0, turned_back, -1))
    sides_set = is_set[left_slot, left].astype(np.int64) + is_set[right_slot, right]
    return key[left_slot, left], right_key, sides_set


class RequestedLayouts:
    """Distinct layouts that nodes of one signature request for each slot, concatenated over slots.

    Two rows request the same layout if their full layouts are equal, and both or neither are set.

    Attributes:
        signatures: number of distinct signatures.
        first, count: ``(3 * signatures,)`` start and number of the requested layouts.
        number: ``(3 * T,)`` index of the layout that each type of row requests, counted from
            ``first``.
        types: example type of row for each requested layout.
    """

    def __init__(self, facts: LayoutFacts) -> None:
        self.signature = facts.signature
        signature = facts.signature[facts.type_configurable]
        self.signatures = int(facts.signature.max(initial=-1)) + 1
        keys = [
            ((slot * self.signatures + signature) * 2 + rows.is_set) * 7**MAX_RANK + rows.key
            for slot, rows in enumerate(facts.slots.values())
        ]
        distinct, example, requested = np.unique(
            np.concatenate(keys), return_index=True, return_inverse=True
        )
        owner = distinct // (2 * 7**MAX_RANK)
        owners = len(LAYOUT_SLOTS) * self.signatures
        self.first = np.searchsorted(owner, np.arange(owners))
        self.count = np.bincount(owner, minlength=owners)
        self.number: Ints = requested - self.first[owner[requested]]
        self.types: Ints = example % max(1, len(facts.type_configurable))

    def by_row(self, facts: LayoutFacts) -> Ints:
        """Return `number` for each distinct row and slot, ``(R, 3)``."""
        return np.asarray(self.number.reshape(len(LAYOUT_SLOTS), -1).T[facts.row_type])


class Combinations:
    """All combinations of requested layouts of pairs; equal pairs share theirs.

    A combination is numbered ``pair_first + left * pair_width + right``, with indices of requested
    layouts on the left and right. If ``total`` would exceed ``limit``, the groups of equal pairs
    with the most combinations are left out.
    """

    def __init__(self, requested: RequestedLayouts, pairs: Pairs, limit: float = np.inf) -> None:
        self._requested = requested
        group, sizes = self._grouped(pairs)
        if sizes.sum() > limit:
            ascending = np.argsort(sizes, kind="stable")
            selected = ascending[np.cumsum(sizes[ascending]) <= limit]
            pairs = pairs.take(np.flatnonzero(np.isin(group, selected)))
            group, sizes = self._grouped(pairs)
        self.pairs = pairs
        self.total = int(sizes.sum())
        self._width = requested.count[self._right]
        self._first = np.cumsum(sizes) - sizes
        self.pair_width = self._width[group]
        self.pair_first = self._first[group]

    def _grouped(self, pairs: Pairs) -> tuple[Ints, Ints]:
        """Return the group of each pair, ``(pairs,)``, and the number of combinations of each
        group.
        """
        left = pairs.left_slot * self._requested.signatures + self._requested.signature[pairs.left]
        right = (
            pairs.right_slot * self._requested.signatures + self._requested.signature[pairs.right]
        )
        equal = group_codes(np.column_stack([left, right, pairs.permutation]))
        # one pair of each group; its sides as indices into `RequestedLayouts.count`
        self._example = equal.first
        self._left = left[equal.first]
        self._right = right[equal.first]
        return equal.group, self._requested.count[self._left] * self._requested.count[self._right]

    def sides(self, combination: Ints) -> tuple[Ints, TypeIndex, TypeIndex]:
        """Return for each combination an example pair, and a type of row on its left and its right
        side.
        """
        group = np.searchsorted(self._first, combination, side="right") - 1
        left, right = np.divmod(combination - self._first[group], self._width[group])
        types = self._requested.types
        first = self._requested.first
        left = first[self._left[group]] + left
        right = first[self._right[group]] + right
        return self._example[group], types[left], types[right]
