"""Sizes of collections, from file headers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xlarank.data.collection import Collection, GraphFile
from xlarank.data.errors import GraphFileError
from xlarank.data.graph import GraphCounts, graph_size


@dataclass(frozen=True)
class CollectionSize:
    """Sizes of the graphs of a collection.

    Attributes:
        graphs: split -> size of each graph.
        families: number of program families of the train split.
    """

    collection: Collection
    graphs: Mapping[str, Sequence[GraphCounts]]
    families: int

    @cached_property
    def table(self) -> dict[str, NDArray[np.int64]]:
        """Split -> ``(graphs, 3)``: configurations, nodes, configurable nodes of each graph."""
        return {split: np.array(graphs, np.int64).reshape(-1, 3) for split, graphs in self.graphs.items()}

    def rows(self, split: str, most: int = 0) -> int:
        """Return the number of configurations of a split, at most ``most`` of each graph (0: all)."""
        configs = [graph.configs for graph in self.graphs.get(split, ())]
        return sum(min(count, most) if most else count for count in configs)


def survey(files: Sequence[GraphFile]) -> list[CollectionSize]:
    """Return the sizes of all collections, about a millisecond a file; unreadable files do not count."""
    graphs: dict[Collection, dict[str, list[GraphCounts]]] = {}
    families: dict[Collection, set[str]] = {}
    for file in files:
        sizes = graphs.setdefault(file.collection, {}).setdefault(file.split, [])
        with suppress(GraphFileError):
            sizes.append(graph_size(file.path, file.collection.kind))
            if file.split == "train":
                families.setdefault(file.collection, set()).add(file.family)
    return [CollectionSize(name, splits, len(families.get(name, ()))) for name, splits in sorted(graphs.items())]
