"""Blocks of node instances: a node, the row it takes, and what stands around it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.instances.pair_blocks import ABSENT, InstanceBlock, InstanceContext
from xlarank.features.layout.layout_context import ROLE_NAMES, LayoutContext
from xlarank.features.program.opcode_classes import OPCODE_GROUPS, opcode_group
from xlarank.features.program.slots import node_flops
from xlarank.features.program.tensors import Ints, log2p, millionths


class NodeBlock(InstanceBlock):
    """Columns of nodes and the rows they take; `ABSENT` for pairs."""

    @abstractmethod
    def of_rows(self, context: LayoutContext) -> Sequence[NDArray[Any]]:
        """``(R,)`` each column, in order, for every distinct row of the table."""

    def compute(self, context: InstanceContext) -> NDArray[np.float32]:
        columns = np.full((len(context), len(self.columns)), ABSENT, np.float32)
        for number, values in zip(range(len(self.columns)), self.of_rows(context.layout), strict=True):
            columns[: len(context.rows), number] = values[context.rows]
        return columns


#: Groups of operations looked for around a node.
_NEAR: Final = ("convolution", "dot", "reduce", "transpose", "reshape", "broadcast", "transcendental")

_SLOT: Final = {
    "given": "whether the row sets its layout",
    "changed": "whether the full layout differs from the default",
    "minor_changed": "whether its minor-most dimension differs from the default's",
    "distance": "share of dimension pairs ordered differently from the default, 0 to 1",
    "contiguity": "how much a copy from the default moves in one piece, 0 to 1",
    "minor": "log2 of 1 + the minor-most size",
    "default_minor": "log2 of 1 + the default's minor-most size",
    "minor_place": "the minor-most dimension counted from the last one, 0 = last",
    "minor_role": "what the minor-most dimension is to a convolution, dot or reshape (index of its role)",
    "kept": "log2 of 1 + the bytes that a set layout keeps from being fused away, in millionths of the bytes "
    "that a fusing compiler stores",
}
_OPERAND: Final = {
    "bytes": "log2 of 1 + the tensor's bytes",
    "share": "log2 of 1 + its millionths of the graph's bytes",
    "opcode": "opcode group of what makes the tensor",
    "configurable": "whether that is a configurable node",
    "fanout": "consumers of the tensor",
    "fused": "whether a fusing compiler would not store the tensor",
}


class InstanceNode(NodeBlock):
    """The node of a node instance, whatever row it takes: operation, sizes and neighbours."""

    columns = {
        "node__opcode__group": "index into xlarank.features.program.opcode_classes.OPCODE_GROUPS",
        "node__rank__dims": "dimensions of the output",
        "node__bytes__log2": "log2 of 1 + bytes of the output",
        "node__bytes__share": "log2 of 1 + the output's millionths of the graph's bytes",
        "node__flops__log2": "log2 of 1 + estimated operations",
        "node__flops__share": "log2 of 1 + their millionths of the graph's",
        "node__fanout__count": "consumers of the output",
        "node__root__flag": "whether it is the program's root",
        "node__fused__flag": "whether a fusing compiler would not store the output "
        "(xlarank.features.program.program_context)",
        "node__consumer__opcode": "opcode group of the consumer with the largest output",
        "node__consumer__configurable": "whether that consumer is configurable",
        "node__level__share": "longest path down from the node, of the graph's longest",
    }

    def of_rows(self, context: LayoutContext) -> list[NDArray[Any]]:
        node = context.graph.configurable[context.table.node]
        group = opcode_group(context.graph.opcode)
        consumer = _largest_consumer(context)[node]
        configurable = context.position[consumer] >= 0
        values: list[NDArray[Any]] = [group[node], context.rank[node]]
        for size in (context.bytes, node_flops(context)):
            values += [log2p(size[node]), millionths(size[node], size.sum())]
        values += [_fanout(context)[node], context.column("is_root")[node] > 0, context.fused[node]]
        values += [np.where(consumer >= 0, of_consumer, ABSENT) for of_consumer in (group[consumer], configurable)]
        return [*values, context.level[node] / max(1, int(context.level.max()))]


def _fanout(context: LayoutContext) -> Ints:
    return np.bincount(context.graph.edges[:, 1], minlength=context.graph.nodes)


def _largest_consumer(context: LayoutContext) -> Ints:
    """``(nodes,)`` the consumer with the most bytes, the lowest of equals; -1 for none."""
    consumer, operand = context.graph.edges.T
    largest = np.full(context.graph.nodes, -1)
    order = np.lexsort((-consumer, context.bytes[consumer]))
    largest[operand[order]] = consumer[order]  # the last one assigned stays
    return largest


class InstanceRow(NodeBlock):
    """The layouts that the row of a node instance sets, slot by slot, beside the defaults."""

    columns = {
        "row__given__count": "slots that the row sets",
        "row__changed__count": "slots whose full layout differs from the default",
        **{f"{slot}__{what}__row": text for slot in LAYOUT_SLOTS for what, text in _SLOT.items()},
    }

    def of_rows(self, context: LayoutContext) -> list[NDArray[Any]]:
        row_type, k = context.row_type, context.table.node
        values: list[NDArray[Any]] = []
        stored = float(context.bytes[~context.fused].sum())
        given, changed = np.zeros(len(k)), np.zeros(len(k))
        for number, rows in enumerate(context.slots.values()):
            tensor = context.slot_tensor[k, number]
            layout = rows.layout[row_type]
            present, laid = tensor >= 0, layout[:, 0] >= 0
            minor = np.maximum(layout[:, 0], 0)
            default = context.default_layout[tensor]
            default_minor = np.take_along_axis(context.dims[tensor], np.maximum(default[:, :1], 0), axis=1)[:, 0]
            kept = np.where(rows.given[row_type] & context.fused[tensor], context.bytes[tensor], 0)
            of_slot = [rows.given, rows.changed, rows.minor_changed, rows.distance, rows.contiguity]
            columns = [
                *(of_type[row_type] for of_type in of_slot),
                log2p(rows.minor[row_type]),
                log2p(default_minor),
                np.where(laid, context.rank[tensor] - 1 - layout[:, 0], ABSENT),
                np.where(laid, context.roles[k, number, minor], ABSENT),
                millionths(kept, stored),
            ]
            given += present & columns[0]
            changed += present & columns[1]
            values += [np.where(present, column, ABSENT) for column in columns]
        return [given, changed, *values]


class InstanceOperands(NodeBlock):
    """What makes the tensors behind the input and the kernel slot of a node instance, and whether slots agree."""

    columns = {
        **{f"{slot}__{what}__node": text for slot in LAYOUT_SLOTS[1:] for what, text in _OPERAND.items()},
        "row__input_is_output__agrees": "whether input and output have one full layout",
        "row__input_is_kernel__agrees": "whether input and kernel have one full layout",
    }

    def of_rows(self, context: LayoutContext) -> list[NDArray[Any]]:
        share = millionths(context.bytes, context.bytes.sum())
        of_tensor = [log2p(context.bytes), share, opcode_group(context.graph.opcode), context.position >= 0]
        of_tensor += [_fanout(context), context.fused]
        input_, kernel = (context.slot_tensor[context.table.node, slot] for slot in (1, 2))
        parts = [np.where(at >= 0, column[at], ABSENT) for at in (input_, kernel) for column in of_tensor]
        output_key, input_key, kernel_key = (rows.key[context.row_type] for rows in context.slots.values())
        parts.append(np.where(input_ >= 0, input_key == output_key, ABSENT))
        return [*parts, np.where((input_ >= 0) & (kernel >= 0), input_key == kernel_key, ABSENT)]


class InstanceSurroundings(NodeBlock):
    """Which groups of operations stand one edge up and one edge down from a node instance."""

    columns = {
        f"near__{name}__{side}": f"whether {neighbour} is of group {name}"
        for side, neighbour in (("up", "an operand"), ("down", "a consumer"))
        for name in _NEAR
    }

    def of_rows(self, context: LayoutContext) -> list[NDArray[Any]]:
        group = opcode_group(context.graph.opcode)
        member = (group[:, None] == [OPCODE_GROUPS.index(name) for name in _NEAR]).astype(np.float64)
        node = context.graph.configurable
        sides = [matrix[node] @ member for matrix in (context.operands, context.consumers)]
        return list((np.concatenate(sides, axis=1)[context.table.node] > 0).T)


_ENDS: Final = {"minor": "minor-most", "second": "second minor-most"}
_MILLIONTHS: Final = "log2 of 1 + millionths of the bytes that a fusing compiler stores"


class InstanceOutput(NodeBlock):
    """The output's layout and the region that shares it (`xlarank.features.layout.layout_context`).

    -1 where the row leaves the output to the compiler; all others are 0 or more.
    """

    columns = {
        "output__padded__ratio": "log2 of bytes in tiles over true bytes of the output",
        "output__excess__ratio": "log2 of bytes in tiles over those of the layout that pads least",
        "output__default_excess__ratio": "the same of the default layout",
        "output__padded__share": f"{_MILLIONTHS}: the output's bytes in tiles",
        "region__padded__share": f"{_MILLIONTHS}: the region's bytes in tiles, padded like the output",
        "region__excess__share": f"{_MILLIONTHS}: what the region is padded beyond the layout that pads least",
        "region__tensors__count": "tensors of the region",
        "region__makers__count": "configurable nodes of the region",
        "output__second__size": "log2 of 1 + the second minor-most size",
        "output__second__place": "the second minor-most dimension counted from the last one, plus 1; 0 for none",
        **{
            f"region__{end}_{name}__{side}": f"whether the {words} dimension is {name} to a node that "
            f"{verb} the region"
            for end, words in _ENDS.items()
            for side, verb in (("made", "makes"), ("read", "reads"))
            for name in ROLE_NAMES
        },
        **{
            f"region__{end}_reduced__read": f"whether a reduction that reads the region removes the {words} "
            "dimension"
            for end, words in _ENDS.items()
        },
    }

    def of_rows(self, context: LayoutContext) -> list[NDArray[Any]]:
        rows, regions = context.output_rows, context.regions
        node = context.graph.configurable[context.table.node]
        second = np.maximum(rows.second, 0)
        has_second = rows.second >= 0
        values: list[NDArray[Any]] = [
            np.log2(rows.padded),
            np.log2(rows.padded / rows.least),
            np.log2(rows.default / rows.least),
            log2p(1e6 * rows.padded * rows.bytes),
            log2p(1e6 * rows.padded * rows.region_bytes),
            log2p(1e6 * (rows.padded - rows.least) * rows.region_bytes),
            regions.tensors[rows.region],
            regions.makers[rows.region],
            log2p(np.where(has_second, context.dims[node, second], 1)),
            np.where(has_second, context.rank[node] - second, 0),
        ]
        ends = [(np.maximum(dim, 0), dim >= 0) for dim in (rows.minor, rows.second)]
        for at, has in ends:
            for roles in (regions.made, regions.read):
                values += [has & roles[rows.region, number, at] for number in range(len(ROLE_NAMES))]
        values += [has & regions.reduced[rows.region, at] for at, has in ends]
        return [np.where(rows.given, column, ABSENT) for column in values]
