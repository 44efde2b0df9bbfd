"""Blocks of node instances: a node, the row it takes, and what surrounds it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.block import Cause, Column
from xlarank.features.instances.pair_blocks import ABSENT, InstanceBlock, InstanceContext
from xlarank.features.layout.layout_context import ROLE_NAMES, LayoutContext
from xlarank.features.program.opcode_classes import OPCODE_GROUPS, opcode_group
from xlarank.features.program.tensors import Ints, log2p, millionths

Values = NDArray[Any]


class _Slot:
    """One slot of every distinct row; arrays are ``(R,)``."""

    def __init__(self, context: LayoutContext, number: int) -> None:
        self.context, self.number, self.node = context, number, context.table.node
        self.tensor = context.slot_tensor[self.node, number]
        self.present = self.tensor >= 0
        self.dimension = self.of("layout")[:, 0]  # the minor-most; -1 for none

    def of(self, name: str) -> Values:
        """Return a quantity of `xlarank.features.layout.row_types.SlotRows`."""
        return np.asarray(getattr(self.context.slots[LAYOUT_SLOTS[self.number]], name)[self.context.row_type])

    def default_minor_size(self) -> Values:
        default = self.context.default_layout[self.tensor, 0]
        return np.asarray(self.context.dims[self.tensor, np.maximum(default, 0)])

    def place(self) -> Values:
        return np.where(self.dimension >= 0, self.context.rank[self.tensor] - 1 - self.dimension, ABSENT)

    def role(self) -> Values:
        roles = self.context.roles[self.node, self.number, np.maximum(self.dimension, 0)]
        return np.where(self.dimension >= 0, roles, ABSENT)

    def kept(self) -> Values:
        context = self.context
        kept = np.where(self.of("is_set") & context.fused[self.tensor], context.bytes[self.tensor], 0)
        return millionths(kept, float(context.bytes[~context.fused].sum()))


class _Nodes:
    """Nodes and rows of a graph for formulas: ``(nodes,)`` arrays, and those of each row's node, ``(R,)``."""

    def __init__(self, context: LayoutContext) -> None:
        self.context = context
        self.rows, self.regions = context.output_rows, context.regions
        self.node: Ints = context.graph.configurable[context.table.node]  # ``(R,)``
        self.group = opcode_group(context.graph.opcode)
        self.configurable = context.configurable_index >= 0
        self.fanout = np.bincount(context.graph.edges[:, 1], minlength=context.graph.nodes)
        self.byte_share = millionths(context.bytes, context.bytes.sum())

    @cached_property
    def slots(self) -> list[_Slot]:
        return [_Slot(self.context, number) for number in range(len(LAYOUT_SLOTS))]

    @cached_property
    def consumer(self) -> Ints:
        """``(R,)`` the consumer with the most bytes, the lowest of equals; -1 for none."""
        consumer, operand = self.context.graph.edges.T
        largest = np.full(self.context.graph.nodes, -1)
        order = np.lexsort((-consumer, self.context.bytes[consumer]))
        largest[operand[order]] = consumer[order]  # the last assignment stays
        return np.asarray(largest[self.node])

    def second_size(self) -> Values:
        sizes = self.context.dims[self.node, np.maximum(self.rows.second, 0)]
        return log2p(np.where(self.rows.second >= 0, sizes, 1))

    def second_place(self) -> Values:
        return np.where(self.rows.second >= 0, self.context.rank[self.node] - self.rows.second, 0)

    def level_share(self) -> Values:
        return np.asarray(self.context.level[self.node] / max(1, int(self.context.level.max())))

    def same_layout(self, slot: int, other: int) -> Values:
        left, right = self.slots[slot], self.slots[other]
        return np.where(left.present & right.present, left.of("key") == right.of("key"), ABSENT)

    def near(self, side: str, group: str) -> Values:
        matrix = self.context.operands if side == "up" else self.context.consumers
        members = (self.group == OPCODE_GROUPS.index(group)).astype(np.float64)
        return np.asarray((matrix @ members > 0)[self.node])

    def of_region(self, end: str, table: str, role: int | None = None) -> Values:
        """Return the entries of a table of regions, ``(regions, [roles,] 6)``, for one end of the layouts."""
        dimension, entries = getattr(self.rows, end), getattr(self.regions, table)
        entries = entries if role is None else entries[:, role]
        return np.asarray((dimension >= 0) & entries[self.rows.region, np.maximum(dimension, 0)])


#: Values of each distinct row of the table, ``(R,)``.
Formula = Callable[[_Nodes], Values]


class NodeBlock(InstanceBlock):
    """Columns of nodes and the rows they take, each by its formula; `ABSENT` for pairs."""

    def compute(self, context: InstanceContext) -> NDArray[np.float32]:
        values = np.full((len(context), len(self.columns)), ABSENT, np.float32)
        nodes = _Nodes(context.layout)
        for number, column in enumerate(self.columns.values()):
            assert isinstance(column, Column)
            values[: len(context.rows), number] = column.formula(nodes)[context.rows]
        return values


