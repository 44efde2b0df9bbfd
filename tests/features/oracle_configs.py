"""A layout graph's configurations one by one: which tensor each slot lays out, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tests.features.oracle_program import Program
from tests.features.oracle_tensor import Choice, Tensor

Columns = dict[str, list[float]]

SLOTS = ("output", "input", "kernel")
KINDS = ("convolution", "dot", "reshape", "other")


class Configured(Program):
    """A layout graph with what each slot of each configurable node speaks of, -1 for nothing."""

    def __init__(self, arrays: Mapping[str, np.ndarray], slot_tensor: Sequence[Sequence[int]]) -> None:
        super().__init__(arrays)
        self.splits = [int(split) for split in arrays["node_splits"].reshape(-1)]
        order = np.argsort(arrays["node_config_ids"])
        self.configurable = [int(node) for node in arrays["node_config_ids"][order]]
        self.slot_tensor = [[int(tensor) for tensor in slots] for slots in slot_tensor]
        self.full = arrays["node_config_feat"][:, order].astype(int)
        first: dict[bytes, int] = {}
        for number, config in enumerate(self.full):
            first.setdefault(config.tobytes(), number)
        #: Distinct configurations in order of first appearance.
        self.distinct = list(first.values())
        self.places = range(len(self.configurable))
        #: Divides sums over configurable nodes.
        self.count = max(1, len(self.configurable))

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
    """What each slot of each configurable node is laid out as."""

    def __init__(self, graph: Configured, config: int) -> None:
        self.rows = graph.full[config]
        self._graph = graph
        self.choices: list[list[Choice | None]] = []
        for place in graph.places:
            slots: list[Choice | None] = []
            for slot in range(3):
                tensor = graph.slot(place, slot)
                entries = self.rows[place, 6 * slot : 6 * slot + 6].tolist()
                given = tuple(entry for entry in entries if entry >= 0)
                slots.append(None if tensor is None else Choice(tensor, given))
            self.choices.append(slots)

    def present(self, slot: int, places: Sequence[int] | None = None) -> list[Choice]:
        """A slot's choices of all configurable nodes (or some) that have such a tensor."""
        chosen = [self.choices[place][slot] for place in (self._graph.places if places is None else places)]
        return [choice for choice in chosen if choice is not None]

    def changed(self, place: int) -> bool:
        return any(choice is not None and choice.changed for choice in self.choices[place])
