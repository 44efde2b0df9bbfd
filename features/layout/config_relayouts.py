"""The copies of a single configuration, with their bytes and times, for explanations."""

from __future__ import annotations

from dataclasses import dataclass

from xlarank.data.graph import LayoutGraph
from xlarank.features.layout.hardware import HARDWARE
from xlarank.features.layout.layout_assignment import Assignment
from xlarank.features.layout.layout_facts import LayoutFacts
from xlarank.features.layout.layout_mapping import Layout
from xlarank.features.layout.layout_program import LayoutProgram
from xlarank.features.layout.relayout_quantities import chained_amounts, every_amounts
from xlarank.features.layout.relayouts import Relayout, Relayouts


@dataclass(frozen=True)
class ConfigRelayout:
    """A copy that the compiler inserts.

    Attributes:
        node: node whose output is copied.
        before, after: its layouts, minor to major; ``before`` is None if no layout describes the
            order in which elements come.
        read: node at the end of the chain of transposes and reshapes, often ``node`` itself.
        readers: nodes that read this one; empty if the program returns it.
        bytes: bytes of the output, without padding; a copy reads and writes them.
        nanoseconds: estimated time of the copy.
    """

    node: int
    before: Layout | None
    after: Layout
    read: int
    readers: tuple[int, ...]
    bytes: int
    nanoseconds: float


def config_relayouts(graph: LayoutGraph, config: int, hardware: str) -> list[ConfigRelayout]:
    """Return the copies of a configuration on `HARDWARE` of this name, the slowest first."""
    facts, machine = LayoutFacts(graph), HARDWARE[hardware]
    program = LayoutProgram(facts, machine)
    rows = facts.table.codes[graph.duplicates.group[[config]]]
    relayouts = Relayouts(Assignment(program, facts.row_type[rows]))
    readers: dict[int, list[int]] = {}
    for node, inputs in enumerate(program.operands):
        for tensor in dict.fromkeys(inputs):
            readers.setdefault(tensor, []).append(node)

    def priced(relayout: Relayout, amounts: dict[str, int]) -> ConfigRelayout:
        instruction = relayouts.last.get(relayout, relayout.instruction)
        read = relayouts.assignment.tensor[instruction]
        node = relayouts.assignment.tensor[relayout.instruction]
        ns = sum(machine.costs.get(name, 0.0) * amount for name, amount in amounts.items())
        orders = relayout.before, relayout.after
        return ConfigRelayout(
            node, *orders, read, tuple(readers.get(read, ())), relayouts.bytes(relayout), ns
        )

    if "strided" in machine.costs:  # its compiler does not simplify chains
        copies = [priced(copy, every_amounts(relayouts, copy)) for copy in relayouts.every]
    else:
        copies = [priced(copy, chained_amounts(relayouts, copy)) for copy in relayouts.chained]
    return sorted(copies, key=lambda copy: -copy.nanoseconds)
