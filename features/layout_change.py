"""How far a configuration departs from the compiler's default, and at which operations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.schema import LAYOUT_SLOTS
from features.block import Block
from features.layout import LayoutContext
from features.opcode_classes import OPCODE_CLASSES
from features.tensors import Floats


def _slot_columns() -> dict[str, str]:
    columns: dict[str, str] = {}
    for slot in LAYOUT_SLOTS:
        columns |= {
            f"change__{slot}_set__share": f"share of configurable nodes whose {slot} layout is set",
            f"change__{slot}_changed__share": f"share whose full {slot} layout differs from the default",
            f"change__{slot}_changed_bytes__share": f"share of the {slot} bytes laid out unlike the default",
            f"change__{slot}_distance__mean": f"mean share of dimension pairs of the {slot} ordered unlike "
            "the default",
        }
    return columns


class SlotChange(Block):
    """Layouts set and changed, per slot: sums over configurable nodes, over their number or bytes."""

    kinds = ("layout",)
    columns = _slot_columns()

    def compute(self, context: LayoutContext) -> Floats:
        tables: list[NDArray[Any]] = []
        scales: list[float] = []
        for rows in context.slots.values():
            tables += [rows.given, rows.changed, rows.changed * rows.bytes, rows.distance]
            scales += [context.configurable_nodes] * 2 + [rows.total_bytes, context.configurable_nodes]
        return context.sum_rows(tables, over=scales)


class NodeChange(Block):
    """Nodes with any layout set or changed, and the bytes behind all changed layouts (log2(1 + bytes))."""

    kinds = ("layout",)
    columns = {
        "change__nodes_set__share": "share of configurable nodes with any layout set",
        "change__nodes_changed__share": "share of configurable nodes with any layout unlike the default",
        "change__nodes_changed__log": "number of configurable nodes with any layout unlike the default",
        "change__slots_changed__log": "number of layouts unlike the default",
        "change__all_bytes__log": "bytes of all tensors laid out unlike the default",
        "change__all_bytes__share": "bytes laid out unlike the default, once a slot, over bytes of all outputs",
    }

    def compute(self, context: LayoutContext) -> Floats:
        slots = context.slots.values()
        given = np.any([rows.given for rows in slots], axis=0)
        changed = np.sum([rows.changed for rows in slots], axis=0)
        changed_bytes = np.sum([rows.changed * rows.bytes for rows in slots], axis=0)
        sums = context.sum_rows([given, context.row_changed, changed, changed_bytes])
        return np.stack(
            [
                sums[:, 0] / context.configurable_nodes,
                sums[:, 1] / context.configurable_nodes,
                np.log2(1 + sums[:, 1]),
                np.log2(1 + sums[:, 2]),
                np.log2(1 + sums[:, 3]),
                sums[:, 3] / max(1.0, context.bytes.sum()),
            ],
            axis=1,
        )


class ChangeByClass(Block):
    """Bytes laid out unlike the default, by opcode class and slot, over the bytes of that slot."""

    kinds = ("layout",)
    columns = {
        f"change__{name}_{slot}_bytes__share": f"bytes of the {slot} of {name} nodes laid out unlike the "
        f"default, over all {slot} bytes of configurable nodes"
        for name in OPCODE_CLASSES
        for slot in LAYOUT_SLOTS
    }

    def compute(self, context: LayoutContext) -> Floats:
        tables: list[NDArray[Any]] = []
        scales: list[float] = []
        for number in range(len(OPCODE_CLASSES)):
            mine = context.row_class == number
            for rows in context.slots.values():
                tables.append(mine * rows.changed * rows.bytes)
                scales.append(rows.total_bytes)
        return context.sum_rows(tables, over=scales)


class InnerChange(Block):
    """Nodes whose output is laid out unlike an operand of the same shape: they transpose as they go."""

    kinds = ("layout",)
    columns = {
        "change__output_unlike_input__share": "share of configurable nodes whose output and input have one "
        "shape but two layouts",
        "change__output_unlike_input_bytes__share": "the same by output bytes",
        "change__output_unlike_kernel__share": "share of configurable nodes whose output and kernel have one "
        "shape but two layouts",
        "change__input_unlike_kernel__share": "share of configurable nodes whose input and kernel have one "
        "shape but two layouts",
    }

    def compute(self, context: LayoutContext) -> Floats:
        output, input_, kernel = context.slots.values()
        dims = [context.dims[context.slot_tensor[context.table.node, number]] for number in range(3)]
        same = [(dims[a] == dims[b]).all(axis=1) for a, b in ((0, 1), (0, 2), (1, 2))]
        with_input = same[0] & (output.key != input_.key) & (input_.bytes > 0)
        with_kernel = same[1] & (output.key != kernel.key) & (kernel.bytes > 0)
        operands = same[2] & (input_.key != kernel.key) & (kernel.bytes > 0)
        table = [with_input, with_input * output.bytes, with_kernel, operands]
        nodes = context.configurable_nodes
        return context.sum_rows(table, over=[nodes, output.total_bytes, nodes, nodes])
