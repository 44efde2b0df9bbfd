"""Nodes of compiled operations where they were collected without marks: from names of origin and shapes.

JAX names all dots of a function alike, so several nodes may be meant; the cycles go to each in equal parts. How
often that is right, marks tell: `agreement`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from xlarank.data.graph import LayoutGraph
from xlarank.data.hlo.compiler.constrain import instructions
from xlarank.data.hlo.compiler.cycle_table import CycleTable
from xlarank.data.hlo.compiler.cycles import Operation
from xlarank.data.hlo.messages import HloModuleProto

_DIMENSIONS = re.compile(r"\[([\d,]*)\]")

#: (name of origin, dimensions) of every node of a module.
Names = Sequence[tuple[str, tuple[int, ...]]]


def names_of(module: Path) -> Names:
    """Of a serialized module."""
    found = HloModuleProto.FromString(module.read_bytes())
    return [(one.metadata.op_name, tuple(one.shape.dimensions)) for _, one in instructions(found)]


def meant(operation: Operation, names: Names) -> list[int]:
    """The nodes that an operation may stand for: of its name, and of its shape where there are any."""
    called = [node for node, (name, _) in enumerate(names) if name and name == operation.source]
    shapes = {
        tuple(sorted(map(int, filter(None, text.split(","))))) for text in _DIMENSIONS.findall(operation.shape)
    }
    alike = [node for node in called if tuple(sorted(names[node][1])) in shapes]
    return alike or called


def located(path: Path, graph: LayoutGraph, table: CycleTable) -> tuple[CycleTable, str]:
    """The table with nodes: as marked, or else as guessed; and which of the two."""
    if any(one.node >= 0 for estimate in table.estimates for one in estimate.operations):
        return table, "marks"
    names = names_of(path.with_suffix(".pb"))
    if len(names) != graph.nodes:
        return table, "nothing"
    estimates = []
    for estimate in table.estimates:
        operations: list[Operation] = []
        for one in estimate.operations:
            nodes = meant(one, names) or [-1]
            shares = _shares(one.cycles, len(nodes))
            operations += [
                replace(one, node=node, cycles=cycles) for node, cycles in zip(nodes, shares, strict=True)
            ]
        estimates.append(replace(estimate, operations=tuple(operations)))
    return replace(table, estimates=tuple(estimates)), "names"


def _shares(cycles: int, parts: int) -> list[int]:
    """Whole numbers that sum to the cycles."""
    return [(cycles * (part + 1)) // parts - (cycles * part) // parts for part in range(parts)]


def agreement(table: CycleTable, names: Names) -> tuple[float, float]:
    """Of marked operations: share of the cycles whose node a guess finds, alone or shared; and finds alone."""
    total = right = alone = 0.0
    for estimate in table.estimates:
        for one in estimate.operations:
            if one.node < 0:
                continue
            nodes = meant(one, names)
            total += one.cycles
            right += one.cycles / len(nodes) if one.node in nodes else 0.0
            alone += one.cycles if nodes == [one.node] else 0.0
    return right / max(1.0, total), alone / max(1.0, total)
