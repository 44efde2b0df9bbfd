"""Columns of outputs and their regions, one set output at a time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import networkx as nx

from tests.features.oracle_change import ROLES, roles_of
from tests.features.oracle_configs import Configuration, Configured
from tests.features.oracle_program import fused_away
from tests.features.oracle_tensor import Choice, Tensor

ENDS = ("minor", "second")


@dataclass(frozen=True)
class Marks:
    """What each dimension of a region is: names of roles, by dimension."""

    made: set[tuple[str, int]]
    read: set[tuple[str, int]]
    reduced: set[int]


class OutputOracle:
    """The regions of a graph: components along elementwise operations whose operand has their shape."""

    def __init__(self, graph: Configured) -> None:
        self.graph = graph
        links = nx.Graph()
        links.add_nodes_from(graph.nodes)
        for consumer, operand in graph.operands.edges:
            dims = graph.tensors[consumer].dims
            if graph.classes[consumer] == "elementwise" and dims and graph.tensors[operand].dims == dims:
                links.add_edge(consumer, operand)
        self.region = {node: frozenset(part) for part in nx.connected_components(links) for node in part}
        fused = {node for node in graph.nodes if fused_away(graph, node)}
        self.stored = max(1, sum(graph.tensors[node].bytes for node in graph.nodes if node not in fused))
        self.bytes = {
            part: sum(graph.tensors[node].bytes for node in part if node not in fused)
            for part in set(self.region.values())
        }
        self.marks = {part: Marks(set(), set(), set()) for part in set(self.region.values())}
        for place in graph.places:
            self._mark(place)
        for consumer, operand in graph.operands.edges:
            fewer = graph.tensors[operand].rank - graph.tensors[consumer].rank
            if graph.classes[consumer] == "reduce" and fewer > 0:
                listed = {graph.entry(consumer, f"dimensions_{at}") for at in range(fewer)}
                self.marks[self.region[operand]].reduced.update(listed)

    def _mark(self, place: int) -> None:
        graph, kind = self.graph, self.graph.kind_of(place)
        if kind not in ROLES:
            return
        for slot, roles in enumerate(roles_of(graph, place)):
            tensor = graph.slot_tensor[place][slot]
            if tensor >= 0:
                marks = self.marks[self.region[tensor]]
                (marks.read if slot else marks.made).update((f"{kind}_{r}", d) for d, r in enumerate(roles))

    def columns(self, config: Configuration) -> dict[str, float]:
        graph = self.graph
        kinds = ("all", *ROLES)
        values = {
            f"outputs__{kind}_{what}__ratio": 0.0
            for what in ("excess", "own_excess", "padded", "set")
            for kind in kinds
        }
        values |= {f"outputs__{what}__max": 0.0 for what in ("excess", "padded", "waste")}
        for end in ENDS:
            values |= {f"outputs__{s}_{end}_{name}__ratio": 0.0 for s in ("made", "read") for name in names()}
            values[f"outputs__read_{end}_reduced__ratio"] = 0.0
        for place in graph.places:
            choice = config.choices[place][0]
            if choice is None or not choice.given:
                continue
            part = self.region[graph.configurable[place]]
            own = choice.tensor.bytes / self.stored
            whole = max(choice.tensor.bytes, self.bytes[part]) / self.stored
            waste = choice.tensor.packed(choice.layout)
            excess, padded = (waste - least(choice.tensor)) * whole, (1 + waste) * whole
            for kind in ("all", graph.kind_of(place)):
                if kind in kinds:
                    values[f"outputs__{kind}_excess__ratio"] += excess
                    values[f"outputs__{kind}_own_excess__ratio"] += (waste - least(choice.tensor)) * own
                    values[f"outputs__{kind}_padded__ratio"] += padded
                    values[f"outputs__{kind}_set__ratio"] += own
            for what, value in (("excess", excess), ("padded", padded), ("waste", waste)):
                values[f"outputs__{what}__max"] = max(values[f"outputs__{what}__max"], value)
            for name in self._seen(part, choice):
                values[f"outputs__{name}__ratio"] += padded
        return values

    def _seen(self, part: frozenset[int], choice: Choice) -> list[str]:
        marks, found = self.marks[part], []
        for end, dimension in zip(ENDS, choice.layout, strict=False):
            found += [f"made_{end}_{name}" for name, d in marks.made if d == dimension]
            found += [f"read_{end}_{name}" for name, d in marks.read if d == dimension]
            found += [f"read_{end}_reduced"] * (dimension in marks.reduced)
        return found


def names() -> list[str]:
    return [f"{kind}_{role}" for kind, roles in ROLES.items() for role in roles]


def least(tensor: Tensor) -> float:
    """Padding of the layout that pads least."""
    if tensor.rank < 2:
        return tensor.packed(tensor.default)
    return min(tensor.packed(order) for order in permutations(range(tensor.rank), 2))
