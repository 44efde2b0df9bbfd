"""Configurations of a layout graph, one by one: layouts of slots, and copies between them.

Consumers are followed down to the producers of their operands edge by edge.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from tests.features.oracle_program import CLASSES, Choice, Program, Tensor

Columns = dict[str, list[float]]
SLOTS = ("output", "input", "kernel")
KINDS = ("convolution", "dot", "reshape", "other")
FARTHEST = 8
#: Opcodes other than elementwise ones that hand a layout on as it is.
PASSING = ("copy", "reverse", "all-reduce", "collective-permute")


class Configured(Program):
    """A layout graph and the tensor of each slot of each configurable node, -1 for none."""

    def __init__(
        self, arrays: Mapping[str, np.ndarray], slot_tensor: Sequence[Sequence[int]]
    ) -> None:
        super().__init__(arrays)
        self.splits = [int(split) for split in arrays["node_splits"].reshape(-1)]
        order = np.argsort(arrays["node_config_ids"])
        self.configurable = [int(node) for node in arrays["node_config_ids"][order]]
        self.slot_tensor = [[int(tensor) for tensor in slots] for slots in slot_tensor]
        self.full = arrays["node_config_feat"][:, order].astype(int)
        #: Distinct configurations in order of first appearance.
        first = {row.tobytes(): n for n, row in reversed([*enumerate(self.full)])}
        self.distinct = sorted(first.values())
        self.places = range(len(self.configurable))
        self.count = max(1, len(self.configurable))  # divides sums over configurable nodes

    def class_of(self, place: int) -> str:
        return self.classes[self.configurable[place]]

    def kind_of(self, place: int) -> str:
        return self.class_of(place) if self.class_of(place) in KINDS else "other"

    def of_kind(self, kind: str) -> list[int]:
        return [place for place in self.places if self.kind_of(place) == kind]

    def slot(self, place: int, slot: int) -> Tensor | None:
        tensor = self.slot_tensor[place][slot]
        return self.tensors[tensor] if tensor >= 0 else None

    def slot_bytes(self, slot: int, places: Sequence[int] | None = None) -> float:
        """Bytes of a slot's tensors over all configurable nodes (or some), at least 1."""
        tensors = [self.slot(place, slot) for place in (self.places if places is None else places)]
        return max(1, sum(tensor.bytes for tensor in tensors if tensor is not None))


class Configuration:
    """Layout of each slot of each configurable node."""

    def __init__(self, graph: Configured, config: int) -> None:
        self.rows = graph.full[config]
        self._graph = graph
        self.choices: list[list[Choice | None]] = []
        for place in graph.places:
            tensors = [graph.slot(place, slot) for slot in range(3)]
            layouts = self.rows[place].reshape(3, 6).tolist()
            given = [tuple(d for d in layout if d >= 0) for layout in layouts]
            choices = [t and Choice(t, own) for t, own in zip(tensors, given, strict=True)]
            self.choices.append(choices)

    def present(self, slot: int, places: Sequence[int] | None = None) -> list[Choice]:
        """A slot's choices of all configurable nodes (or some) that have such a tensor."""
        places = self._graph.places if places is None else places
        chosen = [self.choices[place][slot] for place in places]
        return [choice for choice in chosen if choice is not None]

    def changed(self, place: int) -> bool:
        return any(choice is not None and choice.changed for choice in self.choices[place])


@dataclass(frozen=True)
class Pair:
    """A consumer's slot and a producer's output that are about one tensor.

    ``turn[d]`` is the dimension of the right tensor that is dimension d of the left one.
    """

    left: int
    left_slot: int
    right: int
    bytes: int
    turn: tuple[int, ...]
    distance: int

    def sides(self, config: Configuration) -> tuple[Choice, Choice]:
        left = config.choices[self.left][self.left_slot]
        right = config.choices[self.right][0]
        assert left is not None and right is not None
        return left, right

    def unlike(self, config: Configuration) -> bool:
        """Whether the full layouts differ, the right one seen in the left one's dimensions."""
        left, right = self.sides(config)
        return left.layout != tuple(self.turn.index(dimension) for dimension in right.layout)


