"""Costs of a single configuration's layouts: copies, and nodes that are slower themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from xlarank.data.graph import LayoutGraph
from xlarank.features.layout.hardware import HARDWARE
from xlarank.features.layout.layout_assignment import Assignment
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.layout_mapping import Layout
from xlarank.features.layout.layout_program import LayoutProgram
from xlarank.features.layout.relayout_quantities import copy_amounts, node_amounts
from xlarank.features.layout.relayouts import Copies
from xlarank.features.program.tensors import order_text


@dataclass(frozen=True)
class ConfigCopy:
    """A copy that the compiler inserts.

    Attributes:
        node: node whose output is copied.
        before, after: its layouts, minor to major; ``before`` is None if the order of the
            elements is not a layout.
        readers: nodes that read the copy; empty if the program returns it.
        bytes: bytes of the output, without padding; a copy reads and writes them.
        nanoseconds: estimated time of the copy.
    """

    node: int
    before: Layout | None
    after: Layout
    readers: tuple[int, ...]
    bytes: int
    nanoseconds: float

    @property
    def orders(self) -> str:
        """Both layouts as text, such as ``{1,0} to {0,1}``."""
        before = "other" if self.before is None else order_text(self.before)
        return f"{before} to {order_text(self.after)}"


#: Reasons for slow nodes, by the quantity that costs time.
REASONS: Final = {
    "constrained_turned": "is written or read in a set layout other than row-major",
    "strided_dots": "reads both operands across the contracted dimension",
    "column_reduced": "reduces, and keeps the minor-most dimension",
}


@dataclass(frozen=True)
class SlowNode:
    """A node that takes longer because of the layouts that it reads or writes.

    Attributes:
        quantity: a key of `REASONS`.
        nanoseconds: estimated additional time.
    """

    node: int
    quantity: str
    nanoseconds: float


def config_costs(
    graph: LayoutGraph, config: int, hardware: str
) -> tuple[list[ConfigCopy], list[SlowNode]]:
    """Return the copies and the slow nodes of a configuration, both in descending order of time."""
    context = LayoutContext(graph)
    machine = HARDWARE[hardware]
    program = LayoutProgram(context, machine)
    rows = context.table.codes[graph.group[[config]]]
    assignment = Assignment(program, context.row_type[rows])
    copies = Copies(assignment)
    priced_copies = []
    for copy in copies.chained if machine.simplifies else copies.every:
        last = copies.last[copy] if machine.simplifies else copy.instruction
        amounts = copy_amounts(copies, copy, chained=machine.simplifies)
        node = assignment.tensor[copy.instruction]
        priced = ConfigCopy(
            node=node,
            before=copy.before,
            after=copy.after,
            readers=tuple(dict.fromkeys(program.readers[assignment.tensor[last]])),
            bytes=program.bytes[node],
            nanoseconds=sum(machine.costs.get(name, 0.0) * n for name, n in amounts.items()),
        )
        priced_copies.append(priced)
    nodes = []
    for node, name, amount, mask in node_amounts(copies):
        ns = machine.costs.get(name, 0.0) * amount
        if mask and ns:
            nodes.append(SlowNode(node, name, ns))
    priced_copies.sort(key=lambda copy: -copy.nanoseconds)
    nodes.sort(key=lambda node: -node.nanoseconds)
    return priced_copies, nodes
