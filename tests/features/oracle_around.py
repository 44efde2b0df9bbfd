"""What lies around changed nodes: means over neighbours of means over neighbours, and pairs of near nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import permutations
from math import log2

from tests.features.oracle_configs import Configuration
from tests.features.oracle_copies import Copies, unlike

HEAVY = ("convolution", "dot", "reduce", "transpose")


class Around:
    """The neighbourhoods of a graph, and the columns about them."""

    def __init__(self, copies: Copies) -> None:
        self.copies = copies
        self.graph = copies.graph

    @cached_property
    def _means(self) -> Mapping[str, list[float]]:
        """Direction, quantity and hops -> the mean for each configurable node."""
        graph, found = self.graph, {}
        quantities = {"bytes": {node: log2(1 + graph.tensors[node].bytes) for node in graph.nodes}}
        for name in HEAVY:
            quantities[name] = {node: float(graph.classes[node] == name) for node in graph.nodes}
        near = {
            "down": {node: list(graph.operands.successors(node)) for node in graph.nodes},
            "up": {node: list(graph.operands.predecessors(node)) for node in graph.nodes},
            "around": {node: list(graph.neighbours[node]) for node in graph.nodes},
        }
        for direction, of in near.items():
            for what, values in quantities.items():
                for hops in (1, 2):
                    values = {node: _mean([values[other] for other in of[node]]) for node in graph.nodes}
                    column = f"neighbourhood__{direction}_{what}_{hops}hop__share"
                    found[column] = [values[node] for node in graph.configurable]
        return found

    @cached_property
    def _near(self) -> Mapping[int, list[tuple[int, int]]]:
        """Hops -> ordered pairs of places that many edges apart."""
        graph = self.graph
        found: dict[int, list[tuple[int, int]]] = {}
        for hops in (1, 2):
            shells = [set(graph.around(node, hops)) for node in graph.configurable]
            pairs = permutations(graph.places, 2)
            found[hops] = [(one, other) for one, other in pairs if graph.configurable[other] in shells[one]]
        return found

    def columns(self, config: Configuration) -> dict[str, float]:
        graph = self.graph
        changed = [config.changed(place) for place in graph.places]
        values = {}
        for column, around in self._means.items():
            met = sum(mean for mean, is_changed in zip(around, changed, strict=True) if is_changed)
            values[column] = met / (sum(around) or 1)
        waste = [
            (choice.tensor.waste(choice.layout) - choice.tensor.waste(choice.tensor.default)) * choice.tensor.bytes
            for choice in config.present(0)
        ]
        straight = [pair for pair in self.copies.pairs if pair.straight]
        mismatch = [0] * len(changed)
        for pair in straight:
            mismatch[pair.left] += pair.bytes * unlike(pair, config)
        for hops, pairs in self._near.items():
            count = max(1, len(pairs))
            mark, changed_around = f"_{hops}hop", [0] * len(changed)
            for one, other in pairs:
                changed_around[one] += changed[other]
            cut = sum(changed[one] != changed[other] for one, other in pairs)
            inside = sum(changed[one] and changed[other] for one, other in pairs)
            values[f"neighbourhood__cut{mark}__share"] = cut / count
            values[f"neighbourhood__inside{mark}__share"] = inside / count
            values[f"neighbourhood__waste{mark}__ratio"] = _dot(waste, changed_around) / graph.slot_bytes(0)
            handed_on = max(1, sum(pair.bytes for pair in straight))
            values[f"neighbourhood__mismatch{mark}__ratio"] = _dot(mismatch, changed_around) / handed_on
        return values


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