class Copies:
    """The pairs of a graph, and the columns about them."""

    def __init__(self, graph: Configured) -> None:
        self.graph = graph
        self.position = {node: place for place, node in enumerate(graph.configurable)}

    def _operand_slots(self) -> Iterator[tuple[int, int, int]]:
        """(configurable node, slot, tensor) of operands with dimensions."""
        for place in self.graph.places:
            for slot in (1, 2):
                tensor = self.graph.slot_tensor[place][slot]
                if tensor >= 0 and self.graph.tensors[tensor].rank:
                    yield place, slot, tensor

    def turn_of(self, node: int, operand: int) -> tuple[int, ...] | None:
        """Dimension of the operand for each of the node's, if the layout is handed on."""
        tensors = self.graph.tensors
        rank = self.graph.tensors[node].rank
        turn = tuple(range(rank))
        if self.graph.opcodes[node] == "transpose":
            turn = tuple(self.graph.entry(node, f"dimensions_{i}") for i in range(rank))
        elif self.graph.classes[node] != "elementwise" and self.graph.opcodes[node] not in PASSING:
            return None
        if rank == 0 or tensors[operand].rank != rank or sorted(turn) != list(range(rank)):
            return None
        sizes = tuple(tensors[operand].dims[dimension] for dimension in turn)
        return turn if sizes == tensors[node].dims else None

    @cached_property
    def pairs(self) -> list[Pair]:
        """Consumers and producers by the shortest way, of several by the one of the least turn."""
        pairs = []
        for place, slot, tensor in self._operand_slots():
            level = {tensor: tuple(range(self.graph.tensors[tensor].rank))}
            seen = {tensor}
            for distance in range(1, FARTHEST + 1):
                below: dict[int, tuple[int, ...]] = {}
                for node, turn in level.items():
                    if node in self.position:
                        size = self.graph.tensors[tensor].bytes
                        pairs.append(Pair(place, slot, self.position[node], size, turn, distance))
                        continue
                    for operand in self.graph.operands[node]:
                        step = self.turn_of(node, operand)
                        if step is not None and operand not in seen:
                            way = tuple(step[dimension] for dimension in turn)
                            below[operand] = min(way, below.get(operand, way))
                level = below
                seen |= set(below)
        return pairs

    def columns(self, config: Configuration) -> dict[str, float]:
        values: dict[str, float] = {}
        for hop, (near, far) in enumerate(((1, 1), (2, 2), (3, FARTHEST)), 1):
            pairs = [pair for pair in self.pairs if near <= pair.distance <= far]
            values |= self._judged(f"{hop}hop", pairs, config)
        total = max(1, sum(pair.bytes for pair in self.pairs))
        wrong = [pair for pair in self.pairs if pair.unlike(config)]
        for name, (side, end) in product(CLASSES, (("consumer", "left"), ("producer", "right"))):
            at_end = [pair for pair in wrong if self.graph.class_of(getattr(pair, end)) == name]
            size = sum(pair.bytes for pair in at_end)
            values[f"disagreement__{side}_{name}_bytes__share"] = size / total
        return values

    @staticmethod
    def _judged(hop: str, pairs: Sequence[Pair], config: Configuration) -> dict[str, float]:
        sizes: dict[str, list[int]] = {"clash": [], "half": [], "mismatch": []}
        agree = 0
        for pair in pairs:
            given = sum(bool(side.given) for side in pair.sides(config))
            if pair.unlike(config):
                sizes["mismatch"].append(pair.bytes)
                if given:
                    sizes["clash" if given == 2 else "half"].append(pair.bytes)
            else:
                agree += given == 2
        count = max(1, len(pairs))
        total = max(1, sum(pair.bytes for pair in pairs))
        stem = "disagreement__{}_" + hop
        values = {f"{stem.format('agree')}__share": agree / count}
        for what, of in sizes.items():
            values[f"{stem.format(what)}__share"] = len(of) / count
            values[f"{stem.format(what)}_bytes__share"] = sum(of) / total
        return values