def _column(meaning: str, formula: Formula, cause: Cause | None = None) -> Column:
    return Column(meaning, cause, formula)


def _present(node: Ints, values: Values) -> Values:
    """Return the values ``(nodes,)`` of some nodes; `ABSENT` where there is no node."""
    return np.where(node >= 0, values[node], ABSENT)


class InstanceNode(NodeBlock):
    """The node of a node instance, whichever row it takes: operation, sizes and neighbours."""

    columns = {
        "node__opcode__group": _column(
            "index into xlarank.features.program.opcode_classes.OPCODE_GROUPS", lambda n: n.group[n.node]),
        "node__rank__dims": _column("dimensions of the output", lambda n: n.context.rank[n.node]),
        "node__bytes__log2": _column("log2 of 1 + bytes of the output", lambda n: log2p(n.context.bytes[n.node])),
        "node__bytes__share": _column(
            "log2 of 1 + the output's millionths of the graph's bytes", lambda n: n.byte_share[n.node]),
        "node__flops__log2": _column("log2 of 1 + estimated operations", lambda n: log2p(n.context.flops[n.node])),
        "node__flops__share": _column(
            "log2 of 1 + their millionths of the graph's",
            lambda n: millionths(n.context.flops[n.node], n.context.flops.sum())),
        "node__fanout__count": _column("consumers of the output", lambda n: n.fanout[n.node]),
        "node__root__flag": _column(
            "whether it is the program's root", lambda n: n.context.column("is_root")[n.node] > 0),
        "node__fused__flag": _column(
            "whether a fusing compiler would not store the output (xlarank.features.program.program_context)",
            lambda n: n.context.fused[n.node], Cause.FUSION),
        "node__consumer__opcode": _column(
            "opcode group of the consumer with the largest output", lambda n: _present(n.consumer, n.group)),
        "node__consumer__configurable": _column(
            "whether that consumer is configurable", lambda n: _present(n.consumer, n.configurable)),
        "node__level__share": _column(
            "longest path down from the node, of the graph's longest", _Nodes.level_share),
    }  # fmt: skip


#: Last parts of columns of slots: meaning, formula and, unless it is the block's, cause.
_SLOT: Final[dict[str, tuple[str, Callable[[_Slot], Values], Cause | None]]] = {
    "given": ("whether the row sets its layout", lambda s: s.of("is_set"), Cause.FUSION),
    "changed": ("whether the full layout differs from the default", lambda s: s.of("changed"), None),
    "minor_changed": (
        "whether its minor-most dimension differs from the default's",
        lambda s: s.of("minor_changed"), Cause.MINOR),
    "distance": (
        "share of dimension pairs ordered differently from the default, 0 to 1", lambda s: s.of("distance"), None),
    "contiguity": (
        "how much a copy from the default moves in one piece, 0 to 1", lambda s: s.of("contiguity"), None),
    "minor": ("log2 of 1 + the minor-most size", lambda s: log2p(s.of("minor")), Cause.MINOR),
    "default_minor": (
        "log2 of 1 + the default's minor-most size", lambda s: log2p(s.default_minor_size()), Cause.MINOR),
    "minor_place": ("the minor-most dimension counted from the last one, 0 = last", _Slot.place, Cause.MINOR),
    "minor_role": (
        "what the minor-most dimension is to a convolution, dot or reshape (index of its role)",
        _Slot.role, Cause.MINOR),
    "kept": (
        "log2 of 1 + the bytes that a set layout keeps from being fused away, in millionths of the bytes "
        "that a fusing compiler stores", _Slot.kept, Cause.FUSION),
}  # fmt: skip


def _in_slot(number: int, formula: Callable[[_Slot], Values], nodes: _Nodes) -> Values:
    return np.where(nodes.slots[number].present, formula(nodes.slots[number]), ABSENT)


def _slots_with(name: str, nodes: _Nodes) -> Values:
    return np.asarray(np.sum([slot.present & slot.of(name) for slot in nodes.slots], axis=0))


class InstanceRow(NodeBlock):
    """The layouts that the row of a node instance sets, slot by slot, beside the defaults."""

    cause = Cause.CHANGE
    columns = {
        "row__given__count": _column("slots that the row sets", partial(_slots_with, "is_set"), Cause.FUSION),
        "row__changed__count": _column(
            "slots whose full layout differs from the default", partial(_slots_with, "changed")
        ),
        **{
            f"{slot}__{what}__row": _column(meaning, partial(_in_slot, number, formula), cause)
            for number, slot in enumerate(LAYOUT_SLOTS)
            for what, (meaning, formula, cause) in _SLOT.items()
        },
    }


