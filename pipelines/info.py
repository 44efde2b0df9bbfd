"""Summaries of a data root and of a graph file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from xlarank.data.collection import DataRootLike, Names, find_data_root, graph_files
from xlarank.data.config_table import group_minimum
from xlarank.data.errors import XlarankError
from xlarank.data.graph import LayoutGraph, TileGraph, read_graph
from xlarank.features.rows import is_rankable
from xlarank.models.validation.metrics import relative_std, tau_ceiling
from xlarank.pipelines.support.progress import steps_of


@dataclass
class SplitInfo:
    """Counts of one split; ``nodes`` and ``configurable`` (layouts) have an entry per graph."""

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
    unrankable: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)


def info(data_root: DataRootLike | None = None, *, collection: Names = ()) -> list[SplitInfo]:
    """Read the graph files of the collections (default: all) and return counts by split."""
    root = find_data_root(data_root)
    files = graph_files(root.npz, collection, where=str(root.path))
    splits: dict[tuple[str, str], SplitInfo] = {}
    with steps_of("reading graphs", len(files)) as step:
        for file in files:
            key = str(file.collection), file.split
            split = splits.setdefault(key, SplitInfo(*key))
            split.graphs += 1
            try:
                split.bytes += file.path.stat().st_size
                graph = read_graph(file.path, file.collection.kind)
            except (XlarankError, OSError, MemoryError) as error:
                split.broken[file.name] = str(error)
            else:
                split.labelled += graph.labelled
                split.configs += graph.configs
                split.distinct += len(graph.first)
                split.families.add(file.family)
                split.nodes.append(graph.nodes)
                if isinstance(graph, LayoutGraph):
                    split.configurable.append(len(graph.configurable))
                cost = group_minimum(graph.cost, graph.group, len(graph.first))
                if not is_rankable(cost):
                    split.unrankable.append(file.name)
            step(f"{file.collection} {file.split} {file.name}")
    return list(splits.values())


def file_info(path: Path) -> dict[str, float | None]:
    """Return counts, extremes and noise of the labels of a graph file."""
    graph = read_graph(path)
    measured = graph.measured
    cost = graph.cost[measured]
    group = graph.group[measured]
    fastest = group_minimum(cost, group, len(graph.first))
    share_labels = np.array_equal(fastest[group], cost)  # averaged: no noise can be seen
    values: dict[str, float | None] = {
        "configurations": graph.configs,
        "measured": len(cost),
        "distinct": len(graph.first),
        "repeat_std": None if share_labels else relative_std(cost, group),
    }
    if isinstance(graph, LayoutGraph):
        return values | {"ceiling": tau_ceiling(cost, group)}
    assert isinstance(graph, TileGraph)
    best_ns = default_ns = None
    if measured.any():
        normalizers = graph.normalizers[measured]
        best_ns = int(graph.runtime[graph.cost.argmin()])
        default_ns = int(normalizers.min()) if (normalizers > 1).all() else None
    return values | {"best_ns": best_ns, "default_ns": default_ns}
