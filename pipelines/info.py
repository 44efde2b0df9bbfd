"""What a data root holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from xlarank.data.collection import graph_files
from xlarank.data.errors import XlarankError
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.root import DataRoot
from xlarank.data.topology import structure_hash
from xlarank.pipelines.support.progress import Progress, steps_of


@dataclass
class SplitInfo:
    """Counts of one split of a collection; ``nodes`` and ``configurable`` are one number a graph.

    Attributes:
        siblings: layout graphs that have the structure of a train graph (in train, of another one): the same
            program at other sizes, which the ranker ``sibling`` is for.
    """

    collection: str
    split: str
    graphs: int = 0
    labelled: int = 0
    configs: int = 0
    distinct: int = 0
    bytes: int = 0
    families: set[str] = field(default_factory=set)
    nodes: list[int] = field(default_factory=list)
    configurable: list[int] = field(default_factory=list)
    siblings: int = 0
    unrankable: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)


def info(
    data_root: DataRoot, *, collections: list[str] | None = None, progress: Progress | None = None
) -> list[SplitInfo]:
    """Read and check every graph file and count what is there."""
    files = graph_files(data_root.npz, collections or [], where=str(data_root.path))
    found: dict[tuple[str, str], SplitInfo] = {}
    structures: dict[tuple[str, str], Counter[int]] = {}
    with steps_of(progress, "reading graphs", len(files)) as step:
        for file in files:
            key = str(file.collection), file.split
            part = found.setdefault(key, SplitInfo(*key))
            part.graphs += 1
            try:
                part.bytes += file.path.stat().st_size
                graph = read_graph(file.path, file.collection.kind)
            except (XlarankError, OSError, MemoryError) as error:
                part.broken[file.name] = str(error)
            else:
                part.labelled += graph.labelled
                part.configs += graph.configs
                part.distinct += graph.duplicates.distinct
                part.families.add(file.family)
                part.nodes.append(graph.nodes)
                if isinstance(graph, LayoutGraph):
                    part.configurable.append(len(graph.configurable))
                    structures.setdefault(key, Counter())[structure_hash(graph.opcode, graph.edges)] += 1
                if graph.duplicates.distinct < 2 or (graph.labelled and graph.cost.min() == graph.cost.max()):
                    part.unrankable.append(file.name)
            step(f"{file.collection} {file.split} {file.name}")
    for (collection, split), counts in structures.items():
        known = structures.get((collection, "train"), Counter())
        alone = 1 if split == "train" else 0  # a graph is no sibling of its own
        found[collection, split].siblings = sum(n for one, n in counts.items() if known[one] > alone)
    return list(found.values())
