"""Rows to learn from without any graph file: made by hand, with an order that is easy to learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from xlarank.data.schema import MAX_RANK, TILE_SLOTS
from xlarank.features.instances.graph_instances import Instances
from xlarank.features.rows import GraphRows
from xlarank.models.training_data import TrainingData

COLUMNS = ["size", "waste", "clash", "noise"]


def graph_rows(
    name: str, costs: Sequence[float], *, features: np.ndarray | None = None, copies: Sequence[int] | None = None,
    columns: Sequence[str] = COLUMNS,
) -> GraphRows:  # fmt: skip
    """A stored graph: distinct row ``i`` costs ``costs[i]`` ns; ``copies[i]`` slower repeats come after all rows.

    A repeat is one nanosecond slower than the one before. The first column is constant within the graph.
    """
    distinct = len(costs)
    repeats = [row for row, count in enumerate(copies or [0] * distinct) for _ in range(count)]
    group = np.array([*range(distinct), *repeats], np.int64)
    runtime = np.array(costs, np.int64)[group]
    for row in set(repeats):
        later = np.flatnonzero(group == row)
        runtime[later] += np.arange(len(later))
    rows = np.asarray(costs, np.float32)[:, None] * np.ones((1, len(columns) - 1), np.float32)
    values = rows if features is None else np.asarray(features, np.float32)
    ids, ones = np.arange(len(group), dtype=np.int64), np.ones(len(group), np.int64)
    return GraphRows(name, list(columns), np.array([distinct], np.float32), values, group, ids, runtime, ones)


def instance_table(
    columns: list[str], values: np.ndarray, codes: np.ndarray, rows: np.ndarray, sizes: np.ndarray,
    *, first_node: int = 0, structure: int = 0,
) -> Instances:  # fmt: skip
    """Instances of nodes of as many rows each, without pairs; ``codes (configs, nodes)`` choose among the rows."""
    nodes = codes.shape[1]
    return Instances(
        columns=columns, values=values.astype(np.float32), codes=codes.astype(np.uint8),
        node=np.arange(first_node, first_node + nodes), opcode=np.zeros(nodes, np.int16),
        first=np.arange(0, len(values), len(values) // nodes), rows=rows, row_instance=np.arange(len(values)),
        request=np.zeros((len(values), 3), np.int32), pairs=np.zeros((0, 5), np.int32),
        structure=np.array([structure], np.uint64), sizes=sizes,
        **{f"pair_{what}": np.zeros(0, np.int32) for what in ("first", "width", "instance")},
    )  # fmt: skip


def easy_graph(name: str, configs: int, seed: int) -> GraphRows:
    """Runtime grows with waste and with clash, on another scale in every graph; the last column is noise."""
    rng = np.random.default_rng(seed)
    features = rng.random((configs, 3))
    unit = 10.0 ** rng.integers(4, 8)
    costs = np.rint(unit * (1 + 3 * features[:, 0] + features[:, 1])).astype(np.int64)
    return graph_rows(name, costs.tolist(), features=features)


def easy_data(graphs: int = 6, configs: int = 60, seed: int = 0) -> TrainingData:
    """Graphs of ``easy_graph``, two of each family."""
    names = [f"family{number // 2}__{'ab'[number % 2]}" for number in range(graphs)]
    return TrainingData.from_graphs([easy_graph(name, configs, 100 * seed + i) for i, name in enumerate(names)])


#: As stored: log2(1 + bound), 0 for a whole dimension.
BOUNDS = [f"bounds__{slot}_{i}__log" for slot in TILE_SLOTS for i in range(MAX_RANK)]
_OUTPUT = BOUNDS.index("bounds__output_0__log")


def kernel(
    name: str, logs: Sequence[float], costs: Sequence[float], *, kinds: Sequence[str] = ("dot",)
) -> GraphRows:
    """A kernel whose row ``i`` has log2(1 + output bound 0) of ``logs[i]`` and costs ``costs[i]``."""
    features = np.zeros((len(logs), len(BOUNDS)))
    features[:, _OUTPUT] = logs
    rows = graph_rows(name, costs, features=features, columns=["size", *BOUNDS])
    return replace(rows, kinds=tuple(kinds))
