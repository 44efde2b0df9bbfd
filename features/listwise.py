"""Listwise columns: rank and frequency of a configuration among all configurations of its graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import Kind
from xlarank.features.block import Block, Cause, block, layout_block
from xlarank.features.layout.aggregation import Batch, BatchFunction, max_nodes, sum_nodes
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.relayout_quantities import TIME
from xlarank.features.program.program_context import ProgramContext
from xlarank.features.program.tensors import Floats

_LAYOUT_COLUMNS: Final = (
    "candidates__log_frequency__mean",
    "change__nodes_set__share",
    "change__nodes_changed__share",
    "change__all_bytes__ratio",
    "change__output_changed_bytes__share",
    "disagreement__mismatch_1hop_bytes__share",
    "disagreement__clash_1hop_bytes__share",
    "padding__output_waste_bytes__ratio",
    "padding__input_waste_bytes__ratio",
    "violation__output_largest_bytes__share",
)
_TILE_COLUMNS: Final = (
    "bounds__output_volume__log",
    "bounds__kernel_volume__log",
    "bounds__input_volume__log",
    "tiles__output_all__log",
    "traffic__working_set__log",
    "traffic__total__ratio",
    "traffic__intensity__log",
    "traffic__inner_step__log",
)


def within_graph_rank(values: NDArray[np.floating]) -> Floats:
    """Return average ranks of float32 values, scaled to 0..1; 0.5 for a single value.

    >>> within_graph_rank(np.array([3.0, 1.0, 3.0])).tolist()
    [0.75, 0.0, 0.75]
    """
    if len(values) < 2:
        return np.full(len(values), 0.5)
    _, index, size = np.unique(values.astype(np.float32), return_inverse=True, return_counts=True)
    mean: Floats = np.cumsum(size) - (size + 1) / 2
    return mean[index] / (len(values) - 1)


def standard_score(values: NDArray[np.floating]) -> Floats:
    """Return (x - mean) / std; 0 if std is 0 up to rounding.

    >>> standard_score(np.array([1.0, 3.0])).tolist()
    [-1.0, 1.0]
    """
    values = values.astype(np.float64)
    spread = values.std()
    if spread <= 1e-6 * np.abs(values).max(initial=0.0):
        return np.zeros(len(values))
    return np.asarray((values - values.mean()) / spread)


#: First part of the name of a column, and what it is of another column.
_SCALES: Final = {"rank": "rank", "zscore": "standard score"}


def _scaled(scale: str, column: str) -> str:
    """Return the name of the ranks or standard scores of a column."""
    return f"{scale}__{column.replace('__', '_', 1)}"


#: Source column of each rank or standard-score column.
RANK_SOURCES: Final = {
    _scaled(scale, column): column
    for scale in _SCALES
    for column in (*_LAYOUT_COLUMNS, *_TILE_COLUMNS, TIME)
}


def _rank_block(name: str, kind: Kind, ranked: Sequence[str]) -> Block:
    """Return the block of ranks and standard scores of columns of earlier blocks."""
    group = {"layout": "graph", "tile": "kernel"}[kind]

    @block(
        kinds=(kind,),
        listwise=True,
        columns={
            _scaled(scale, column): f"{meaning} of {column} within the {group}"
            for scale, meaning in _SCALES.items()
            for column in ranked
        },
    )
    def ranks(context: ProgramContext) -> Floats:
        """Ranks and standard scores of columns of earlier blocks within a graph's configurations.

        Ranks run from 0 to 1, with ties averaged; a standard score is (x - mean) / standard
        deviation.
        """
        values = [context.columns[name] for name in ranked]
        return np.stack([*map(within_graph_rank, values), *map(standard_score, values)], axis=1)

    return replace(ranks, name=name)


layout_ranks = _rank_block("layout_ranks", "layout", _LAYOUT_COLUMNS)
tile_ranks = _rank_block("tile_ranks", "tile", _TILE_COLUMNS)
copy_ranks = _rank_block("copy_ranks", "layout", (TIME,))


@layout_block(
    listwise=True,
    cause=Cause.LISTWISE,
    columns={
        "candidates__log_frequency__mean": "mean over nodes of log(frequency of the node's row)",
        "candidates__log_frequency__sum": "sum over nodes of log(frequency of the node's row)",
        "candidates__log_frequency__min": "smallest log(frequency of a node's row)",
        "candidates__hamming__mean": "mean share of nodes that differ from another configuration",
        "candidates__minority__share": "share of nodes with a row less common than another one",
    },
)
def frequency(context: LayoutContext) -> BatchFunction:
    """Frequency of a configuration's choices among the distinct configurations of the graph.

    A search repeats good choices, so common rows are good in `default` collections. The frequency
    of a node's row (its layouts) is the share of distinct configurations with that row.
    """
    table = context.table
    nodes = context.configurable_nodes
    count = context.table.frequency
    log_frequency = np.log(np.maximum(count, 1) / table.configs)
    differing = (table.configs - count) / max(1, table.configs - 1)
    majority = np.zeros(table.nodes, np.int64)
    np.maximum.at(majority, table.node, count)
    quantities = [log_frequency, differing, count < majority[table.node]]
    requested = sum_nodes(quantities, over=nodes, per_row=True)
    rarest = max_nodes([-log_frequency], per_row=True)

    def finalize(batch: Batch) -> Floats:
        mean, hamming, minority = requested(batch).T
        return np.stack([mean, mean * nodes, -rarest(batch)[:, 0], hamming, minority], axis=1)

    return finalize
