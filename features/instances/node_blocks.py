"""Blocks of node instances: a node, the row it takes, and what stands around it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.instances.instance_block import ABSENT, NodeBlock
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.regions import ROLE_NAMES
from xlarank.features.program.opcode_classes import OPCODE_GROUPS, opcode_group
from xlarank.features.program.tensors import Ints, log2p, millionths

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

    def of_rows(self, context: LayoutContext) -> dict[str, NDArray[Any]]:
        graph = context.graph
        node = graph.configurable[context.table.node]
        group = opcode_group(graph.opcode)
        consumer = _largest_consumer(context)[node]
        has = consumer >= 0
        return {
            "node__opcode__group": group[node],
            "node__rank__dims": context.rank[node],
            "node__bytes__log2": log2p(context.bytes[node]),
            "node__bytes__share": millionths(context.bytes[node], context.bytes.sum()),
            "node__flops__log2": log2p(context.flops[node]),
            "node__flops__share": millionths(context.flops[node], context.flops.sum()),
            "node__fanout__count": _fanout(context)[node],
            "node__root__flag": context.column("is_root")[node] > 0,
            "node__fused__flag": context.fused[node],
            "node__consumer__opcode": np.where(has, group[consumer], ABSENT),
            "node__consumer__configurable": np.where(has, context.position[consumer] >= 0, ABSENT),
            "node__level__share": context.level[node] / max(1, int(context.level.max())),
        }


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

    def of_rows(self, context: LayoutContext) -> dict[str, NDArray[Any]]:
        row_type, k = context.row_type, context.table.node
        table: dict[str, NDArray[Any]] = {}
        stored = float(context.bytes[~context.fused].sum())
        given, changed = np.zeros(len(k)), np.zeros(len(k))
        for number, (slot, rows) in enumerate(context.slots.items()):
            tensor = context.slot_tensor[k, number]
            layout = rows.layout[row_type]
            present, laid = tensor >= 0, layout[:, 0] >= 0
            minor = np.maximum(layout[:, 0], 0)
            default = context.default_layout[tensor]
            default_minor = np.take_along_axis(context.dims[tensor], np.maximum(default[:, :1], 0), axis=1)[:, 0]
            columns = {
                "given": rows.given[row_type],
                "changed": rows.changed[row_type],
                "minor_changed": rows.minor_changed[row_type],
                "distance": rows.distance[row_type],
                "contiguity": rows.contiguity[row_type],
                "minor": log2p(rows.minor[row_type]),
                "default_minor": log2p(default_minor),
                "minor_place": np.where(laid, context.rank[tensor] - 1 - layout[:, 0], ABSENT),
                "minor_role": np.where(laid, context.roles[k, number, minor], ABSENT),
                "kept": millionths(
                    np.where(rows.given[row_type] & context.fused[tensor], context.bytes[tensor], 0), stored
                ),
            }
            given += present & columns["given"]
            changed += present & columns["changed"]
            table |= {f"{slot}__{what}__row": np.where(present, values, ABSENT) for what, values in columns.items()}
        return table | {"row__given__count": given, "row__changed__count": changed}


class InstanceOperands(NodeBlock):
    """What makes the tensors behind the input and the kernel slot of a node instance."""

    columns = {f"{slot}__{what}__node": text for slot in LAYOUT_SLOTS[1:] for what, text in _OPERAND.items()}

    def of_rows(self, context: LayoutContext) -> dict[str, NDArray[Any]]:
        group, fanout = opcode_group(context.graph.opcode), _fanout(context)
        table: dict[str, NDArray[Any]] = {}
        for number, slot in enumerate(LAYOUT_SLOTS[1:], 1):
            tensor = context.slot_tensor[context.table.node, number]
            columns = {
                "bytes": log2p(context.bytes[tensor]),
                "share": millionths(context.bytes[tensor], context.bytes.sum()),
                "opcode": group[tensor],
                "configurable": context.position[tensor] >= 0,
                "fanout": fanout[tensor],
                "fused": context.fused[tensor],
            }
            table |= {f"{slot}__{what}__node": np.where(tensor >= 0, v, ABSENT) for what, v in columns.items()}
        return table


class InstanceAgreement(NodeBlock):
    """Whether the slots of a node instance have one full layout; -1 without such a slot."""

    columns = {
        "row__input_is_output__agrees": "whether input and output have one full layout",
        "row__input_is_kernel__agrees": "whether input and kernel have one full layout",
    }

    def of_rows(self, context: LayoutContext) -> dict[str, NDArray[Any]]:
        row_type, k = context.row_type, context.table.node
        output, input_, kernel = (rows.key[row_type] for rows in context.slots.values())
        has_input, has_kernel = (context.slot_tensor[k, slot] >= 0 for slot in (1, 2))
        return {
            "row__input_is_output__agrees": np.where(has_input, input_ == output, ABSENT),
            "row__input_is_kernel__agrees": np.where(has_input & has_kernel, input_ == kernel, ABSENT),
        }


class InstanceSurroundings(NodeBlock):
    """Which groups of operations stand one edge up and one edge down from a node instance."""

    columns = {
        **{f"near__{name}__up": f"whether an operand is of group {name}" for name in _NEAR},
        **{f"near__{name}__down": f"whether a consumer is of group {name}" for name in _NEAR},
    }

    def of_rows(self, context: LayoutContext) -> dict[str, NDArray[Any]]:
        group = opcode_group(context.graph.opcode)
        member = (group[:, None] == [OPCODE_GROUPS.index(name) for name in _NEAR]).astype(np.float64)
        node = context.graph.configurable
        row = context.table.node
        sides = {
            "up": context.operands[node] @ member,
            "down": context.consumers[node] @ member,
        }
        return {
            f"near__{name}__{side}": counts[row, number] > 0
            for side, counts in sides.items()
            for number, name in enumerate(_NEAR)
        }


_ENDS: Final = {"minor": "minor-most", "second": "second minor-most"}
_MILLIONTHS: Final = "log2 of 1 + millionths of the bytes that a fusing compiler stores"


class InstanceOutput(NodeBlock):
    """The output's layout and the region that shares it (`xlarank.features.layout.regions`).

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

    def of_rows(self, context: LayoutContext) -> dict[str, NDArray[Any]]:
        rows, regions = context.output_rows, context.regions
        node = context.graph.configurable[context.table.node]
        second = np.maximum(rows.second, 0)
        has_second = rows.second >= 0
        table: dict[str, NDArray[Any]] = {
            "output__padded__ratio": np.log2(rows.padded),
            "output__excess__ratio": np.log2(rows.padded / rows.least),
            "output__default_excess__ratio": np.log2(rows.default / rows.least),
            "output__padded__share": log2p(1e6 * rows.padded * rows.bytes),
            "region__padded__share": log2p(1e6 * rows.padded * rows.region_bytes),
            "region__excess__share": log2p(1e6 * (rows.padded - rows.least) * rows.region_bytes),
            "region__tensors__count": regions.tensors[rows.region],
            "region__makers__count": regions.makers[rows.region],
            "output__second__size": log2p(np.where(has_second, context.dims[node, second], 1)),
            "output__second__place": np.where(has_second, context.rank[node] - second, 0),
        }
        for end, dim in (("minor", rows.minor), ("second", rows.second)):
            at, has = np.maximum(dim, 0), dim >= 0
            for side, roles in (("made", regions.made), ("read", regions.read)):
                for number, name in enumerate(ROLE_NAMES):
                    table[f"region__{end}_{name}__{side}"] = has & roles[rows.region, number, at]
            table[f"region__{end}_reduced__read"] = has & regions.reduced[rows.region, at]
        return {name: np.where(rows.given, table[name], ABSENT) for name in self.columns}