#: Second parts of columns of operand slots: meaning, and the formula ``(nodes,)`` of the tensors.
_OPERAND: Final[dict[str, tuple[str, Formula]]] = {
    "bytes": ("log2 of 1 + the tensor's bytes", lambda n: log2p(n.context.bytes)),
    "share": ("log2 of 1 + its millionths of the graph's bytes", lambda n: n.byte_share),
    "opcode": ("opcode group of what makes the tensor", lambda n: n.group),
    "configurable": ("whether that is a configurable node", lambda n: n.configurable),
    "fanout": ("consumers of the tensor", lambda n: n.fanout),
    "fused": ("whether a fusing compiler would not store the tensor", lambda n: n.context.fused),
}


def _of_operand(number: int, formula: Formula, nodes: _Nodes) -> Values:
    return _present(nodes.slots[number].tensor, formula(nodes))


class InstanceOperands(NodeBlock):
    """Tensors behind the input and the kernel slot of a node instance, and whether slots agree."""

    cause = Cause.CHANGE
    columns = {
        **{
            f"{LAYOUT_SLOTS[number]}__{what}__node": _column(
                meaning, partial(_of_operand, number, formula), Cause.FUSION if what == "fused" else None
            )
            for number in (1, 2)
            for what, (meaning, formula) in _OPERAND.items()
        },
        "row__input_is_output__agrees": _column(
            "whether input and output have one full layout", lambda n: n.same_layout(1, 0)
        ),
        "row__input_is_kernel__agrees": _column(
            "whether input and kernel have one full layout", lambda n: n.same_layout(1, 2)
        ),
    }


#: Groups of operations looked for around a node.
_NEAR: Final = ("convolution", "dot", "reduce", "transpose", "reshape", "broadcast", "transcendental")


class InstanceSurroundings(NodeBlock):
    """Groups of operations one edge up and one edge down from a node instance."""

    cause = Cause.SURROUNDINGS
    columns = {
        f"near__{name}__{side}": _column(
            f"whether {neighbour} is of group {name}", partial(_Nodes.near, side=side, group=name)
        )
        for side, neighbour in (("up", "an operand"), ("down", "a consumer"))
        for name in _NEAR
    }


_ENDS: Final = {"minor": "minor-most", "second": "second minor-most"}
_MILLIONTHS: Final = "log2 of 1 + millionths of the bytes that a fusing compiler stores"


def _if_set(formula: Formula, nodes: _Nodes) -> Values:
    return np.where(nodes.rows.is_set, formula(nodes), ABSENT)


def _output(meaning: str, formula: Formula, cause: Cause | None = None) -> Column:
    return _column(meaning, partial(_if_set, formula), cause)


class InstanceOutput(NodeBlock):
    """The output's layout and the region that shares it (`xlarank.features.layout.layout_context`).

    -1 where the row leaves the output to the compiler; all others are 0 or more.
    """

    cause = Cause.MINOR
    columns = {
        "output__padded__ratio": _output(
            "log2 of bytes in tiles over true bytes of the output",
            lambda n: np.log2(n.rows.padded), Cause.PADDING),
        "output__excess__ratio": _output(
            "log2 of bytes in tiles over those of the layout that pads least",
            lambda n: np.log2(n.rows.padded / n.rows.least), Cause.PADDING),
        "output__default_excess__ratio": _output(
            "the same of the default layout", lambda n: np.log2(n.rows.default / n.rows.least), Cause.PADDING),
        "output__padded__share": _output(
            f"{_MILLIONTHS}: the output's bytes in tiles",
            lambda n: log2p(1e6 * n.rows.padded * n.rows.bytes), Cause.PADDING),
        "region__padded__share": _output(
            f"{_MILLIONTHS}: the region's bytes in tiles, padded like the output",
            lambda n: log2p(1e6 * n.rows.padded * n.rows.region_bytes), Cause.PADDING),
        "region__excess__share": _output(
            f"{_MILLIONTHS}: what the region is padded beyond the layout that pads least",
            lambda n: log2p(1e6 * (n.rows.padded - n.rows.least) * n.rows.region_bytes), Cause.PADDING),
        "region__tensors__count": _output("tensors of the region", lambda n: n.regions.tensors[n.rows.region]),
        "region__makers__count": _output(
            "configurable nodes of the region", lambda n: n.regions.makers[n.rows.region]),
        "output__second__size": _output("log2 of 1 + the second minor-most size", _Nodes.second_size),
        "output__second__place": _output(
            "the second minor-most dimension counted from the last one, plus 1; 0 for none", _Nodes.second_place),
        **{
            f"region__{end}_{name}__{side}": _output(
                f"whether the {words} dimension is {name} to a node that {verb} the region",
                partial(_Nodes.of_region, end=end, table=side, role=role))
            for end, words in _ENDS.items()
            for side, verb in (("made", "makes"), ("read", "reads"))
            for role, name in enumerate(ROLE_NAMES)
        },
        **{
            f"region__{end}_reduced__read": _output(
                f"whether a reduction that reads the region removes the {words} dimension",
                partial(_Nodes.of_region, end=end, table="reduced"))
            for end, words in _ENDS.items()
        },
    }  # fmt: skip
